"""The optimistic model: exact projections, nothing left of the sets, and no worse than a global search."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import differential_evolution, minimize

from pipeline.agents.ofu_rl import ConfidenceSet, Search, least
from pipeline.mdp.riccati import optimal_costs
from pipeline.worlds.plants import Controller, lq_instance, simulate
from tests.mdp.test_riccati import problem


def confidence(n: int, d: int, beta: float, centre_norm: float, seed: int = 0) -> ConfidenceSet:
    # an example, no chance
    rng = np.random.Generator(np.random.PCG64(seed))
    D = n + d
    rows = rng.normal(size=(30, D)) * np.geomspace(1, 0.1, D)
    centre = rng.normal(size=(D, n))
    return ConfidenceSet(rows.T @ rows + 0.1 * np.eye(D), centre * (centre_norm / np.linalg.norm(centre)), beta)


def reference_projection(among: ConfidenceSet, y: np.ndarray, start: np.ndarray) -> float:
    """Squared distance by a general solver."""
    D, n = among.centre.shape
    inside = [
        {"type": "ineq", "fun": lambda t: 1 - (t**2).sum()},
        {"type": "ineq", "fun": lambda t: among.beta**2 - float(among.distance(t.reshape(1, D, n))[0]) ** 2},
    ]
    options = {"ftol": 1e-13, "maxiter": 800}
    return minimize(
        lambda t: ((t - y.ravel()) ** 2).sum(), start.ravel(), constraints=inside, method="SLSQP", options=options
    ).fun


@pytest.mark.parametrize(
    ("beta", "centre_norm"),
    [
        (1.0, 1.1),
        (0.3, 0.5),
        pytest.param(5.0, 0.5, marks=pytest.mark.slow),
        pytest.param(2.0, 0.9, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("size", [(2, 1), (3, 2)])
def test_projections_are_in_both_sets_and_nearest(size, beta, centre_norm):
    among = confidence(*size, beta, centre_norm)
    assert among.holds(among.nearest_in_ball[None])[0]
    y = np.random.default_rng(1).normal(size=(12, *among.centre.shape)) * np.geomspace(0.1, 4, 12)[:, None, None]
    found = among.project(y)
    assert among.holds(found).all()
    for one, at in zip(y[::4], found[::4], strict=True):
        assert ((at - one) ** 2).sum() <= reference_projection(among, one, among.nearest_in_ball) + 1e-6
    np.testing.assert_allclose(among.project(found), found, atol=1e-9)


def test_the_nearest_model_of_the_ball_is_nearest_in_the_norm_of_v():
    among = confidence(2, 1, 1.0, 1.3)
    near = among.nearest_in_ball
    assert np.linalg.norm(near) == pytest.approx(1)
    tried = np.random.default_rng(0).normal(size=(20_000, 3, 2))
    tried /= np.maximum(np.linalg.norm(tried, axis=(1, 2)), 1.0)[:, None, None]
    around = near + 0.05 * tried
    around /= np.maximum(np.linalg.norm(around, axis=(1, 2)), 1.0)[:, None, None]
    closest = min(among.distance(tried).min(), among.distance(around).min())
    assert among.distance(near[None])[0] <= closest + 1e-9


def test_a_model_that_stands_still_is_found_exactly_where_there_is_one():
    rng = np.random.default_rng(2)
    for seed in range(30):
        among = confidence(2, 1, float(rng.uniform(0.5, 4)), 0.8, seed)
        still = among.still()
        B = np.linspace(-1, 1, 201)
        grid = np.zeros((201**2, 3, 2))
        grid[:, 2] = np.stack(np.meshgrid(B, B), -1).reshape(-1, 2)
        assert still is not None or not among.holds(grid).any()
        assert still is None or (not still[:2].any() and among.holds(still[None])[0])


def test_the_search_is_no_worse_than_a_global_one():
    """n = 2, d = 1: six parameters, penalised outside the sets."""
    world = lq_instance(1)
    start = np.outer(world.start, world.start)
    x, u = simulate(world, Controller(world.optimal_gains(), 0.1), 400, np.random.default_rng(0))
    z = np.concatenate([x[:, :-1], u], axis=2).reshape(-1, 3)
    V = z.T @ z + np.eye(3)
    among = ConfidenceSet(V, np.linalg.solve(V, z.T @ x[:, 1:].reshape(-1, 2)), 2.5)
    assert among.still() is None

    def value(theta):
        return optimal_costs(theta, world.cost, start, world.covariance)

    starts = np.stack([among.nearest_in_ball, np.zeros((3, 2))])
    theta, found = least(value, among, starts, Search())
    assert among.holds(theta[None])[0]
    wide = np.linalg.inv(np.linalg.cholesky(V)).T * among.beta

    def penalised(w):
        each = (w / np.maximum(1.0, np.linalg.norm(w, axis=0))).T.reshape(-1, 3, 2)
        models = among.centre + wide @ each
        return value(models)[0] + 10 * np.maximum(0.0, np.linalg.norm(models, axis=(1, 2)) - 1)

    whole = {"updating": "deferred", "vectorized": True, "polish": False}
    best = differential_evolution(penalised, [(-1, 1)] * 6, seed=0, maxiter=200, popsize=12, tol=1e-8, **whole)
    assert best.fun - 1e-3 < found <= best.fun + 1e-6


@pytest.mark.slow
def test_more_starts_add_nothing_that_counts():
    n, d, H = 3, 2, 7
    _, _, cost, start, covariance = problem(n, d, H)
    among = confidence(n, d, 0.8, 0.8)

    def value(theta):
        return optimal_costs(theta, cost, start, covariance)

    many = np.random.Generator(np.random.PCG64(0)).normal(size=(24, n + d, n))
    best = least(value, among, many, Search(steps=400, tolerance=1e-12))[1]
    # an example: other starts lie up to 4e-5 above, other problems up to 5e-4
    assert least(value, among, many[:4], Search())[1] <= best * (1 + 1e-5)


def test_a_search_may_ask_for_the_last_bit_and_not_for_less():
    assert Search(tolerance=0.0).tolerance == 0
    with pytest.raises(ValueError, match="a tolerance of 0 or more"):
        Search(tolerance=-1e-12)
