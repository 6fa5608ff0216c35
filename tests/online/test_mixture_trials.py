"""Simulated mixture agents: facts, knobs, controls, and what must not depend on how an agent is written down."""

from __future__ import annotations

import numpy as np
import pytest

import pipeline.agents.linopt as vi
from pipeline.online.registry import run
from pipeline.online.trial import Trial


@pytest.mark.parametrize("agent", ["private-linopt-vi", "ldp-ucrl-vtr"])
def test_printed_noise_is_worth_what_its_variances_say(simulate, agent):
    facts = simulate(agent, epsilon=10, calibration="paper", episodes=40)["facts"]
    assert 0.0 < facts["true_epsilon"] < 2.0 < 10.0
    assert "as printed" in facts["variant"] and "unit" not in facts["variant"]


def test_blocks_are_the_dense_form_to_every_digit_without_noise(simulate):
    block, dense = (simulate("ucrl-vtr", episodes=80, **form) for form in ({}, {"features": "dense"}))
    curves = [said["agents"]["ucrl-vtr"]["curve"]["mean"] for said in (block, dense)]
    assert curves[0] == pytest.approx(curves[1], abs=1e-9)


@pytest.mark.slow
def test_without_noise_the_rule_for_ties_changes_nothing_once_it_has_learnt(monkeypatch):
    """The first index, the last and chance: the same loss an episode at the end."""
    asked = Trial("ucrl-vtr", "riverswim_homogeneous", (("states", 3),), 2000)
    ends = [run(asked).facts["last_tenth"]]
    for order in (1, -1):

        def greedy(Q, free, rng, order=order):
            best = vi._largest(Q)
            pick = best & vi._largest(np.where(best, free, -np.inf))
            return np.where(pick, order * np.arange(Q.shape[-1]), -np.inf).argmax(-1), best.sum(-1) > 1

        monkeypatch.setattr(vi, "_greedy", greedy)
        ends.append(run(asked).facts["last_tenth"])
    assert max(ends) - min(ends) < 1e-3 * 0.228


@pytest.mark.slow
def test_no_data_is_the_agent_without_its_statistics(simulate):
    """The known rewards alone do not teach it: it stays far from what is learnt with data."""
    found = simulate("private-linopt-vi", epsilon=10, beside=["no-data", "ucrl-vtr"])["agents"]
    assert found["no-data"]["variant"] == "control" and found["no-data"]["true_epsilon"] is None
    assert found["no-data"]["regret"]["mean"] > 10 * found["ucrl-vtr"]["regret"]["mean"]


@pytest.mark.parametrize(
    "knob",
    [
        {"constants": "paper"},
        pytest.param({"shift": "paper"}, marks=pytest.mark.slow),
        pytest.param({"eta": 3.0}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(("agent", "epsilon"), [("private-linopt-vi", 10), ("ldp-ucrl-vtr", 10), ("ucrl-vtr", None)])
def test_presets_play(simulate, agent, epsilon, knob):
    told = simulate(agent, epsilon=epsilon, episodes=30, **knob)["agents"][agent]
    assert len(told["curve"]["episodes"]) > 10
    assert ("as printed, c 1" in told["constants"]) == ("constants" in knob)


def test_learnt_rewards_share_the_budget(simulate):
    facts = simulate("private-linopt-vi", epsilon=10, episodes=50, rewards="learnt")["facts"]
    assert facts["true_epsilon"] == pytest.approx(10.0, rel=1e-9)
    assert facts["variant"].endswith("rewards learnt")
