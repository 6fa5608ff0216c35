"""The LQ runner: exact costs and means against simulation, long batches, refusals; explore-then-commit through it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pipeline.agents.dp_lqr import LqConstants, LqTask
from pipeline.agents.explore_then_commit import Exploration, explore_then_commit
from pipeline.environments.lq import Controller, lq_instance, simulate
from pipeline.mdp.lq_rollout import LinearRollout
from pipeline.online_lq import SIMULATED, moments, play_lq, rolled_out, rollout_cost
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.lq_moments import Episodes, SimulatedRows, release_lq_moments
from pipeline.statistics.lq_plan import LqAsk, LqDomain, LqPlan

MANY = 40_000


def rollouts(world):
    return [LinearRollout(world.optimal_gains(), MANY), LinearRollout(world.zero_gains(), MANY, world.gamma)]


@pytest.mark.parametrize("number", [1, 3, 4])
@pytest.mark.parametrize("which", [0, 1])
def test_means_and_costs_are_those_of_simulated_episodes(number, which):
    world = lq_instance(number)
    ask = rollouts(world)[which]
    x, u = simulate(world, Controller(ask.gains, ask.explore), MANY, np.random.default_rng(0))
    z = np.concatenate([x[:, :-1], u], axis=2)
    gram, cross = moments(world, ask)
    np.testing.assert_allclose(np.einsum("ehi,ehj->ij", z, z) / MANY, gram, atol=0.02)
    np.testing.assert_allclose(np.einsum("ehi,ehj->ij", z, x[:, 1:]) / MANY, cross, atol=0.02)
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
    with pytest.raises(ValueError, match="without gains"):
        rolled_out(world, LinearRollout(world.optimal_gains(), 2, 0.1), rng)
    with pytest.raises(ValueError, match="radius up to gamma"):
        rolled_out(world, LinearRollout(world.zero_gains(), 2, world.gamma * 1.1), rng)


def test_explore_then_commit_counts_its_exploration_and_releases_once():
    world, first = lq_instance(1), 5000
    task, released = LqTask(world.cost, world.gamma), []

    def release(batches):
        released.append(sum(len(b.states) for b in batches))
        n, d = world.shape
        plan = LqPlan(LqDomain("tests", "synthetic", n, d, world.horizon, first), LqAsk(Fraction(1)))
        rows = tuple(Episodes(b.states, b.controls, np.full(len(b.states), world.horizon)) for b in batches)
        return release_lq_moments(plan, SimulatedRows(rows), SeededNoise(0))

    agent = explore_then_commit(task, 20_000, Exploration(first, world.gamma), release, LqConstants())
    played = play_lq(world, agent, np.random.default_rng(0))
    assert released == [first]
    assert played.ends == [4096, first, 20_000]
    explored = rollout_cost(world, LinearRollout(world.zero_gains(), 1, world.gamma))
    best = world.expected_cost(world.optimal_gains())
    assert played.losses[0] == pytest.approx(explored - best)
    assert played.losses[-1] < 0.05 * (world.expected_cost(world.zero_gains()) - best)
    with pytest.raises(ValueError, match="exploration must end"):
        next(explore_then_commit(task, 10, Exploration(10, 1.0), release, LqConstants()))
