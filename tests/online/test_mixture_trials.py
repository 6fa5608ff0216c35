"""Trials of the mixture agents: facts, knobs, controls, and what must not depend on how an agent is written down."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.online import registry as agents
from pipeline.online.mixtures import KINDS
from pipeline.online.trial import Trial
from reticent import CardError

THREE = (("states", 3),)
RIVER = Trial("ucrl-vtr", "riverswim_homogeneous", THREE, 300)
JOINT = replace(RIVER, agent="private-linopt-vi", epsilon=10.0, delta=1e-5, calibration="tight")
LOCAL = replace(JOINT, agent="ldp-ucrl-vtr")


def options(trial, **knobs):
    return replace(trial, options=tuple(sorted(knobs.items())))


@pytest.mark.parametrize("agent", list(KINDS))
@pytest.mark.parametrize("world", ["riverswim_inhomogeneous", "random_mixture"])
def test_every_agent_plays_every_world_and_says_what_it_guarantees(agent, world):
    private = agent not in ("ucrl-vtr", "linopt-po")
    trial = replace(JOINT if private else RIVER, agent=agent, world=world, params=(), episodes=60)
    outcome = agents.run(trial)
    assert outcome == agents.run(trial)
    assert outcome.marks[-1] == 60 and outcome.regret == sorted(outcome.regret)
    assert outcome.facts["trust"] == agents.find(agent).trust
    table = np.array(outcome.policy)
    assert table.ndim == (3 if agent.endswith("po") else 2)
    assert table.ndim == 2 or np.allclose(table.sum(-1), 1)
    if private:
        assert outcome.facts["true_epsilon"] == pytest.approx(10.0, rel=1e-9)
        assert agents.run(replace(trial, seed=1)).regret != outcome.regret


@pytest.mark.parametrize("agent", ["private-linopt-vi", "ldp-ucrl-vtr"])
def test_printed_noise_is_worth_what_its_variances_say(agent):
    facts = agents.run(replace(JOINT, agent=agent, calibration="paper", episodes=40)).facts
    assert 0.0 < facts["true_epsilon"] < 2.0 < 10.0
    assert "as printed" in facts["variant"] and "unit" not in facts["variant"]


def test_blocks_are_the_dense_form_to_every_digit_without_noise():
    block, dense = (agents.run(t).regret for t in (RIVER, options(RIVER, features="dense")))
    assert block == pytest.approx(dense, abs=1e-9)


@pytest.fixture(scope="module")
def learnt():
    return agents.run(replace(RIVER, episodes=2000))


def test_without_noise_the_rule_for_ties_changes_nothing_once_it_has_learnt(monkeypatch, learnt):
    """The first index, the last and chance: the same loss an episode at the end."""
    import pipeline.agents.linopt_vi as vi

    ends = [learnt.facts["last_tenth"]]
    for order in (1, -1):

        def greedy(Q, free, rng, order=order):
            best = vi._largest(Q)
            pick = best & vi._largest(np.where(best, free, -np.inf))
            return np.where(pick, order * np.arange(Q.shape[-1]), -np.inf).argmax(-1), best.sum(-1) > 1

        monkeypatch.setattr(vi, "_greedy", greedy)
        ends.append(agents.run(replace(RIVER, episodes=2000)).facts["last_tenth"])
    assert max(ends) - min(ends) < 1e-3 * 0.228


def test_no_data_is_the_agent_without_its_statistics(learnt):
    deaf = options(replace(JOINT, agent="no-data"), of="private-linopt-vi")
    outcome = agents.run(deaf)
    assert outcome.facts["variant"] == "control" and outcome.facts["true_epsilon"] is None
    # the known rewards alone do not teach it: it stays far from what it learns with data
    assert agents.run(replace(deaf, episodes=2000)).regret[-1] > 10 * learnt.regret[-1]
    with pytest.raises(CardError, match="option 'of' is one of"):
        agents.run(options(deaf, of="uniform"))


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"bonnus": 1.0}, "no option 'bonnus'; there are: constants"),
        ({"counter": "fenwick"}, "counter is one of"),
        ({"growth": "slow"}, "growth is a number"),
        ({"bonus": -1.0}, "bonus is a number"),
        ({"constants": "theory"}, "constants is one of"),
        ({"unit": True, "calibration_of": 1}, "no option"),
    ],
)
def test_wrong_knobs_are_one_line_errors(knobs, message):
    with pytest.raises(CardError, match=message):
        agents.run(options(JOINT, **knobs))


def test_impossible_combinations_are_one_line_errors():
    with pytest.raises(CardError, match="unit features"):
        agents.run(options(replace(JOINT, calibration="paper"), unit=True))
    with pytest.raises(CardError, match="negative rewards"):
        agents.run(replace(RIVER, world="riverswim", params=(("left_reward", -1.0), ("states", 3)), episodes=5))


@pytest.mark.parametrize("knob", [{"constants": "paper"}, {"shift": "paper"}, {"eta": 3.0}])
def test_presets_play(knob):
    for trial in (JOINT, LOCAL, RIVER):
        outcome = agents.run(options(replace(trial, episodes=30), **knob))
        assert len(outcome.marks) > 10
        if "constants" in knob:
            assert "as printed, c 1" in outcome.facts["constants"]


def test_learnt_rewards_share_the_budget():
    learnt = agents.run(options(replace(JOINT, episodes=50), rewards="learnt"))
    assert learnt.facts["true_epsilon"] == pytest.approx(10.0, rel=1e-9)
    assert learnt.facts["variant"].endswith("rewards learnt")
