"""Counters over epochs: what a sum holds, what a person moves, whose noise it has, and twins that get either wrong."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from pipeline.privacy.continual import continual
from pipeline.privacy.epochs import Epochs, Openings, counter_of
from pipeline.privacy.factorisation import exact_rows, squared_weights
from tests.privacy.test_continual import matrix, readings

KINDS = pytest.mark.parametrize("kind", ["tree", "toeplitz"])
SHAPES = pytest.mark.parametrize(("steps", "epoch"), [(1, 1), (7, 7), (7, 1), (8, 4), (13, 5), (9, 2)])


def held(counter, t):
    """First and last step of the sum that stands at ``t``."""
    opened = (t - 1) // counter.epoch * counter.epoch + 1
    return (opened, t) if isinstance(counter, Epochs) else (1, opened)


@KINDS
@SHAPES
@pytest.mark.parametrize("cut", [Epochs, Openings])
def test_a_sum_holds_its_steps_once_and_its_noise_is_what_is_said(cut, steps, epoch, kind):
    counter = cut(steps, epoch, kind)
    for t in range(1, steps + 1):
        M, _ = matrix(counter, t)
        w = counter.weights(t)
        w = np.concatenate([w, np.zeros(len(M) - len(w))])
        first, last = held(counter, t)
        wanted = [float(first <= k <= last) for k in range(1, steps + 1)]
        np.testing.assert_allclose(w @ M.astype(float), wanted, atol=1e-9)
        assert (w**2).sum() == pytest.approx(counter.error(t), rel=1e-9)
        read = readings(counter, t)
        np.testing.assert_allclose(np.concatenate([np.zeros(len(M) - len(read)), read]), w, atol=1e-12)


@KINDS
@SHAPES
@pytest.mark.parametrize("cut", [Epochs, Openings])
def test_the_cost_is_the_largest_squared_column_and_the_draws_are_the_rows(cut, steps, epoch, kind):
    counter = cut(steps, epoch, kind)
    M, _ = matrix(counter)
    assert counter.cost == (M**2).sum(0).max() and counter.draws == len(M)
    assert squared_weights([r for t in range(1, steps + 1) for r in counter.rows(t)]) == counter.cost
    assert (M >= 0).all()


@dataclass(frozen=True)
class Carried(Epochs):
    """A broken twin: the nodes of an epoch go on into the next, and are charged as if they did not."""

    def rows(self, t):
        return continual(self.of, self.steps).rows(t)


def test_an_epoch_that_is_charged_alone_and_goes_on_is_caught():
    twin = Carried(8, 4, "tree")
    assert twin.cost < (matrix(twin)[0] ** 2).sum(0).max()


@KINDS
def test_nobody_who_moves_to_another_step_moves_the_rows_by_more_than_in_place(kind):
    """Every pair of steps, of one epoch or of two: pairs (L N, Z) of one key at either end, or of two keys."""
    L = 4
    records = [np.array(v) for v in ((0, 0, 0, 0), (L, 0, L, 0), (L, 0, -L, 0), (0, L, 0, L), (0, L, 0, -L))]
    in_place = max(((x - y) ** 2).sum() for x, y in itertools.product(records, repeat=2))
    assert in_place == 4 * L * L
    for cut in (Epochs, Openings):
        counter = cut(7, 3, kind)
        M = matrix(counter)[0].astype(np.int64)
        worst = 0
        for (a, x), (b, y) in itertools.product(itertools.product(range(7), records), repeat=2):
            worst = max(worst, int(((np.outer(M[:, a], x) - np.outer(M[:, b], y)) ** 2).sum()))
        assert worst == counter.cost * in_place


@KINDS
def test_without_noise_the_sum_of_an_epoch_is_exact_and_an_empty_step_adds_nothing(kind):
    stream = {k: np.random.default_rng(k).integers(-(10**6), 10**6, 3) for k in range(1, 24) if k % 5}
    for counter in (Epochs(23, 6, kind), Openings(23, 6, kind)):
        due = {t: counter.rows(t) for t in range(1, 24)}
        rows = {t: exact_rows(r, stream.get, 3) if r else np.zeros((0, 3), dtype=np.int64) for t, r in due.items()}
        for t in range(1, 24):
            first, last = held(counter, t)
            exact = sum((x for k, x in stream.items() if first <= k <= last), np.zeros(3, dtype=np.int64))
            assert np.array_equal(np.rint(counter.total(t, rows.__getitem__)), exact)


def test_whoever_came_in_while_an_epoch_began_is_counted_where_it_opens():
    counter = Epochs(12, 4, "tree")
    assert [counter.placed(s, t) for s, t in ((1, 1), (1, 3), (2, 3), (4, 6), (4, 10), (6, 8))] == [1, 1, 3, 5, 9, 8]
    assert continual("tree", 12).placed(2, 7) == 7


def test_the_names_of_recipes_and_ledgers_make_the_same_counters():
    assert counter_of("tree", 9, None) == continual("tree", 9)
    assert counter_of("tree", 9, 3) == Epochs(9, 3, "tree") and counter_of("tree", 9, 3).kind == "tree"
    assert counter_of("toeplitz", 9, 3, opens=True) == Epochs(9, 3, "toeplitz").openings
    with pytest.raises(ValueError, match="1 to 9"):
        Epochs(9, 10, "tree")
    with pytest.raises(ValueError, match="in one step"):
        Epochs(9, 3, "tree").cost_of(2)


def test_the_page_states_the_noise_of_a_year():
    page = (Path(__file__).parents[2] / "docs" / "one_step.md").read_text(encoding="utf-8")
    for epoch in (365, 90, 30):
        told = []
        for kind in ("tree", "toeplitz"):
            gains = Epochs(365, epoch, kind)
            worst = [c.cost * max(map(c.error, range(1, 366))) for c in (gains.openings, gains)]
            told += [f"{x:.1f}".removesuffix(".0") for x in worst]
        assert f"| epoch {epoch} | {' | '.join(told)} |" in page
