"""Every agent from outside: it plays, says what it guarantees, plays the same again, and refuses what does not fit."""

import numpy as np
import pytest

from reticent import CardError
from tests.online.simulated import GAME, LARGE, PLANT, RIVER

INHOMOGENEOUS, MIXTURE = {"name": "riverswim_inhomogeneous"}, {"name": "random_mixture"}
# agent, world, trust, asked epsilon, least share of it that the noise must be worth; and what else the recipe says
PLAYED = [
    *(("ucbvi", RIVER, "none", None, 0, {"rewards": rewards}) for rewards in ("known", "learnt")),
    *(("dp-ucbvi-jdp", RIVER, "joint", 10, 0.9, {"rewards": rewards}) for rewards in ("known", "learnt")),
    *(("dp-ucbvi-ldp", RIVER, "local", 10, 0.9, {"rewards": rewards}) for rewards in ("known", "learnt")),
    # at so large an epsilon one noise bit more or less is a step of two
    *(("counts-shuffle", RIVER, "shuffle", 10, 0.75, {"rewards": rewards, "episodes": 500}) for rewards in (
        "known", "learnt")),
    ("apvi", RIVER, "none", None, 0, {"rewards": "learnt", "beside": ("uniform",)}),
    ("dp-apvi", RIVER, "central", 1, 0.99, {"rewards": "learnt"}),
    ("sdp-pe", GAME, "shuffle", 1, 0.99, {"certify": 0, "episodes": 20_000}),
    *((agent, PLANT, "none", None, 0, {"episodes": 200}) for agent in ("zero", "fixed-gain", "certainty-equivalence")),
    ("ofu-rl", PLANT, "none", None, 0, {"starts": 2, "growth": 2.0, "episodes": 30}),
    ("private-ofu-rl", PLANT, "joint", 1, 1 - 1e-6, {"starts": 2, "episodes": 200}),
    ("dp-lqr", PLANT, "central", 1, 1 - 1e-6, {"episodes": 200}),
    ("explore-then-commit", PLANT, "joint", 1, 1 - 1e-6, {"episodes": 200}),
    *((agent, world, "none", None, 0, {"episodes": 60}) for agent in ("ucrl-vtr", "linopt-po") for world in (
        INHOMOGENEOUS, MIXTURE)),
    *((agent, world, trust, 10, 1 - 1e-9, {"episodes": 60}) for agent, trust in (
        ("private-linopt-vi", "joint"), ("private-linopt-po", "joint"), ("ldp-ucrl-vtr", "local")
    ) for world in (INHOMOGENEOUS, MIXTURE)),
]  # fmt: skip


# one way to play each by default: the last, with learnt rewards or of a mixture; of agents whose sister plays, none
LAST = {agent: i for i, (agent, *_) in enumerate(PLAYED)}
BY_SISTERS = ("ucbvi", "linopt-po", "private-linopt-po", "ldp-ucrl-vtr")


@pytest.mark.parametrize(
    ("agent", "world", "trust", "epsilon", "least", "more"),
    [
        pytest.param(*p, marks=() if LAST[p[0]] == i and p[0] not in BY_SISTERS else pytest.mark.slow)
        for i, p in enumerate(PLAYED)
    ],
)
def test_an_agent_says_what_it_guarantees_and_plays_the_same_again(simulate, agent, world, trust, epsilon, least, more):
    said = simulate(agent, world, epsilon=epsilon, runs=1 if epsilon is None else 2, **more)
    told, facts = said["agents"][agent], said["facts"]
    assert said["trust"] == told["trust"] == facts["trust"] == trust
    assert told["curve"]["episodes"][-1] == said["episodes"]
    assert (np.diff([0.0, *told["curve"]["mean"]]) > -1e-9).all()
    assert said["run"].verify().ok and said["suboptimality"] == pytest.approx(
        facts.get("final_loss", said["suboptimality"])
    )
    assert 0 <= (facts.get("tie_share") or 0) < 1 and ("left_zero_at" in facts) == (world is PLANT)
    if epsilon is None:
        assert said["true_epsilon"] is None and facts.get("noise_sd", 0) == 0
        return
    assert least * epsilon <= said["true_epsilon"] <= epsilon * (1 + 1e-6) and facts.get("noise_sd", 1) > 0
    # of discrete noise no epsilon is stated below that of the certificate's conversion
    assert all(v >= said["run"].guarantee.epsilon * (1 - 1e-9) for k, v in facts.items() if "epsilon" in k)
    # runs differ in their luck, and an agent that stays at zero has none
    assert said["regret"]["std"] > 0 or agent == "private-ofu-rl"


RANDOM_PLANT = {"name": "lq", "instance": 2, "seed": 12}


def test_worlds_of_plants_have_names(simulate):
    for world, gains in (({"name": "double_integrator"}, 2), (RANDOM_PLANT, 3)):
        said = simulate("certainty-equivalence", world, episodes=10)
        assert len(said["run"].policy.to_polars()["observed"].unique()) == gains


@pytest.mark.parametrize(
    ("agent", "world", "epsilon", "more", "says"),
    [
        ("dp-apvi", RIVER, 1, {"behaviour": "clinician"}, "no behaviour 'clinician'"),
        ("dp-apvi", RIVER, 1, {"rewards": "half"}, "rewards must be one of known, learnt"),
        ("dp-apvi", RIVER, None, {}, "needs epsilon and delta"),
        ("dp-apvi", RIVER, 1, {"calibration": "paper"}, "use calibration = 'tight'"),
        ("ucbvi", RIVER, None, {"growht": 2.0}, "no option 'growht'"),
        ("dp-ucbvi-ldp", RIVER, 10, {"calibration": "paper"}, "no paper prints scales"),
        ("dp-ucbvi-jdp", INHOMOGENEOUS, 10, {"pooled": True}, "differs from step to step"),
        ("counts-shuffle", RIVER, 10, {"pooled": True}, "leave out pooled"),
        ("zero", {"name": "lq"}, None, {}, "instance"),
        ("zero", PLANT | {"horizon": 3}, None, {}, "horizon"),
        ("zero", {"name": "riverswim"}, None, {}, "has states and actions"),
        ("dp-lqr", PLANT, 1, {"calibration": "paper"}, "no paper prints scales|tight"),
        ("dp-lqr", PLANT, None, {}, "needs epsilon and delta"),
        ("private-ofu-rl", PLANT, 1, {"counter": "none"}, "counter"),
        ("ofu-rl", PLANT, None, {"constants": "raw"}, "constants"),
        ("private-linopt-vi", RIVER, 10, {"bonnus": 1.0}, "no option 'bonnus'; there are: constants"),
        ("private-linopt-vi", RIVER, 10, {"counter": "fenwick"}, "counter is one of"),
        ("private-linopt-vi", RIVER, 10, {"growth": "slow"}, "growth is a number"),
        ("private-linopt-vi", RIVER, 10, {"bonus": -1.0}, "bonus is a number"),
        ("private-linopt-vi", RIVER, 10, {"constants": "theory"}, "constants is one of"),
        ("private-linopt-vi", RIVER, 10, {"unit": True, "calibration": "paper"}, "unit features"),
        ("ucrl-vtr", {"name": "riverswim", "left_reward": -1.0, "states": 3}, None, {}, "negative rewards"),
        ("ucbvi", RIVER, None, {"beside": ["no-data"]}, "option 'of' is one of"),
        ("sdp-pe", GAME, 1, {"constants": "fast"}, "constants must be one of"),
        ("sdp-pe", GAME, 1, {"trust": "nobody"}, "trust must be one of"),
        ("sdp-pe", GAME, 1, {"trust": "none"}, "not both"),
        ("sdp-pe", GAME, 1, {"episodes": 10}, "too few"),
        ("sdp-pe", LARGE, 1, {"constants": "paper", "episodes": 10**6}, "too many to list"),
        ("sdp-pe", GAME, 1, {"calibration": "paper", "trust": "joint"}, "prints no noise for trust 'joint'"),
        ("sdp-pe", GAME, 1, {"calibration": "paper", "episodes_per_user": 2}, "tight shuffled bits alone"),
        ("sdp-pe", GAME, 1, {"trust": "joint", "episodes_per_user": 2}, "tight shuffled bits alone"),
        ("private-adaptive-lqr", PLANT, 1, {"calibration": "paper"}, "no paper prints scales"),
        *(
            (agent, PLANT, 1, {"constants": "paper"}, "no option 'constants'")
            for agent in ("private-adaptive-lqr", "explore-then-commit")
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(simulate, agent, world, epsilon, more, says):
    with pytest.raises(CardError, match=says) as refused:
        simulate(agent, world, epsilon=epsilon, **more)
    assert "\n" not in str(refused.value)
