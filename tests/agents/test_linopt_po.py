"""LinOpt-PO: the naive page agrees, no noise is the baseline, small steps are cautious, rewards can be learnt."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from pipeline.agents.linopt import (
    LearntRewards,
    MixtureTask,
    Problem,
    Regression,
    RegressionRows,
    linopt,
    linopt_po,
    linopt_rewards,
    linopt_vi,
    planned,
    softmax,
)
from pipeline.mdp.features import RewardFeatures
from pipeline.mdp.planning import optimum, policy_value
from pipeline.mdp.rollout import Trajectory
from pipeline.online.mixtures import reward_message, transition_message
from pipeline.online.rollouts import EpisodeWorld, play
from pipeline.privacy.noise import SeededNoise, SimulatedWorld
from pipeline.statistics.ask import Ask
from pipeline.statistics.mixture import fixed, tree
from pipeline.statistics.private_sum import asked_rho
from pipeline.worlds.catalog import random_mixture, riverswim_homogeneous
from tests.worlds.mixtures import tabular_mixture

WORLD = SimulatedWorld("tests")
RIVER = tabular_mixture(riverswim_homogeneous(3))
LOW = random_mixture(6, 2, 3, 4, seed=2)


def known(world, episodes, regularizer=None, c=0.01):
    task = MixtureTask(world.mdp.rewards, world.features, episodes, True)
    plain = fixed(transition_message(task), episodes, 0.01, WORLD, SeededNoise(0))
    return Problem(task, Regression(regularizer or plain, linopt(c)))


def learnt(world, episodes, features=None, epsilon=math.inf, noise=None):
    _, S, A = world.mdp.shape
    rewards = LearntRewards(features or RewardFeatures(None, S, A), world.mdp.rewards.max((1, 2)))
    task = MixtureTask(rewards, world.features, episodes, True)
    ask = Ask(epsilon=epsilon, delta=1e-5)
    shares = ((transition_message(task), Fraction(4, 5)), (reward_message(task), Fraction(1, 5)))
    p, r = (tree(m, episodes, replace(ask, part=x), 0.01, WORLD, noise or SeededNoise(1)) for m, x in shares)
    return Problem(task, Regression(p, linopt(0.01)), Regression(r, linopt_rewards(0.01)))


def run(world, agent, seed=1):
    return play(agent, EpisodeWorld(world.mdp, np.random.default_rng(seed)))


@pytest.mark.parametrize("world", [RIVER, LOW], ids=["one-hot", "d = 3"])
def test_with_every_episode_planned_it_is_the_page_in_loops(world):
    n, eta = 6, 3.0
    H, S, A = world.mdp.shape
    ours = run(world, linopt_po(known(world, n), 1.0, eta))
    problem, policy, losses = known(world, n), np.full((H, S, A), 1 / A), []

    def episodes():
        nonlocal policy
        for _ in range(n):
            V, Q = np.zeros((H + 1, S)), np.zeros((H, S, A))
            ridge, r = problem.transitions.regularizer.ridge(), problem.transitions.regularizer
            tops, lam, d1 = problem.task.tops, 0.01, world.features.unknowns
            for h in reversed(range(H)):
                phi = world.features.phi(V[h + 1])
                for cell in range(S * A):
                    block, row = world.features.place(np.array([cell]))
                    x, free = phi[block[0], row[0]], world.mdp.rewards[h, cell // A, cell % A]
                    if h < H - 1:
                        L = np.linalg.inv(ridge.V[h, block[0]])
                        # rows are unit ones: no response exceeds 1
                        inside = 2 * np.log(H / 0.01) + d1 * np.log(1 + n / lam)
                        beta = 0.01 * (np.sqrt(inside) / 2 + np.sqrt(d1 * lam))
                        free += x @ L @ ridge.U[h, block[0]] + beta * np.sqrt(x @ L @ x)
                    Q[h, cell // A, cell % A] = min(max(free, 0.0), tops[h])
                V[h] = [sum(policy[h, s, a] * Q[h, s, a] for a in range(A)) for s in range(S)]
            losses.append(optimum(world.mdp) - policy_value(world.mdp, policy))
            trajectory = yield policy
            r.observe(RegressionRows(problem.task, V).transitions(trajectory))
            weight = policy * np.exp(eta * Q)
            policy = weight / weight.sum(-1, keepdims=True)

    def agent():
        from pipeline.mdp.rollout import Rollout

        inner = episodes()
        asked = next(inner)
        try:
            while True:
                asked = inner.send((yield Rollout(asked, 1)))
        except StopIteration:
            return policy

    theirs = run(world, agent())
    np.testing.assert_allclose(ours.regret, theirs.regret, atol=1e-9)
    np.testing.assert_allclose(ours.result, theirs.result, atol=1e-8)
    np.testing.assert_allclose(ours.regret, losses, atol=1e-9)


def test_without_noise_the_private_one_is_its_baseline_to_the_last_bit():
    plain = run(RIVER, linopt_po(known(RIVER, 200), 1.05, 2.0))
    task = known(RIVER, 200).task
    quiet = tree(transition_message(task), 200, Ask(epsilon=math.inf, delta=1e-5), 0.01, WORLD, SeededNoise(0))
    same = run(RIVER, linopt_po(known(RIVER, 200, quiet), 1.05, 2.0))
    assert np.array_equal(same.regret, plain.regret)
    noisy = tree(transition_message(task), 200, Ask(epsilon=10.0, delta=1e-5), 0.01, WORLD, SeededNoise(0))
    assert not np.array_equal(run(RIVER, linopt_po(known(RIVER, 200, noisy), 1.05, 2.0)).regret, plain.regret)


@pytest.mark.slow
def test_it_learns_and_faster_with_the_tuned_step(simulate):
    slow, fast = (
        simulate("linopt-po", episodes=3000, growth=1.05, eta=eta, beside=["uniform"])["agents"] for eta in (1, 10)
    )
    uniform = slow["uniform"]["regret"]["mean"]
    losses = [found["linopt-po"]["regret"]["mean"] for found in (slow, fast)]
    assert losses[1] < 0.3 * losses[0] < 0.3 * uniform


def test_a_step_of_length_zero_stays_uniform_and_large_scores_do_not_overflow():
    played = run(LOW, linopt_po(known(LOW, 40), 1.5, 0.0))
    assert np.array_equal(played.result, np.full(LOW.mdp.shape, 0.5))
    np.testing.assert_allclose(softmax(np.array([1e4, 0.0])), [1.0, 0.0])


@pytest.mark.parametrize("given", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["one-hot", "given"])
def test_learnt_rewards_are_found_and_cost_their_share(given):
    S, A = RIVER.mdp.shape[1:]
    rows = np.eye(S * A).reshape(S, A, -1)[..., [0, S * A - 1]] if given else None
    features = RewardFeatures(rows, S, A)
    problem = learnt(RIVER, 400, features)
    run(RIVER, linopt_vi(problem, 1.05, np.random.default_rng(0)))
    ridge = problem.rewards.regularizer.ridge()
    theta = np.linalg.solve(ridge.V, ridge.U[..., None])[..., 0]
    found = np.einsum("bnd,hbd->hbn", features.phi(), theta).reshape(RIVER.mdp.shape)
    seen = problem.rewards.regularizer.ridge().V.max() > 50
    assert seen
    assert np.abs(found - RIVER.mdp.rewards)[:, 0, 0].max() < 2e-4
    played = run(RIVER, linopt_vi(learnt(RIVER, 1500, features), 1.05, np.random.default_rng(0)))
    assert played.regret[-200:].mean() < 0.05
    private = learnt(RIVER, 64, features, epsilon=3.0)
    joint = private.transitions.regularizer.guarantee.beside(private.rewards.regularizer.guarantee)
    assert joint.rho <= asked_rho(Ask(epsilon=3.0, delta=1e-5))


def test_rewards_are_known_or_learnt_but_not_both():
    problem = known(RIVER, 10)
    with pytest.raises(ValueError, match="either known"):
        Problem(problem.task, problem.transitions, problem.transitions)
    with pytest.raises(ValueError, match="nothing about them"):
        _ = reward_message(problem.task)
    with pytest.raises(ValueError, match="scale them"):
        RewardFeatures(np.full((3, 2, 4), 1.0), 3, 2)


def test_old_features_are_frozen_and_a_twin_that_recomputes_them_is_caught():
    def leaves(recompute):
        """Messages of 4 episodes as the counter holds them after each plan."""
        problem, kept, history = known(RIVER, 4), [], []
        for k in range(4):
            plan = planned(problem, np.random.default_rng(k))
            states, actions = np.arange(7) % 3, np.ones(6, dtype=int)
            trajectory = Trajectory(states, actions, np.zeros(6))
            kept.append((RegressionRows(problem.task, plan.V), trajectory))
            now = [(kept[-1][0] if recompute else rows, t) for rows, t in kept]
            history.append([transition_message(problem.task).integers(rows.transitions(t)) for rows, t in now])
            problem.observe(*kept[-1])
        return history

    for recompute in (False, True):
        history = leaves(recompute)
        unchanged = all(np.array_equal(history[k][j], history[j][j]) for k in range(4) for j in range(k + 1))
        assert unchanged is not recompute
