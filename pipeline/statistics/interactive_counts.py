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

from pipeline.privacy.continual import continual
from pipeline.privacy.factorisation import Once, Time
from pipeline.privacy.noise import NoiseSource, SimulatedWorld
from pipeline.privacy.running import RunningSum
from pipeline.statistics.count_scales import Scales, blocks_of, silent, tight
from pipeline.statistics.mixture_calibration import Ask
from pipeline.statistics.online_counts import OnlineCounts, OnlineLayout, Promise, Tally
from pipeline.statistics.released_ridge import Guarantee

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Leaves = Literal["batches", "episodes"]
CountMechanism = Literal["bottom-up", "plain", "square-root", "fresh"]


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
    """A running sum whose steps are batches, the users one by one (``episodes``), or their own ``messages``.

    Noise of messages is drawn batch by batch: the sum of n discrete Gaussians and one of n times the variance differ by
    far less than float arithmetic does.
    """

    counter: RunningSum
    scales: Scales
    leaves: Leaves | Literal["messages"]
    users: int = 0

    @property
    def variances(self) -> tuple[float, ...]:
        """See :class:`Sums`."""
        return tuple(self.counter.error * v for v in self.scales.variances)

    def add(self, leaf: Integers, users: int) -> None:
        """See :class:`Sums`."""
        if self.leaves == "episodes":
            # sums are read after the last user only: which of them carries the counts changes nothing that is released
            for _ in range(users - 1):
                self.counter.add(np.zeros_like(leaf))
        self.counter.add(leaf, users if self.leaves == "messages" else 1)
        self.users += users

    def total(self) -> Array:
        """See :class:`Sums`."""
        return self.counter.total()


class FreshSums:
    """Fresh noise of its own kind for every batch, all added up: a user is in one release, so it costs one.

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
    return _counted(layout, Once(batches), silent(layout), Guarantee("none", None), world, noise, "batches")


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
) -> CountedDesk:
    """Joint privacy: policies are a private function of all other users.

    Parameters
    ----------
    mechanism
        A tree, averaged from below or ``plain``; the ``square-root`` factorisation; or sums of batches with ``fresh``
        noise each, for a few batches that grow fast.  Weights that let older batches fade lose less to noise, and are
        worse: what is known of actions that were given up fades with them, until they are tried for a whole batch.
    leaves
        ``batches``, or ``episodes``: the textbook counter, with as many leaves as users.
    """
    if mechanism == "fresh":
        time, leaves = Once(batches), "batches"
    else:
        time = continual(mechanism, batches if leaves == "batches" else episodes)
    scales = tight(layout, ask, time.cost)
    guarantee = Guarantee("joint", scales.rho(layout, time.cost))
    return _counted(layout, time, scales, guarantee, world, noise, leaves)


def local(layout: OnlineLayout, episodes: int, ask: Ask, world: SimulatedWorld, noise: NoiseSource) -> CountedDesk:
    """Local privacy: each user's one-hot tables are noisy before they leave their user."""
    scales = tight(layout, ask, 1)
    return _counted(layout, Once(episodes), scales, Guarantee("local", scales.rho(layout, 1)), world, noise, "messages")


def _counted(
    layout: OnlineLayout,
    time: Time,
    scales: Scales,
    guarantee: Guarantee,
    world: SimulatedWorld,
    noise: NoiseSource,
    leaves: Leaves | Literal["messages"],
) -> CountedDesk:
    counter = RunningSum(time, blocks_of(layout, scales, noise, world))
    return CountedDesk(layout, CounterSums(counter, scales, leaves), guarantee)
