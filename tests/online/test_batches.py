"""Batches: tables follow the world's law under the policies asked for, and losses are exact."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import occupancies, optimal_values, policy_value
from pipeline.mdp.policy import set_arrivals, set_values
from pipeline.mdp.rollout import BatchRollout
from pipeline.online.rollouts import BatchWorld, play, sample_batch
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.interactive_counts import BatchPrivatizer
from pipeline.worlds.catalog import random_tabular

MDP = random_tabular(3, 2, 3, seed=4, successors=2).mdp(3)
POLICIES = np.random.default_rng(0).integers(0, 2, (4, 3, 3))


def test_tables_follow_the_policies_and_the_transitions():
    episodes = np.array([300_000, 0, 100_000, 200_000])
    got = sample_batch(MDP, POLICIES, episodes, np.random.default_rng(1))
    assert got.users == 600_000 and (got.n_sas.sum((1, 2, 3)) == got.users).all()
    # arrivals at a step are the visits of the next
    assert np.array_equal(got.n_sas.sum((1, 2))[:-1], got.n_sas.sum((2, 3))[1:])
    expected = sum(n * occupancies(MDP, np.eye(2)[p]) for n, p in zip(episodes, POLICIES, strict=True))
    wanted = expected[..., None] * MDP.transitions
    assert (np.abs(got.n_sas - wanted) <= 5 * np.sqrt(wanted) + 1e-9).all()
    assert (np.abs(got.r_sa - expected * MDP.rewards) <= 6 * np.sqrt(expected) + 1e-9).all()


def test_many_policies_at_once_are_valued_like_one_at_a_time():
    values = set_values(MDP.transitions, MDP.rewards, MDP.start, POLICIES)
    np.testing.assert_allclose(values, [policy_value(MDP, np.eye(2)[p]) for p in POLICIES], rtol=1e-12)
    arrivals = set_arrivals(MDP.transitions, MDP.start, POLICIES, 2)
    np.testing.assert_allclose(arrivals, [occupancies(MDP, np.eye(2)[p])[2].sum(-1) for p in POLICIES], rtol=1e-12)


def script(asks, seen):
    for ask in asks:
        seen.append((yield ask))
    return "done"


def test_the_runner_releases_the_asked_steps_and_prices_each_batch_exactly():
    one = BatchRollout(POLICIES, np.array([3, 0, 1, 0]), (0, 1), rewards=False)
    two = BatchRollout(POLICIES, np.array([0, 5, 0, 0]), (0, 3), lean=True)
    seen = []
    world = BatchWorld(MDP, BatchPrivatizer(), np.random.default_rng(0), SeededNoise(0))
    played = play(script([one, two], seen), world)
    best = float(MDP.start @ optimal_values(MDP)[1][0])
    values = set_values(MDP.transitions, MDP.rewards, MDP.start, POLICIES)
    assert played.result == "done"
    assert [noisy.users for _, noisy in world.batches] == [4, 5]
    np.testing.assert_allclose(played.losses, [best - (3 * values[0] + values[2]) / 4, best - values[1]])
    assert seen[0].n_sas.shape == (1, 3, 2, 3) and seen[0].r_sa is None and seen[0].n_sa.sum() == 4
    assert seen[1].n_sas.shape == (3, 3, 2, 3) and seen[1].r_sa is not None
    assert not world.batches[0][0].ends and world.batches[1][0].ends


def test_rewards_outside_the_unit_range_are_refused():
    wide = TabularMDP(MDP.transitions, 2 * MDP.rewards, MDP.start)
    with pytest.raises(ValueError, match="rewards must be in"):
        BatchWorld(wide, BatchPrivatizer(), np.random.default_rng(0), SeededNoise(0))
