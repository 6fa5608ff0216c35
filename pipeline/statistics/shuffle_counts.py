"""Private counts of a batch in the shuffle model (paper 002, section V); simulated worlds only.

Each user sends one-bit messages for every counter (:mod:`pipeline.privacy.shuffle`); the analyst adds them up.  Here
the totals are drawn from their law at once, so that a batch of 10^9 users costs what one of ten does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.shuffle import NoiseBits, analyzed_totals
from pipeline.privacy.shuffle_calibration import delivered_epsilon, paper_bits, tight_bits
from pipeline.statistics.batch_counts import BatchTables, Layout, PrivateBatch, noisy_tables, private_batch

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class BinomialNoise:
    """The noise bits of a batch as noise of a counter."""

    bits: NoiseBits

    @property
    def standard_deviation(self) -> float:
        """Of one counter."""
        return self.bits.standard_deviation

    def bound(self, failure: float, counters: int = 1) -> float:
        """See :meth:`~pipeline.privacy.shuffle.NoiseBits.bound`."""
        return self.bits.bound(failure, counters)

    def add(self, sums: Integers, seeded: SeededNoise, tables: BatchTables) -> Array:
        """See :class:`~pipeline.statistics.batch_counts.CellNoise`."""
        return analyzed_totals(sums, self.bits, seeded, tables)


@dataclass(frozen=True)
class ShuffleBinary:
    """``(epsilon, delta)``-shuffle-private counts of one batch, replace-one, by binomial noise bits.

    Parameters
    ----------
    epsilon, delta
        Of one user, who is in one batch.
    calibration
        ``tight``: the fewest bits that an exact accountant allows for the counters a user moves; ``paper``: those of
        paper 002 with its epsilon / 3H a counter.
    horizon
        H: what the paper's calibration divides by, also where a batch keeps one step only.
    honest
        Declared share of the users who do add their bits; only theirs are counted on.
    failure
        Chance with which E may fail, for all entries of a release together.
    """

    epsilon: float
    delta: float
    calibration: Literal["tight", "paper"] = "tight"
    horizon: int = 1
    honest: float = 1.0
    failure: float = 0.01

    def bits(self, users: int, layout: Layout) -> NoiseBits:
        """What each user of a batch adds to each counter; public, known before anybody plays."""
        if self.calibration == "paper":
            return paper_bits(users, self.horizon, self.epsilon, self.delta)
        return tight_bits(users, layout.changes, self.epsilon, self.delta, self._honest(users))

    def delivered(self, users: int, layout: Layout) -> float:
        """Epsilon at ``delta`` that the bits of the honest users really give."""
        return delivered_epsilon(self.bits(users, layout), layout.changes, self.delta, self._honest(users))

    def release(self, tables: BatchTables, layout: Layout, noise: SeededNoise) -> PrivateBatch:
        """Noisy sums, made consistent, visits never underestimated.

        Raises
        ------
        ValueError
            If the tables are not of the layout's shape.
        RealDataError
            If the handle says that the data are real: nobody shuffled the messages of a log.
        """
        cell = BinomialNoise(self.bits(tables.users, layout))
        return private_batch(noisy_tables(tables, layout, cell, noise), layout, cell, self.failure)

    def _honest(self, users: int) -> int:
        return max(1, int(self.honest * users))
