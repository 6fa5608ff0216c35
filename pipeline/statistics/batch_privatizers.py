"""Private counts of one batch of a simulated world: no noise, a curator's, everybody's own, or shuffled bits.

What differs is the noise of one counter; all counters have noise of the same law, and what follows is one programme
(paper 002, section V).  Totals are drawn from their law at once, so that a batch of 10^9 users costs what ten do.
"""

# pyright: reportUnknownMemberType=false
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.budget import epsilon_from_rho, rho_from_epsilon
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import Mechanism, Release, Running, ShuffledBits
from pipeline.privacy.shuffle import NoiseBits, analyzed_totals, exchanged
from pipeline.privacy.shuffle_calibration import delivered_epsilon, of_one_episode, paper_bits, tight_bits
from pipeline.statistics.batch_counts import BatchLayout, BatchTables, NoisyTables, PrivateBatch, consistent
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


Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class CellNoise:
    """Noise of one counter, alike and independent in all of them.

    Parameters
    ----------
    variance
        Of one discrete Gaussian; 0: exact sums, and nothing is drawn.
    bits
        The users' noise bits, in place of a Gaussian.
    analyzed
        Where the messages were sent: what the analyst has of each counter, table after table.
    """

    variance: int = 0
    bits: NoiseBits | None = None
    analyzed: Iterator[float] | None = None

    @property
    def standard_deviation(self) -> float:
        """Of one counter."""
        return math.sqrt(self.variance) if self.bits is None else self.bits.standard_deviation

    def bound(self, failure: float, counters: int = 1) -> float:
        """What the summed noise of ``counters`` counters exceeds, either way, with at most ``failure``."""
        from scipy.stats import norm

        if self.bits is not None:
            return self.bits.bound(failure, counters)
        if not self.variance:
            return 0.0
        return float(norm.isf(failure / 2)) * self.standard_deviation * math.sqrt(counters)

    def add(self, sums: Integers, seeded: SeededNoise, tables: BatchTables) -> Array:
        """Unbiased noisy ``sums``; where messages were sent, the exact ones are not looked at."""
        if self.analyzed is not None:
            return np.array(list(islice(self.analyzed, sums.size))).reshape(sums.shape)
        if self.bits is not None:
            return analyzed_totals(sums, self.bits, seeded, tables)
        if not self.variance:
            return sums.astype(np.float64)
        drawn = seeded.gaussian(sums.size, self.variance, tables)
        return (sums + drawn.reshape(sums.shape)).astype(np.float64)


def noisy_tables(tables: BatchTables, layout: BatchLayout, cell: CellNoise, noise: SeededNoise) -> NoisyTables:
    """Draw the noise of every counter of the layout, never-visited ones included."""
    if tables.n_sas.shape[:3] != layout.shape:
        raise ValueError(f"tables must be {layout.shape}; got {tables.n_sas.shape[:3]}")
    noise.admit(tables.data_kind)
    moving, visits, S = layout.moving, layout.visits, layout.shape[1]  # noqa: N806
    n_sas = np.zeros(tables.n_sas.shape)
    n_sas[:moving] = cell.add(tables.n_sas[:moving], noise, tables)
    n_sa, sd_sa = n_sas.sum(-1), np.full(layout.shape[0], cell.standard_deviation * S**0.5)
    n_sa[visits], sd_sa[visits] = cell.add(tables.n_sa[visits], noise, tables), cell.standard_deviation
    r_sa = cell.add(tables.r_sa, noise, tables) if layout.rewards else None
    return NoisyTables(tables.users, n_sas, n_sa, r_sa, cell.standard_deviation, sd_sa)


def private_batch(noisy: NoisyTables, layout: BatchLayout, cell: CellNoise, failure: float) -> PrivateBatch:
    """Consistency programme and shift of paper 002 (4)-(5); the bounds hold together but for ``failure``.

    Two tables: E/4 bounds every noisy count; the programme's slack is E/4 and the shift E/2.  Lean: the visits *are*
    the sums, so the slack is 0 and the shift is the bound on their noise.
    """
    each = failure / layout.counters
    one = cell.bound(each)
    if not layout.lean:
        return consistent(noisy, layout, slack=one, shift=2 * one, error=4 * one)
    S = layout.shape[1]  # noqa: N806
    summed = max(one, cell.bound(failure / (layout.counters + layout.shape[0] * S * layout.shape[2]), S))
    return consistent(noisy, layout, slack=0.0, shift=summed, error=2 * one + summed * (1 + 1 / S))


@dataclass(frozen=True)
class BatchPrivatizer:
    """``(epsilon, delta)`` of one user, who is in one batch, replace-one; the last place that sees exact sums of it.

    Gaussian noise is priced through rho-zCDP.  The sum of the users' discrete Gaussians is drawn as one of their summed
    variance: exact up to a part in 10^9 at the variances in use.

    Parameters
    ----------
    trust
        ``none``: exact, the baseline.  ``joint``: a curator adds Gaussian noise once; ``local``: each user does.
        ``shuffle``: the users' binomial noise bits.
    epsilon, delta
        Not looked at where trust is ``none``.
    calibration
        Of bits.  ``tight``: the fewest that an exact accountant allows for the counters a user moves; ``paper``: those
        of paper 002 with its epsilon / 3H a counter.
    horizon
        H: what the paper's calibration divides by, also where a batch keeps one step only.
    honest
        Declared share of the users who do add their bits; only theirs are counted on.
    failure
        Chance with which E may fail, for all entries together.
    episodes
        Most of one user, priced for bits alone.
    """

    trust: Trust = Trust.NONE
    epsilon: float = math.inf
    delta: float = 0.0
    calibration: Literal["tight", "paper"] = "tight"
    horizon: int = 1
    honest: float = 1.0
    failure: float = 0.01
    episodes: int = 1

    def __post_init__(self) -> None:
        """Refuse users who return where nothing prices them.

        Raises
        ------
        ValueError
            If a user has several episodes, and the noise is neither none nor that of the exact accountant's bits.
        """
        if (
            self.episodes > 1
            and self.trust != Trust.NONE
            and (self.trust, self.calibration) != (Trust.SHUFFLE, "tight")
        ):
            raise ValueError(f"{self.episodes} episodes of one user are priced for tight shuffled bits alone")

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
        cell = self.cell(tables.users, layout)
        if tables.people is not None and cell.bits is not None:
            sent = exchanged(tables.people, layout.counters, cell.bits, noise, tables)
            cell = replace(cell, analyzed=iter(sent.sums))
        return private_batch(noisy_tables(tables, layout, cell, noise), layout, cell, self.failure)

    def cell(self, users: int, layout: BatchLayout) -> CellNoise:
        """Noise of one counter of a batch of so many users: public, known before anybody plays."""
        if self.trust == Trust.SHUFFLE:
            return CellNoise(bits=self.bits(users, layout))
        if self.trust == Trust.NONE:
            return CellNoise()
        return CellNoise((users if self.trust == Trust.LOCAL else 1) * self.variance(layout))

    def variance(self, layout: BatchLayout) -> int:
        """Of one Gaussian draw: ``changes / (2 rho)`` rounded up."""
        return math.ceil(layout.changes / (2 * rho_from_epsilon(self.epsilon, self.delta)))

    def bits(self, users: int, layout: BatchLayout) -> NoiseBits:
        """What each user of a batch adds to each counter."""
        if self.calibration == "paper":
            return paper_bits(users, self.horizon, self.epsilon, self.delta)
        asked = of_one_episode(self.episodes, self.epsilon, self.delta)
        return tight_bits(users, layout.changes, *asked, self.honest_of(users))

    def delivered(self, users: int, layout: BatchLayout) -> float | None:
        """Epsilon at ``delta`` of what is drawn, by honest users where they are to add bits; None without noise."""
        if self.trust == Trust.SHUFFLE:
            told = self.bits(users, layout), layout.changes, self.delta, self.honest_of(users), self.episodes
            return delivered_epsilon(*told)
        if self.trust == Trust.NONE:
            return None
        return epsilon_from_rho(layout.changes / (2 * self.variance(layout)), self.delta)

    def honest_of(self, users: int) -> int:
        """How many of a batch's users do add their bits, as declared; at least one."""
        return max(1, int(self.honest * users))

    def left(self, batches: Sequence[tuple[BatchLayout, NoisyTables]]) -> Release:
        """What has left all batches, as one release; a user is in one of them, so no budget is divided.

        Parameters
        ----------
        batches
            What was kept of each, and its noisy sums.
        """
        layout, kept = batches[-1][0], [(of, noisy.users, of.kept(noisy)) for of, noisy in batches]
        if self.trust == Trust.SHUFFLE:
            ones = [(self.bits(n, of), self.honest_of(n), x) for of, n, x in kept]
            each = [(bits, honest, np.rint(x + bits.mean).astype(np.int64)) for bits, honest, x in ones]
            changes = max(of.changes for of, _ in batches)
            return release_of_shuffled(layout, changes, each, SeededNoise.sampler, self.episodes)
        counts, silent = np.rint(np.sum([x for _, _, x in kept], axis=0)).astype(np.int64), self.trust == Trust.NONE
        draws = sum(n for _, n, _ in kept) if self.trust == Trust.LOCAL else len(kept)
        variance, running = (None, None) if silent else (self.variance(layout), Running(1, draws, draws))
        moved = layout.changes
        return Release(
            dataset=layout.dataset,
            data_kind=layout.data_kind,
            dynamics=layout.dynamics,
            mechanisms=(Mechanism("counters", counts.shape, _UNIT, moved, moved, _RULE, variance, running=running),),
            tables={"counters": counts},
            noise="none" if silent else "seeded",
            sampler="none: exact sums" if silent else SeededNoise.sampler,
            trust_model=self.trust.value,
        )
