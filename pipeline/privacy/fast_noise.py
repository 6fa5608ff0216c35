"""``FastOsNoise``: the draws of ``OsNoise``, with the slack in delta that ``sampler = "table"`` has always listed.

Until tables were exact, each of its Gaussian draws was within ``TV_BOUND`` of the law.  A release is known by its
mechanisms, slack included: that a recipe still lists it keeps its committed releases from being drawn again.
"""

from __future__ import annotations

from fractions import Fraction

from pipeline.privacy.noise import OsNoise

LARGEST_VARIANCE = 20_000**2
TV_BOUND = Fraction(1, 2**130)


class FastOsNoise(OsNoise):
    """Exact, and listed as if each Gaussian draw were within 2^-130 of its law."""

    def tv_bound(self, variance: int) -> Fraction:
        """2^-130 where a table served; 0 where rejection did."""
        return TV_BOUND if variance <= LARGEST_VARIANCE else Fraction(0)
