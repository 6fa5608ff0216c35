"""Sums released again and again: who moves which row, what a sum's noise is, and twins that get either wrong."""

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy import stats

from pipeline.privacy.continual import (
    CounterFullError,
    LazyTree,
    NoiseBlocks,
    Once,
    Row,
    RunningSum,
    SquareRoot,
    Tree,
    coefficients,
    continual,
    exact_rows,
    levels,
    squared_weights,
)
from pipeline.privacy.noise import OsNoise, RealDataError, SeededNoise
from tests.privacy.handles import REAL, SYNTHETIC, WORLD

ALL = {
    "once": Once,
    "plain": lambda T: Tree(T, "plain"),
    "bottom-up": Tree,
    "square-root": SquareRoot,
    "bottom-up, last 1": lambda T: Tree(T, window=1),
    "bottom-up, last 6": lambda T: Tree(T, window=min(6, T)),
    "square-root, last 1": lambda T: SquareRoot(T, window=1),
    "square-root, last 6": lambda T: SquareRoot(T, window=min(6, T)),
}
NAMES = pytest.mark.parametrize("name", ALL)


def matrix(counter, until=None):
    """Weights (rows, leaves) of all rows that are ever released, and the leaf at which each is."""
    T = counter.steps
    rows = [(t, r) for t in range(1, (until or T) + 1) for r in counter.rows(t)]
    M = np.zeros((len(rows), T), dtype=object)
    for i, (_, r) in enumerate(rows):
        M[i, r.first - 1 : r.first - 1 + len(r.weights)] = r.weights
    return M, [t for t, _ in rows]


def first_of(counter, t):
    """The first leaf that the t-th sum holds."""
    return 1 if counter.window is None else max(1, t - counter.window + 1)


def readings(counter, t):
    """Weight of every row in the t-th running sum."""
    sizes = [len(counter.rows(k)) for k in range(1, t + 1)]
    unit = np.eye(sum(sizes), dtype=np.int64)
    ends = np.cumsum(sizes)
    return counter.total(t, lambda k: unit[ends[k - 1] - sizes[k - 1] : ends[k - 1]])


@NAMES
@pytest.mark.parametrize("leaves", [1, 2, 7, 8, 13, 32])
def test_the_cost_is_the_largest_squared_column_and_the_draws_are_the_rows(name, leaves):
    counter = ALL[name](leaves)
    M, _ = matrix(counter)
    assert counter.cost == (M**2).sum(0).max() and counter.draws == len(M)
    assert squared_weights([r for t in range(1, leaves + 1) for r in counter.rows(t)]) == counter.cost


RIGHT = SquareRoot.cost_of
# levels by the natural logarithm; each row charged for the leaf that is new in it; a window one leaf too short
TWINS = [
    (Tree(13), lambda self, steps: math.floor(math.log(self.steps)) + 1),
    (SquareRoot(13), lambda self, steps: int(coefficients(1)[0]) ** 2),
    (SquareRoot(13, window=5), lambda self, steps: RIGHT(SquareRoot(13, window=4), steps)),
]


@pytest.mark.parametrize(("counter", "charge"), TWINS)
def test_a_counter_that_charges_too_little_is_caught(monkeypatch, counter, charge):
    monkeypatch.setattr(type(counter), "cost_of", charge)
    assert counter.cost < (matrix(counter)[0] ** 2).sum(0).max()


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("once", "plain")])
def test_a_person_whose_record_moves_to_another_leaf_moves_the_rows_no_more_than_in_place(name):
    """Every pair of leaves and of count vectors: one episode of two cells, or none (privacy.md §0.1-19).

    Leaves of two windows meet in no row: both lengths add up, and no table's sensitivity is less than that.
    """
    counter = ALL[name](8)
    M = matrix(counter)[0].astype(np.int64)
    records = [np.array(v) for v in ((0, 0, 0), (1, 1, 0), (0, 1, 1), (2, 0, 0))]
    in_place = max(((x - y) ** 2).sum() for x, y in itertools.product(records, repeat=2))
    worst = 0
    for (a, x), (b, y) in itertools.product(itertools.product(range(8), records), repeat=2):
        moved = np.outer(M[:, a], x) - np.outer(M[:, b], y)
        worst = max(worst, int((moved**2).sum()))
    apart = 2 * max((x**2).sum() for x in records)
    assert counter.cost * in_place <= worst <= counter.cost * (in_place if counter.window is None else apart)


@NAMES
@pytest.mark.parametrize("leaves", [1, 5, 8, 21])
def test_the_reading_is_unbiased_for_every_stream_and_its_error_is_the_sum_of_squares(name, leaves):
    counter = ALL[name](leaves)
    for t in range(1, leaves + 1):
        M, released = matrix(counter, t)
        w = readings(counter, t)
        assert max(released) <= t and len(w) == len(M)
        seen = w @ M.astype(float)
        held = np.arange(1, leaves + 1)
        np.testing.assert_allclose(seen, (held >= first_of(counter, t)) & (held <= t), atol=1e-9)
        assert not seen[t:].any()
        assert (w**2).sum() == pytest.approx(counter.error(t), rel=1e-9)


@NAMES
def test_without_noise_sums_are_exact_and_an_empty_leaf_adds_nothing(name):
    counter, n = ALL[name](23), 3
    stream = {k: np.random.default_rng(k).integers(0, 10**6, n) for k in range(1, 24) if k % 5}
    rows = {t: exact_rows(counter.rows(t), stream.get, n) for t in range(1, 24)}
    for t in range(1, 24):
        exact = sum((x for k, x in stream.items() if first_of(counter, t) <= k <= t), np.zeros(n, dtype=np.int64))
        assert np.array_equal(np.rint(counter.total(t, rows.__getitem__)), exact)


@NAMES
def test_the_leaf_after_the_last_is_refused(name):
    counter = ALL[name](4)
    for t in (0, 5):
        with pytest.raises(ValueError, match="not among the 4"):
            counter.rows(t)


def test_what_a_second_draw_of_some_rows_costs_is_their_own_squared_column():
    tree = Tree(8)
    assert [squared_weights(tree.rows(t)) for t in range(1, 9)] == [1, 2, 1, 3, 1, 2, 1, 4]
    assert squared_weights([*tree.rows(3), *tree.rows(4)]) == 3 and squared_weights([]) == 0
    g = coefficients(3)
    assert squared_weights(SquareRoot(8).rows(3)) == int(g[0]) ** 2 and Fraction(int(g[1]), int(g[0])) == Fraction(1, 2)
    assert squared_weights([Row(2, (3, 1)), Row(3, (2,))]) == 9


@NAMES
def test_a_person_in_several_steps_costs_the_worst_set_of_them(name):
    """Every set of up to all steps of up to 9: moves in one direction add up, and the first steps are the worst."""
    for T in range(1, 10):
        M = matrix(ALL[name](T))[0].astype(np.int64)
        for m in range(1, T + 1):
            worst = max((M[:, list(chosen)].sum(1) ** 2).sum() for chosen in itertools.combinations(range(T), m))
            assert ALL[name](T).cost_of(m) == worst


def test_what_is_kept_for_every_counter_cannot_be_overwritten():
    """Overwritten, the weights would give all later counters of as many steps a wrong error and wrong sums."""
    root = SquareRoot(8)
    before = root.error(8), root.cost
    for kept in (root.weights(8), coefficients(8)):
        with pytest.raises(ValueError, match="read-only"):
            kept[:] = 0
    assert (root.error(8), root.cost) == before


@pytest.mark.parametrize("unkept", [Once(8), Tree(8, "plain")])
def test_only_two_have_a_name_in_recipes(unkept):
    for name, kind in (("tree", "tree"), ("bottom-up", "tree"), ("toeplitz", "toeplitz"), ("square-root", "toeplitz")):
        assert continual(name, 8).kind == kind
    with pytest.raises(ValueError, match="keep nights"):
        _ = unkept.kind
    with pytest.raises(ValueError, match="at least 1"):
        continual("tree", 0)


def nodes(leaves):
    """Leaves (first, last) of every complete dyadic node of [1, T], in the order in which they complete."""
    return [(t - 2**j + 1, t) for t in range(1, leaves + 1) for j in range(t.bit_length()) if t % 2**j == 0]


@cache
def most_nodes(leaves):
    first, last = np.array(nodes(leaves)).T
    k = np.arange(1, leaves + 1)[:, None]
    return int(((first <= k) & (k <= last)).sum(1).max())


def test_a_leaf_lies_in_floor_log2_plus_one_nodes_and_other_logarithms_are_short():
    assert [levels(T) for T in range(1, 130)] == [most_nodes(T) for T in range(1, 130)]
    assert any(math.floor(math.log(T)) + 1 < most_nodes(T) for T in range(1, 130))
    short = [T for T in range(1, 130) if math.ceil(math.log2(T)) < most_nodes(T)]
    assert short == [1, 2, 4, 8, 16, 32, 64, 128]
    assert [math.ceil(math.log2(T)) for T in range(2, 130)] == [levels(T - 1) for T in range(2, 130)]


@pytest.mark.parametrize("leaves", [1, 8, 37])
def test_the_plain_tree_covers_every_prefix_once_with_at_most_levels_nodes(leaves):
    for t in range(1, leaves + 1):
        w = readings(Tree(leaves, "plain"), t)
        assert len(w) == len(nodes(t)) and set(w) <= {0.0, 1.0}
        covered = [k for (a, b), on in zip(nodes(t), w, strict=True) if on for k in range(a, b + 1)]
        assert sorted(covered) == list(range(1, t + 1))
        assert w.sum() == t.bit_count() <= levels(leaves)


@pytest.mark.parametrize("t", [1, 6, 7, 8, 23, 32])
def test_bottom_up_is_the_best_linear_unbiased_estimate_of_the_completed_nodes(t):
    M = np.array([[a <= k <= b for k in range(1, t + 1)] for a, b in nodes(t)], dtype=float)
    best = np.ones(t) @ np.linalg.solve(M.T @ M, np.ones(t))
    assert Tree(t).error(t) == pytest.approx(best, rel=1e-12)


def test_the_square_root_squares_to_running_sums_and_its_decoder_is_exact():
    f = [Fraction(math.comb(2 * k, k), 4**k) for k in range(40)]
    assert [sum(f[i] * f[k - i] for i in range(k + 1)) for k in range(40)] == [1] * 40
    g = coefficients(300)
    assert np.array_equal(g[:40], [round(2**14 * x) for x in f])
    np.testing.assert_allclose(np.convolve(SquareRoot(300).weights(300)[::-1], g)[:300], 1, atol=1e-9)


@pytest.mark.parametrize("kind", ["tree", "toeplitz"])
def test_a_window_costs_the_same_however_many_leaves_come_and_its_error_stays_bounded(kind):
    for window in (7, 30):
        few, many = (continual(kind, leaves, window) for leaves in (2 * window, 1000))
        assert few.cost == many.cost == continual(kind, window).cost
        assert max(map(many.error, range(1, 1001))) <= 1.2 * max(map(few.error, range(1, 2 * window + 1)))
        assert many.cost * many.error(1000) < (12 if kind == "toeplitz" else 60)
    for wrong in (0, 14):
        with pytest.raises(ValueError, match="a window has at least one of the 13 steps"):
            continual(kind, 13, wrong)


def test_no_simulated_sum_runs_over_a_windowed_tree():
    blocks = NoiseBlocks((1,), (0,), SeededNoise(0), SYNTHETIC)
    with pytest.raises(TypeError, match="no running sum"):
        RunningSum(Tree(8, window=3), blocks)


@pytest.mark.parametrize(
    ("leaves", "plain", "bottom_up", "root"), [(64, 42, 26.6, 5.7), (365, 72, 43.2, 8.7), (1023, 100, 58.0, 10.7)]
)
def test_largest_error_at_equal_cost_is_the_tabled_one(leaves, plain, bottom_up, root):
    for name, tabled in (("plain", plain), ("bottom-up", bottom_up), ("square-root", root)):
        counter = continual(name, leaves)
        assert counter.cost * max(counter.error(t) for t in range(1, leaves + 1)) == pytest.approx(tabled, abs=0.06)


SHOWN = pytest.mark.parametrize("name", ["plain", "bottom-up", "square-root", "once"])
# two nodes that end inside one another, long gaps, and the last
ENDS = (1, 3, 6, 8, 13, 16)
# sums of 40 000 draws: a covariance is within 4 % of the largest variance
DRAWS, NEAR = 40_000, 0.04


class UnitDraws:
    """Blocks whose i-th draw is the i-th unit vector: a sum then shows its weight on every draw."""

    data = WORLD

    def __init__(self, draws):
        self.length, self.used = draws, 0

    def draw(self, rows, times=1):
        assert times == 1
        self.used += rows
        return np.eye(self.length, dtype=np.int64)[self.used - rows : self.used]


class Redrawing(RunningSum):
    """A broken twin: the noise of the sum is drawn when it is read."""

    def total(self):
        return super().total() + self.blocks.draw(1)[0]


def blocks(variance: int, size: int = DRAWS, seed: int = 0) -> NoiseBlocks:
    return NoiseBlocks((size,), (variance,), SeededNoise(seed), WORLD)


def weights(time, build=RunningSum):
    """Weight (T, draws) of every draw in every running sum of a zero stream."""
    drawn = UnitDraws(2 * time.steps)
    counter, sums = build(time, drawn), []
    for _ in range(time.steps):
        counter.add(np.zeros(drawn.length, dtype=np.int64))
        sums.append(counter.total())
        assert np.array_equal(sums[-1], counter.total()), "read twice, drawn twice"
    return np.array(sums)


@SHOWN
@pytest.mark.parametrize("steps", [1, 7, 8, 37, 64])
def test_what_is_shown_is_what_the_rows_would_show(name, steps):
    """The noise that agents meet is that of rows which are drawn one step after the other and read off by weights."""
    time = ALL[name](steps)
    w = weights(time)
    for t in range(1, steps + 1):
        read = time.weights(t)
        np.testing.assert_allclose(w[t - 1, : len(read)], read, rtol=1e-12, atol=1e-12)
        assert not w[t - 1, len(read) :].any()
        assert (w[t - 1] ** 2).sum() == pytest.approx(time.error(t), rel=1e-12)


@SHOWN
def test_without_noise_the_sums_are_exact_to_the_last_bit(name):
    stream = np.random.default_rng(0).integers(0, 2**40, (37, 5))
    counter = RunningSum(ALL[name](37), NoiseBlocks((2, 3), (0, 0), SeededNoise(0), WORLD))
    for t, leaf in enumerate(stream, 1):
        counter.add(leaf)
        assert np.array_equal(counter.total(), stream[:t].sum(0))
    with pytest.raises(CounterFullError, match="declared for 37 leaves"):
        counter.add(stream[0])


@SHOWN
def test_noise_of_the_right_scale_is_accepted_and_thirty_percent_off_rejected(name):
    n, variance = 4000, 30_000**2
    counter = RunningSum(ALL[name](13), blocks(variance, n, 3))
    for _ in range(13):
        counter.add(np.zeros(n, dtype=np.int64))
    squares = (counter.total() ** 2).sum() / (variance * counter.error)
    inside = [1e-6 < stats.chi2.cdf(squares / wrong**2, n) < 1 - 1e-6 for wrong in (1.0, 0.7, 1.3)]
    assert inside == [True, False, False]


def test_noise_drawn_on_reading_is_caught():
    with pytest.raises(AssertionError, match="drawn twice"):
        weights(Tree(8), Redrawing)


@SHOWN
def test_several_steps_at_once_are_as_noisy_as_one_by_one(name):
    counter = RunningSum(ALL[name](21), blocks(900**2, 4000, 5))
    for n in (1, 4, 16):
        counter.add(np.full(4000, n), n)
    assert counter.seen == 21
    squares = ((counter.total() - 21) ** 2).sum() / (900**2 * counter.error)
    assert 1e-6 < stats.chi2.cdf(squares, 4000) < 1 - 1e-6
    with pytest.raises(CounterFullError):
        RunningSum(ALL[name](21), UnitDraws(1)).add(np.zeros(1, dtype=np.int64), 22)


@pytest.mark.parametrize("time", [Once(4), Tree(4), Tree(4, "plain"), SquareRoot(4), LazyTree((1, 4))])
def test_real_data_wants_operating_system_noise_in_every_block_and_no_running_sum(time):
    """Sums are shown as sum plus noise, in floats: not computed from released integers alone."""
    for refused in (
        lambda: RunningSum(time, NoiseBlocks((2, 1), (50, 90), OsNoise(), REAL)),
        lambda: NoiseBlocks((2, 1), (50, 0), OsNoise(), REAL),
        lambda: NoiseBlocks((2, 1), (50, 90), SeededNoise(0), REAL),
        lambda: NoiseBlocks((3,), (50,), OsNoise(), REAL).draw(1, 2),
    ):
        with pytest.raises(RealDataError):
            refused()


def covariance(time, variance=10_000, seed=0) -> np.ndarray:
    """Of the noise of the sums after ENDS people."""
    counter, found = RunningSum(time, blocks(variance, seed=seed)), []
    for k in ENDS if time.steps == len(ENDS) else range(1, ENDS[-1] + 1):
        counter.add(np.zeros(DRAWS, dtype=np.int64))
        if k in ENDS:
            found.append(counter.total())
    return np.array(found) @ np.array(found).T / DRAWS


@pytest.mark.parametrize("estimate", ["plain", "bottom-up"])
def test_a_tree_that_draws_what_is_read_has_the_covariances_of_the_whole_tree(estimate):
    variance, lazy = 10_000, LazyTree(ENDS, estimate)
    seen, whole = covariance(lazy, variance), covariance(Tree(ENDS[-1], estimate), variance, 1)
    np.testing.assert_allclose(seen, whole, atol=NEAR * whole.max())
    errors = [lazy.error(b) for b in range(1, len(ENDS) + 1)]
    np.testing.assert_allclose(np.diag(seen), variance * np.array(errors), rtol=NEAR)


def test_a_twin_that_draws_halves_anew_has_other_covariances(monkeypatch):
    monkeypatch.setattr("pipeline.privacy.continual._LazyNodes._was_read_inside", lambda *_: False)
    twin, whole = covariance(LazyTree(ENDS)), covariance(Tree(ENDS[-1]), seed=1)
    assert np.abs(twin - whole).max() > 3 * NEAR * whole.max()


def test_without_noise_batches_are_exact_and_beyond_the_last_nothing_is_added():
    counter = RunningSum(LazyTree((2, 5, 9)), blocks(0, 3))
    for k in range(3):
        counter.add(np.array([1, 10, 100]))
        np.testing.assert_array_equal(counter.total(), (k + 1) * np.array([1, 10, 100]))
    with pytest.raises(CounterFullError):
        counter.add(np.zeros(3, dtype=np.int64))


def test_a_read_sum_stays_the_same_and_a_huge_tree_is_cheap():
    time = LazyTree((10**8 - 1, 10**8))
    counter = RunningSum(time, blocks(100, 3))
    assert time.cost == 27
    counter.add(np.zeros(3, dtype=np.int64))
    np.testing.assert_array_equal(counter.total(), counter.total())
    counter.add(np.zeros(3, dtype=np.int64))


def test_disordered_batches_are_refused():
    with pytest.raises(ValueError, match="one after the other"):
        LazyTree((3, 3))
