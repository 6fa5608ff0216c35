"""Sums are exact integers: equal to Python's own, in any order of rows, by rows or by counts; overflow is refused."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.statistics.gram import Extent, counted_sums, exact_sums


def rows(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    f = rng.integers(-1000, 1001, (n, d))
    return f, rng.integers(-20_000, 20_001, (2, n)), rng.integers(1, 1025, n)


def exact(f: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    f, y, w = (x.astype(object) for x in (f, y, w))
    return (f * w[:, None]).T @ f, (y * w) @ f


def floats(*arrays: np.ndarray) -> list[np.ndarray]:
    return [a.astype(np.float64) for a in arrays]


def test_blocks_of_float_products_give_pythons_integers():
    f, y, w = rows(3000, 7)
    extent = Extent(3000, 7 * 10**6, 1024, 20_000)
    gram, sums = exact_sums(extent, *floats(f, y, w))
    want = exact(f, y, w)
    assert (gram == want[0]).all() and (sums == want[1]).all() and gram.dtype == np.int64


def test_blocks_are_short_enough_for_the_worst_rows():
    extent = Extent(10**4, 2**20, 1024, 2**26)
    f = np.full((10_000, 2), 1024 / 2**0.5 // 1)
    y = np.full((1, 10_000), float(2**26))
    gram, sums = exact_sums(extent, f, y, np.full(10_000, 1024.0))
    assert sums[0, 0] == 10_000 * 1024 * 2**26 * 724 and gram[0, 0] == 10_000 * 1024 * 724**2
    assert extent.block * 1024 * 1024 * 2**26 < 2**53


def test_counts_give_the_sums_of_the_rows():
    f, y, w = rows(6, 4)
    cell = np.random.default_rng(2).integers(6, size=1000)
    n = np.bincount(cell, minlength=6)
    by_rows = exact_sums(Extent(1000, 4 * 10**6, 1024, 20_000), *floats(f[cell], y[:, cell], w[cell]))
    by_counts = counted_sums(f, n, y * n, w)
    assert (by_rows[0] == by_counts[0]).all() and (by_rows[1] == by_counts[1]).all()


@pytest.mark.parametrize("extent", [(10**9, 2**20, 1024, 2**20), (1, 2**20, 1024, 2**40)])
def test_what_could_leave_the_exact_integers_is_refused_before_any_row(extent):
    with pytest.raises(OverflowError, match="coarser lattice"):
        Extent(*extent)
