"""One-shot planning: VAPVI where weights are one, and any penalty afterwards for free."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pipeline.agents.linear_backup import LinearConstants, linear_task
from pipeline.agents.one_shot import one_shot, optimal_upper, policy_bound
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.online.linear import linear_003
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.linear_plan import LinearTerms
from pipeline.statistics.linear_sums import draw_one_shot, released_statistics
from tests.agents.linear_bench import C, planned, setting


def seen(plan, rows, seed):
    return released_statistics(plan, draw_one_shot(plan, rows, SeededNoise(seed)))


@pytest.mark.parametrize("scale", ["normalised", "balanced"])
def test_one_shot_statistics_give_vapvi_where_weights_are_one(scale):
    w = linear_003(0, scale)
    plan, rows = setting(LinearTerms(Ask(None), "one_shot"), w)
    free = one_shot(seen(plan, rows, 0), linear_task(plan), C, np.random.default_rng(0))
    desk = planned(LinearTerms(Ask(None)), w)
    # the desk centres on a lattice point, the one-shot planner on the middle itself
    np.testing.assert_allclose(free.V, desk.V, atol=0.02)


def test_one_release_gives_any_penalty_and_an_interval_for_free():
    w = linear_003(0, "balanced")
    plan, rows = setting(LinearTerms(Ask(Fraction(25)), "one_shot"), w)
    released, task = seen(plan, rows, 1), linear_task(plan)
    mild, harsh = (one_shot(released, task, LinearConstants(C=c), np.random.default_rng(0)) for c in (0.0, 1.0))
    assert (mild.V[0] > harsh.V[0]).all()
    wide = LinearConstants(C=1.0)
    low, high = (policy_bound(released, task, wide, harsh.policy, sign)[0] for sign in (-1, 1))
    value = policy_value(w.mdp, harsh.policy)
    assert w.mdp.start @ low < value < w.mdp.start @ high <= w.mdp.start @ optimal_upper(released, task, wide)[0] + 1e-9
    assert w.mdp.start @ optimal_upper(released, task, wide)[0] > w.mdp.start @ optimal_values(w.mdp)[1][0]
