"""OpenDP's samplers: a second implementation of the same laws, to check ours against."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np

from pipeline.privacy.noise import DataHandle, Integers

# far below the ends of int64, so that count + draw cannot wrap
_LARGEST_DRAW = 2**61


@cache
def _opendp() -> Any:
    import opendp.prelude as dp
    from opendp.mod import enable_features

    enable_features("contrib")
    return dp


class OpenDpNoise:
    """OpenDP's exact discrete samplers on operating-system randomness; takes no seed and no argument."""

    name = "os"

    @property
    def sampler(self) -> str:
        """Name and version of the sampler, for release and report."""
        return f"opendp {version('opendp')}, exact discrete, operating-system randomness"

    def admit(self, data_kind: str) -> None:
        """Serves data of every kind."""

    def gaussian(self, size: int, variance: int, data: DataHandle) -> Integers:
        """See :class:`NoiseSource`; the scale is rounded up to the next float (privacy.md §0.1-17)."""
        dp = _opendp()
        # i64, never int: OpenDP's int is 32 bits wide and saturates
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
        return self._draw(dp.m.make_gaussian(*space, scale=gaussian_scale(variance)), size)

    def laplace(self, size: int, scale: Fraction, data: DataHandle) -> Integers:
        """See :class:`NoiseSource`; the scale is rounded up to the next float."""
        dp = _opendp()
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        return self._draw(dp.m.make_laplace(*space, scale=math.nextafter(float(scale), math.inf)), size)

    def tv_bound(self, variance: int) -> Fraction:
        """Zero: OpenDP's samplers are exact."""
        return Fraction(0)

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
