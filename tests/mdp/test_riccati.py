"""Riccati, exact costs and gradients against naive recursions, brute force and differences; uncertain models."""

import numpy as np
import pytest

from pipeline.mdp import riccati as lq
from pipeline.mdp.rollout import LinearRollout
from pipeline.online.plants import moments, rollout_cost
from pipeline.worlds.plants import lq_instance

SIZES = [(2, 1, 5), (3, 2, 7), (1, 1, 1), (4, 4, 3)]


def problem(n: int, d: int, horizon: int, seed: int = 0):
    r = np.random.Generator(np.random.PCG64(seed))
    A, B = r.normal(size=(n, n)) / 2, r.normal(size=(n, d)) / 2
    q, s = r.normal(size=(n, n)), r.normal(size=(d, d))
    start, w = r.normal(size=n), r.normal(size=(n, n)) / 3
    return A, B, lq.QuadraticCost(q @ q.T, s @ s.T + np.eye(d), horizon), np.outer(start, start), w @ w.T


def naive_cost(A, B, cost, gains, start, covariance) -> float:
    """Forwards through second moments: shares no line with the backward recursion."""
    total, M = 0.0, start
    for K in gains:
        total += np.trace((cost.Q + K.T @ cost.R @ K) @ M)
        M = (A + B @ K) @ M @ (A + B @ K).T + covariance
    return float(total)


@pytest.mark.parametrize("size", SIZES)
def test_costs_agree_with_the_forward_recursion_of_second_moments(size):
    A, B, cost, start, covariance = problem(*size)
    gains = np.random.default_rng(1).normal(size=(size[2], size[1], size[0])) / 3
    found = lq.expected_cost(A, B, cost, gains, start, covariance)
    assert found == pytest.approx(naive_cost(A, B, cost, gains, start, covariance), rel=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_optimal_gains_have_the_cost_of_their_matrices_and_no_other_gains_cost_less(size):
    A, B, cost, start, covariance = problem(*size)
    K, P = lq.riccati(A, B, cost)
    np.testing.assert_allclose(P, lq.gain_matrices(A, B, cost, K), atol=1e-10)
    assert (K[-1] == 0).all() and (P[-1] == 0).all()
    best = lq.expected_cost(A, B, cost, K, start, covariance)
    r = np.random.default_rng(2)
    for step in (1e-3, 1e-1, 1.0):
        other = K + step * r.normal(size=K.shape)
        assert lq.expected_cost(A, B, cost, other, start, covariance) >= best * (1 - 1e-12)


def test_controls_of_a_noiseless_problem_solve_the_stacked_least_squares():
    """All controls at once as one linear system: no dynamic programming at all."""
    A, B, cost, _, _ = problem(3, 2, 4)
    n, d, H = 3, 2, 4
    x1 = np.array([1.0, -0.5, 0.2])
    free = np.vstack([np.linalg.matrix_power(A, h) for h in range(H)])
    forced = np.zeros((H * n, H * d))
    for h in range(H):
        for j in range(h):
            forced[h * n : (h + 1) * n, j * d : (j + 1) * d] = np.linalg.matrix_power(A, h - 1 - j) @ B
    Q, R = np.kron(np.eye(H), cost.Q), np.kron(np.eye(H), cost.R)
    u = -np.linalg.solve(R + forced.T @ Q @ forced, forced.T @ Q @ free @ x1)
    x = x1
    for h, K in enumerate(lq.riccati(A, B, cost)[0]):
        np.testing.assert_allclose(K @ x, u[h * d : (h + 1) * d], atol=1e-10)
        x = A @ x + B @ K @ x


def test_gains_are_cut_to_a_norm_and_small_ones_are_left_alone():
    K = np.random.default_rng(0).normal(size=(4, 2, 3))
    cut = lq.clip_norm(K, 0.7)
    assert np.linalg.norm(cut, 2, axis=(1, 2)).max() <= 0.7 + 1e-12
    np.testing.assert_allclose(lq.clip_norm(K, 100.0), K, atol=1e-12)
    assert (lq.clip_norm(np.zeros((1, 1, 2)), 0.0) == 0).all()


@pytest.mark.parametrize(
    ("Q", "R", "horizon", "match"),
    [
        (np.diag([1.0, -1.0]), np.eye(1), 2, "semidefinite"),
        (np.eye(2), np.zeros((1, 1)), 2, "definite"),
    ],
)
def test_costs_that_are_none_are_refused(Q, R, horizon, match):
    with pytest.raises(ValueError, match=match):
        lq.QuadraticCost(Q, R, horizon)


def models(n: int, d: int, count: int = 3) -> np.ndarray:
    return np.random.default_rng(5).normal(size=(count, n + d, n)) / 2


@pytest.mark.parametrize("size", SIZES)
def test_costs_are_those_of_each_model_alone(size):
    n, d, _ = size
    _, _, cost, start, covariance = problem(*size)
    found = lq.optimal_costs(models(n, d), cost, start, covariance)[0]
    for theta, value in zip(models(n, d), found, strict=True):
        A, B = theta[:n].T, theta[n:].T
        assert value == pytest.approx(
            lq.expected_cost(A, B, cost, lq.riccati(A, B, cost)[0], start, covariance), rel=1e-12
        )


@pytest.mark.parametrize("size", SIZES)
def test_gradient_agrees_with_the_loops_of_the_envelope_theorem_and_with_differences(size):
    n, d, H = size
    _, _, cost, start, covariance = problem(*size)
    theta = models(n, d, 1)
    gradient = lq.optimal_costs(theta, cost, start, covariance)[1][0]
    A, B = theta[0, :n].T, theta[0, n:].T
    K, P = lq.riccati(A, B, cost)
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
        ends = [lq.optimal_costs(theta + s * moved, cost, start, covariance)[0][0] for s in (1, -1)]
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(gradient[i, j], rel=1e-5, abs=1e-6)


WORLDS = [lq_instance(i) for i in (1, 3, 5)]


def model(world) -> np.ndarray:
    return np.hstack([world.A, world.B])[None]


def test_without_error_they_are_the_gains_and_costs_of_the_plant():
    for world in WORLDS:
        theta, D = model(world), sum(world.shape)
        gains = lq.cautious_gains(theta, np.zeros((1, D, D)), world.cost)
        np.testing.assert_allclose(gains[0], lq.riccati(world.A, world.B, world.cost)[0], atol=1e-12)
        found = lq.expected_costs(theta, gains, world.cost, world.start, world.covariance)
        np.testing.assert_allclose(found, world.expected_cost(gains[0]), rtol=1e-12)
        ask = LinearRollout(0.5 * gains[0], 1, 0.1)
        found = lq.expected_costs(theta, ask.gains, world.cost, world.start, world.covariance, ask.explore)
        np.testing.assert_allclose(found, rollout_cost(world, ask), rtol=1e-12)
        M = lq.occupancies(theta, ask.gains, world.horizon, world.start, world.covariance, ask.explore)[0]
        np.testing.assert_allclose(M, moments(world, ask)[0], atol=1e-12)


def test_what_is_not_known_of_a_control_makes_its_gain_smaller():
    world = WORLDS[0]
    n, D = world.shape[0], sum(world.shape)
    sizes = []
    for spread in (0.0, 0.01, 0.1, 1.0):
        error = np.zeros((1, D, D))
        error[:, n:, n:] = spread * np.eye(D - n)
        sizes.append(float(np.abs(lq.cautious_gains(model(world), error, world.cost)).max()))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.1 * sizes[0]


def test_made_up_episodes_have_the_occupancy_of_the_model():
    world, many = WORLDS[1], 40_000
    theta, gains = np.repeat(model(world), many, axis=0), 0.5 * world.optimal_gains()
    z, following = lq.simulated_episodes(theta, gains, 0.1, world.start, world.covariance, np.random.default_rng(0))
    M = lq.occupancies(model(world), gains, world.horizon, world.start, world.covariance, 0.1)[0]
    np.testing.assert_allclose(np.einsum("ehi,ehj->ij", z, z) / many, M, atol=0.01)
    np.testing.assert_allclose(np.einsum("ehi,ehj->ij", z, following) / many, M @ model(world)[0].T, atol=0.01)
