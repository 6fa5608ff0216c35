"""Lagrangian dynamic programme: the linear programme's optimum, by a mixture that keeps the constraint."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.mdp.planning import most_visits, most_visits_lp
from pipeline.mdp.policy import all_policies, policy_count, set_arrivals, set_values


def problem(seed, shape, tightness):
    """Sub-stochastic kernels, a bonus, and a floor at a share of the largest bonus."""
    rng, (H, S, A) = np.random.default_rng(seed), shape
    P = rng.dirichlet(np.full(S, 0.5), size=(H, S, A)) * rng.uniform(0.5, 1.0, (H, S, A, 1))
    start, bonus = rng.dirichlet(np.ones(S)), rng.random((H, S, A))
    value = np.zeros(S)
    for h in reversed(range(H)):
        value = (bonus[h] + P[h] @ value).max(-1)
    return P, start, bonus, tightness * float(start @ value)


@pytest.mark.parametrize(
    "tightness",
    [
        0.0,
        pytest.param(0.7, marks=pytest.mark.slow),
        pytest.param(0.95, marks=pytest.mark.slow),
        pytest.param(0.999, marks=pytest.mark.slow),
        pytest.param(1.0, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_visits_are_the_optimum_of_the_linear_programme(seed, tightness):
    P, start, bonus, floor = problem(seed, (3, 3, 2), tightness)
    targets = np.argwhere(np.ones((3, 3, 2)))
    ours = most_visits(P, start, bonus, floor, targets, np.random.default_rng(0))
    # both of the same floor: 4.7e-12 apart at most in 400 worlds
    np.testing.assert_allclose(ours.visits, most_visits_lp(P, start, bonus, floor, targets), atol=1e-9)


@pytest.mark.parametrize("tightness", [0.8, 0.99])
def test_the_mixture_attains_them_and_keeps_the_constraint(tightness):
    P, start, bonus, floor = problem(5, (3, 3, 2), tightness)
    targets = np.argwhere(np.ones((3, 3, 2)))
    found = most_visits(P, start, bonus, floor, targets, np.random.default_rng(0))
    np.testing.assert_allclose(found.weights.sum(1), 1.0)
    assert (found.weights < 1).any() and (found.weights >= 0).all()
    for policies, weights, visits, (h, s, a) in zip(
        found.policies, found.weights, found.visits, targets.tolist(), strict=True
    ):
        earned = set_values(P, bonus, start, policies)
        assert weights @ earned >= floor - 1e-9
        # the first of the two keeps the constraint alone
        assert earned[0] >= floor - 1e-9
        there = set_arrivals(P, start, policies, h)[:, s] * (policies[:, h, s] == a)
        assert weights @ there == pytest.approx(visits, abs=1e-12)


def test_no_policy_of_a_small_world_does_better():
    P, start, bonus, floor = problem(7, (2, 2, 2), 0.9)
    policies = all_policies((2, 2, 2))
    earned = set_values(P, bonus, start, policies)
    targets = np.argwhere(np.ones((2, 2, 2)))
    found = most_visits(P, start, bonus, floor, targets, np.random.default_rng(0))
    for (h, s, a), visits in zip(targets.tolist(), found.visits, strict=True):
        there = set_arrivals(P, start, policies, h)[:, s] * (policies[:, h, s] == a)
        assert visits >= there[earned >= floor].max() - 1e-12
        # the best mixture of any two, by enumeration
        i, j = np.nonzero((earned[:, None] < floor) & (earned[None] >= floor))
        w = (floor - earned[i]) / (earned[j] - earned[i])
        assert visits == pytest.approx(
            max((w * there[j] + (1 - w) * there[i]).max(initial=0.0), there[earned >= floor].max()), abs=1e-12
        )


def test_ties_are_broken_at_random():
    P, start, bonus, _ = problem(1, (3, 2, 2), 0.0)
    targets = np.array([[0, 0, 0]])
    seen = {most_visits(P, start, bonus, 0.0, targets, np.random.default_rng(k)).policies.tobytes() for k in range(9)}
    assert len(seen) > 3


def test_too_many_policies_are_not_listed():
    assert policy_count((3, 2, 2)) == 64 == len(all_policies((3, 2, 2)))
    with pytest.raises(ValueError, match="too many to list"):
        all_policies((5, 5, 3))
