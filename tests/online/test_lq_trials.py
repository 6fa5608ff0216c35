"""LQ trials: every agent plays, says what it costs, and the same trial is the same outcome."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.online.plants import exploring, lq_world
from pipeline.online.registry import measure, plain_values, run
from pipeline.online.trial import Trial
from pipeline.privacy.losses import safe_epsilon
from reticent import CardError

ONE = Trial("zero", "lq", (("instance", 1),), 200)
PRIVATE = ("private-ofu-rl", "dp-lqr", "explore-then-commit")
PLAIN = ("zero", "fixed-gain", "certainty-equivalence", "ofu-rl")


def trial(agent: str, **changed) -> Trial:
    asked = {"epsilon": 1.0, "delta": 1e-5, "calibration": "tight"} if agent in PRIVATE else {}
    return replace(ONE, agent=agent, **{**asked, **changed})


def per_episode(gains) -> float:
    world = lq_world(ONE)
    return world.expected_cost(gains) - world.expected_cost(world.optimal_gains())


@pytest.mark.parametrize("agent", [*PLAIN, *PRIVATE])
def test_every_agent_plays_and_the_same_trial_is_the_same_outcome(agent):
    asked = trial(agent, episodes=30, options=(("starts", 2),) if "ofu" in agent else ())
    found = run(asked)
    assert plain_values(asked, found) == measure(asked)
    assert found.marks[-1] == 30
    assert (np.diff([0.0, *found.regret]) > -1e-9).all()
    assert "left_zero_at" in found.facts


@pytest.mark.parametrize("agent", PRIVATE)
def test_a_step_that_is_sent_is_all_coordinates_and_controls(agent):
    sent = measure(trial(agent, params=(("instance", 3),)))["sent"]
    assert lq_world(replace(ONE, params=(("instance", 3),))).shape == (4, 2)
    assert sent["bits"] == 64 * (4 + 2) * sent["messages"]


def test_controls_lose_what_their_gains_cost():
    world = lq_world(ONE)
    idle = per_episode(world.zero_gains())
    assert run(trial("zero")).regret[-1] == pytest.approx(200 * idle)
    assert run(trial("certainty-equivalence")).regret[-1] == pytest.approx(200 * idle)
    wrong = [run(trial("fixed-gain", seed=s)).regret[-1] for s in range(20)]
    assert len(set(wrong)) == 20
    assert 0 < np.median(wrong) < 200 * idle


@pytest.mark.parametrize("agent", PRIVATE)
def test_private_facts_hold_what_the_noise_is_worth(agent):
    facts = run(trial(agent)).facts
    assert facts["trust"] == ("central" if agent == "dp-lqr" else "joint")
    assert facts["true_epsilon"] == pytest.approx(1.0, rel=1e-6)
    # the noise is discrete: no epsilon below that of the conversion for every rho is stated anywhere
    assert all(v >= safe_epsilon(facts["true_rho"], 1e-5) for k, v in facts.items() if "epsilon" in k)


def test_private_ofu_rl_says_whether_it_left_zero():
    for calibration in ("paper", "tight"):
        found = run(trial("private-ofu-rl", calibration=calibration))
        assert found.facts["left_zero_at"] is None
        assert found.regret[-1] == pytest.approx(run(trial("zero")).regret[-1])
        assert (found.facts["true_epsilon"] < 1) == (calibration == "paper")
        # what was explored of B without ever trying a control
        assert found.facts["smallest_eigenvalue"] == pytest.approx(0, abs=1e-9)
    plain = run(trial("ofu-rl", options=(("growth", 1.5), ("starts", 2)))).facts
    assert 1 < plain["left_zero_at"] < 200
    assert plain["optimistic_share"] == 1.0


def test_long_batches_run_and_an_enormous_budget_lets_it_leave():
    """More than 4 096 episodes of one plan are exact means; just after it leaves zero it may lose more than before."""
    quick = (("growth", 3.0), ("starts", 2))
    idle = run(trial("zero", episodes=60_000)).regret[-1]
    assert run(trial("ofu-rl", episodes=60_000, options=quick)).regret[-1] < 0.2 * idle
    found = run(trial("private-ofu-rl", epsilon=50.0, episodes=60_000, options=(("counter", "epochs"), *quick)))
    assert found.facts["left_zero_at"] is not None
    assert found.regret[-1] != pytest.approx(idle)


def test_explore_then_commit_pays_for_its_exploration_and_dp_lqr_does_not():
    idle = per_episode(lq_world(ONE).zero_gains())
    commit, logs = (run(trial(a, epsilon=8.0, episodes=4000)) for a in ("explore-then-commit", "dp-lqr"))
    assert commit.facts["left_zero_at"] == exploring(4000) + 1
    assert commit.regret[-1] > exploring(4000) * idle
    assert logs.regret[-1] < 0.2 * 4000 * idle
    assert "logged before" in logs.facts["variant"]
    dear = run(trial("explore-then-commit", epsilon=8.0, episodes=4000, options=(("explore", 400), ("radius", 1.0))))
    assert dear.facts["left_zero_at"] == 401


def test_noise_and_world_have_streams_of_their_own():
    """Another epsilon, same plant: the exploring episodes' share of the regret is the same, the gains are not."""
    found = [run(trial("explore-then-commit", epsilon=e)).regret for e in (1.0, 2.0)]
    assert found[0] != found[1]
    at = [i for i, k in enumerate(run(trial("explore-then-commit")).marks) if k <= exploring(200)]
    assert [found[0][i] for i in at] == [found[1][i] for i in at]


def test_worlds_are_named_and_mistakes_are_said():
    assert lq_world(replace(ONE, world="double_integrator", params=())).name == "double-integrator"
    assert lq_world(replace(ONE, params=(("instance", 2), ("seed", 12)))).shape == (3, 1)
    wrong = [
        replace(ONE, params=()),
        replace(ONE, params=(("instance", 9),)),
        replace(ONE, params=(("instance", 1), ("horizon", 3))),
        replace(ONE, world="riverswim"),
        replace(ONE, agent="dp-lqr", epsilon=1.0, delta=1e-5, calibration="paper"),
        replace(ONE, agent="dp-lqr"),
        trial("private-ofu-rl", options=(("counter", "none"),)),
        trial("ofu-rl", options=(("constants", "raw"),)),
    ]
    for one in wrong:
        with pytest.raises(CardError):
            run(one)
