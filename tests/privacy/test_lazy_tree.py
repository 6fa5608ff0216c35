"""A tree that draws what is read: the same law as the tree that draws every node, and a broken twin that has not."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.privacy.counters import CounterFullError, Lanes, TreeCounter
from pipeline.privacy.lazy_tree import LazyTree
from pipeline.privacy.noise import OsNoise, RealDataError, SeededNoise, SimulatedWorld
from tests.privacy.handles import REAL

WORLD = SimulatedWorld("tests")
# two nodes that end inside one another, long gaps, and the last
ENDS = (1, 3, 6, 8, 13, 16)
# sums of 40 000 draws: a covariance is within 4 % of the largest variance
DRAWS, NEAR = 40_000, 0.04


def lanes(variance: int, size: int = DRAWS, seed: int = 0) -> Lanes:
    return Lanes((size,), (variance,), SeededNoise(seed), WORLD)


def read(counter: LazyTree) -> np.ndarray:
    """Noise of every sum ``(reads, draws)``."""
    found = []
    for _ in ENDS:
        counter.add(np.zeros(DRAWS, dtype=np.int64))
        found.append(counter.total())
    return np.array(found)


def covariance(noise: np.ndarray) -> np.ndarray:
    return noise @ noise.T / noise.shape[1]


def every_node(estimate: str, variance: int) -> np.ndarray:
    whole = TreeCounter(ENDS[-1], lanes(variance, seed=1), estimate)
    found = []
    for k in range(1, ENDS[-1] + 1):
        whole.add(np.zeros(DRAWS, dtype=np.int64))
        if k in ENDS:
            found.append(whole.total())
    return covariance(np.array(found))


@pytest.mark.parametrize("estimate", ["plain", "bottom-up"])
def test_sums_have_the_covariances_of_the_whole_tree(estimate):
    variance = 10_000
    lazy = LazyTree(ENDS, lanes(variance), estimate)
    seen = covariance(read(lazy))
    whole = every_node(estimate, variance)
    np.testing.assert_allclose(seen, whole, atol=NEAR * whole.max())
    errors = [lazy.error(b) for b in range(1, len(ENDS) + 1)]
    np.testing.assert_allclose(np.diag(seen), variance * np.array(errors), rtol=NEAR)


def test_a_twin_that_draws_halves_anew_has_other_covariances(monkeypatch):
    monkeypatch.setattr(LazyTree, "_was_read_inside", lambda *_: False)
    twin = covariance(read(LazyTree(ENDS, lanes(10_000), "bottom-up")))
    whole = every_node("bottom-up", 10_000)
    assert np.abs(twin - whole).max() > 3 * NEAR * whole.max()


def test_without_noise_the_sums_are_exact_and_beyond_the_last_batch_nothing_is_added():
    counter = LazyTree((2, 5, 9), lanes(0, 3))
    for k in range(3):
        counter.add(np.array([1, 10, 100]))
        np.testing.assert_array_equal(counter.total(), (k + 1) * np.array([1, 10, 100]))
    with pytest.raises(CounterFullError):
        counter.add(np.zeros(3, dtype=np.int64))


def test_a_read_sum_stays_the_same_and_a_huge_tree_is_cheap():
    counter = LazyTree((10**8 - 1, 10**8), lanes(100, 3))
    assert counter.cost == 27
    counter.add(np.zeros(3, dtype=np.int64))
    np.testing.assert_array_equal(counter.total(), counter.total())
    counter.add(np.zeros(3, dtype=np.int64))


def test_real_data_and_disordered_batches_are_refused():
    with pytest.raises(RealDataError):
        LazyTree((1, 2), Lanes((1,), (1,), OsNoise(), REAL))
    with pytest.raises(ValueError, match="one after the other"):
        LazyTree((3, 3), lanes(1))
