"""LinOpt-VI: the naive page agrees, no noise is the baseline, blocks are the dense form, and the agents learn."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pipeline.agents.linopt import (
    MixtureTask,
    Moment,
    Problem,
    Regression,
    RegressionRows,
    ldp,
    ldp_theory,
    linopt,
    linopt_rewards,
    linopt_vi,
    planned,
    ucrl_vtr,
)
from pipeline.mdp.features import dense_one_hot
from pipeline.mdp.planning import optimal_values
from pipeline.mdp.rollout import Trajectory, plan_lengths, plan_starts
from pipeline.online.mixtures import transition_message
from pipeline.online.rollouts import EpisodeWorld, play
from pipeline.privacy.noise import SeededNoise, SimulatedWorld
from pipeline.statistics.ask import Ask
from pipeline.statistics.mixture import fixed, local, tree
from pipeline.statistics.regression import RidgeSums
from pipeline.worlds.catalog import random_mixture, riverswim_homogeneous
from tests.worlds.mixtures import tabular_mixture

WORLD = SimulatedWorld("tests")
RIVER = tabular_mixture(riverswim_homogeneous(3))
LOW = random_mixture(6, 2, 3, 4, seed=2)
MIXTURE = {"name": "random_mixture", "states": 6, "actions": 2, "dimension": 3, "horizon": 4, "seed": 2}


def task_of(world, episodes, unit=True, features=None):
    return MixtureTask(world.mdp.rewards, features or world.features, episodes, unit)


def problem(task, regularizer, radii):
    return Problem(task, Regression(regularizer, radii))


def run(world, task, regularizer, radii, growth=1.0, seed=0):
    agent = linopt_vi(problem(task, regularizer, radii), growth, np.random.default_rng(seed))
    return play(agent, EpisodeWorld(world.mdp, np.random.default_rng(seed + 1)))


def baseline(task, lam=0.01):
    return fixed(transition_message(task), task.episodes, lam, WORLD, SeededNoise(0))


def test_a_private_agent_without_noise_is_its_baseline_to_the_last_bit():
    task, none = task_of(RIVER, 60), Ask(epsilon=math.inf, delta=1e-5)
    plain = run(RIVER, task, baseline(task), linopt(0.01))
    for make in (tree, local):
        quiet = make(transition_message(task), 60, none, 0.01, WORLD, SeededNoise(0))
        assert quiet.guarantee.rho is None
        played = run(RIVER, task, quiet, linopt(0.01))
        assert np.array_equal(played.regret, plain.regret)
        assert np.array_equal(played.result, plain.result)
    noisy = tree(transition_message(task), 60, Ask(epsilon=10.0, delta=1e-5), 0.01, WORLD, SeededNoise(0))
    assert not np.array_equal(run(RIVER, task, noisy, linopt(0.01)).regret, plain.regret)


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
    "world",
    [{"name": "riverswim_homogeneous", "states": 3}, pytest.param(MIXTURE, marks=pytest.mark.slow)],
    ids=["one-hot", "d = 3"],
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


def test_the_local_radius_and_its_theory():
    np.testing.assert_allclose(ldp(0.3)(MOMENT), 0.3 * 8**0.75 * MOMENT.tops**1.5 * 2)
    # H = 3: three and two steps to go
    extra = math.log(8 * 100 * 3 / 0.01) * np.log(np.array([3, 2]) / 0.1) ** 0.25 / 2
    np.testing.assert_allclose(ldp_theory(4.0, 0.1)(MOMENT), ldp(1.0)(MOMENT) * extra)


def test_the_reward_radius_is_in_reward_units():
    inside = 2 * math.log(2 / 0.01) + 8 * math.log(1 + 100 / 8)
    wanted = MOMENT.tops * (math.sqrt(inside) / 2 + math.sqrt(16)) + 0.1
    np.testing.assert_allclose(linopt_rewards(1.0)(MOMENT), wanted)
    assert linopt_rewards(0.0)(MOMENT) == pytest.approx(0.0)
