"""Counts of a batch of users in a simulated world, and what a planner may see of them under each trust model.

A batch is a fixed, public number of users who each play one episode and appear in one release.  Its size is public, so
batches compose in parallel: the loss of a user is that of their own batch.

| code | paper 002 | shape | meaning |
|---|---|---|---|
| ``NoisyTables.n_sas``, ``n_sa``, ``r_sa`` | N''(x,a,x'), N''(x,a), R~ | (G, S, A[, S]) | unbiased, unprocessed |
| ``PrivateBatch.n_sas``, ``n_sa`` | N~(x,a,x'), N~(x,a) | (G, S, A[, S]) | consistent, n_sa never too small |
| ``PrivateBatch.error`` | E | scalar | bound on the error of each entry |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.rollout import Trajectory
from pipeline.statistics.consistency import consistent_counts
from pipeline.statistics.layout import Table
from pipeline.statistics.online_sum import SimulatedLayout, lattice_table

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class BatchTables:
    """Exact sums over the users of a batch in a simulated world; only a privatizer may look inside.

    Parameters
    ----------
    users
        n: public.
    n_sas
        ``(G, S, A, S)``; every user is in one cell of each of the G steps.
    r_sa
        ``(G, S, A)`` sums of reward *bits*: a reward in [0, 1] is rounded at random to one bit on the user's device.
    people
        What each user adds to each counter ``(C,)``, where everybody sends messages of their own.
    """

    users: int
    n_sas: Integers = field(repr=False)
    r_sa: Integers = field(repr=False)
    people: Sequence[Array] | None = field(default=None, repr=False)

    @property
    def n_sa(self) -> Integers:
        """``(G, S, A)`` visits."""
        return self.n_sas.sum(-1)

    @property
    def data_kind(self) -> str:
        """Always ``synthetic``: on logs the trust model is central (privacy.md §0.1-3)."""
        return "synthetic"


@dataclass(frozen=True)
class BatchLayout(SimulatedLayout):
    """See :class:`~pipeline.statistics.layout.Layout`: which counters a batch keeps for steps of ``shape (G, S, A)``.

    Parameters
    ----------
    lean
        Keep no visit counters: visits are the sums of transitions.
    rewards
        Keep reward counters.
    ends
        The last of the steps leads nowhere: it has visit counters and no transitions (paper 002 has no x_{H+1}).
    """

    shape: tuple[int, int, int]
    lean: bool = False
    rewards: bool = True
    ends: bool = False

    @property
    def moving(self) -> int:
        """Steps with a successor."""
        return self.shape[0] - self.ends

    @property
    def visits(self) -> slice:
        """Steps that have visit counters of their own."""
        return slice(self.moving if self.lean else 0, None)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Transitions, visits and reward bits, flat, each where it is kept: a step's counter goes down, another up."""
        G, S, A = self.shape  # noqa: N806
        kept = {"n_sas": (self.moving, S), "n_sa": (len(range(G)[self.visits]), 1), "r_sa": (G * self.rewards, 1)}
        return tuple(
            lattice_table(name, steps * S * A * each, 2 * steps, "one counter a step goes down and one up")
            for name, (steps, each) in kept.items()
        )

    def extremes(self) -> Iterator[BatchTables]:
        """Two users, copied to every action, who stay in a state of their own and always have the reward."""
        G, S, A = self.shape  # noqa: N806
        for side in (0, 1):
            moved, rewards = np.zeros((G, S, A, S), dtype=np.int64), np.zeros((G, S, A), dtype=np.int64)
            moved[:, side, :, side] = 1
            rewards[:, side] = 1
            yield BatchTables(1, moved, rewards)

    @property
    def changes(self) -> int:
        """Counters that replacing one user can move by 1: one down and one up in each table of each step."""
        return sum(t.replace.l2_squared for t in self.tables)

    @property
    def counters(self) -> int:
        """Counters in all: a user sends messages for each."""
        return sum(t.shape[0] for t in self.tables)

    def values(self, people: Trajectory) -> Iterator[Array]:
        """What each user adds to each counter ``(C,)``: the bits of their steps, and rewards in [0, 1]."""
        G, S, A = self.shape  # noqa: N806
        moved, visits, rewards = np.zeros((G, S, A, S)), np.zeros((G, S, A)), np.zeros((G, S, A))
        for states, actions, earned in zip(people.states, people.actions, people.rewards, strict=True):
            at = np.arange(G), states[:-1], actions
            for table in (moved, visits, rewards):
                table.fill(0.0)
            moved[(*at, states[1:])] = visits[at] = 1.0
            rewards[at] = earned
            yield self._flat(moved, visits, rewards)

    def _flat(self, n_sas: Array, n_sa: Array, r_sa: Array | None) -> Array:
        rewards = r_sa if self.rewards and r_sa is not None else np.zeros(0)
        return np.concatenate([n_sas[: self.moving].ravel(), n_sa[self.visits].ravel(), rewards.ravel()])

    def kept(self, noisy: NoisyTables) -> Array:
        """The counters of noisy sums ``(C,)``, table after table."""
        return self._flat(noisy.n_sas, noisy.n_sa, noisy.r_sa)


@dataclass(frozen=True)
class NoisyTables:
    """Unbiased noisy sums of one or several batches; adding batches up is post-processing.

    Parameters
    ----------
    users
        n: public.
    n_sas, n_sa, r_sa
        ``(G, S, A, S)``, ``(G, S, A)`` and ``(G, S, A)`` or None.
    sd, sd_sa
        Standard deviations of the noise of one entry: of ``n_sas`` and ``r_sa``, and of ``n_sa (G,)``.
    """

    users: int
    n_sas: Array
    n_sa: Array
    r_sa: Array | None
    sd: float
    sd_sa: Array


@dataclass(frozen=True)
class PrivateBatch:
    """All a planner may know of a batch.

    Attributes
    ----------
    n_sas, n_sa
        Consistent counts: ``n_sa = sum n_sas`` exactly, and, but for a small chance, never below the truth.
    r_sa
        Unbiased noisy sums of reward bits; None where none were kept.
    error
        E: each entry of ``n_sas``, ``n_sa`` and ``r_sa`` is this close to the truth, but for a small chance.
    shift
        What was added to ``n_sa`` against underestimation: E/2 in paper 002; ``shift / S`` to each of ``n_sas``.
    noisy
        The same before post-processing.
    """

    n_sas: Array
    n_sa: Array
    r_sa: Array | None
    error: float
    shift: float
    noisy: NoisyTables

    @property
    def users(self) -> int:
        """n: public."""
        return self.noisy.users


def consistent(noisy: NoisyTables, layout: BatchLayout, slack: float, shift: float, error: float) -> PrivateBatch:
    """Clip at 0, solve (4) in closed form, shift by (5); where a step leads nowhere transitions are spread evenly.

    Parameters
    ----------
    noisy, layout
        Unbiased sums, and which counters were kept.
    slack
        Of the programme: how far sums of transitions may be from visits (E/4 in paper 002).
    shift
        What is added to every visit count, evenly over its successors (E/2).
    error
        E, passed on.
    """
    moving, S = layout.moving, layout.shape[1]  # noqa: N806
    visits = np.maximum(noisy.n_sa, 0.0)
    n_sas = np.repeat(visits[..., None] / S, S, axis=-1)
    n_sas[:moving] = consistent_counts(visits[:moving], np.maximum(noisy.n_sas[:moving], 0.0), slack)
    n_sas = n_sas + shift / S
    return PrivateBatch(n_sas, n_sas.sum(-1), noisy.r_sa, error, shift, noisy)


def pooled(batches: Sequence[NoisyTables]) -> NoisyTables:
    """The sums of several ``batches`` of the same layout."""
    rewards = [b.r_sa for b in batches if b.r_sa is not None]
    return NoisyTables(
        users=sum(b.users for b in batches),
        n_sas=np.sum([b.n_sas for b in batches], axis=0),
        n_sa=np.sum([b.n_sa for b in batches], axis=0),
        r_sa=np.sum(rewards, axis=0) if len(rewards) == len(batches) else None,
        sd=float(np.sqrt(np.sum([b.sd**2 for b in batches]))),
        sd_sa=np.sqrt(np.sum([b.sd_sa**2 for b in batches], axis=0)),
    )
