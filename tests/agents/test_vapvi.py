"""VAPVI, PEVI and one-shot planning: against a naive reference, against each other, and at what they promise."""

import math
from fractions import Fraction

import numpy as np
import pytest

import pipeline.statistics.linear_sums as desk_module
from pipeline.agents.linear_backup import (
    Backup,
    LinearConstants,
    LinearResult,
    LinearTask,
    greedy_step,
    linear_task,
    one_shot,
    optimal_upper,
    policy_bound,
)
from pipeline.agents.vapvi import inverse_variance, pevi, theory_beta, vapvi, window_of
from pipeline.mdp.features import FeatureMap
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.online.linear import LinearWorld, linear_003
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms
from pipeline.statistics.linear_sums import (
    InteractiveRegression,
    TalliedRows,
    count_rows,
    draw_one_shot,
    released_statistics,
)
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.regression import PrivateRegression
from tests.privacy.handles import Silent

C, K, Q = LinearConstants(C=0.3), 400, 1024


def setting(ask: LinearTerms, w: LinearWorld, people: int = K, seed: int = 0) -> tuple[LinearPlan, TalliedRows]:
    plan = LinearPlan(LinearDomain("003", "synthetic", w.mdp.horizon, people), ask, w.features)
    return plan, count_rows(plan, {"both": w.counts(people, np.random.default_rng(seed))}, w.mdp.rewards)


def planned(ask: LinearTerms, w: LinearWorld, c: LinearConstants = C, noise=None) -> LinearResult:
    plan, rows = setting(ask, w)
    desk = InteractiveRegression(plan, rows, noise or SeededNoise(0))
    return vapvi(desk, linear_task(plan), c, np.random.default_rng(0), centred=ask.variant != "paper")


def naive(w: LinearWorld, n: np.ndarray, c: LinearConstants) -> np.ndarray:
    """Algorithm 2 without noise, in the paper's order: loops over rows, plain inverses, lattice by rounding down."""
    f, unit = w.features.integers, w.features.unit
    S, A, d = f.shape
    H = w.mdp.horizon
    V = np.zeros((H + 1, S))
    for h in reversed(range(H)):
        Sigma, b, t = c.ridge * np.eye(d), np.zeros(d), np.zeros(d)
        for s, a, s2 in np.argwhere(n[h]):
            phi, m = f[s, a] * unit, n[h, s, a, s2]
            Sigma = Sigma + m * np.outer(phi, phi)
            b, t = b + m * phi * V[h + 1, s2] ** 2, t + m * phi * V[h + 1, s2]
        beta, theta = np.linalg.inv(Sigma) @ b, np.linalg.inv(Sigma) @ t
        Lambda, u = c.ridge * np.eye(d), np.zeros(d)
        for s, a, s2 in np.argwhere(n[h]):
            phi, m = f[s, a] * unit, n[h, s, a, s2]
            variance = min(max(phi @ beta, 0), (H - h) ** 2) - min(max(phi @ theta, 0), H - h) ** 2
            weight = round(1024 / max(1, variance)) / 1024
            Lambda = Lambda + weight * m * np.outer(phi, phi)
            u = u + weight * m * phi * (np.floor(w.mdp.rewards[h, s, a] * Q + 1e-9) / Q + V[h + 1, s2])
        inverse = np.linalg.inv(Lambda)
        for s in range(S):
            best = 0.0
            for a in range(A):
                phi = f[s, a] * unit
                width = c.C * d**0.5 * (phi @ inverse @ phi) ** 0.5
                best = max(best, min(max(phi @ inverse @ u - width, 0), H - h))
            V[h, s] = np.floor(best * Q + 1e-9) / Q
    return V


def wide_world() -> LinearWorld:
    """Three sticky states, one that pays, one-hot features: values spread, so that variances exceed 1."""
    H, S, A = 12, 3, 2
    P = np.full((S, A, S), 0.05) + 0.85 * np.eye(S)[:, None]
    P[0, 1], P[1, 1] = (0.4, 0.3, 0.3), (0.3, 0.4, 0.3)
    reward = np.array([[1.0, 0.8], [0.0, 0.1], [0.2, 0.0]])
    mdp = TabularMDP(np.tile(P, (H, 1, 1, 1)), np.tile(reward, (H, 1, 1)), np.full(S, 1 / S))
    one_hot = np.eye(S * A, dtype=np.int64).reshape(S, A, -1)
    return LinearWorld(mdp, FeatureMap(one_hot, 1, Fraction(1)), np.full((S, A), 0.5))


@pytest.mark.parametrize("world", [linear_003(0), wide_world()], ids=["appendix F", "variances above 1"])
def test_the_paper_variant_without_noise_is_the_printed_algorithm(world):
    result = planned(LinearTerms(Ask(None), "paper"), world)
    n = world.counts(K, np.random.default_rng(0))
    np.testing.assert_allclose(result.V, naive(world, n, C), atol=1e-10)
    assert result.weighted.tolist() == [True] * (world.mdp.horizon - 1) + [False]


@pytest.mark.parametrize("variant", ["paper", "centred"])
def test_dp_vapvi_with_zero_noise_is_vapvi_to_the_bit(variant, monkeypatch):
    exact = planned(LinearTerms(Ask(None), variant), wide_world())

    def silent(layout, whole):
        return PrivateSum(layout, tuple(t.mechanism() for t in layout.tables))

    monkeypatch.setattr(desk_module, "call_sum", silent)
    noisy = planned(LinearTerms(Ask(Fraction(1)), variant), wide_world(), noise=Silent(0))
    np.testing.assert_array_equal(exact.V, noisy.V)
    np.testing.assert_array_equal(exact.policy.probabilities, noisy.policy.probabilities)


def test_the_variance_step_is_taken_where_values_spread_and_skipped_where_sigma_is_provably_one():
    result = planned(LinearTerms(Ask(None)), wide_world())
    assert result.weighted[:6].all() and not result.weighted[-3:].any()
    world = wide_world()
    V, P = result.V, world.mdp.transitions
    variance = np.array([P[h] @ V[h + 1] ** 2 - (P[h] @ V[h + 1]) ** 2 for h in range(12)])
    assert variance[:6].max() > 1 >= variance[~result.weighted].max()


def test_an_end_widens_the_window_to_zero():
    task = LinearTask(5, (0.0, 1.0), 10, np.ones((2, 1, 1)), 1.0, can_end=True)
    V = np.array([2.0, 3.0])
    assert window_of(V, 1, task, centred=True).low == 0
    assert window_of(V, 1, LinearTask(5, (0.0, 1.0), 10, np.ones((2, 1, 1)), 1.0), centred=True).low == 2
    assert window_of(V, 1, task, centred=False).high == 3


def test_private_learning_on_appendix_f_beats_uniform_by_far():
    """K = 1000, rho = 25: the campaign reports 20 runs; one is enough to notice that it stopped learning."""
    w = linear_003(0, "balanced")
    plan, rows = setting(LinearTerms(Ask(Fraction(25))), w, 1000, 5)
    desk = InteractiveRegression(plan, rows, SeededNoise(5))
    result = vapvi(desk, linear_task(plan), LinearConstants(), np.random.default_rng(0))
    assert w.mdp.start @ optimal_values(w.mdp)[1][0] - policy_value(w.mdp, result.policy) < 0.3


@pytest.mark.parametrize("d", [3, 8, 17])
def test_a_persons_weight_does_not_depend_on_who_stands_before_in_the_batch(d):
    """To the last bit: else a replaced person would move other people's integers.  A BLAS product fails this."""
    rng = np.random.default_rng(d)
    task = LinearTask(20, (0.0, 1.0), 100, np.zeros((1, 1, d)), 1 / 256)
    sums = PrivateRegression(np.eye(d) * 50, rng.normal(size=(2, d)) * 900, 0.0, 20.0, 0.0)
    weight = inverse_variance(sums, 0, task, LinearConstants())
    rows = np.trunc(rng.normal(size=(4001, d)) * 100)
    whole = weight(rows)
    assert len(np.unique(whole)) > 100
    for first in (1, 2, 3, 5, 7, 4000):
        assert (weight(rows[first:]) == whole[first:]).all()


def test_the_width_is_c_root_d_and_d_over_k():
    """Both constants move the unclipped value by what the page prints, and nothing else."""
    w = linear_003(0)
    plain, shifted = (planned(LinearTerms(Ask(None)), w, LinearConstants(C=0.3, D=x)) for x in (0.0, 8.0))
    phi = w.features.integers.astype(float)
    assert plain.backups[0].multiplier == pytest.approx(0.3 * phi.shape[-1] ** 0.5)
    moved = plain.backups[-1].q(phi)[0] - shifted.backups[-1].q(phi)[0]
    np.testing.assert_allclose(moved, 8.0 / K)
    assert LinearTask(2, (0.0, 1.0), 1, np.zeros((5, 3, 2)), 1.0).dimension == 2


@pytest.mark.parametrize(
    ("bounds", "ends", "stays"), [((-2.0, -1.0), (-6.0, 0.0), (-6.0, -3.0)), ((1.0, 2.0), (0.0, 6.0), (3.0, 6.0))]
)
def test_an_episode_that_may_end_is_worth_nothing_from_then_on(bounds, ends, stays):
    for can_end, expected in ((True, ends), (False, stays)):
        domain = LinearDomain("here", "synthetic", 3, 10, bounds=bounds, can_end=can_end)
        assert domain.value_range(0) == expected
        assert LinearTask(3, bounds, 10, np.zeros((1, 1, 1)), 1.0, can_end=can_end).value_range(0) == expected


@pytest.mark.parametrize("rho", [None, Fraction(1)])
def test_with_weights_of_one_vapvi_is_pevi(rho):
    """On Appendix F every variance is below 1: only the multiplier tells the two apart."""
    w = linear_003(0)
    one = planned(LinearTerms(Ask(rho)), w)
    plan, rows = setting(LinearTerms(Ask(rho)), w)
    desk = InteractiveRegression(plan, rows, SeededNoise(0))
    two = pevi(desk, linear_task(plan), C, np.random.default_rng(0), C.C * 10**0.5)
    np.testing.assert_array_equal(one.V, two.V)
    assert not one.weighted.any()


def test_the_theorys_beta_pushes_every_value_to_zero():
    plan, rows = setting(LinearTerms(Ask(None)), linear_003(0))
    task, desk = linear_task(plan), InteractiveRegression(plan, rows, SeededNoise(0))
    result = pevi(desk, task, C, np.random.default_rng(0), theory_beta(task, 0.1))
    assert result.V.max() == 0 and result.tied.all()
    # ties go to the unclipped Q: not to action 0 by default, nor to chance
    assert (result.policy.probabilities.max(axis=2) == 1).all()


def test_the_theorys_beta_is_the_printed_one():
    """(β / c d H)² is the logarithm of 2 d H K / δ."""
    task = linear_task(setting(LinearTerms(Ask(None)), linear_003(0))[0])
    d, H, K = 10, task.horizon, 400
    assert math.exp((theory_beta(task, 0.5, 0.05) / (0.5 * d * H)) ** 2) == pytest.approx(2 * d * H * K / 0.05)


def seen(plan, rows, seed):
    return released_statistics(plan, draw_one_shot(plan, rows, SeededNoise(seed)))


@pytest.mark.parametrize("scale", ["normalised", "balanced"])
def test_one_shot_statistics_give_vapvi_where_weights_are_one(scale):
    w = linear_003(0, scale)
    plan, rows = setting(LinearTerms(Ask(None), "one_shot"), w)
    free = one_shot(seen(plan, rows, 0), linear_task(plan), C, np.random.default_rng(0))
    desk = planned(LinearTerms(Ask(None)), w)
    # the desk centres on a lattice point, the one-shot planner on the middle itself
    np.testing.assert_allclose(free.V, desk.V, atol=0.02)


def test_one_release_gives_any_penalty_and_an_interval_for_free():
    w = linear_003(0, "balanced")
    plan, rows = setting(LinearTerms(Ask(Fraction(25)), "one_shot"), w)
    released, task = seen(plan, rows, 1), linear_task(plan)
    mild, harsh = (one_shot(released, task, LinearConstants(C=c), np.random.default_rng(0)) for c in (0.0, 1.0))
    assert (mild.V[0] > harsh.V[0]).all()
    wide = LinearConstants(C=1.0)
    low, high = (policy_bound(released, task, wide, harsh.policy, sign)[0] for sign in (-1, 1))
    value = policy_value(w.mdp, harsh.policy)
    assert w.mdp.start @ low < value < w.mdp.start @ high <= w.mdp.start @ optimal_upper(released, task, wide)[0] + 1e-9
    assert w.mdp.start @ optimal_upper(released, task, wide)[0] > w.mdp.start @ optimal_values(w.mdp)[1][0]


def test_an_action_without_a_feature_is_chosen_as_before_where_no_evidence_is_asked_for():
    """V is the next question of DP-VAPVI: to leave an action out there would ask another one under the same key."""
    reference = np.array([[[0.0, 0.0], [3.0, 1.0]]])
    task = LinearTask(2, (0.0, 1.0), 100, reference, 0.25, 64, False)
    backup = Backup(np.array([-1.0, 0.0]), np.eye(2) * 0.01, 0.5, 0.1, 0.0, (0.0, 2.0), 0.25, 64)
    chosen, value, _ = greedy_step(backup, task, np.random.default_rng(0))
    assert chosen.tolist() == [[1.0, 0.0]] and value[0] == 0.5
    asked, less, _ = greedy_step(backup, task, np.random.default_rng(0), 0.0)
    assert asked.tolist() == [[0.0, 1.0]] and less[0] < value[0]
