"""Continual counters: who lies in which node, what a sum's noise is, and twins that get either wrong."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from pipeline.privacy.counters import CounterFullError, Lanes, Messages, TreeCounter, levels, node_variance
from pipeline.privacy.noise import OsNoise, RealDataError, SeededNoise, SimulatedWorld
from pipeline.privacy.square_root import SquareRoot, coefficients, decoder
from tests.privacy.handles import REAL

WORLD = SimulatedWorld("tests")
PLAIN, BOTTOM_UP = (lambda T, lanes, e=e: TreeCounter(T, lanes, e) for e in ("plain", "bottom-up"))
ALL = [PLAIN, BOTTOM_UP, SquareRoot, Messages]


class UnitDraws:
    """Lanes whose i-th draw is the i-th unit vector: a sum then shows its weight on every draw."""

    data = WORLD

    def __init__(self, draws):
        self.length, self.used = draws, 0

    def draw(self, rows, times=1):
        assert times == 1
        self.used += rows
        return np.eye(self.length, dtype=np.int64)[self.used - rows : self.used]


class Redrawing(TreeCounter):
    """A broken twin: the noise of the sum is drawn when it is read."""

    def total(self):
        return super().total() + self.lanes.draw(1)[0]


def nodes(leaves):
    """Leaves (first, last) of every complete dyadic node of [1, T], in the order in which they complete."""
    return [(t - 2**j + 1, t) for t in range(1, leaves + 1) for j in range(t.bit_length()) if t % 2**j == 0]


def weights(make, leaves):
    """Weight (T, draws) of every draw in every running sum of a zero stream, and the number of draws."""
    lanes = UnitDraws(2 * leaves)
    counter, sums = make(leaves, lanes), []
    for _ in range(leaves):
        counter.add(np.zeros(lanes.length, dtype=np.int64))
        sums.append(counter.total())
        assert np.array_equal(sums[-1], counter.total()), "read twice, drawn twice"
    return np.array(sums), lanes.used


def most_nodes(leaves):
    return max(sum(a <= k <= b for a, b in nodes(leaves)) for k in range(1, leaves + 1))


def test_a_leaf_lies_in_floor_log2_plus_one_nodes_and_other_logarithms_are_short():
    assert [levels(T) for T in range(1, 130)] == [most_nodes(T) for T in range(1, 130)]
    assert any(math.floor(math.log(T)) + 1 < most_nodes(T) for T in range(1, 130))
    short = [T for T in range(1, 130) if math.ceil(math.log2(T)) < most_nodes(T)]
    assert short == [1, 2, 4, 8, 16, 32, 64, 128]
    assert [math.ceil(math.log2(T)) for T in range(2, 130)] == [levels(T - 1) for T in range(2, 130)]


@pytest.mark.parametrize("leaves", [1, 8, 37])
def test_the_plain_tree_covers_every_prefix_once_with_at_most_levels_nodes(leaves):
    w, used = weights(PLAIN, leaves)
    assert used == len(nodes(leaves)) == 2 * leaves - leaves.bit_count()
    for t in range(1, leaves + 1):
        assert set(w[t - 1]) <= {0.0, 1.0}
        covered = [k for (a, b), on in zip(nodes(leaves), w[t - 1], strict=False) if on for k in range(a, b + 1)]
        assert sorted(covered) == list(range(1, t + 1))
        assert w[t - 1].sum() == t.bit_count() <= levels(leaves)


@pytest.mark.parametrize("make", ALL)
def test_the_error_is_the_sum_of_squared_weights(make):
    w, _ = weights(make, 40)
    error = [make(40, UnitDraws(1)).error(t) for t in range(1, 41)]
    np.testing.assert_allclose((w**2).sum(1), error, rtol=1e-12)


def test_node_variances_solve_their_recurrence_exactly():
    v = Fraction(1)
    for level in range(20):
        assert Fraction(2**level, 2 ** (level + 1) - 1) == v
        assert node_variance(level, "bottom-up") == float(v)
        v = 1 / (1 + 1 / (2 * v))


@pytest.mark.parametrize("t", [1, 6, 7, 8, 23, 32])
def test_bottom_up_is_the_best_linear_unbiased_estimate_of_the_completed_nodes(t):
    M = np.array([[a <= k <= b for k in range(1, t + 1)] for a, b in nodes(t)], dtype=float)
    best = np.ones(t) @ np.linalg.solve(M.T @ M, np.ones(t))
    assert BOTTOM_UP(t, UnitDraws(1)).error(t) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("make", ALL)
def test_without_noise_the_sums_are_exact_to_the_last_bit(make):
    stream = np.random.default_rng(0).integers(0, 2**40, (37, 5))
    counter = make(37, Lanes((2, 3), (0, 0), SeededNoise(0), WORLD))
    for t, leaf in enumerate(stream, 1):
        counter.add(leaf)
        assert np.array_equal(counter.total(), stream[:t].sum(0))
    with pytest.raises(CounterFullError, match="declared for 37 leaves"):
        counter.add(stream[0])


@pytest.mark.parametrize("make", ALL)
def test_noise_of_the_right_scale_is_accepted_and_thirty_percent_off_rejected(make):
    n, variance = 4000, 30_000**2
    counter = make(13, Lanes((n,), (variance,), SeededNoise(3), WORLD))
    for _ in range(13):
        counter.add(np.zeros(n, dtype=np.int64))
    squares = (counter.total() ** 2).sum() / (variance * counter.error(13))
    inside = [1e-6 < stats.chi2.cdf(squares / wrong**2, n) < 1 - 1e-6 for wrong in (1.0, 0.7, 1.3)]
    assert inside == [True, False, False]


def test_noise_drawn_on_reading_is_caught():
    with pytest.raises(AssertionError, match="drawn twice"):
        weights(Redrawing, 8)


def test_the_square_root_squares_to_running_sums_and_its_decoder_is_exact():
    f = [Fraction(math.comb(2 * k, k), 4**k) for k in range(40)]
    assert [sum(f[i] * f[k - i] for i in range(k + 1)) for k in range(40)] == [1] * 40
    g = coefficients(300)
    assert np.array_equal(g[:40], [round(2**14 * x) for x in f])
    np.testing.assert_allclose(np.convolve(decoder(g), g)[:300], 1, atol=1e-9)


@pytest.mark.parametrize(("leaves", "plain", "bottom_up", "root"), [(64, 42, 26.6, 5.7), (1023, 100, 58.0, 10.7)])
def test_largest_error_at_equal_cost_is_the_tabled_one(leaves, plain, bottom_up, root):
    for make, tabled in ((PLAIN, plain), (BOTTOM_UP, bottom_up), (SquareRoot, root)):
        counter = make(leaves, UnitDraws(1))
        assert counter.cost * max(counter.error(t) for t in range(1, leaves + 1)) == pytest.approx(tabled, abs=0.06)


def test_the_cost_is_the_largest_squared_move_of_what_is_released():
    g = coefficients(20)
    G = np.array([[g[t - k] if t >= k else 0 for k in range(20)] for t in range(20)])
    assert SquareRoot(20, UnitDraws(1)).cost == (G**2).sum(0).max()
    assert TreeCounter(20, UnitDraws(1)).cost == most_nodes(20)
    assert Messages(20, UnitDraws(1)).cost == 1


@pytest.mark.parametrize("make", ALL)
def test_several_leaves_at_once_are_as_noisy_as_one_by_one(make):
    counter = make(21, Lanes((4000,), (900**2,), SeededNoise(5), WORLD))
    for n in (1, 4, 16):
        counter.add(np.full(4000, n), n)
    assert counter.seen == 21
    squares = ((counter.total() - 21) ** 2).sum() / (900**2 * counter.error(21))
    assert 1e-6 < stats.chi2.cdf(squares, 4000) < 1 - 1e-6
    with pytest.raises(CounterFullError):
        make(21, UnitDraws(1)).add(np.zeros(1, dtype=np.int64), 22)


def test_real_data_wants_operating_system_noise_in_every_lane():
    counter = TreeCounter(4, Lanes((2, 1), (50, 90), OsNoise(), REAL))
    for _ in range(4):
        counter.add(np.array([10**6] * 3))
    assert np.abs(counter.total() - 4e6).max() < 1000
    with pytest.raises(RealDataError):
        Lanes((2, 1), (50, 0), OsNoise(), REAL)
    with pytest.raises(RealDataError):
        Lanes((2, 1), (50, 90), SeededNoise(0), REAL)
    with pytest.raises(RealDataError):
        Messages(4, Lanes((3,), (50,), OsNoise(), REAL)).add(np.zeros(3, dtype=np.int64), 2)
    with pytest.raises(RealDataError):
        SquareRoot(4, Lanes((3,), (50,), OsNoise(), REAL))
