"""LinOpt: the naive pages agree, no noise is the baseline, blocks are the dense form, and the agents learn."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from pipeline.agents.linopt import (
    LearntRewards,
    MixtureTask,
    Moment,
    Problem,
    Regression,
    RegressionRows,
    linopt,
    linopt_po,
    linopt_rewards,
    linopt_vi,
    planned,
    softmax,
    ucrl_vtr,
)
from pipeline.mdp.features import RewardFeatures, dense_one_hot
from pipeline.mdp.planning import optimal_values, optimum, policy_value
from pipeline.mdp.rollout import Rollout, Trajectory, plan_lengths, plan_starts
from pipeline.online.mixtures import reward_message, transition_message
from pipeline.online.rollouts import EpisodeWorld, play
from pipeline.privacy.noise import SeededNoise, SimulatedWorld
from pipeline.statistics.ask import Ask
from pipeline.statistics.mixture import mixture_regularizer
from pipeline.statistics.private_sum import asked_rho
from pipeline.statistics.regression import RidgeSums
from pipeline.worlds.catalog import random_mixture, riverswim_homogeneous
from tests.conftest import slow
from tests.worlds.mixtures import tabular_mixture

WORLD = SimulatedWorld("tests")
RIVER = tabular_mixture(riverswim_homogeneous(3))
LOW = random_mixture(6, 2, 3, 4, seed=2)
MIXTURE = {"name": "random_mixture", "states": 6, "actions": 2, "dimension": 3, "horizon": 4, "seed": 2}


def task_of(world, episodes, unit=True):
    return MixtureTask(world.mdp.rewards, world.features, episodes, unit)


def baseline(task, lam=0.01):
    return mixture_regularizer(transition_message(task), task.episodes, None, lam, WORLD, SeededNoise(0))


def problem(task, regularizer=None, radii=None):
    return Problem(task, Regression(regularizer or baseline(task), radii or linopt(0.01)))


def run(world, agent):
    return play(agent, EpisodeWorld(world.mdp, np.random.default_rng(1)))


AGENTS = {"vi": lambda p: linopt_vi(p, 1.05, np.random.default_rng(0)), "po": lambda p: linopt_po(p, 1.05, 2.0)}


@pytest.mark.parametrize("agent", AGENTS)
def test_a_private_agent_without_noise_is_its_baseline_to_the_last_bit(agent):
    task = task_of(RIVER, 200)

    def played(make=None, epsilon=math.inf):
        ask = Ask(epsilon=epsilon, delta=1e-5)
        regularizer = make and make(transition_message(task), 200, ask, 0.01, WORLD, SeededNoise(0))
        assert make is None or epsilon < math.inf or regularizer.guarantee.rho is None
        return run(RIVER, AGENTS[agent](problem(task, regularizer)))

    plain = played()
    for quiet in (played(mixture_regularizer), played(partial(mixture_regularizer, mechanism=None))):
        assert np.array_equal(quiet.regret, plain.regret) and np.array_equal(quiet.result, plain.result)
    assert not np.array_equal(played(mixture_regularizer, 10.0).regret, plain.regret)


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("world", [RIVER, LOW], ids=["one-hot", "d = 3"])
def test_statistics_and_plan_agree_with_the_page_in_loops(world, unit):
    task, c, lam = task_of(world, 12, unit), 0.05, 0.1
    H, S, A = world.mdp.shape
    psi = dense_one_hot(S, A).psi if world.features.psi is None else world.features.psi
    d = psi.shape[-1]
    regularizer, rng = baseline(task, lam), np.random.default_rng(0)
    Lambda, u = np.stack([lam * np.eye(d)] * H), np.zeros((H, d))
    for _ in range(12):
        plan = planned(problem(task, regularizer, linopt(c)), np.random.default_rng(0))
        V = np.zeros((H + 1, S))
        for h in reversed(range(H)):
            for s in range(S):
                Q = []
                for a in range(A):
                    phi = sum(psi[s, a, t] * V[h + 1, t] for t in range(S))
                    top = 1.0 if unit else task.tops[h + 1]
                    inside = 2 * np.log(H / 0.01) + d * np.log(1 + 12 * top**2 / lam)
                    beta = c * (top / 2 * np.sqrt(inside) + np.sqrt(d * lam))
                    inverse = np.linalg.inv(Lambda[h])
                    bonus = beta * np.sqrt(phi @ inverse @ phi) if h < H - 1 else 0.0
                    free = task.rewards[h, s, a] + phi @ inverse @ u[h] + bonus
                    Q.append(min(max(free, 0.0), task.tops[h]))
                V[h, s] = max(Q)
        # features and targets are floored to 2^-26 of their bounds
        np.testing.assert_allclose(plan.V, V, atol=1e-5)
        states, actions = rng.integers(0, S, H + 1), rng.integers(0, A, H)
        trajectory = Trajectory(states, actions, np.zeros(H))
        regularizer.observe(RegressionRows(task, plan.V).transitions(trajectory))
        for h in range(H - 1):
            weight = 1.0
            if unit:
                every = [np.linalg.norm(plan.V[h + 1] @ psi[s, a]) for s in range(S) for a in range(A)]
                weight = max(plan.V[h + 1].max(), *every)
            phi = plan.V[h + 1] @ psi[states[h], actions[h]] / weight
            Lambda[h] += np.outer(phi, phi)
            u[h] += phi * plan.V[h + 1, states[h + 1]] / weight


def test_values_are_optimistic_with_a_wide_bonus_and_never_above_what_can_be_won():
    task = task_of(LOW, 30)
    regularizer = baseline(task, lam=1.0)
    best = optimal_values(LOW.mdp)[1]
    plan = planned(problem(task, regularizer, linopt(3.0)), np.random.default_rng(0))
    assert (best - 1e-9 <= plan.V).all()
    assert (task.tops[:, None] + 1e-12 >= plan.V).all()


def test_ties_go_to_the_unclipped_value_and_then_to_chance():
    task = task_of(RIVER, 30)
    blind, wide = (problem(task, baseline(task), ucrl_vtr(c)) for c in (0.0, 100.0))
    seen = {tuple(planned(blind, np.random.default_rng(s)).policy[0]) for s in range(40)}
    assert len(seen) > 1
    plan = planned(wide, np.random.default_rng(0))
    assert plan.tied[:-1].any()


def test_the_schedule_is_geometric_and_starts_with_the_first_episode():
    assert plan_starts(10, 1.0) == list(range(1, 11))
    assert plan_starts(40, 2.0) == [1, 2, 4, 8, 16, 32]
    assert plan_lengths(40, 2.0) == [1, 2, 4, 8, 16, 9]
    with pytest.raises(ValueError, match="at least 1"):
        plan_starts(10, 0.9)


@pytest.mark.parametrize(
    "world", [{"name": "riverswim_homogeneous", "states": 3}, slow(MIXTURE)], ids=["one-hot", "d = 3"]
)
def test_ucrl_vtr_learns(simulate, world):
    said = simulate("ucrl-vtr", world, episodes=1500, growth=1.05, beside=["uniform"])
    assert said["facts"]["last_tenth"] < 0.1 * said["agents"]["uniform"]["suboptimality"]["mean"]


ONES = np.ones(2)
MOMENT = Moment(
    16, 100, 8, np.array([0.5, 0.25]), np.array([0.5, 0.25]),
    RidgeSums(np.tile(2 * np.eye(2), (2, 4, 1, 1)), np.zeros((2, 4, 2)), ONES, 2 * ONES, 0.1 * ONES),
)  # fmt: skip


def test_the_printed_ucrl_bonus_scales_its_first_term_alone():
    second = MOMENT.tops * math.sqrt(2 * math.log(100) + 8 * math.log(2))
    np.testing.assert_allclose(ucrl_vtr(0.1)(MOMENT), 0.1 * (math.sqrt(8) + second))
    np.testing.assert_allclose(ucrl_vtr(0.1, printed=True)(MOMENT), 0.1 * math.sqrt(8) + second)


def learnt(world, episodes, features=None, epsilon=math.inf, noise=None):
    _, S, A = world.mdp.shape
    rewards = LearntRewards(features or RewardFeatures(None, S, A), world.mdp.rewards.max((1, 2)))
    task = MixtureTask(rewards, world.features, episodes, True)
    ask = Ask(epsilon=epsilon, delta=1e-5)
    shares = ((transition_message(task), Fraction(4, 5)), (reward_message(task), Fraction(1, 5)))
    p, r = (
        mixture_regularizer(m, episodes, replace(ask, part=x), 0.01, WORLD, noise or SeededNoise(1)) for m, x in shares
    )
    return Problem(task, Regression(p, linopt(0.01)), Regression(r, linopt_rewards(0.01)))


@pytest.mark.parametrize("world", [RIVER, LOW], ids=["one-hot", "d = 3"])
def test_with_every_episode_planned_it_is_the_page_in_loops(world):
    n, eta = 6, 3.0
    H, S, A = world.mdp.shape
    ours = run(world, linopt_po(problem(task_of(world, n)), 1.0, eta))
    asked, policy, losses = problem(task_of(world, n)), np.full((H, S, A), 1 / A), []

    def episodes():
        nonlocal policy
        for _ in range(n):
            V, Q = np.zeros((H + 1, S)), np.zeros((H, S, A))
            ridge, r = asked.transitions.regularizer.ridge(), asked.transitions.regularizer
            tops, lam, d1 = asked.task.tops, 0.01, world.features.unknowns
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
            trajectory = yield Rollout(policy, 1)
            r.observe(RegressionRows(asked.task, V).transitions(trajectory))
            weight = policy * np.exp(eta * Q)
            policy = weight / weight.sum(-1, keepdims=True)
        return policy

    theirs = run(world, episodes())
    np.testing.assert_allclose(ours.regret, theirs.regret, atol=1e-9)
    np.testing.assert_allclose(ours.result, theirs.result, atol=1e-8)
    np.testing.assert_allclose(ours.regret, losses, atol=1e-9)


@pytest.mark.slow
def test_it_learns_and_faster_with_the_tuned_step(simulate):
    slow, fast = (
        simulate("linopt-po", episodes=3000, growth=1.05, eta=eta, beside=["uniform"])["agents"] for eta in (1, 10)
    )
    uniform = slow["uniform"]["regret"]["mean"]
    losses = [found["linopt-po"]["regret"]["mean"] for found in (slow, fast)]
    assert losses[1] < 0.3 * losses[0] < 0.3 * uniform


def test_a_step_of_length_zero_stays_uniform_and_large_scores_do_not_overflow():
    played = run(LOW, linopt_po(problem(task_of(LOW, 40)), 1.5, 0.0))
    assert np.array_equal(played.result, np.full(LOW.mdp.shape, 0.5))
    np.testing.assert_allclose(softmax(np.array([1e4, 0.0])), [1.0, 0.0])


@pytest.mark.parametrize("given", [False, slow(True)], ids=["one-hot", "given"])
def test_learnt_rewards_are_found_and_cost_their_share(given):
    S, A = RIVER.mdp.shape[1:]
    rows = np.eye(S * A).reshape(S, A, -1)[..., [0, S * A - 1]] if given else None
    features = RewardFeatures(rows, S, A)
    asked = learnt(RIVER, 400, features)
    run(RIVER, linopt_vi(asked, 1.05, np.random.default_rng(0)))
    ridge = asked.rewards.regularizer.ridge()
    theta = np.linalg.solve(ridge.V, ridge.U[..., None])[..., 0]
    found = np.einsum("bnd,hbd->hbn", features.phi(), theta).reshape(RIVER.mdp.shape)
    assert ridge.V.max() > 50
    assert np.abs(found - RIVER.mdp.rewards)[:, 0, 0].max() < 2e-4
    played = run(RIVER, linopt_vi(learnt(RIVER, 1500, features), 1.05, np.random.default_rng(0)))
    assert played.regret[-200:].mean() < 0.05
    private = learnt(RIVER, 64, features, epsilon=3.0)
    joint = private.transitions.regularizer.guarantee.beside(private.rewards.regularizer.guarantee)
    assert joint.rho <= asked_rho(Ask(epsilon=3.0, delta=1e-5))


def test_features_of_rewards_that_are_too_long_are_refused():
    with pytest.raises(ValueError, match="scale them"):
        RewardFeatures(np.full((3, 2, 4), 1.0), 3, 2)


def test_old_features_are_frozen_and_a_twin_that_recomputes_them_is_caught():
    def leaves(recompute):
        """Messages of 4 episodes as the counter holds them after each plan."""
        asked, kept, history = problem(task_of(RIVER, 4)), [], []
        for k in range(4):
            plan = planned(asked, np.random.default_rng(k))
            kept.append(
                (RegressionRows(asked.task, plan.V), Trajectory(np.arange(7) % 3, np.ones(6, dtype=int), np.zeros(6)))
            )
            now = [(kept[-1][0] if recompute else rows, t) for rows, t in kept]
            history.append([transition_message(asked.task).integers(rows.transitions(t)) for rows, t in now])
            asked.observe(*kept[-1])
        return history

    for recompute in (False, True):
        history = leaves(recompute)
        unchanged = all(np.array_equal(history[k][j], history[j][j]) for k in range(4) for j in range(k + 1))
        assert unchanged is not recompute
