"""Who makes noise of an online agent's counts: one desk a trust model, one planner behind all of them.

================  =======  ===============================================  =======================
made by           trust    where the noise enters                           agent
================  =======  ===============================================  =======================
:func:`exact`     none     nowhere                                          UCBVI
:func:`joint`     joint    every completed node of a continual counter      DP-UCBVI (JDP)
:func:`local`     local    every user's own message, before it is kept      DP-UCBVI (LDP)
================  =======  ===============================================  =======================

The shuffle model is in shuffled_desk.py.  Nobody looks at the sums inside a batch, so a leaf of the counter may be a
whole batch: policies stay a function of the released sums of *earlier* batches, a replaced user still moves one leaf,
and B leaves have floor(log2 B) + 1 levels where K had floor(log2 K) + 1.

The desks differ in their sums only, so a private one without noise is the exact one, to the last bit.  All are
protocols of a simulation: whoever holds logs is a central curator (privacy.md §0.1-3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.counters import Counter, CounterFullError, Messages, TreeCounter, levels
from pipeline.privacy.noise import NoiseSource, SimulatedWorld
from pipeline.privacy.square_root import SquareRoot, squared_column
from pipeline.statistics.count_scales import Scales, lanes_of, silent, tight
from pipeline.statistics.mixture_calibration import Ask
from pipeline.statistics.online_counts import OnlineCounts, OnlineLayout, Promise, Tally
from pipeline.statistics.released_ridge import Guarantee

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Leaves = Literal["batches", "episodes"]
Mechanism = Literal["bottom-up", "plain", "square-root", "fresh"]


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

    def add(self, leaf: Integers, users: int) -> None:
        """One more batch."""
        ...

    def total(self) -> Array:
        """``(n,)`` as released: the same until the next batch."""
        ...


class CountedDesk:
    """See :class:`~pipeline.statistics.online_counts.CountDesk`."""

    def __init__(self, layout: OnlineLayout, sums: Sums, guarantee: Promise) -> None:
        self.layout, self.guarantee, self._sums = layout, guarantee, sums

    def add(self, tally: Tally) -> None:
        """See :class:`~pipeline.statistics.online_counts.CountDesk`."""
        self._sums.add(self.layout.leaf(tally), tally.episodes)

    def counts(self) -> OnlineCounts:
        """See :class:`~pipeline.statistics.online_counts.CountDesk`."""
        n_sas, r_sa = self.layout.tables(self._sums.total())
        sd = [math.sqrt(v) for v in self._sums.variances]
        return OnlineCounts(self._sums.users, n_sas, r_sa, sd[0], sd[1] if self.layout.rewards else 0.0)


@dataclass
class CounterSums:
    """A continual counter; its leaves are batches, or (``leaves``) the users one by one."""

    counter: Counter
    scales: Scales
    leaves: Leaves
    users: int = 0

    @property
    def variances(self) -> tuple[float, ...]:
        """See :class:`Sums`."""
        error = self.counter.error(self.counter.seen)
        return tuple(error * v for v in self.scales.variances)

    def add(self, leaf: Integers, users: int) -> None:
        """See :class:`Sums`."""
        if self.leaves == "episodes":
            # sums are read after the last user only: which of them carries the counts changes nothing that is released
            for _ in range(users - 1):
                self.counter.add(np.zeros_like(leaf))
        self.counter.add(leaf)
        self.users += users

    def total(self) -> Array:
        """See :class:`Sums`."""
        return self.counter.total()


class LocalSums:
    """Local messages: the noise of a batch of n users is one draw of n times the variance.

    The sum of n discrete Gaussians and one of n times the variance differ by far less than float arithmetic does.
    """

    def __init__(self, layout: OnlineLayout, scales: Scales, most: int, noise: NoiseSource, world: SimulatedWorld):
        self.users, self._most = 0, most
        self._draw: Callable[[int], Integers] = lambda n: lanes_of(layout, scales, noise, world, n).draw(1)[0]
        self._scales, self._sum = scales, np.zeros(sum(layout.sizes), dtype=np.int64)

    @property
    def variances(self) -> tuple[float, ...]:
        """See :class:`Sums`."""
        return tuple(float(self.users * v) for v in self._scales.variances)

    def add(self, leaf: Integers, users: int) -> None:
        """See :class:`Sums`; refuses users beyond the declared number."""
        if self.users + users > self._most:
            raise CounterFullError(f"declared for {self._most} users; {self.users + users} came")
        self._sum += leaf + self._draw(users)
        self.users += users

    def total(self) -> Array:
        """See :class:`Sums`."""
        return self._sum.astype(np.float64)


class FreshSums:
    """Fresh noise for every batch, all added up: a user is in one release, so it costs one.

    Weights that let older batches fade lose less to noise, and are worse: what is known of actions that were given up
    fades with them, until they are tried again for a whole batch.

    Parameters
    ----------
    release
        From a batch's integers ``(n,)`` and users to noisy ones and the variance of each table's noise.
    """

    def __init__(self, release: Callable[[Integers, int], tuple[Array, tuple[float, ...]]], length: int) -> None:
        self._release, self.users = release, 0
        self._sum, self._variances = np.zeros(length), np.zeros(1)

    @property
    def variances(self) -> tuple[float, ...]:
        """See :class:`Sums`."""
        return tuple(self._variances.tolist())

    def add(self, leaf: Integers, users: int) -> None:
        """See :class:`Sums`."""
        noisy, variances = self._release(leaf, users)
        self._sum, self._variances, self.users = self._sum + noisy, self._variances + variances, self.users + users

    def total(self) -> Array:
        """See :class:`Sums`."""
        return self._sum


def exact(layout: OnlineLayout, batches: int, world: SimulatedWorld, noise: NoiseSource) -> CountedDesk:
    """The sums themselves: the baseline, without privacy; ``noise`` is never drawn from."""
    scales = silent(layout)
    counter = Messages(batches, lanes_of(layout, scales, noise, world))
    return CountedDesk(layout, CounterSums(counter, scales, "batches"), Guarantee("none", None))


def joint(
    layout: OnlineLayout,
    batches: int,
    episodes: int,
    ask: Ask,
    world: SimulatedWorld,
    noise: NoiseSource,
    *,
    mechanism: Mechanism = "bottom-up",
    leaves: Leaves = "batches",
) -> CountedDesk:
    """Joint privacy: policies are a private function of all other users.

    Parameters
    ----------
    mechanism
        A tree, averaged from below or ``plain``; the ``square-root`` counter; or sums of batches with ``fresh`` noise
        each, for a few batches that grow fast.
    leaves
        ``batches``, or ``episodes``: the textbook counter, with as many leaves as users.
    """
    if mechanism == "fresh":
        scales = tight(layout, ask, 1)
        lanes = lanes_of(layout, scales, noise, world)
        sums = FreshSums(lambda leaf, users: (_floats(leaf + lanes.draw(1)[0]), scales.variances), lanes.length)
        return CountedDesk(layout, sums, Guarantee("joint", scales.rho(layout, 1)))
    T = batches if leaves == "batches" else episodes  # noqa: N806
    cost = squared_column(T) if mechanism == "square-root" else levels(T)
    scales = tight(layout, ask, cost)
    lanes = lanes_of(layout, scales, noise, world)
    counter = SquareRoot(T, lanes) if mechanism == "square-root" else TreeCounter(T, lanes, mechanism)
    return CountedDesk(layout, CounterSums(counter, scales, leaves), Guarantee("joint", scales.rho(layout, cost)))


def local(layout: OnlineLayout, episodes: int, ask: Ask, world: SimulatedWorld, noise: NoiseSource) -> CountedDesk:
    """Local privacy: each user's one-hot tables are noisy before they leave their user."""
    scales = tight(layout, ask, 1)
    sums = LocalSums(layout, scales, episodes, noise, world)
    return CountedDesk(layout, sums, Guarantee("local", scales.rho(layout, 1)))


def _floats(x: Integers) -> Array:
    return x.astype(np.float64)
