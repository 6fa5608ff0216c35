"""Appendix F of paper 003, and the continuous world whose optimum is known."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.mdp.planning import optimal_values
from pipeline.online.linear import linear_003


@pytest.mark.parametrize(("seed", "value"), [(0, 14.150866), (1, 13.457)])
def test_optimal_values_of_the_reference_seeds(seed, value):
    mdp = linear_003(seed).mdp
    assert mdp.start @ optimal_values(mdp)[1][0] == pytest.approx(value, abs=1e-3 if seed else 5e-7)


@pytest.mark.parametrize("seed", range(5))
def test_rewards_stay_in_the_unit_interval(seed):
    r = linear_003(seed).mdp.rewards
    assert r.min() >= 0 and r.max() <= 1


def test_printed_features_reach_seven_and_the_normalised_map_one():
    literal, normalised = linear_003(0, "literal").features, linear_003(0).features
    squares = (literal.integers**2).sum(-1)
    assert squares.max() == 7 and literal.unit == 1
    assert (squares * normalised.unit**2).max() == pytest.approx(1)
    assert np.linalg.matrix_rank(literal.integers.reshape(-1, 10)) == 9


def test_q_values_are_linear_in_every_map():
    for scale, worst in (("literal", 1e-12), ("balanced", 0.02)):
        w = linear_003(2, scale)
        f = w.features.integers.reshape(-1, w.features.dimension).astype(float)
        Q = optimal_values(w.mdp)[0][0].reshape(-1)
        assert np.abs(f @ np.linalg.lstsq(f, Q, rcond=None)[0] - Q).max() < worst


def test_counts_follow_the_logging_policy():
    w = linear_003(0)
    n = w.counts(200_000, np.random.default_rng(0))
    assert n.sum(axis=(1, 2, 3)).tolist() == [200_000] * 20
    np.testing.assert_allclose(n[3].sum(-1)[:, 0] / n[3].sum((1, 2)), 0.6, atol=0.01)
    np.testing.assert_allclose(n[3, 0, 0] / n[3, 0, 0].sum(), w.mdp.transitions[3, 0, 0], atol=0.01)
