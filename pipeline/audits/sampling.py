"""Noise as an audit needs it: drawn in large batches, or none at all, or held against what a release lists."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.noise import DataHandle, Integers, RelayedNoise, SeededNoise, SimulatedWorld

Array = NDArray[np.float64]
# nobody lives there
WORLD = SimulatedWorld("audit")
# whole releases of each side that are held against their list
RELEASES = 200
# that anything is said of a release which draws what it lists
FALSE_ALARM = 1e-9
# entries of a release whose noise is compared pair by pair; of more, so many drawn at random
_COMPARED = 256
_AT_ONCE = 1 << 12


def fresh() -> SeededNoise:
    """What simulations draw, seeded by the operating system: nobody knows the seed, and no call repeats another."""
    return SeededNoise(np.random.SeedSequence())


@dataclass
class Pooled(RelayedNoise):
    """A noise source that hands out another one's draws, each once: a call costs more than a draw."""

    _left: dict[tuple[str, int | Fraction], Integers] = field(default_factory=dict, init=False)

    def gaussian(self, size: int, variance: int, data: DataHandle) -> Integers:
        return self._take(("gaussian", variance), size, lambda n: self.source.gaussian(n, variance, data))

    def laplace(self, size: int, scale: Fraction, data: DataHandle) -> Integers:
        return self._take(("laplace", scale), size, lambda n: self.source.laplace(n, scale, data))

    def _take(self, key: tuple[str, int | Fraction], size: int, draw: Callable[[int], Integers]) -> Integers:
        left = self._left.get(key, np.zeros(0, dtype=np.int64))
        if len(left) < size:
            left = np.concatenate([left, draw(max(size, _AT_ONCE))])
        self._left[key] = left[size:]
        return left[:size]


@dataclass(frozen=True)
class Silence:
    """Draws zeros: what a path publishes of a side before any noise; synthetic data only, and never published."""

    name: str = "none"
    sampler: str = "none: an audit's expectation"

    def admit(self, data_kind: str) -> None:
        """See :class:`~pipeline.privacy.noise.NoiseSource`; made-up neighbours only."""
        if data_kind != "synthetic":
            raise ValueError("an audit reads no rows: its neighbours are made up")

    def gaussian(self, size: int, variance: int, data: DataHandle) -> Integers:
        self.admit(data.data_kind)
        return np.zeros(size, dtype=np.int64)

    def laplace(self, size: int, scale: Fraction, data: DataHandle) -> Integers:
        return self.gaussian(size, 1, data)

    def tv_bound(self, variance: int) -> Fraction:
        return Fraction(0)


@dataclass(frozen=True)
class Drawn:
    """What releases say of their noise."""

    less: bool
    more: bool
    shared: bool


class Covariance:
    """Covariances of noise that was drawn in batches, entry by entry of all tables of a release.

    Of independent normal noise sqrt(n - 2) r / sqrt(1 - r^2) is t-distributed with n - 2 degrees of freedom, where r is
    the correlation over n releases.

    ``read`` ``(*shape)``: of each table: which entries are read.
    """

    def __init__(self, read: list[NDArray[np.bool_]]) -> None:
        self._read, entries = read, sum(int(of.sum()) for of in read)
        self._chosen = np.random.default_rng().permutation(entries)[:_COMPARED]
        self._squares, self._sum = np.zeros((len(self._chosen),) * 2), np.zeros(len(self._chosen))
        self._copies = 0

    def add(self, noise: list[Array]) -> None:
        """Take in releases: tables ``(copies, *shape)``."""
        flat = np.hstack([x[:, read] for x, read in zip(noise, self._read, strict=True)])[:, self._chosen]
        self._squares += flat.T @ flat
        self._sum += flat.sum(0)
        self._copies += len(flat)

    @property
    def shared(self) -> bool:
        """Whether entries are correlated, or two releases alike, with a chance of :data:`FALSE_ALARM` to be wrong."""
        from scipy import stats

        covariance, free = self._squares - np.outer(self._sum, self._sum) / self._copies, self._copies - 2
        moving = np.diag(covariance) > 1e-9 * np.diag(self._squares)
        # the same in every release, and not nothing
        if (np.diag(self._squares)[~moving] > 1e-9 * np.diag(self._squares).max(initial=0.0)).any():
            return True
        covariance = covariance[np.ix_(moving, moving)]
        spread = np.sqrt(np.diag(covariance))
        r = np.abs(covariance / np.outer(spread, spread))[np.triu_indices(len(spread), 1)]
        if not r.size or free < 1:
            return False
        t = float(stats.t.isf(FALSE_ALARM / (2 * r.size), free))
        return bool(r.max() > t / np.sqrt(free + t**2))


def hold_noise(noise: list[Array], variances: list[Array]) -> Drawn:
    """Hold drawn noise against the variances that are listed for it, and against noise of each entry's own.

    Squares over their variance are chi-squared with ``copies`` degrees of freedom, entry by entry and summed over a
    table.  The chance of a false alarm is shared by all these tests; :class:`Covariance` has one of its own.

    ``noise``: tables ``(copies, *shape)``.
    ``variances`` ``(*shape)``: each; what is infinite is not read.
    """
    from scipy import stats

    found: list[tuple[Array, int]] = []
    together = Covariance([np.isfinite(v) for v in variances])
    together.add(noise)
    for x, v in zip(noise, variances, strict=True):
        read = np.isfinite(v)
        squares = (x[:, read] ** 2 / v[read]).sum(0)
        found += [(squares, len(x)), (np.array([squares.sum()]), squares.size * len(x))]
    doubt = FALSE_ALARM / (2 * sum(squares.size for squares, _ in found))
    return Drawn(
        less=any(bool((squares < stats.chi2.ppf(doubt, n)).any()) for squares, n in found),
        more=any(bool((squares > stats.chi2.isf(doubt, n)).any()) for squares, n in found),
        shared=together.shared,
    )
