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
protocols of a simulation: whoever holds logs is a central curator (privacy.md §0.1-3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.continual import Mechanism, continual
from pipeline.privacy.factorisation import Once
from pipeline.privacy.losses import Promise, Trust
from pipeline.privacy.noise import NoiseSource, SeededNoise, SimulatedWorld
from pipeline.privacy.release import Release
from pipeline.privacy.shuffle import NoiseBits, analyzed_totals, exchanged
from pipeline.privacy.shuffle_calibration import delivered_epsilon, of_one_episode, tight_bits
from pipeline.statistics.ask import Ask
from pipeline.statistics.batch_privatizers import release_of_shuffled
from pipeline.statistics.online_counts import OnlineCounts, OnlineLayout, Tally
from pipeline.statistics.online_sum import OnlineSum, begin, entry_variances, tight

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Leaves = Literal["batches", "episodes"]
CountMechanism = Mechanism | Literal["fresh"]


class _Counts(ABC):
    """See :class:`~pipeline.statistics.online_counts.InteractiveCounts`: sums of batches, of any law of noise.

    Of a batch that is noisy by itself, what is known is put in the place of noise: its policy is public, so a cell
    whose action the policy never takes is empty.  In sums that are released as a whole such noise cannot be told.
    """

    protocol = False

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
    def _add(self, batch: Integers, tally: Tally) -> None:
        """One more batch's integers ``(n,)``, and the batch."""

    def _read(self, noisy: Array, variance: Array, tally: Tally) -> None:
        """Add the sums ``(n,)`` of a batch that is noisy by itself."""
        known = None if tally.possible is None else ~self.layout.entries(tally.possible)
        if known is not None:
            noisy, variance = np.where(known, 0.0, noisy), np.where(known, 0.0, variance)
        self._sum, self._variance = self._sum + noisy, self._variance + variance

    def add(self, tally: Tally) -> None:
        """See :class:`~pipeline.statistics.online_counts.InteractiveCounts`."""
        self._add(self.layout.integers(tally), tally)
        self.users += tally.episodes

    def counts(self) -> OnlineCounts:
        """See :class:`~pipeline.statistics.online_counts.InteractiveCounts`."""
        n_sas, r_sa = self.layout.sums(self.total())
        # what is known is known of whole cells
        of_n, of_r = self.layout.sums(np.sqrt(self.variances()))
        return OnlineCounts(self.users, n_sas, r_sa, of_n[..., 0], 0.0 if of_r is None else of_r)


class GaussianCounts(_Counts):
    """Counts with Gaussian noise, priced by what is drawn.

    Noise of messages is drawn batch by batch: the sum of n discrete Gaussians and one of n times the variance differ by
    far less than float arithmetic does.

    Parameters
    ----------
    layout
        What is counted.
    sums
        All of it, as it is released.
    steps
        Steps of the release: batches, the users one by one (``episodes``), or their own ``messages``.
    """

    def __init__(self, layout: OnlineLayout, sums: OnlineSum, steps: Leaves | Literal["messages"] = "batches") -> None:
        super().__init__(layout)
        self.guarantee, self.sums, self._steps = sums.guarantee, sums, steps
        self._drawn = entry_variances(layout, {m.table: m.variance or 0 for m in sums.private.mechanisms})
        self._apart = isinstance(sums.time, Once)

    def total(self) -> Array:
        """Sums ``(n,)`` as read: the same until the next batch."""
        return super().total() if self._apart else self.sums.total()

    def variances(self) -> Array:
        """Of the noise in each of them ``(n,)``."""
        return super().variances() if self._apart else self.sums.error * self._drawn

    def release(self) -> Release:
        """What has left by now."""
        return self.layout.shaped(self.sums.release())

    def _add(self, batch: Integers, tally: Tally) -> None:
        users = tally.episodes
        if self._steps == "episodes":
            # sums are read after the last user only: which of them carries the counts changes nothing that is released
            for _ in range(users - 1):
                self.sums.add(np.zeros_like(batch))
        before, steps = self.sums.total() if self._apart else None, users if self._steps == "messages" else 1
        self.sums.add(batch, steps)
        if before is not None:
            self._read(self.sums.total() - before, steps * self._drawn, tally)


class ShuffledCounts(_Counts):
    """Batches of one-bit messages, each released by itself and added up (paper 002, section V); also their promise.

    An episode is in one batch, so its loss is that of one batch, however many there are; that of a user with several is
    by group privacy.

    Parameters
    ----------
    layout
        What is counted; a table a step.
    epsilon, delta
        Of one user.
    world, noise
        Handle of the simulated world, and what draws the noise bits.
    honest
        Declared share of a batch's users who add their noise bits honestly, in (0, 1].
    protocol
        Whether the messages are really sent and shuffled; else the analyst's sums are drawn from their law.

    Raises
    ------
    ValueError
        If one table serves all steps: a message is one bit, and a user may be in one cell at several steps.
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
        self.protocol, self.sent = protocol, 0
        self._asked = of_one_episode(layout.episodes, epsilon, delta)
        self._world, self._noise, self._honest = world, noise, honest
        self.bits: list[NoiseBits] = []
        self._ones: list[Integers] = []

    @property
    def guarantee(self) -> Promise:
        """What the noise bits so far guarantee to a user."""
        return self

    @property
    def changes(self) -> int:
        """Counters that one replaced episode moves by 1."""
        return sum(self.layout.bits)

    def epsilon(self, delta: float) -> float | None:
        """Largest over the batches so far, by an exact accountant; None before the first."""
        told = ((b, self.changes, delta, self._honest_of(b.users), self.layout.episodes) for b in self.bits)
        return max((delivered_epsilon(*each) for each in told), default=None)

    def _add(self, batch: Integers, tally: Tally) -> None:
        layout, users = self.layout, tally.episodes
        # the largest number of at most four binary digits within users: an accountant run for each of few sizes
        few = users >> (low := max(0, users.bit_length() - 4)) << low
        # calibrated for no more users than there are: the coins of the others can only hide more
        bits = tight_bits(few, self.changes, *self._asked, self._honest_of(few))
        self.bits.append(replace(bits, users=users))
        first = layout.tables[0].shape[0]
        visits, signs = batch[:first], batch[first:]
        n = visits.reshape(-1, layout.states).sum(-1)
        # of -1 and +1 a visit only the ups are sent, as bits
        ups = (signs + n) // 2 if layout.rewards else signs
        if tally.people is None:
            noisy = analyzed_totals(np.concatenate([visits, ups]), self.bits[-1], self._noise, self._world)
        else:
            people = layout.values(tally.people)
            done = exchanged(people, len(batch), self.bits[-1], self._noise, self._world)
            noisy, self.sent = done.sums, max(self.sent, done.sent // users)
        self._ones.append(np.rint(noisy + self.bits[-1].mean).astype(np.int64))
        variance = np.full(len(noisy), self.bits[-1].standard_deviation ** 2)
        if layout.rewards:
            # a reward is twice its bits less the visits, which are summed over S counters
            noisy[first:] = 2 * noisy[first:] - noisy[:first].reshape(-1, layout.states).sum(-1)
            variance[first:] *= 4 + layout.states
        self._read(noisy, variance, tally)

    def release(self) -> Release:
        """What has left by now: of every batch the number of ones in each counter."""
        batches = [(bits, self._honest_of(bits.users), ones) for bits, ones in zip(self.bits, self._ones, strict=True)]
        return release_of_shuffled(self.layout, self.changes, batches, self._noise.sampler, self.layout.episodes)

    def _honest_of(self, users: int) -> int:
        return max(1, int(self._honest * users))


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

    Parameters
    ----------
    layout
        What is counted.
    batches, episodes
        Declared numbers of batches and of users.
    ask
        Epsilon and delta of one user.
    world, noise
        Handle of the simulated world, and what draws the noise.
    mechanism
        A tree, averaged from below or ``plain``; the ``square-root`` factorisation; or sums of batches with ``fresh``
        noise each, for a few batches that grow fast.  Weights that let older batches fade lose less to noise, and are
        worse: what is known of actions that were given up fades with them, until they are tried for a whole batch.
    leaves
        Steps of the release: ``batches``, or ``episodes``: the textbook counter, with as many steps as users.

    Raises
    ------
    ValueError
        If a paper's calibration is asked: none prints scales for counts.
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
