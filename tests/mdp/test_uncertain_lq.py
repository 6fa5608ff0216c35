"""Batched control under uncertainty: Riccati without error, exact costs, and occupancies of simulated episodes."""

from __future__ import annotations

import numpy as np

from pipeline.mdp.riccati import cautious_gains, expected_costs, occupancies, riccati, simulated_episodes
from pipeline.mdp.rollout import LinearRollout
from pipeline.online.plants import moments, rollout_cost
from pipeline.worlds.plants import lq_instance

WORLDS = [lq_instance(i) for i in (1, 3, 5)]


def model(world) -> np.ndarray:
    return np.hstack([world.A, world.B])[None]


def test_without_error_they_are_the_gains_and_costs_of_the_plant():
    for world in WORLDS:
        theta, D = model(world), sum(world.shape)
        gains = cautious_gains(theta, np.zeros((1, D, D)), world.cost)
        np.testing.assert_allclose(gains[0], riccati(world.A, world.B, world.cost)[0], atol=1e-12)
        found = expected_costs(theta, gains, world.cost, world.start, world.covariance)
        np.testing.assert_allclose(found, world.expected_cost(gains[0]), rtol=1e-12)
        ask = LinearRollout(0.5 * gains[0], 1, 0.1)
        found = expected_costs(theta, ask.gains, world.cost, world.start, world.covariance, ask.explore)
        np.testing.assert_allclose(found, rollout_cost(world, ask), rtol=1e-12)
        M = occupancies(theta, ask.gains, world.horizon, world.start, world.covariance, ask.explore)[0]
        np.testing.assert_allclose(M, moments(world, ask)[0], atol=1e-12)


def test_what_is_not_known_of_a_control_makes_its_gain_smaller():
    world = WORLDS[0]
    n, D = world.shape[0], sum(world.shape)
    sizes = []
    for spread in (0.0, 0.01, 0.1, 1.0):
        error = np.zeros((1, D, D))
        error[:, n:, n:] = spread * np.eye(D - n)
        sizes.append(float(np.abs(cautious_gains(model(world), error, world.cost)).max()))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 0.1 * sizes[0]


def test_made_up_episodes_have_the_occupancy_of_the_model():
    world, many = WORLDS[1], 40_000
    theta, gains = np.repeat(model(world), many, axis=0), 0.5 * world.optimal_gains()
    z, following = simulated_episodes(theta, gains, 0.1, world.start, world.covariance, np.random.default_rng(0))
    M = occupancies(model(world), gains, world.horizon, world.start, world.covariance, 0.1)[0]
    np.testing.assert_allclose(np.einsum("ehi,ehj->ij", z, z) / many, M, atol=0.01)
    np.testing.assert_allclose(np.einsum("ehi,ehj->ij", z, following) / many, M @ model(world)[0].T, atol=0.01)
