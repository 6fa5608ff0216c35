"""The price of trust: one measure, everybody asked the same, what counts as having learnt."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pipeline.mdp.planning import policy_value
from pipeline.privacy.shuffle import message_bytes
from pipeline.simulation import tabular_trials
from pipeline.simulation.control_trials import optimum, world_of
from pipeline.simulation.registry import AGENTS, measure
from pipeline.simulation.trial import Trial
from pipeline.studies import price
from pipeline.studies.price import FAMILIES, Grid, episode_grid, episodes_needed, price_rows
from pipeline.studies.price_claims import Priced, claims

RIVER = Grid(
    "riverswim_homogeneous", (("states", 3),), ("counts",), (100, 3000), (1.0, 10.0), 1e-6, 2, rewards="learnt"
)


@pytest.fixture(scope="module")
def rows():
    trials = RIVER.trials()
    return price_rows(trials, [measure(t) for t in trials])


def test_every_trust_model_has_an_agent_or_a_reason():
    for family in FAMILIES.values():
        trusts = {AGENTS[agent].trust for agent in family.plain}
        assert trusts | set(family.absent) == {"central", "joint", "local", "shuffle"} and not trusts & set(
            family.absent
        )
        assert set(family.agents) <= set(AGENTS)
        assert all(AGENTS[plain].trust == "none" for plain in family.plain.values())
        assert all(reason for reason in family.absent.values())


def test_everybody_is_asked_the_same_and_meets_the_same_luck():
    trials = [t for t in RIVER.trials() if t.agent in FAMILIES["counts"].agents]
    private = {t.agent: [u for u in trials if u.agent == t.agent] for t in trials if t.epsilon is not None}
    asked = {
        a: sorted({(t.episodes, t.epsilon, t.delta, t.seed, t.world, t.params) for t in ts})
        for a, ts in private.items()
    }
    assert len(asked) == 4 and len(set(map(tuple, asked.values()))) == 1
    assert all(t.knobs["rewards"] == "learnt" and t.calibration in ("tight", None) for t in trials)
    streams = [t.stream(0).random() for t in trials if t.seed == 1]
    assert len(set(streams)) == 1


def test_the_measure_is_the_value_lost_by_the_policy_handed_over(rows):
    mdp = world_of(Trial("uniform", RIVER.world, RIVER.params, 1))
    even = next(r for r in rows if r["agent"] == "uniform")
    assert even["mean"] == pytest.approx(optimum(mdp) - policy_value(mdp, np.full(mdp.shape, 0.5)))
    for r in rows:
        assert r["metric"] == "suboptimality" and 0 <= r["mean"] <= optimum(mdp) + 1e-12
        assert r["low"] <= r["high"] and len(r["losses"]) == r["runs"]


def test_the_mixture_agents_measure_is_that_of_their_own_policy():
    outcome = measure(Trial("ucrl-vtr", RIVER.world, RIVER.params, 200))
    mdp = world_of(Trial("uniform", RIVER.world, RIVER.params, 1))
    lost = optimum(mdp) - policy_value(mdp, np.eye(2)[np.array(outcome["policy"])])
    assert outcome["facts"]["final_loss"] == pytest.approx(lost)


def test_rows_hold_what_is_agreed_and_controls_have_no_budget(rows):
    keys = {"agent", "variant", "trust", "world", "episodes", "rho", "epsilon", "delta", "calibration", "constants"}
    assert all(keys | {"metric", "mean", "std", "runs", "true_epsilon", "family"} <= set(r) for r in rows)
    assert {r["agent"] for r in rows} >= {
        "uniform",
        "behaviour",
        "best-constant",
        "no-data",
        *FAMILIES["counts"].agents,
    }
    for r in rows:
        if r["variant"] == "control" or r["trust"] == "none":
            assert r["epsilon"] is None and r["true_epsilon"] is None
        else:
            assert 0.5 * r["epsilon"] < r["true_epsilon"] <= r["epsilon"]


def verdict(rows, claim: str) -> bool:
    (found,) = [c for c in claims(Priced("test", rows)) if claim in c["claim"]]
    return found["holds"]


def test_the_claim_about_noise_fails_for_a_twin_without_noise_and_one_with_too_little(rows, monkeypatch):
    assert verdict(rows, "worth more than the ε asked")
    silent = [r | ({"true_epsilon": None} if r["agent"] == "dp-apvi" else {}) for r in rows]
    assert not verdict(silent, "worth more than the ε asked")
    weak = [r | ({"true_epsilon": 1.5 * r["epsilon"]} if r["agent"] == "counts-shuffle" else {}) for r in rows]
    assert not verdict(weak, "worth more than the ε asked")

    def unheard(t, layout, most, noise):
        return tabular_trials.exact(layout, most, tabular_trials._world(t), noise)

    monkeypatch.setattr(tabular_trials, "_joint", unheard)
    one = replace(RIVER, episodes=(100,), budgets=(1.0,), runs=1)
    trials = [t for t in one.trials() if t.agent in ("uniform", "dp-ucbvi-jdp")]
    broken = price_rows(trials, [measure(t) for t in trials])
    private = next(r for r in broken if r["agent"] == "dp-ucbvi-jdp")
    assert private["true_rho"] is None and private["true_epsilon"] is None


def test_one_run_without_noise_among_many_is_not_hidden():
    trials = [Trial("dp-apvi", RIVER.world, RIVER.params, 10, 1.0, 1e-6, "tight", seed=s) for s in (0, 1)]
    sent = [{"who": "", "messages": m, "bits": 192 * m} for m in (6, 7)]
    outcomes = [
        {"facts": {"trust": "central", "final_loss": 0.1, "true_epsilon": e, "true_rho": e}, "sent": s}
        for e, s in zip((0.9, None), sent, strict=True)
    ]
    (row,) = price_rows(trials, outcomes)
    assert row["true_epsilon"] is None and row["runs"] == 2
    # what a user sends is the most over the runs
    assert (row["messages"], row["bits"]) == (7, 7 * 192)


def test_what_a_user_sends_is_said_of_every_private_row_and_is_what_devices_send():
    grid = replace(RIVER, episodes=(200,), budgets=(10.0,), runs=1)
    trials = [t.told(protocol=True) if t.agent == "counts-shuffle" else t for t in grid.trials()]
    outcomes = [measure(t) for t in trials]
    rows = price_rows(trials, outcomes)
    assert all((r["messages"] is None) == (r["trust"] == "none" or r["variant"] == "control") for r in rows)
    found = {r["agent"]: r for r in rows if r["messages"] is not None}
    # per step: H state, action and reward; an episode in the clear, or its tables
    H, S, A = 6, 3, 2
    cells = H * S * A * (S + 1)
    assert found["dp-ucbvi-jdp"]["bits"] == found["dp-apvi"]["bits"] == H * 3 * 64
    assert (found["dp-ucbvi-ldp"]["messages"], found["dp-ucbvi-ldp"]["bits"]) == (1, cells * 64)
    shuffled = next(o for t, o in zip(trials, outcomes, strict=True) if t.agent == "counts-shuffle")
    sent, bytes_sent = found["counts-shuffle"], shuffled["facts"]["bytes_a_user_sent"]
    # a message is the number of its counter and a bit; on the way it fills whole bytes
    assert sent["messages"] % cells == 0 and sent["bits"] == sent["messages"] * (1 + math.ceil(math.log2(cells)))
    assert bytes_sent == sent["messages"] * message_bytes(cells)


@pytest.mark.parametrize(
    ("points", "needed"),
    [
        ({10: 5.0, 100: 0.5, 1000: 0.4}, 100),
        ({10: 0.1, 100: 5.0, 1000: 0.4}, 1000),
        ({10: 0.1, 100: 0.2, 1000: 5.0}, None),
        ({10: 1.0}, 10),
        ({1000: 0.4, 10: 5.0}, 1000),
    ],
)
def test_to_have_learnt_is_to_stay_learnt(points, needed):
    assert episodes_needed(points, 1.0) == needed


def test_the_grid_is_even_in_ratios_and_ends_where_it_should():
    assert episode_grid(100, 10**8, 2)[:4] == (100, 316, 1000, 3162) and episode_grid(100, 10**8, 2)[-1] == 10**8
    assert len(episode_grid(100, 10**8, 2)) == 13
    assert episode_grid(2, 3, 1) == (2, 3)


def test_families_know_their_agents():
    assert price.family_of("sdp-pe") == "" and price.family_of("no-data", "private-linopt-vi") == "mixture"
    assert price.family_of("uniform") == "" and price.family_of("dp-apvi") == "counts"


@pytest.mark.slow
def test_more_privacy_is_not_better_than_none_beyond_noise():
    one = replace(RIVER, episodes=(3000,), budgets=(0.3,), runs=20)
    trials = one.trials()
    found = {r["agent"]: r for r in price_rows(trials, [measure(t) for t in trials])}
    for agent, plain in FAMILIES["counts"].plain.items():
        loud, exact = found[agent], found[plain]
        spread = np.hypot(loud["std"], exact["std"]) / np.sqrt(20)
        assert loud["mean"] > exact["mean"] + 2 * spread, agent
