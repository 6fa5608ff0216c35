"""Noise drawn in large batches: an audit asks for a few numbers a million times, and a call costs more than a draw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.noise import DataHandle, NoiseSource, SeededNoise

Integers = NDArray[np.int64]
_AT_ONCE = 1 << 12


def fresh() -> SeededNoise:
    """What simulations draw, seeded by the operating system: nobody knows the seed, and no call repeats another."""
    return SeededNoise(np.random.SeedSequence())


@dataclass
class Pooled:
    """A noise source that hands out another one's draws, each once."""

    source: NoiseSource
    _left: dict[tuple[str, int | Fraction], Integers] = field(default_factory=dict, init=False)

    @property
    def name(self) -> str:
        """See :class:`~pipeline.privacy.noise.NoiseSource`."""
        return self.source.name

    @property
    def sampler(self) -> str:
        """See :class:`~pipeline.privacy.noise.NoiseSource`."""
        return self.source.sampler

    def admit(self, data_kind: str) -> None:
        """See :class:`~pipeline.privacy.noise.NoiseSource`."""
        self.source.admit(data_kind)

    def gaussian(self, size: int, variance: int, data: DataHandle) -> Integers:
        """See :class:`~pipeline.privacy.noise.NoiseSource`."""
        return self._taken(("gaussian", variance), size, lambda n: self.source.gaussian(n, variance, data))

    def laplace(self, size: int, scale: Fraction, data: DataHandle) -> Integers:
        """See :class:`~pipeline.privacy.noise.NoiseSource`."""
        return self._taken(("laplace", scale), size, lambda n: self.source.laplace(n, scale, data))

    def tv_bound(self, variance: int) -> Fraction:
        """See :class:`~pipeline.privacy.noise.NoiseSource`."""
        return self.source.tv_bound(variance)

    def _taken(self, key: tuple[str, int | Fraction], size: int, draw: Callable[[int], Integers]) -> Integers:
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
        """See :class:`~pipeline.privacy.noise.NoiseSource`."""
        self.admit(data.data_kind)
        return np.zeros(size, dtype=np.int64)

    def laplace(self, size: int, scale: Fraction, data: DataHandle) -> Integers:
        """See :class:`~pipeline.privacy.noise.NoiseSource`."""
        self.admit(data.data_kind)
        return np.zeros(size, dtype=np.int64)

    def tv_bound(self, variance: int) -> Fraction:
        """See :class:`~pipeline.privacy.noise.NoiseSource`."""
        return Fraction(0)
