"""Private counts of one batch of a simulated world: no noise, a curator's, everybody's own, or shuffled bits.

==========================  ================  ====================================================================
privatizer                  trust             noise of one counter
==========================  ================  ====================================================================
:class:`ExactBatch`         none              none
:class:`GaussianBatch`      joint, local      one discrete Gaussian of a curator, or the sum of the users' own
:class:`ShuffleBinary`      shuffle           the users' one-bit messages (:mod:`pipeline.privacy.shuffle`)
==========================  ================  ====================================================================

What differs is the noise of one counter; all counters have noise of the same law, and what follows is one programme
(paper 002, section V).  Totals are drawn from their law at once, so that a batch of 10^9 users costs what ten do.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.budget import epsilon_from_rho, rho_from_epsilon
from pipeline.privacy.guarantee import Trust
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import Mechanism, Release, Running, ShuffledBits
from pipeline.privacy.shuffle import NoiseBits, analyzed_totals, exchanged
from pipeline.privacy.shuffle_calibration import delivered_epsilon, of_one_episode, paper_bits, tight_bits
from pipeline.statistics.batch_counts import (
    BatchLayout,
    BatchTables,
    CellNoise,
    PrivateBatch,
    noisy_tables,
    private_batch,
)
from pipeline.statistics.layout import Layout

_UNIT, _RULE = "ones", "an episode replaced moves so many counters by 1, half of them up; everybody sends for all"


def release_of_shuffled(
    layout: Layout, changes: int, batches: Sequence[tuple[NoiseBits, int, Integers]], sampler: str, episodes: int = 1
) -> Release:
    """Shuffled batches as one release; an episode is in one of them.

    Parameters
    ----------
    layout
        Whose counters they are.
    changes, episodes
        Counters that one replaced episode moves by 1, and most episodes of one user.
    batches
        Of each its noise bits, how many users add theirs honestly, and the ones ``(C,)`` that were counted.
    sampler
        Program that drew the bits.
    """
    named = {f"batch_{i}": batch for i, batch in enumerate(batches)}
    moved = changes * episodes**2, changes * episodes
    noise = {n: ShuffledBits(b.users, b.each, b.chance, changes, h, episodes) for n, (b, h, _) in named.items()}
    shapes = {name: ones.shape for name, (_, _, ones) in named.items()}
    return Release(
        dataset=layout.dataset,
        data_kind=layout.data_kind,
        dynamics=layout.dynamics,
        mechanisms=tuple(Mechanism(n, shapes[n], _UNIT, *moved, _RULE, shuffled=x) for n, x in noise.items()),
        tables={name: ones for name, (_, _, ones) in named.items()},
        noise="seeded",
        sampler=sampler,
        trust_model=Trust.SHUFFLE.value,
    )


def release_of_gaussian(
    layout: Layout, changes: int, variance: int | None, error: int, counts: Integers, trust: Trust, sampler: str
) -> Release:
    """The sum of all batches as one release; a user is in one of them, so no budget is divided.

    Parameters
    ----------
    layout, changes
        As of :func:`release_of_shuffled`.
    variance, error
        Of one draw, None without noise; and how many draws are in each counter of the sum.
    counts
        Noisy counters ``(C,)``, summed over the batches.
    trust, sampler
        Who adds the noise, and what drew it.
    """
    running = None if variance is None else Running(1, error, error)
    return Release(
        dataset=layout.dataset,
        data_kind=layout.data_kind,
        dynamics=layout.dynamics,
        mechanisms=(Mechanism("counters", counts.shape, _UNIT, changes, changes, _RULE, variance, running=running),),
        tables={"counters": counts},
        noise="none" if variance is None else "seeded",
        sampler=sampler,
        trust_model=trust.value,
    )


Array = NDArray[np.float64]
Integers = NDArray[np.int64]


class BatchPrivatizer(ABC):
    """The last place that sees exact sums of a batch; E may fail with chance ``failure``, for all entries together."""

    failure: float

    @abstractmethod
    def cell(self, users: int, layout: BatchLayout) -> CellNoise:
        """Noise of one counter of a batch of so many users: public, known before anybody plays."""

    def release(self, tables: BatchTables, layout: BatchLayout, noise: SeededNoise) -> PrivateBatch:
        """Noisy sums, made consistent, visits never underestimated.

        Parameters
        ----------
        tables
            Exact sums of the batch.
        layout
            Which counters are kept.
        noise
            Simulated worlds only: nobody shuffled the messages of a log.

        Raises
        ------
        ValueError
            If the tables are not of the layout's shape.
        RealDataError
            If the handle says that the data are real.
        """
        cell = self._drawn(tables, layout, noise)
        return private_batch(noisy_tables(tables, layout, cell, noise), layout, cell, self.failure)

    def _drawn(self, tables: BatchTables, layout: BatchLayout, noise: SeededNoise) -> CellNoise:
        return self.cell(tables.users, layout)


@dataclass(frozen=True)
class GaussianNoise:
    """One discrete Gaussian of this variance a counter; 0: exact sums, and nothing is drawn."""

    variance: int

    @property
    def standard_deviation(self) -> float:
        """Of one counter."""
        return math.sqrt(self.variance)

    def bound(self, failure: float, counters: int = 1) -> float:
        """A quantile of the normal law."""
        from scipy.stats import norm

        if not self.variance:
            return 0.0
        return float(norm.isf(failure / 2)) * self.standard_deviation * math.sqrt(counters)

    def add(self, sums: Integers, seeded: SeededNoise, tables: BatchTables) -> Array:
        """See :class:`~pipeline.statistics.batch_counts.CellNoise`."""
        if not self.variance:
            return sums.astype(np.float64)
        drawn = seeded.gaussian(sums.size, self.variance, tables)
        return (sums + drawn.reshape(sums.shape)).astype(np.float64)


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
class SentNoise(BinomialNoise):
    """The same where the messages were sent: what the analyst has of each counter, table after table."""

    analyzed: Iterator[float]

    def add(self, sums: Integers, seeded: SeededNoise, tables: BatchTables) -> Array:
        """See :class:`~pipeline.statistics.batch_counts.CellNoise`; the exact sums are not looked at."""
        return np.array(list(islice(self.analyzed, sums.size))).reshape(sums.shape)


@dataclass(frozen=True)
class ExactBatch(BatchPrivatizer):
    """No privacy: the baseline; its E is 0, whatever ``failure``."""

    failure: float = 1.0

    def cell(self, users: int, layout: BatchLayout) -> GaussianNoise:
        """See :class:`BatchPrivatizer`."""
        return GaussianNoise(0)


@dataclass(frozen=True)
class GaussianBatch(BatchPrivatizer):
    """``(epsilon, delta)`` through rho-zCDP, replace-one: noise added once by a trusted curator, or by each user.

    The sum of the users' discrete Gaussians is drawn as one of their summed variance: exact up to a part in 10^9 at the
    variances in use.

    Parameters
    ----------
    epsilon, delta
        Of one user, who is in one batch.
    trust
        ``joint``: a curator adds noise once; ``local``: each user does.
    failure
        See :class:`BatchPrivatizer`.
    """

    epsilon: float
    delta: float
    trust: Literal["joint", "local"]
    failure: float = 0.01

    def variance(self, layout: BatchLayout) -> int:
        """Of one draw: ``changes / (2 rho)`` rounded up."""
        return math.ceil(layout.changes / (2 * rho_from_epsilon(self.epsilon, self.delta)))

    def delivered(self, users: int, layout: BatchLayout) -> float:
        """Epsilon at ``delta`` of the variance drawn."""
        return epsilon_from_rho(layout.changes / (2 * self.variance(layout)), self.delta)

    def cell(self, users: int, layout: BatchLayout) -> GaussianNoise:
        """See :class:`BatchPrivatizer`."""
        return GaussianNoise((users if self.trust == "local" else 1) * self.variance(layout))


@dataclass(frozen=True)
class ShuffleBinary(BatchPrivatizer):
    """``(epsilon, delta)``-shuffle-private counts of one batch, replace-one, by binomial noise bits.

    Parameters
    ----------
    epsilon, delta, episodes
        Of one user, with so many episodes at most, each in one batch.
    calibration
        ``tight``: the fewest bits that an exact accountant allows for the counters a user moves; ``paper``: those of
        paper 002 with its epsilon / 3H a counter.
    horizon
        H: what the paper's calibration divides by, also where a batch keeps one step only.
    honest
        Declared share of the users who do add their bits; only theirs are counted on.
    failure
        See :class:`BatchPrivatizer`.
    """

    epsilon: float
    delta: float
    calibration: Literal["tight", "paper"] = "tight"
    horizon: int = 1
    honest: float = 1.0
    failure: float = 0.01
    episodes: int = 1

    def bits(self, users: int, layout: BatchLayout) -> NoiseBits:
        """What each user of a batch adds to each counter; public, known before anybody plays."""
        if self.calibration == "paper":
            return paper_bits(users, self.horizon, self.epsilon, self.delta)
        asked = of_one_episode(self.episodes, self.epsilon, self.delta)
        return tight_bits(users, layout.changes, *asked, self.honest_of(users))

    def _drawn(self, tables: BatchTables, layout: BatchLayout, noise: SeededNoise) -> BinomialNoise:
        if tables.people is None:
            return self.cell(tables.users, layout)
        bits = self.bits(tables.users, layout)
        return SentNoise(bits, iter(exchanged(tables.people, layout.counters, bits, noise, tables).sums))

    def delivered(self, users: int, layout: BatchLayout) -> float:
        """Epsilon at ``delta`` that the bits of the honest users really give."""
        told = self.bits(users, layout), layout.changes, self.delta, self.honest_of(users), self.episodes
        return delivered_epsilon(*told)

    def cell(self, users: int, layout: BatchLayout) -> BinomialNoise:
        """See :class:`BatchPrivatizer`."""
        return BinomialNoise(self.bits(users, layout))

    def honest_of(self, users: int) -> int:
        """How many of a batch's users do add their bits, as declared; at least one."""
        return max(1, int(self.honest * users))
