"""Private counts of an online agent: one interactive mechanism for each trust model, and one planner for all of them.

=======================  =======  ===============================================  =======================
name                     trust    where the noise enters                           agent
=======================  =======  ===============================================  =======================
:func:`exact`            none     nowhere                                          UCBVI
:func:`joint`            joint    every completed node of a continual release      DP-UCBVI (JDP)
:func:`local`            local    every user's own message, before it is kept      DP-UCBVI (LDP)
:class:`ShuffledCounts`  shuffle  every user's noise bits, shuffled in the batch   counts-shuffle
=======================  =======  ===============================================  =======================

Nothing is released inside a batch, so a step of the release may be a whole batch: policies stay a function of the
released sums of *earlier* batches, a replaced user still moves one step, and B steps have floor(log2 B) + 1 levels
where K had floor(log2 K) + 1.

The mechanisms differ in their sums only, so a private one without noise is the exact one, to the last bit.  All are
protocols of a simulation: the holder of logs is a central curator (privacy.md §0.1-3).

SDP-PE's batches have the same law of noise in all counters, and one programme follows (paper 002, section V): a
:class:`BatchPrivatizer`.  Totals are drawn from their law at once, so that a batch of 10^9 users costs what ten do.
"""

# pyright: reportUnknownMemberType=false
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.privacy import shuffle
from pipeline.privacy.budget import epsilon_from_rho, rho_from_epsilon
from pipeline.privacy.continual import Mechanism as Counter
from pipeline.privacy.continual import Once, continual
from pipeline.privacy.losses import GaussianGuarantee, Trust
from pipeline.privacy.noise import NoiseSource, SeededNoise, SimulatedWorld
from pipeline.privacy.release import Mechanism, Release, Running, ShuffledBits
from pipeline.statistics.ask import Ask
from pipeline.statistics.layout import Layout
from pipeline.statistics.online_counts import (
    BatchLayout,
    BatchTables,
    NoisyTables,
    OnlineCounts,
    OnlineLayout,
    PrivateBatch,
    Tally,
    consistent_batch,
)
from pipeline.statistics.private_sum import OnlineSum, begin, entry_variances, tight

_UNIT, _RULE = "ones", "an episode replaced moves so many counters by 1, half of them up; everybody sends for all"


def release_of_shuffled(
    layout: Layout,
    changes: int,
    batches: Sequence[tuple[shuffle.NoiseBits, int, Integers]],
    sampler: str,
    episodes: int = 1,
) -> Release:
    """Shuffled batches as one release; an episode is in one of them.

    ``changes``, ``episodes``: counters that one replaced episode moves by 1, and most episodes of one user.
    ``batches``: of each its noise bits, its number of honest users, and the counted ones ``(C,)``.
    """
    by_name = {f"batch_{i}": batch for i, batch in enumerate(batches)}
    mechanisms, sensitivities = list[Mechanism](), (changes * episodes**2, changes * episodes)
    for name, (b, honest, ones) in by_name.items():
        bits = ShuffledBits(b.users, b.each, b.chance, changes, honest, episodes)
        mechanisms.append(Mechanism(name, ones.shape, _UNIT, *sensitivities, _RULE, shuffled=bits))
    tables = {name: ones for name, (_, _, ones) in by_name.items()}
    of = layout.dataset, layout.data_kind, layout.dynamics
    return Release(*of, tuple(mechanisms), tables, noise="seeded", sampler=sampler, trust_model=Trust.SHUFFLE.value)


def honest_of(share: float, users: int) -> int:
    """Declared number of a batch's users who add their bits honestly; at least one."""
    return max(1, int(share * users))


@dataclass(frozen=True)
class CellNoise:
    """Noise of one counter, alike and independent in all of them.

    ``variance``: of one discrete Gaussian; 0: exact sums, and nothing is drawn.
    """

    variance: int = 0
    bits: shuffle.NoiseBits | None = None
    analyzed: Iterator[float] | None = None

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of the noise of one counter."""
        return math.sqrt(self.variance) if self.bits is None else self.bits.standard_deviation

    def bound(self, failure: float, counters: int = 1) -> float:
        """Two-sided bound on the summed noise of ``counters`` counters, exceeded with chance at most ``failure``."""
        from scipy.stats import norm

        if self.bits is not None:
            return self.bits.bound(failure, counters)
        if not self.variance:
            return 0.0
        return float(norm.isf(failure / 2)) * self.standard_deviation * math.sqrt(counters)

    def add(self, sums: Integers, seeded: SeededNoise, tables: BatchTables) -> Array:
        """Unbiased noisy ``sums``; where messages were sent, the exact sums are not read."""
        if self.analyzed is not None:
            return np.array(list(islice(self.analyzed, sums.size))).reshape(sums.shape)
        if self.bits is not None:
            return shuffle.analyzed_totals(sums, self.bits, seeded, tables)
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
        return consistent_batch(noisy, layout, slack=one, shift=2 * one, error=4 * one)
    S = layout.shape[1]  # noqa: N806
    summed = max(one, cell.bound(failure / (layout.counters + layout.shape[0] * S * layout.shape[2]), S))
    return consistent_batch(noisy, layout, slack=0.0, shift=summed, error=2 * one + summed * (1 + 1 / S))


@dataclass(frozen=True)
class BatchPrivatizer:
    """``(epsilon, delta)`` of one user, who is in one batch, replace-one; the last module that reads its exact sums.

    Gaussian noise is priced through rho-zCDP.  The sum of the users' discrete Gaussians is drawn as one of their summed
    variance: exact up to a part in 10^9 at the variances in use.

    ``trust``: ``none``: exact, the baseline.  ``joint``: a curator adds Gaussian noise once; ``local``: each user does.
    ``shuffle``: the users' binomial noise bits.
    ``calibration``: of bits.  ``tight``: the fewest that an exact accountant allows for the counters a user moves;
    ``paper``: those of paper 002 with its epsilon / 3H a counter.
    ``horizon``: H, by which the paper's calibration divides, also where a batch keeps one step only.
    ``honest``: declared share of the users who add their bits; only theirs count.
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
        """Refuse users who return where their privacy loss is not computed.

        Raises ValueError if a user has several episodes, and the noise is neither none nor that of the exact
        accountant's bits.
        """
        if (
            self.episodes > 1
            and self.trust != Trust.NONE
            and (self.trust, self.calibration) != (Trust.SHUFFLE, "tight")
        ):
            raise ValueError(f"{self.episodes} episodes of one user are priced for tight shuffled bits alone")

    def release(self, tables: BatchTables, layout: BatchLayout, noise: SeededNoise) -> PrivateBatch:
        """Noisy sums, made consistent, visits never underestimated.

        ``noise``: simulated worlds only: the messages of a log were not shuffled.
        Raises ValueError if the tables are not of the layout's shape.
        Raises RealDataError if the data are real.
        """
        cell = self.cell(tables.users, layout)
        if tables.people is not None and cell.bits is not None:
            sent = shuffle.exchanged(tables.people, layout.counters, cell.bits, noise, tables)
            cell = replace(cell, analyzed=iter(sent.sums))
        return private_batch(noisy_tables(tables, layout, cell, noise), layout, cell, self.failure)

    def cell(self, users: int, layout: BatchLayout) -> CellNoise:
        """Noise of one counter of a batch of ``users`` users: public, known before they play."""
        if self.trust == Trust.SHUFFLE:
            return CellNoise(bits=self.bits(users, layout))
        if self.trust == Trust.NONE:
            return CellNoise()
        return CellNoise((users if self.trust == Trust.LOCAL else 1) * self.variance(layout))

    def variance(self, layout: BatchLayout) -> int:
        """Variance of one Gaussian draw: ``changes / (2 rho)`` rounded up."""
        return math.ceil(layout.changes / (2 * rho_from_epsilon(self.epsilon, self.delta)))

    def bits(self, users: int, layout: BatchLayout) -> shuffle.NoiseBits:
        """Noise bits of each user of a batch for each counter."""
        if self.calibration == "paper":
            return shuffle.paper_bits(users, self.horizon, self.epsilon, self.delta)
        budget = shuffle.of_one_episode(self.episodes, self.epsilon, self.delta)
        return shuffle.tight_bits(users, layout.changes, *budget, honest_of(self.honest, users))

    def delivered(self, users: int, layout: BatchLayout) -> float | None:
        """Epsilon at ``delta`` of the drawn noise, of honest users alone where users add bits; None without noise."""
        if self.trust == Trust.SHUFFLE:
            bits, honest = self.bits(users, layout), honest_of(self.honest, users)
            return shuffle.delivered_epsilon(bits, layout.changes, self.delta, honest, self.episodes)
        if self.trust == Trust.NONE:
            return None
        return epsilon_from_rho(layout.changes / (2 * self.variance(layout)), self.delta)

    def released(self, batches: Sequence[tuple[BatchLayout, NoisyTables]]) -> Release:
        """All batches as one release; a user is in one of them, so no budget is divided.

        ``batches``: the layout of each, and its noisy sums.
        """
        layout = batches[-1][0]
        counters = [(of_batch, noisy.users, of_batch.kept(noisy)) for of_batch, noisy in batches]
        if self.trust == Trust.SHUFFLE:
            sums = [(self.bits(n, of_batch), honest_of(self.honest, n), x) for of_batch, n, x in counters]
            ones = [(bits, honest, np.rint(x + bits.mean).astype(np.int64)) for bits, honest, x in sums]
            changes = max(of_batch.changes for of_batch, _ in batches)
            return release_of_shuffled(layout, changes, ones, SeededNoise.sampler, self.episodes)
        counts = np.rint(np.sum([x for _, _, x in counters], axis=0)).astype(np.int64)
        noiseless = self.trust == Trust.NONE
        draws = sum(n for _, n, _ in counters) if self.trust == Trust.LOCAL else len(counters)
        variance, running = (None, None) if noiseless else (self.variance(layout), Running(1, draws, draws))
        square, of = layout.changes, (layout.dataset, layout.data_kind, layout.dynamics)
        drawn = Mechanism("counters", counts.shape, _UNIT, square, square, _RULE, variance, running=running)
        source = ("none", "none: exact sums") if noiseless else ("seeded", SeededNoise.sampler)
        return Release(*of, (drawn,), {"counters": counts}, *source, trust_model=self.trust.value)


Leaves = Literal["batches", "episodes"]
CountMechanism = Counter | Literal["fresh"]


class InteractiveCounts(ABC):
    """An interactive mechanism: takes one batch at a time, of a policy that depends on its answers; shows noisy sums.

    In a batch that is noisy by itself, cells whose action the policy never takes are set to 0: the policy is public.
    In sums that are released together such noise cannot be separated.
    """

    # whether every user sends messages: batches then come with their people
    protocol = False
    # of its noise to a user
    guarantee: "GaussianGuarantee | ShuffledCounts"

    def __init__(self, layout: OnlineLayout) -> None:
        self.layout, self.users = layout, 0
        self._sum, self._variance = (np.zeros(sum(t.shape[0] for t in layout.tables)) for _ in range(2))

    def total(self) -> Array:
        """Sums ``(n,)`` as read: the same until the next batch."""
        return self._sum

    def variances(self) -> Array:
        """Of the noise in each of them ``(n,)``."""
        return self._variance

    @abstractmethod
    def release(self) -> Release:
        """The release so far, and its mechanisms."""

    @abstractmethod
    def _add(self, batch: Integers, tally: Tally) -> None:
        """One more batch's integers ``(n,)``, and the batch."""

    def _read(self, noisy: Array, variance: Array, tally: Tally) -> None:
        """Add the sums ``(n,)`` of a batch that is noisy by itself."""
        empty = None if tally.possible is None else ~self.layout.entries(tally.possible)
        if empty is not None:
            noisy, variance = np.where(empty, 0.0, noisy), np.where(empty, 0.0, variance)
        self._sum, self._variance = self._sum + noisy, self._variance + variance

    def add(self, tally: Tally) -> None:
        self._add(self.layout.integers(tally), tally)
        self.users += tally.episodes

    def counts(self) -> OnlineCounts:
        n_sas, r_sa = self.layout.sums(self.total())
        # empty cells are empty for all successors
        of_n, of_r = self.layout.sums(np.sqrt(self.variances()))
        return OnlineCounts(self.users, n_sas, r_sa, of_n[..., 0], 0.0 if of_r is None else of_r)


class GaussianCounts(InteractiveCounts):
    """Counts with Gaussian noise, priced by what is drawn.

    Noise of messages is drawn batch by batch: the sum of n discrete Gaussians and one of n times the variance differ by
    far less than float arithmetic does.
    """

    def __init__(self, layout: OnlineLayout, sums: OnlineSum, steps: Leaves | Literal["messages"] = "batches") -> None:
        super().__init__(layout)
        self.sums, self.guarantee, self._steps = sums, sums.guarantee, steps
        self._drawn = entry_variances(layout, {m.table: m.variance or 0 for m in sums.private.mechanisms})
        self._single = isinstance(sums.time, Once)

    def total(self) -> Array:
        """Sums ``(n,)`` as read: the same until the next batch."""
        return super().total() if self._single else self.sums.total()

    def variances(self) -> Array:
        """Of the noise in each of them ``(n,)``."""
        return super().variances() if self._single else self.sums.error * self._drawn

    def release(self) -> Release:
        return self.layout.shaped(self.sums.release())

    def _add(self, batch: Integers, tally: Tally) -> None:
        users = tally.episodes
        if self._steps == "episodes":
            # sums are read after the last user only, so any of these steps may carry the counts
            for _ in range(users - 1):
                self.sums.add(np.zeros_like(batch))
        before, steps = self.sums.total() if self._single else None, users if self._steps == "messages" else 1
        self.sums.add(batch, steps)
        if before is not None:
            self._read(self.sums.total() - before, steps * self._drawn, tally)


class ShuffledCounts(InteractiveCounts):
    """Batches of one-bit messages, each released by itself and added up (paper 002, section V); also their guarantee.

    An episode is in one batch, so its loss is that of one batch, however many there are; that of a user with several is
    by group privacy.

    ``honest``: declared share of a batch's users who add their noise bits honestly, in (0, 1].
    Raises ValueError if one table serves all steps: a message is one bit, and a user may be in one cell at several
    steps.
    """

    trust, rho = Trust.SHUFFLE, None

    def __init__(
        self,
        layout: OnlineLayout,
        epsilon: float,
        delta: float,
        world: SimulatedWorld,
        noise: SeededNoise,
        honest: float = 1.0,
        *,
        protocol: bool = False,
    ) -> None:
        if layout.pooled:
            raise ValueError("in the shuffle model every step needs counters of its own; leave out pooled")
        super().__init__(layout)
        self.protocol, self.sent, self.guarantee = protocol, 0, self
        self._budget = shuffle.of_one_episode(layout.episodes, epsilon, delta)
        self._world, self._noise, self._honest = world, noise, honest
        self.bits: list[shuffle.NoiseBits] = []
        self._ones: list[Integers] = []

    @property
    def changes(self) -> int:
        """Counters that one replaced episode moves by 1."""
        return sum(self.layout.bits)

    def epsilon(self, delta: float) -> float | None:
        """Largest over the batches so far, by an exact accountant; None before the first."""
        changes, episodes, fewest, most = self.changes, self.layout.episodes, dict[tuple[int, int], int](), 0.0
        for b in sorted(self.bits, key=lambda b: b.users):
            # more users with the same coins lose less, by more than an accountant errs where they are 2 % more
            if b.users < 1.02 * fewest.setdefault((b.each, b.chance), b.users):
                honest = honest_of(self._honest, b.users)
                most = max(most, shuffle.delivered_epsilon(b, changes, delta, honest, episodes, most))
        return most if self.bits else None

    def _add(self, batch: Integers, tally: Tally) -> None:
        layout, users = self.layout, tally.episodes
        # the largest number of at most four binary digits within users: an accountant run for each of few sizes
        few = users >> (low := max(0, users.bit_length() - 4)) << low
        # calibrated for no more users than there are: the bits of the others only add noise
        bits = shuffle.tight_bits(few, self.changes, *self._budget, honest_of(self._honest, few))
        self.bits.append(replace(bits, users=users))
        cells = layout.tables[0].shape[0]
        visits, signs = batch[:cells], batch[cells:]
        n = visits.reshape(-1, layout.states).sum(-1)
        # of -1 and +1 a visit only the ups are sent, as bits
        ups = (signs + n) // 2 if layout.rewards else signs
        if tally.people is None:
            noisy = shuffle.analyzed_totals(np.concatenate([visits, ups]), self.bits[-1], self._noise, self._world)
        else:
            people = layout.values(tally.people)
            received = shuffle.exchanged(people, len(batch), self.bits[-1], self._noise, self._world)
            noisy, self.sent = received.sums, max(self.sent, received.sent // users)
        self._ones.append(np.rint(noisy + self.bits[-1].mean).astype(np.int64))
        variance = np.full(len(noisy), self.bits[-1].standard_deviation ** 2)
        if layout.rewards:
            # a reward is twice its bits less the visits, which are summed over S counters
            noisy[cells:] = 2 * noisy[cells:] - noisy[:cells].reshape(-1, layout.states).sum(-1)
            variance[cells:] *= 4 + layout.states
        self._read(noisy, variance, tally)

    def release(self) -> Release:
        """The release so far: of every batch the number of ones in each counter."""
        batches = [
            (bits, honest_of(self._honest, bits.users), ones) for bits, ones in zip(self.bits, self._ones, strict=True)
        ]
        return release_of_shuffled(self.layout, self.changes, batches, self._noise.sampler, self.layout.episodes)


def exact(layout: OnlineLayout, batches: int, world: SimulatedWorld, noise: NoiseSource) -> GaussianCounts:
    """The sums themselves: the baseline, without privacy; ``noise`` is never drawn from."""
    return GaussianCounts(layout, begin(layout, None, Once(batches), Trust.NONE, world, noise))


def joint(
    layout: OnlineLayout,
    batches: int,
    episodes: int,
    ask: Ask,
    world: SimulatedWorld,
    noise: NoiseSource,
    *,
    mechanism: CountMechanism = "bottom-up",
    leaves: Leaves = "batches",
) -> GaussianCounts:
    """Joint privacy: policies are a private function of all other users.

    Raises ValueError if a paper's calibration is asked: none prints scales for counts.
    """
    if mechanism == "fresh":
        time, leaves = Once(batches), "batches"
    else:
        time = continual(mechanism, batches if leaves == "batches" else episodes)
    sums = begin(layout, tight(layout, ask, time.cost), time, Trust.JOINT, world, noise, ask)
    return GaussianCounts(layout, sums, leaves)


def local(layout: OnlineLayout, episodes: int, ask: Ask, world: SimulatedWorld, noise: NoiseSource) -> GaussianCounts:
    """Local privacy: each user's one-hot tables are noisy before they leave their user."""
    sums = begin(layout, tight(layout, ask, 1), Once(episodes), Trust.LOCAL, world, noise, ask)
    return GaussianCounts(layout, sums, "messages")
