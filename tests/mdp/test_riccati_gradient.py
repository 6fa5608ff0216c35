"""Optimal costs of many models: each is the Riccati recursion's, and the gradient is that of the cost."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.mdp.riccati import expected_cost, optimal_costs, riccati
from tests.mdp.test_riccati import SIZES, problem


def models(n: int, d: int, count: int = 3) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(count, n + d, n)) / 2


@pytest.mark.parametrize("size", SIZES)
def test_costs_are_those_of_each_model_alone(size):
    n, d, _ = size
    _, _, cost, start, covariance = problem(*size)
    found = optimal_costs(models(n, d), cost, start, covariance)[0]
    for theta, value in zip(models(n, d), found, strict=True):
        A, B = theta[:n].T, theta[n:].T
        assert value == pytest.approx(expected_cost(A, B, cost, riccati(A, B, cost)[0], start, covariance), rel=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_gradient_agrees_with_the_loops_of_the_envelope_theorem_and_with_differences(size):
    n, d, H = size
    _, _, cost, start, covariance = problem(*size)
    theta = models(n, d, 1)
    gradient = optimal_costs(theta, cost, start, covariance)[1][0]
    A, B = theta[0, :n].T, theta[0, n:].T
    K, P = riccati(A, B, cost)
    second, of_A, of_B = start, np.zeros((n, n)), np.zeros((n, d))
    for h in range(H):
        closed = A + B @ K[h]
        of_A += 2 * P[h + 1] @ closed @ second
        of_B += 2 * P[h + 1] @ closed @ second @ K[h].T
        second = closed @ second @ closed.T + covariance
    np.testing.assert_allclose(gradient, np.vstack([of_A.T, of_B.T]), atol=1e-10)
    for i, j in np.ndindex(n + d, n):
        moved = np.zeros_like(theta)
        moved[0, i, j] = 1e-6
        ends = [optimal_costs(theta + s * moved, cost, start, covariance)[0][0] for s in (1, -1)]
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(gradient[i, j], rel=1e-5, abs=1e-6)
