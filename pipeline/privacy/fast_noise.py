"""``FastOsNoise``: operating-system noise, a hundred times faster than OpenDP, and what that costs in delta.

It is chosen by writing its name.  Releases drawn with it say so (``sampler``), and their mechanisms carry the
``delta_slack`` of :func:`pipeline.privacy.release.with_sampler_slack`.
"""

from __future__ import annotations

from fractions import Fraction

from pipeline.privacy.csprng import Words
from pipeline.privacy.noise import LARGEST_SCALE, DataHandle, Integers
from pipeline.privacy.samplers import (
    LARGEST_VARIANCE,
    TV_BOUND,
    gaussian_by_rejection,
    gaussian_by_table,
    laplace_by_rejection,
)


class FastOsNoise:
    """Gaussian by table (within 2^-130 of its law a draw) or, above 20 000, exact; Laplace exact."""

    name = "os"
    sampler = (
        "discrete gaussian by table inversion (total variation 2^-130 a draw; exact rejection above standard "
        "deviation 20000), discrete laplace by exact rejection, operating-system randomness through SHAKE-256"
    )

    def admit(self, data_kind: str) -> None:
        """Serves data of every kind."""

    def gaussian(self, size: int, variance: int, data: DataHandle) -> Integers:
        """See :class:`~pipeline.privacy.noise.NoiseSource`."""
        if variance <= 0 or int(variance) != variance:
            raise ValueError(f"variance must be a positive integer; got {variance}")
        _fits(variance <= LARGEST_SCALE**2)
        by = gaussian_by_table if variance <= LARGEST_VARIANCE else gaussian_by_rejection
        return by(Words(), size, Fraction(variance))

    def laplace(self, size: int, scale: Fraction, data: DataHandle) -> Integers:
        """See :class:`~pipeline.privacy.noise.NoiseSource`; exact, so a pure guarantee stays pure."""
        if scale <= 0:
            raise ValueError(f"scale must be positive; got {scale}")
        _fits(scale <= LARGEST_SCALE)
        return laplace_by_rejection(Words(), size, Fraction(scale))

    def tv_bound(self, variance: int) -> Fraction:
        """2^-130 where the table serves; 0 where rejection does."""
        return TV_BOUND if variance <= LARGEST_VARIANCE else Fraction(0)


def _fits(holds: bool) -> None:
    # 2^20 standard deviations of the largest scale still fit a count in 64 bits
    if not holds:
        raise OverflowError("noise beyond 2^40 does not fit 64-bit integers; nothing was released")
