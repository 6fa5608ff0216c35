"""Explore, release once, commit: every exploring episode is in the one release, and its cost is counted."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pipeline.agents.dp_lqr import LqConstants, LqTask
from pipeline.agents.explore_then_commit import Exploration, explore_then_commit
from pipeline.mdp.rollout import LinearRollout
from pipeline.online.plants import PlantWorld, rollout_cost
from pipeline.online.rollouts import play
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.lq import LqSums, draw_lq, lq_sum, released_moments
from pipeline.worlds.plants import lq_instance


def test_explore_then_commit_counts_its_exploration_and_releases_once():
    world, first = lq_instance(1), 5000
    task, released = LqTask(world.cost, world.gamma), []

    def release(batches):
        released.append(sum(len(b.states) for b in batches))
        plan = lq_sum(LqSums(*world.shape, world.horizon, episodes=first), Fraction(1))
        return released_moments(plan, draw_lq(plan, batches, SeededNoise(0)))

    agent = explore_then_commit(task, 20_000, Exploration(first, world.gamma), release, LqConstants())
    played = play(agent, PlantWorld(world, np.random.default_rng(0)))
    assert released == [first]
    assert played.ends == [4096, first, 20_000]
    explored = rollout_cost(world, LinearRollout(world.zero_gains(), 1, world.gamma))
    best = world.expected_cost(world.optimal_gains())
    assert played.losses[0] == pytest.approx(explored - best)
    assert played.losses[-1] < 0.05 * (world.expected_cost(world.zero_gains()) - best)
    with pytest.raises(ValueError, match="exploration must end"):
        next(explore_then_commit(task, 10, Exploration(10, 1.0), release, LqConstants()))
