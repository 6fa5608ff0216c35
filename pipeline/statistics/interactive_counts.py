"""Who makes noise of an online agent's counts: one interactive mechanism a trust model, one planner behind all of them.

================  =======  ===============================================  =======================
made by           trust    where the noise enters                           agent
================  =======  ===============================================  =======================
:func:`exact`     none     nowhere                                          UCBVI
:func:`joint`     joint    every completed node of a continual release      DP-UCBVI (JDP)
:func:`local`     local    every user's own message, before it is kept      DP-UCBVI (LDP)
:func:`shuffled`  shuffle  every user's own coins, hidden in their batch's  counts-shuffle
================  =======  ===============================================  =======================

Nobody looks at the sums inside a batch, so a step of the release may be a whole batch: policies stay a function of the
released sums of *earlier* batches, a replaced user still moves one step, and B steps have floor(log2 B) + 1 levels
where K had floor(log2 K) + 1.

The mechanisms differ in their sums only, so a private one without noise is the exact one, to the last bit.  All are
protocols of a simulation: whoever holds logs is a central curator (privacy.md §0.1-3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.continual import Mechanism, continual
from pipeline.privacy.factorisation import Once, Time
from pipeline.privacy.guarantee import Promise, Trust
from pipeline.privacy.noise import NoiseSource, SeededNoise, SimulatedWorld
from pipeline.privacy.running import RunningSum
from pipeline.privacy.shuffle import NoiseBits, analyzed_totals
from pipeline.privacy.shuffle_calibration import delivered_epsilon, tight_bits
from pipeline.statistics.ask import Ask
from pipeline.statistics.online_counts import OnlineCounts, OnlineLayout, Tally
from pipeline.statistics.online_sum import Variances, asked, gaussian_sum, start, tight

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Leaves = Literal["batches", "episodes"]
CountMechanism = Mechanism | Literal["fresh"]


class Sums(Protocol):
    """A running sum of batches' integers ``(n,)``, seen through noise."""

    @property
    def users(self) -> int:
        """Users so far."""
        ...

    @property
    def variances(self) -> tuple[float, ...]:
        """Of the noise in one entry of each table, now."""
        ...

    def add(self, batch: Integers, users: int) -> None:
        """One more batch."""
        ...

    def total(self) -> Array:
        """``(n,)`` as released: the same until the next batch."""
        ...


@dataclass(frozen=True)
class CountsOverTime:
    """See :class:`~pipeline.statistics.online_counts.InteractiveCounts`.

    Parameters
    ----------
    layout
        What is counted.
    running
        Its sums so far.
    guarantee
        What their noise gives a user.
    """

    layout: OnlineLayout
    running: Sums
    guarantee: Promise

    def add(self, tally: Tally) -> None:
        """See :class:`~pipeline.statistics.online_counts.InteractiveCounts`."""
        self.running.add(self.layout.integers(tally), tally.episodes)

    def counts(self) -> OnlineCounts:
        """See :class:`~pipeline.statistics.online_counts.InteractiveCounts`."""
        n_sas, r_sa = self.layout.sums(self.running.total())
        sd = [math.sqrt(v) for v in self.running.variances]
        return OnlineCounts(self.running.users, n_sas, r_sa, sd[0], sd[1] if self.layout.rewards else 0.0)


@dataclass
class GaussianSums:
    """A running sum whose steps are batches, the users one by one (``episodes``), or their own ``messages``.

    Noise of messages is drawn batch by batch: the sum of n discrete Gaussians and one of n times the variance differ by
    far less than float arithmetic does.
    """

    sums: RunningSum
    drawn: tuple[int, ...]
    steps: Leaves | Literal["messages"]
    users: int = 0

    @property
    def variances(self) -> tuple[float, ...]:
        """See :class:`Sums`."""
        return tuple(self.sums.error * v for v in self.drawn)

    def add(self, batch: Integers, users: int) -> None:
        """See :class:`Sums`."""
        if self.steps == "episodes":
            # sums are read after the last user only: which of them carries the counts changes nothing that is released
            for _ in range(users - 1):
                self.sums.add(np.zeros_like(batch))
        self.sums.add(batch, users if self.steps == "messages" else 1)
        self.users += users

    def total(self) -> Array:
        """See :class:`Sums`."""
        return self.sums.total()


@dataclass
class ShuffledSums:
    """Batches of one-bit messages, each released by itself and added up (paper 002, section V); also their promise.

    A user is in one batch, so their loss is that of one batch, however many there are.

    Parameters
    ----------
    layout
        What is counted; a table a step.
    asked, delta
        Epsilon and delta of one user.
    honest
        Declared share of a batch's users whose coins may be counted on, in (0, 1].
    """

    layout: OnlineLayout
    asked: float
    delta: float
    honest: float
    noise: SeededNoise
    world: SimulatedWorld
    users: int = 0
    bits: list[NoiseBits] = field(default_factory=list[NoiseBits])
    trust: Trust = Trust.SHUFFLE
    rho: Fraction | None = None

    def __post_init__(self) -> None:
        self._sum = np.zeros(sum(t.shape[0] for t in self.layout.tables))

    @property
    def changes(self) -> int:
        """Counters that one replaced user moves by 1."""
        return sum(self.layout.bits)

    @property
    def variances(self) -> tuple[float, ...]:
        """See :class:`Sums`; a reward is twice its bits less the visits, which are summed over S counters."""
        variance = sum(bits.standard_deviation**2 for bits in self.bits)
        return (variance, (4 + self.layout.states) * variance) if self.layout.rewards else (variance,)

    def epsilon(self, delta: float) -> float | None:
        """Largest over the batches so far, by an exact accountant; None before the first."""
        each = (delivered_epsilon(b, self.changes, delta, _honest(b.users, self.honest)) for b in self.bits)
        return max(each, default=None)

    def add(self, batch: Integers, users: int) -> None:
        """See :class:`Sums`."""
        layout, few = self.layout, _coarse(users)
        # calibrated for no more users than there are: the coins of the others can only hide more
        few_bits = tight_bits(few, self.changes, self.asked, self.delta, _honest(few, self.honest))
        bits = replace(few_bits, users=users)
        self.bits.append(bits)
        first = layout.tables[0].shape[0]
        visits, signs = batch[:first], batch[first:]
        n = visits.reshape(-1, layout.states).sum(-1)
        # of -1 and +1 a visit only the ups are sent, as bits
        ups = (signs + n) // 2 if layout.rewards else signs
        noisy = analyzed_totals(np.concatenate([visits, ups]), bits, self.noise, self.world)
        if layout.rewards:
            noisy[first:] = 2 * noisy[first:] - noisy[:first].reshape(-1, layout.states).sum(-1)
        self._sum, self.users = self._sum + noisy, self.users + users

    def total(self) -> Array:
        """See :class:`Sums`."""
        return self._sum


def exact(layout: OnlineLayout, batches: int, world: SimulatedWorld, noise: NoiseSource) -> CountsOverTime:
    """The sums themselves: the baseline, without privacy; ``noise`` is never drawn from."""
    return gaussian_counts(layout, None, Once(batches), Trust.NONE, math.inf, world, noise)


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
) -> CountsOverTime:
    """Joint privacy: policies are a private function of all other users.

    Parameters
    ----------
    batches, episodes
        Declared numbers of batches and of users.
    mechanism
        A tree, averaged from below or ``plain``; the ``square-root`` factorisation; or sums of batches with ``fresh``
        noise each, for a few batches that grow fast.  Weights that let older batches fade lose less to noise, and are
        worse: what is known of actions that were given up fades with them, until they are tried for a whole batch.
    leaves
        Steps of the release: ``batches``, or ``episodes``: the textbook counter, with as many steps as users.
    """
    if mechanism == "fresh":
        time, leaves = Once(batches), "batches"
    else:
        time = continual(mechanism, batches if leaves == "batches" else episodes)
    variances = tight(layout, ask, time.cost)
    return gaussian_counts(layout, variances, time, Trust.JOINT, asked(ask)[0], world, noise, leaves)


def local(layout: OnlineLayout, episodes: int, ask: Ask, world: SimulatedWorld, noise: NoiseSource) -> CountsOverTime:
    """Local privacy: each user's one-hot tables are noisy before they leave their user."""
    variances = tight(layout, ask, 1)
    return gaussian_counts(layout, variances, Once(episodes), Trust.LOCAL, asked(ask)[0], world, noise, "messages")


def gaussian_counts(
    layout: OnlineLayout,
    variances: Variances | None,
    time: Time,
    trust: Trust,
    epsilon: float,
    world: SimulatedWorld,
    noise: NoiseSource,
    steps: Leaves | Literal["messages"] = "batches",
) -> CountsOverTime:
    """Counts with Gaussian noise of these variances (None: without noise), priced by what is drawn."""
    private = gaussian_sum(layout, variances, time, trust, noise, epsilon)
    drawn = tuple(m.variance or 0 for m in private.mechanisms)
    return CountsOverTime(layout, GaussianSums(start(private, noise, world), drawn, steps), private.guarantee)


def shuffled(
    layout: OnlineLayout,
    epsilon: float,
    delta: float,
    world: SimulatedWorld,
    noise: SeededNoise,
    honest: float = 1.0,
) -> CountsOverTime:
    """Shuffle privacy: whoever sees the shuffled messages of a batch learns little of any one of its users.

    Parameters
    ----------
    epsilon, delta
        Of one user, who is in one batch.
    honest
        Declared share of a batch's users whose coins may be counted on, in (0, 1].

    Raises
    ------
    ValueError
        If one table serves all steps: a message is one bit, and a user may be in one cell at several steps.
    """
    if layout.pooled:
        raise ValueError("in the shuffle model every step needs counters of its own; leave out pooled")
    sums = ShuffledSums(layout, epsilon, delta, honest, noise, world)
    return CountsOverTime(layout, sums, sums)


def _coarse(users: int) -> int:
    """The largest number of at most four binary digits within ``users``: an accountant run for each of few sizes."""
    low = max(0, users.bit_length() - 4)
    return users >> low << low


def _honest(users: int, share: float) -> int:
    return max(1, int(share * users))
