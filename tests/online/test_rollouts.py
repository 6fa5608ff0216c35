"""Runners: trajectories, tables and moments follow the world's law, and losses are exact."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import greedy, occupancies, optimal_values, policy_value
from pipeline.mdp.policy import set_arrivals, set_values
from pipeline.mdp.rollout import BatchRollout, LinearRollout, Rollout
from pipeline.online.plants import SIMULATED, moments, rolled_out, rollout_cost
from pipeline.online.rollouts import BatchWorld, EpisodeWorld, play, sample_batch
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.interactive_counts import BatchPrivatizer
from pipeline.worlds.catalog import random_mixture, random_tabular, riverswim_homogeneous
from pipeline.worlds.plants import lq_instance, simulate
from tests.conftest import slow
from tests.worlds.mixtures import tabular_mixture

WORLD = random_mixture(3, 2, 2, 3, seed=4)


def scripted(asks, seen):
    for ask in asks:
        seen.append((yield ask))
    return "done"


def test_regret_is_the_exact_loss_of_each_policy_and_the_optimal_one_has_none():
    mdp = tabular_mixture(riverswim_homogeneous(3)).mdp
    left, right = np.zeros((6, 3), dtype=int), np.ones((6, 3), dtype=int)
    best = greedy(optimal_values(mdp)[0]).argmax(-1)
    played = play(scripted(map(Rollout, (left, left, right, best)), []), EpisodeWorld(mdp, np.random.default_rng(0)))
    loss = policy_value(mdp, greedy(optimal_values(mdp)[0])) - policy_value(mdp, np.eye(2)[left])
    np.testing.assert_allclose(played.regret[:2], loss)
    # 2230.6 and 1.39 in 10^4 episodes
    np.testing.assert_allclose(1e4 * played.regret[1:3], [2230.6, 1.39], rtol=5e-3)
    assert played.regret[3] == pytest.approx(0.0, abs=1e-15)


def test_trajectories_follow_the_policy_and_the_transitions():
    n, seen = 4000, []
    policy = np.random.default_rng(0).integers(0, 2, (3, 3))
    play(scripted([Rollout(policy)] * n, seen), EpisodeWorld(WORLD.mdp, np.random.default_rng(1)))
    states, actions = (np.array([getattr(t, of) for t in seen]) for of in ("states", "actions"))
    assert np.array_equal(actions, policy[np.arange(3), states[:, :3]])
    share = np.array([np.bincount(states[:, h], minlength=3) / n for h in range(3)])
    # four standard errors of a share
    np.testing.assert_allclose(share, occupancies(WORLD.mdp, np.eye(2)[policy]).sum(-1), atol=4 * 0.5 / n**0.5)


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


def test_the_runner_releases_the_asked_steps_and_prices_each_batch_exactly():
    one = BatchRollout(POLICIES, np.array([3, 0, 1, 0]), (0, 1), rewards=False)
    two = BatchRollout(POLICIES, np.array([0, 5, 0, 0]), (0, 3), lean=True)
    seen = []
    world = BatchWorld(MDP, BatchPrivatizer(), np.random.default_rng(0), SeededNoise(0))
    played = play(scripted([one, two], seen), world)
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


MANY = 40_000


def rollouts(world):
    both = LinearRollout(0.5 * world.optimal_gains(), MANY, 0.5 * world.gamma)
    return [LinearRollout(world.optimal_gains(), MANY), LinearRollout(world.zero_gains(), MANY, world.gamma), both]


@pytest.mark.parametrize(
    ("number", "which"), [(1, 0), slow(1, 1), slow(4, 0), *(slow(*m) for m in ((4, 1), (4, 2), (3, 2)))]
)
def test_means_and_costs_are_those_of_simulated_episodes(number, which):
    world = lq_instance(number)
    ask = rollouts(world)[which]
    x, u = simulate(world, replace(ask, episodes=MANY), np.random.default_rng(0))
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
    long, short = (
        rolled_out(world, LinearRollout(world.optimal_gains(), n), np.random.default_rng(0)) for n in (10**7, SIMULATED)
    )
    assert (len(long.states), long.episodes) == (SIMULATED, 10**7)
    assert long.means is not None and short.means is None
    np.testing.assert_array_equal(short.states, long.states)


def test_controls_that_would_be_cut_are_refused():
    world = lq_instance(4)
    for says, *ask in (
        ("at most gamma", world.zero_gains() + 1.0, 2),
        ("gamma together", world.optimal_gains(), 2, 0.1),
        ("gamma together", world.zero_gains(), 2, world.gamma * 1.1),
    ):
        with pytest.raises(ValueError, match=says):
            rolled_out(world, LinearRollout(*ask), np.random.default_rng(0))
