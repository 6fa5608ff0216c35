"""The runner: trajectories follow the world's law, regret is exact, and the agent's last word is kept."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.mdp.planning import greedy, occupancies, optimal_values, policy_value
from pipeline.mdp.rollout import Rollout
from pipeline.online.rollouts import EpisodeWorld, play
from pipeline.worlds.catalog import random_mixture, riverswim_homogeneous
from tests.worlds.mixtures import tabular_mixture

WORLD = random_mixture(3, 2, 2, 3, seed=4)


def scripted(policies, seen):
    for policy in policies:
        seen.append((yield Rollout(policy)))
    return policies[-1]


def test_regret_is_the_exact_loss_of_each_policy_and_the_optimal_one_has_none():
    mdp = tabular_mixture(riverswim_homogeneous(3)).mdp
    left, right = np.zeros((6, 3), dtype=int), np.ones((6, 3), dtype=int)
    best = greedy(optimal_values(mdp)[0]).argmax(-1)
    played = play(scripted([left, left, right, best], []), EpisodeWorld(mdp, np.random.default_rng(0)))
    loss = policy_value(mdp, greedy(optimal_values(mdp)[0])) - policy_value(mdp, np.eye(2)[left])
    np.testing.assert_allclose(played.regret[:2], loss)
    # 2230.6 and 1.39 in 10^4 episodes
    np.testing.assert_allclose(1e4 * played.regret[1:3], [2230.6, 1.39], rtol=5e-3)
    assert played.regret[3] == pytest.approx(0.0, abs=1e-15)
    assert np.array_equal(played.result, best)


def test_trajectories_follow_the_policy_and_the_transitions():
    n, seen = 4000, []
    policy = np.random.default_rng(0).integers(0, 2, (3, 3))
    play(scripted([policy] * n, seen), EpisodeWorld(WORLD.mdp, np.random.default_rng(1)))
    states = np.array([t.states for t in seen])
    actions = np.array([t.actions for t in seen])
    assert np.array_equal(actions, policy[np.arange(3), states[:, :3]])
    share = np.array([np.bincount(states[:, h], minlength=3) / n for h in range(3)])
    # four standard errors of a share
    np.testing.assert_allclose(share, occupancies(WORLD.mdp, np.eye(2)[policy]).sum(-1), atol=4 * 0.5 / n**0.5)
