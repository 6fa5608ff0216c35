"""Policies: where one abstains practice goes on; and the best mixture of two that keeps a constraint."""

import numpy as np
import pytest

from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import most_visits, most_visits_lp, policy_value
from pipeline.mdp.policy import Policy, all_policies, policy_count, set_arrivals, set_values
from tests.conftest import slow

HALF = np.array([[True, False]])
ROWS = np.array([[[0.5, 0.5], [0.0, 1.0]]])


def test_where_it_abstains_it_says_nothing_and_practice_goes_on():
    policy = Policy(ROWS, HALF)
    assert policy.probabilities.tolist() == [[[0.0, 0.0], [0.0, 1.0]]]
    assert policy.beside(np.array([0.9, 0.1])).tolist() == [[[0.9, 0.1], [0.0, 1.0]]]
    assert Policy(ROWS, ~HALF & HALF).probabilities is ROWS
    # and it has no value without the practice that goes on
    stay, paid = np.tile(np.eye(2)[:, None], (1, 1, 2, 1)), np.array([[[0.0, 1.0], [0.0, 0.0]]])
    mdp = TabularMDP(stay, paid, np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="value is that of practice"):
        policy_value(mdp, Policy(ROWS, HALF))
    assert policy_value(mdp, Policy(ROWS, HALF).beside(np.array([0.7, 0.3]))) == pytest.approx(0.3)


def test_a_row_that_speaks_is_a_distribution():
    with pytest.raises(ValueError, match="sum to 1"):
        Policy(0 * ROWS, HALF)
    with pytest.raises(ValueError, match="sum to 1"):
        Policy(np.nan * ROWS, ~HALF & HALF)
    with pytest.raises(ValueError, match="abstains must be"):
        Policy(ROWS, HALF[0])


def problem(seed, shape, tightness):
    """Sub-stochastic kernels, a bonus, and a floor at a share of the largest bonus."""
    rng, (H, S, A) = np.random.default_rng(seed), shape
    P = rng.dirichlet(np.full(S, 0.5), size=(H, S, A)) * rng.uniform(0.5, 1.0, (H, S, A, 1))
    start, bonus = rng.dirichlet(np.ones(S)), rng.random((H, S, A))
    value = np.zeros(S)
    for h in reversed(range(H)):
        value = (bonus[h] + P[h] @ value).max(-1)
    return P, start, bonus, tightness * float(start @ value)


@pytest.mark.parametrize("tightness", [0.0, slow(0.7), slow(0.95), slow(0.999), slow(1.0)])
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
    each = zip(found.policies, found.weights, found.visits, targets.tolist(), strict=True)
    for policies, weights, visits, (h, s, a) in each:
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
        mixed = (w * there[j] + (1 - w) * there[i]).max(initial=0.0)
        assert visits == pytest.approx(max(mixed, there[earned >= floor].max()), abs=1e-12)


def test_ties_are_broken_at_random():
    P, start, bonus, _ = problem(1, (3, 2, 2), 0.0)
    targets = np.array([[0, 0, 0]])
    seen = {most_visits(P, start, bonus, 0.0, targets, np.random.default_rng(k)).policies.tobytes() for k in range(9)}
    assert len(seen) > 3


def test_too_many_policies_are_not_listed():
    assert policy_count((3, 2, 2)) == 64 == len(all_policies((3, 2, 2)))
    with pytest.raises(ValueError, match="too many to list"):
        all_policies((5, 5, 3))
