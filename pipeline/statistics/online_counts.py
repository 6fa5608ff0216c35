"""Counts of an online agent, seen only through noise: what is counted, and what may be looked at.

An episode is a user, and a batch is a run of episodes with one policy.  What makes noise of them is in
:mod:`pipeline.statistics.interactive_counts`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.statistics.consistency import consistent_counts

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class OnlineLayout:
    """Which counts are kept, and how far one replaced user moves them.

    Parameters
    ----------
    horizon, states, actions
        H, S, A.
    pooled
        One table for all steps, where the dynamics are declared not to depend on them.
    rewards
        Whether rewards are learnt: each user rounds each reward at random to an end of the declared range, counted as
        -1 or +1.  Known rewards need no table, and no counts at the last step, after which nothing can be won.
    """

    horizon: int
    states: int
    actions: int
    pooled: bool = False
    rewards: bool = False

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError("one step with known rewards leaves nothing to count; use a horizon of at least 2")

    @property
    def steps(self) -> int:
        """Steps that are counted."""
        return self.horizon if self.rewards else self.horizon - 1

    @property
    def cells(self) -> tuple[int, int, int]:
        """Shape ``(G, S, A)`` of one table of visits; G = 1 where it is pooled."""
        return (1 if self.pooled else self.steps), self.states, self.actions

    @property
    def sizes(self) -> tuple[int, ...]:
        """Integers in each table: n[g,s,a,s'], then r[g,s,a] where rewards are learnt."""
        visits = math.prod(self.cells)
        return (visits * self.states, *((visits,) if self.rewards else ()))

    @property
    def moves(self) -> tuple[int, ...]:
        """Largest squared length by which a replaced user moves each table (enumerated in the tests).

        At each step one transition leaves its cell and another enters: 2 a step; a reward turns from one end of the
        range to the other in the same cell: 2^2 a step.  Pooled, all steps may meet in the same cells: the square.
        """
        n = self.steps**2 if self.pooled else self.steps
        return (2 * n, *((4 * n,) if self.rewards else ()))

    @property
    def bits(self) -> tuple[int, ...]:
        """Counters of each table that a replaced user moves by 1, where rewards are sent as bits and nothing is pooled.

        At each step a transition leaves its counter and another enters; a reward bit likewise, at worst.
        """
        return (2 * self.steps,) * len(self.sizes)

    def worst_pair(self, users: int = 1, *, bits: bool = False) -> tuple[Tally, Tally]:
        """Two first batches that an audit attacks: they differ in one user, by all of :attr:`moves` or :attr:`bits`.

        Parameters
        ----------
        users
            Of each batch; the others add nothing.
        bits
            Whether rewards are sent as bits: then the user stays in the first or the second state and is always paid.
            Else they walk from the first to the first or the second, paid the most or the least.

        Raises
        ------
        ValueError
            With fewer than two states there is no such pair.
        """
        if self.states < 2:
            raise ValueError("one state only: no two users differ")
        return self._user(0, users, bits), self._user(1, users, bits)

    def _user(self, which: int, users: int, bits: bool) -> Tally:
        shape = (self.horizon, self.states, self.actions)
        moved, rewards = np.zeros((*shape, self.states), dtype=np.int64), np.zeros(shape, dtype=np.int64)
        start = which if bits else 0
        moved[:, start, 0, which] = 1
        rewards[:, start, 0] = 1 if bits else 1 - 2 * which
        return Tally(users, moved, rewards if self.rewards else None)

    def leaf(self, tally: Tally) -> Integers:
        """The integers ``(n,)`` that a batch adds."""
        tables = [tally.transitions[: self.steps], *((tally.rewards,) if tally.rewards is not None else ())]
        return np.concatenate([(t.sum(0) if self.pooled else t).ravel() for t in tables])

    def tables(self, total: Array) -> tuple[Array, Array | None]:
        """The inverse on sums: ``n (G, S, A, S)``, and ``r (G, S, A)`` where rewards are learnt."""
        n, r = total[: self.sizes[0]], total[self.sizes[0] :]
        return n.reshape(*self.cells, self.states), r.reshape(self.cells) if self.rewards else None


@dataclass(frozen=True)
class Tally:
    """Raw sums of one batch; only a desk may look inside.

    Parameters
    ----------
    episodes
        Users in the batch.
    transitions
        ``(H, S, A, S)``.
    rewards
        ``(H, S, A)`` rewards rounded up less rewards rounded down, or None where they are known.
    """

    episodes: int
    transitions: Integers
    rewards: Integers | None = None


@dataclass(frozen=True)
class OnlineCounts:
    """What may be looked at: noisy sums over the batches so far, and how noisy they are.

    Parameters
    ----------
    episodes
        Users so far.
    n_sas, r_sa
        ``(G, S, A, S)``, and ``(G, S, A)`` in half ranges around the mid-range or None; unclipped.
    sd_sas, sd_r
        Standard deviation of the noise in one entry of each.
    """

    episodes: int
    n_sas: Array
    r_sa: Array | None
    sd_sas: float
    sd_r: float

    @property
    def sd_sa(self) -> float:
        """Of the noise in a visit count made by summation."""
        return self.sd_sas * math.sqrt(self.n_sas.shape[-1])


def consistent(counts: OnlineCounts) -> Array:
    """The consistency programme with n'_sa by summation: ``(G, S, A, S)``, nowhere negative, unshifted."""
    noisy = np.maximum(counts.n_sas, 0.0)
    return consistent_counts(np.maximum(counts.n_sas.sum(-1), 0.0), noisy, 0.0)


def never_under(counts: OnlineCounts, z: float) -> tuple[Array, Array]:
    """Consistent n~_sa ``(G, S, A)`` and n~_sas ``(G, S, A, S)`` that stay above the true visits unless noise exceeds
    ``z`` of its standard deviations (002 after eq. 5; DP-UCBVI).

    ``z sd`` is added to the visits and spread evenly over the successors: n~_sa = sum n~_sas, and a cell that only
    noise has visited looks uniform.
    """
    x, shift = consistent(counts), z * counts.sd_sa
    return x.sum(-1) + shift, x + shift / x.shape[-1]


class Promise(Protocol):
    """What the noise that is drawn gives one user, replace-one."""

    @property
    def trust(self) -> str:
        """``none``, ``joint``, ``local`` or ``shuffle``."""
        ...

    @property
    def rho(self) -> Fraction | None:
        """zCDP; None without noise, and where the noise is not Gaussian."""
        ...

    def epsilon(self, delta: float) -> float | None:
        """Epsilon at ``delta``; None without noise."""
        ...


class CountDesk(Protocol):
    """Takes one batch at a time, shows noisy sums."""

    @property
    def layout(self) -> OnlineLayout:
        """What is counted."""
        ...

    @property
    def guarantee(self) -> Promise:
        """What its noise gives a user."""
        ...

    def add(self, tally: Tally) -> None:
        """One more batch, of users who are in no other."""
        ...

    def counts(self) -> OnlineCounts:
        """The sums so far, as released: the same until the next batch."""
        ...


def nothing_seen(layout: OnlineLayout) -> OnlineCounts:
    """Counts before the first batch."""
    return OnlineCounts(0, np.zeros((*layout.cells, layout.states)), np.zeros(layout.cells), 0.0, 0.0)
