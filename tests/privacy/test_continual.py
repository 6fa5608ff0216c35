"""Factorisations of continual releases: who moves which row, what a sum's noise is, twins that get either wrong."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from pipeline.privacy.continual import (
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
    node_variance,
    squared_weights,
)
from pipeline.privacy.noise import SeededNoise
from tests.privacy.handles import SYNTHETIC

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


@dataclass(frozen=True)
class NaturalLogarithm(Tree):
    """A broken twin: levels counted with the natural logarithm."""

    def cost_of(self, steps: int) -> int:
        return math.floor(math.log(self.steps)) + 1


@dataclass(frozen=True)
class OneColumn(SquareRoot):
    """A broken twin: each row charged for the leaf that is new in it."""

    def cost_of(self, steps: int) -> int:
        return int(coefficients(1)[0]) ** 2


@dataclass(frozen=True)
class ShortWindow(SquareRoot):
    """A broken twin: a window that is charged for one leaf less than it holds."""

    def cost_of(self, steps: int) -> int:
        return SquareRoot(self.steps, window=self.longest - 1).cost_of(steps)


@pytest.mark.parametrize("twin", [NaturalLogarithm(13), OneColumn(13), ShortWindow(13, window=5)])
def test_a_counter_that_charges_too_little_is_caught(twin):
    assert twin.cost < (matrix(twin)[0] ** 2).sum(0).max()


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
    assert [continual(name, 8).kind for name in ("tree", "bottom-up", "toeplitz", "square-root")] == [
        "tree",
        "tree",
        "toeplitz",
        "toeplitz",
    ]
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
