"""Noise sources: what a privatizer may draw from.

``OsNoise`` is the only source admitted for data registered as real: exact discrete samplers fed by the operating
system.  ``SeededNoise`` is for simulations; it refuses real data by itself, whatever the caller intended.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


# far below the ends of int64, so that count + draw cannot wrap
_LARGEST_DRAW = 2**61
# largest standard deviation or scale that may be asked for: 2^20 of them still fit below the largest draw
LARGEST_SCALE = 2**40
# largest variance whose law a simulation tabulates
_TABLED = 2**22


class RealDataError(Exception):
    """Something other than operating-system noise was about to touch a dataset registered as real."""


class NoiseSource(Protocol):
    """Exact integer noise.  ``data_kind`` is the registered kind of the data the noise will protect."""

    @property
    def name(self) -> str:
        """``os`` or ``seeded``."""
        ...

    @property
    def sampler(self) -> str:
        """Name and version of the sampler."""
        ...

    def admit(self, data_kind: str) -> None:
        """Raise :class:`RealDataError` where this source may not serve; called before any row is read."""
        ...

    def gaussian(self, size: int, variance: int, data_kind: str) -> Integers:
        """Discrete Gaussian draws ``(size,)``: P(x) proportional to exp(-x^2 / (2 variance)) on the integers."""
        ...

    def laplace(self, size: int, scale: Fraction, data_kind: str) -> Integers:
        """Discrete Laplace draws ``(size,)``: P(x) proportional to exp(-|x| / scale) on the integers."""
        ...


@cache
def _opendp() -> Any:
    import opendp.prelude as dp
    from opendp.mod import enable_features

    enable_features("contrib")
    return dp


class OsNoise:
    """OpenDP's exact discrete samplers on operating-system randomness; takes no seed and no argument."""

    name = "os"

    @property
    def sampler(self) -> str:
        """Name and version of the sampler, for release and report."""
        return f"opendp {version('opendp')}, exact discrete, operating-system randomness"

    def admit(self, data_kind: str) -> None:
        """Serves data of every kind."""

    def gaussian(self, size: int, variance: int, data_kind: str) -> Integers:
        """See :class:`NoiseSource`; the scale is rounded up to the next float (privacy.md §0.1-17)."""
        dp = _opendp()
        # i64, never int: OpenDP's int is 32 bits wide and saturates
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
        return self._draw(dp.m.make_gaussian(*space, scale=gaussian_scale(variance)), size)

    def laplace(self, size: int, scale: Fraction, data_kind: str) -> Integers:
        """See :class:`NoiseSource`; the scale is rounded up to the next float."""
        dp = _opendp()
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        return self._draw(dp.m.make_laplace(*space, scale=math.nextafter(float(scale), math.inf)), size)

    @staticmethod
    def _draw(measurement: Any, size: int) -> Integers:
        drawn = np.asarray(measurement([0] * size), dtype=np.int64)
        # OpenDP saturates at the ends of i64, and a saturated draw hides nothing once the count is added to it
        if size and max(int(drawn.max()), -int(drawn.min())) >= _LARGEST_DRAW:
            raise OverflowError("a noise draw left the safe range of 64-bit integers; nothing was released")
        return drawn


def gaussian_scale(variance: int) -> float:
    """A float at least ``sqrt(variance)``: what OpenDP is asked for."""
    if variance <= 0 or int(variance) != variance:
        raise ValueError(f"variance must be a positive integer; got {variance}")
    return math.nextafter(math.sqrt(variance), math.inf)


class SeededNoise:
    """Reproducible noise for simulations only: same laws (up to float), never private, refuses real data."""

    name = "seeded"
    sampler = "numpy, seeded: simulation, not private"

    def __init__(self, seed: int | np.random.SeedSequence) -> None:
        self._rng = np.random.default_rng(seed)

    def admit(self, data_kind: str) -> None:
        """Serves synthetic data only."""
        if data_kind != "synthetic":
            raise RealDataError("seeded noise is for simulations; this dataset is registered as real")

    def gaussian(self, size: int, variance: int, data_kind: str) -> Integers:
        """See :class:`NoiseSource`; wide laws are rounded normals, which differ by less than float can show."""
        if variance > _TABLED:
            self.admit(data_kind)
            return np.rint(self._rng.normal(0.0, math.sqrt(variance), size)).astype(np.int64)
        reach = math.ceil(12 * math.sqrt(variance)) + 1
        support = np.arange(-reach, reach + 1)
        return self._draw(size, support, np.exp(-(support**2) / (2 * variance)), data_kind)

    def laplace(self, size: int, scale: Fraction, data_kind: str) -> Integers:
        """See :class:`NoiseSource`."""
        reach = math.ceil(40 * scale) + 1
        support = np.arange(-reach, reach + 1)
        return self._draw(size, support, np.exp(-np.abs(support) / float(scale)), data_kind)

    def _draw(self, size: int, support: Integers, weight: NDArray[np.float64], data_kind: str) -> Integers:
        self.admit(data_kind)
        cdf = np.cumsum(weight / weight.sum())
        index = np.searchsorted(cdf, self._rng.random(size), side="right")
        return support[np.minimum(index, len(support) - 1)].astype(np.int64)
