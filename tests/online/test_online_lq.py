"""The LQ runner: exact costs and means against simulation, long batches, refusals."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.mdp.rollout import LinearRollout
from pipeline.online.plants import SIMULATED, moments, rolled_out, rollout_cost
from pipeline.worlds.plants import Controller, lq_instance, simulate

MANY = 40_000


def rollouts(world):
    both = LinearRollout(0.5 * world.optimal_gains(), MANY, 0.5 * world.gamma)
    return [LinearRollout(world.optimal_gains(), MANY), LinearRollout(world.zero_gains(), MANY, world.gamma), both]


@pytest.mark.parametrize(
    ("number", "which"),
    [
        (1, 0),
        pytest.param(1, 1, marks=pytest.mark.slow),
        pytest.param(4, 0, marks=pytest.mark.slow),
        *(pytest.param(*m, marks=pytest.mark.slow) for m in ((4, 1), (4, 2), (3, 2))),
    ],
)
def test_means_and_costs_are_those_of_simulated_episodes(number, which):
    world = lq_instance(number)
    ask = rollouts(world)[which]
    x, u = simulate(world, Controller(ask.gains, ask.explore), MANY, np.random.default_rng(0))
    z = np.concatenate([x[:, :-1], u], axis=2)
    gram, cross = moments(world, ask)
    for after, expected in ((z, gram), (x[:, 1:], cross)):
        each = np.einsum("ehi,ehj->eij", z, after)
        assert (np.abs(each.mean(0) - expected) <= 6 * each.std(0) / np.sqrt(MANY) + 1e-12).all()
    paid = np.einsum("ehi,ij,ehj->e", x[:, :-1], world.cost.Q, x[:, :-1])
    paid += np.einsum("ehi,ij,ehj->e", u, world.cost.R, u)
    assert paid.mean() == pytest.approx(rollout_cost(world, ask), abs=6 * paid.std() / np.sqrt(MANY))


def test_a_long_rollout_is_some_episodes_and_the_means_of_all():
    world = lq_instance(1)
    long = rolled_out(world, LinearRollout(world.optimal_gains(), 10**7), np.random.default_rng(0))
    assert (len(long.states), long.episodes) == (SIMULATED, 10**7)
    assert long.means is not None
    short = rolled_out(world, LinearRollout(world.optimal_gains(), SIMULATED), np.random.default_rng(0))
    assert short.means is None
    np.testing.assert_array_equal(short.states, long.states)


def test_controls_that_would_be_cut_are_refused():
    world = lq_instance(4)
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="at most gamma"):
        rolled_out(world, LinearRollout(world.zero_gains() + 1.0, 2), rng)
    with pytest.raises(ValueError, match="gamma together"):
        rolled_out(world, LinearRollout(world.optimal_gains(), 2, 0.1), rng)
    with pytest.raises(ValueError, match="gamma together"):
        rolled_out(world, LinearRollout(world.zero_gains(), 2, world.gamma * 1.1), rng)
