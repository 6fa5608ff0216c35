"""Counters that outlive their process: who moves which row, what a sum's noise is, and twins that get either wrong."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

from pipeline.privacy.continual import Row, Toeplitz, Tree, continual, exact_rows, squared_weights
from pipeline.privacy.counters import TreeCounter
from pipeline.privacy.noise import SimulatedWorld
from pipeline.privacy.square_root import coefficients

KINDS = ("tree", "toeplitz")


def matrix(counter, until=None):
    """Weights (rows, leaves) of all rows that are ever released, and the leaf at which each is."""
    T = counter.leaves
    rows = [(t, r) for t in range(1, (until or T) + 1) for r in counter.rows(t)]
    M = np.zeros((len(rows), T), dtype=object)
    for i, (_, r) in enumerate(rows):
        M[i, r.first - 1 : r.first - 1 + len(r.weights)] = r.weights
    return M, [t for t, _ in rows]


def readings(counter, t):
    """Weight of every row in the t-th running sum."""
    sizes = [len(counter.rows(k)) for k in range(1, t + 1)]
    unit = np.eye(sum(sizes), dtype=np.int64)
    ends = np.cumsum(sizes)
    return counter.total(t, lambda k: unit[ends[k - 1] - sizes[k - 1] : ends[k - 1]])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leaves", [1, 2, 7, 8, 13, 32])
def test_the_cost_is_the_largest_squared_column_and_the_draws_are_the_rows(kind, leaves):
    counter = continual(kind, leaves)
    M, _ = matrix(counter)
    assert counter.cost == (M**2).sum(0).max() and counter.draws == len(M)
    assert squared_weights([r for t in range(1, leaves + 1) for r in counter.rows(t)]) == counter.cost


@dataclass(frozen=True)
class NaturalLogarithm(Tree):
    """A broken twin: levels counted with the natural logarithm."""

    @property
    def cost(self) -> int:
        return math.floor(math.log(self.leaves)) + 1


@dataclass(frozen=True)
class OneColumn(Toeplitz):
    """A broken twin: each row charged for the leaf that is new in it."""

    @property
    def cost(self) -> int:
        return int(coefficients(1)[0]) ** 2


@pytest.mark.parametrize("twin", [NaturalLogarithm(13), OneColumn(13)])
def test_a_counter_that_charges_too_little_is_caught(twin):
    assert twin.cost < (matrix(twin)[0] ** 2).sum(0).max()


@pytest.mark.parametrize("kind", KINDS)
def test_a_person_whose_record_moves_to_another_leaf_moves_the_rows_no_more_than_in_place(kind):
    """Every pair of leaves and of count vectors: one episode of two cells, or none (privacy.md §0.1-19)."""
    counter = continual(kind, 8)
    M = matrix(counter)[0].astype(np.int64)
    records = [np.array(v) for v in ((0, 0, 0), (1, 1, 0), (0, 1, 1), (2, 0, 0))]
    in_place = max(((x - y) ** 2).sum() for x, y in itertools.product(records, repeat=2))
    worst = 0
    for (a, x), (b, y) in itertools.product(itertools.product(range(8), records), repeat=2):
        moved = np.outer(M[:, a], x) - np.outer(M[:, b], y)
        worst = max(worst, int((moved**2).sum()))
    assert worst == counter.cost * in_place


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leaves", [1, 5, 8, 21])
def test_the_reading_is_unbiased_for_every_stream_and_its_error_is_the_sum_of_squares(kind, leaves):
    counter = continual(kind, leaves)
    for t in range(1, leaves + 1):
        M, released = matrix(counter, t)
        w = readings(counter, t)
        assert max(released) <= t and len(w) == len(M)
        seen = w @ M.astype(float)
        np.testing.assert_allclose(seen[:t], 1, atol=1e-9)
        assert not seen[t:].any()
        assert (w**2).sum() == pytest.approx(counter.error(t), rel=1e-9)


def test_the_tree_reads_what_the_counter_in_memory_reads():
    """The same draws, once kept as noisy nodes alone, once in the counter of the online agents."""
    rng = np.random.default_rng(0)
    leaves, n = 21, 4

    class Recorded:
        data, length, drawn = SimulatedWorld("tests"), n, []

        def draw(self, rows):
            self.drawn.append(rng.integers(-50, 50, (rows, n)))
            return self.drawn[-1]

    lanes = Recorded()
    memory, tree = TreeCounter(leaves, lanes), Tree(leaves)
    stream = rng.integers(0, 100, (leaves, n))
    for t in range(1, leaves + 1):
        memory.add(stream[t - 1])
        noisy = [exact_rows(tree.rows(k), lambda i: stream[i - 1], n) + lanes.drawn[k - 1] for k in range(1, t + 1)]
        np.testing.assert_allclose(tree.total(t, lambda k, y=noisy: y[k - 1]), memory.total(), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_without_noise_sums_are_exact_and_an_empty_leaf_adds_nothing(kind):
    counter, n = continual(kind, 23), 3
    stream = {k: np.random.default_rng(k).integers(0, 10**6, n) for k in range(1, 24) if k % 5}
    rows = {t: exact_rows(counter.rows(t), stream.get, n) for t in range(1, 24)}
    for t in range(1, 24):
        exact = sum((x for k, x in stream.items() if k <= t), np.zeros(n, dtype=np.int64))
        assert np.array_equal(np.rint(counter.total(t, rows.__getitem__)), exact)


@pytest.mark.parametrize("kind", KINDS)
def test_the_leaf_after_the_last_is_refused(kind):
    counter = continual(kind, 4)
    for t in (0, 5):
        with pytest.raises(ValueError, match="not among the 4"):
            counter.rows(t)


@pytest.mark.parametrize(("kind", "leaves", "worst"), [("tree", 365, 43.3), ("toeplitz", 365, 8.7)])
def test_a_year_costs_the_tabled_variance_beside_one_release(kind, leaves, worst):
    counter = continual(kind, leaves)
    ratio = counter.cost * max(counter.error(t) for t in range(1, leaves + 1))
    assert ratio == pytest.approx(worst, abs=0.1)


def test_what_a_second_draw_of_some_rows_costs_is_their_own_squared_column():
    tree = Tree(8)
    assert [squared_weights(tree.rows(t)) for t in range(1, 9)] == [1, 2, 1, 3, 1, 2, 1, 4]
    assert squared_weights([*tree.rows(3), *tree.rows(4)]) == 3 and squared_weights([]) == 0
    g = coefficients(3)
    assert squared_weights(Toeplitz(8).rows(3)) == int(g[0]) ** 2 and Fraction(int(g[1]), int(g[0])) == Fraction(1, 2)
    assert squared_weights([Row(2, (3, 1)), Row(3, (2,))]) == 9
