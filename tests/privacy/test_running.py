"""Running sums of agents: the noise of the factorisation they are over, drawn once, and twins that draw otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pipeline.privacy.continual import CounterFullError, LazyTree, NoiseBlocks, Once, RunningSum, SquareRoot, Tree
from pipeline.privacy.noise import OsNoise, RealDataError, SeededNoise, SimulatedWorld
from tests.privacy.handles import REAL

WORLD = SimulatedWorld("tests")
ALL = {"plain": lambda T: Tree(T, "plain"), "bottom-up": Tree, "square-root": SquareRoot, "once": Once}
NAMES = pytest.mark.parametrize("name", ALL)
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


@NAMES
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


@NAMES
def test_without_noise_the_sums_are_exact_to_the_last_bit(name):
    stream = np.random.default_rng(0).integers(0, 2**40, (37, 5))
    counter = RunningSum(ALL[name](37), NoiseBlocks((2, 3), (0, 0), SeededNoise(0), WORLD))
    for t, leaf in enumerate(stream, 1):
        counter.add(leaf)
        assert np.array_equal(counter.total(), stream[:t].sum(0))
    with pytest.raises(CounterFullError, match="declared for 37 leaves"):
        counter.add(stream[0])


@NAMES
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


@NAMES
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
    with pytest.raises(RealDataError):
        RunningSum(time, NoiseBlocks((2, 1), (50, 90), OsNoise(), REAL))
    with pytest.raises(RealDataError):
        NoiseBlocks((2, 1), (50, 0), OsNoise(), REAL)
    with pytest.raises(RealDataError):
        NoiseBlocks((2, 1), (50, 90), SeededNoise(0), REAL)
    with pytest.raises(RealDataError):
        NoiseBlocks((3,), (50,), OsNoise(), REAL).draw(1, 2)


def read(time, variance, seed=0) -> np.ndarray:
    """Noise of every sum ``(reads, draws)`` after ENDS people."""
    counter, found = RunningSum(time, blocks(variance, seed=seed)), []
    for k in ENDS if time.steps == len(ENDS) else range(1, ENDS[-1] + 1):
        counter.add(np.zeros(DRAWS, dtype=np.int64))
        if k in ENDS:
            found.append(counter.total())
    return np.array(found)


def covariance(noise: np.ndarray) -> np.ndarray:
    return noise @ noise.T / noise.shape[1]


@pytest.mark.parametrize("estimate", ["plain", "bottom-up"])
def test_a_tree_that_draws_what_is_read_has_the_covariances_of_the_whole_tree(estimate):
    variance, lazy = 10_000, LazyTree(ENDS, estimate)
    seen, whole = covariance(read(lazy, variance)), covariance(read(Tree(ENDS[-1], estimate), variance, 1))
    np.testing.assert_allclose(seen, whole, atol=NEAR * whole.max())
    errors = [lazy.error(b) for b in range(1, len(ENDS) + 1)]
    np.testing.assert_allclose(np.diag(seen), variance * np.array(errors), rtol=NEAR)


def test_a_twin_that_draws_halves_anew_has_other_covariances(monkeypatch):
    monkeypatch.setattr("pipeline.privacy.continual._LazyNodes._was_read_inside", lambda *_: False)
    twin = covariance(read(LazyTree(ENDS), 10_000))
    whole = covariance(read(Tree(ENDS[-1]), 10_000, 1))
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
