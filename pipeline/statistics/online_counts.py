"""Private counts of an online agent and of a batch: the counters, and their noisy sums.

An episode is a user, and a batch is a run of episodes with one policy.  Their mechanisms are in
:mod:`pipeline.statistics.interactive_counts`.  SDP-PE's batches are fixed, public numbers of users who each play one
episode and appear in one release, so batches compose in parallel: the loss of a user is that of their own batch.

| code | paper 002 | shape | meaning |
|---|---|---|---|
| ``NoisyTables.n_sas``, ``n_sa``, ``r_sa`` | N''(x,a,x'), N''(x,a), R~ | (G, S, A[, S]) | unbiased, unprocessed |
| ``PrivateBatch.n_sas``, ``n_sa`` | N~(x,a,x'), N~(x,a) | (G, S, A[, S]) | consistent, n_sa never too small |
| ``PrivateBatch.error`` | E | scalar | bound on the error of each entry |
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from pipeline.arrays import Array, Bools, Integers
from pipeline.mdp.rollout import Trajectory
from pipeline.privacy.release import Release
from pipeline.statistics.consistency import consistent_counts
from pipeline.statistics.layout import Table
from pipeline.statistics.private_sum import SimulatedLayout, lattice_table


@dataclass(frozen=True)
class OnlineLayout(SimulatedLayout):
    """Counters of an online agent, and their sensitivity to one replaced user.

    ``rewards``: whether rewards are learnt: each user rounds each reward at random to an end of the declared range,
    counted as -1 or +1.  Known rewards need no table, and no counts at the last step, after which no reward follows.
    ``apart``: whether each episode is sent with noise of its own: then m episodes move m times the square of one, else
    m^2 times.
    """

    horizon: int
    states: int
    actions: int
    pooled: bool = False
    rewards: bool = False
    episodes: int = 1
    apart: bool = False

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError("one step with known rewards leaves nothing to count; use a horizon of at least 2")
        if self.episodes < 1:
            raise ValueError(f"a user has at least one episode; got episodes_per_user = {self.episodes}")

    @property
    def steps(self) -> int:
        """Steps that are counted."""
        return self.horizon if self.rewards else self.horizon - 1

    @property
    def cells(self) -> tuple[int, int, int]:
        """Shape ``(G, S, A)`` of one table of visits; G = 1 where it is pooled."""
        return (1 if self.pooled else self.steps), self.states, self.actions

    @property
    def tables(self) -> tuple[Table, ...]:
        """Transitions n[g,s,a,s'], flat, then rewards r[g,s,a] where they are learnt (enumerated in the tests).

        At each step one transition leaves its cell and another enters: 2 a step; a reward turns from one end of the
        range to the other in the same cell: 2^2 a step.  Pooled, all steps may meet in the same cells: the square.
        The m episodes of a user may all be alike, and meet in one batch.
        """
        n, visits = self.steps**2 if self.pooled else self.steps, math.prod(self.cells)
        n *= self.episodes if self.apart else self.episodes**2
        moved = lattice_table("n_sas", visits * self.states, 2 * n, "a transition a step leaves its cell, one enters")
        turned = lattice_table("r_sa", visits, 4 * n, "a reward a step turns from end to end of its range")
        return (moved, turned) if self.rewards else (moved,)

    def extremes(self) -> Iterator[Tally]:
        """Two users, copied to every action: they go from the first state to the first, or to the second.

        With rewards one is always rounded up and the other down.  m episodes are alike; sent apart, one is attacked.
        """
        H, S, A = self.horizon, self.states, self.actions  # noqa: N806
        m = 1 if self.apart else self.episodes
        for side in (0, 1):
            moved, rewards = np.zeros((H, S, A, S), dtype=np.int64), np.zeros((H, S, A), dtype=np.int64)
            moved[:, 0, :, side] = m
            rewards[:, 0] = m * (1 - 2 * side)
            yield Tally(1, moved, rewards if self.rewards else None)

    @property
    def bits(self) -> tuple[int, ...]:
        """Bools of each table that a replaced user turns, where rewards are sent as bits and nothing is pooled.

        At each step a transition leaves its counter and another enters; a reward bit likewise, at worst.
        """
        return (2 * self.steps,) * len(self.tables)

    def values(self, people: Trajectory) -> Iterator[Array]:
        """Contributions of each user to the counters ``(C,)``, in [0, 1]: bits of steps, and rewards as shares."""
        S, A = self.states, self.actions  # noqa: N806
        cells = (np.arange(self.horizon) * S + people.states[:, :-1]) * A + people.actions
        transitions = cells * S + people.states[:, 1:]
        first, size = self.tables[0].shape[0], sum(t.shape[0] for t in self.tables)
        for cell, transition, earned in zip(cells, transitions, people.rewards, strict=True):
            value = np.zeros(size)
            value[transition[: self.steps]] = 1.0
            if self.rewards:
                value[first + cell] = earned
            yield value

    def integers(self, tally: Tally) -> Integers:
        """The integers ``(n,)`` that a batch adds, table after table."""
        tables = [tally.transitions[: self.steps], *((tally.rewards,) if tally.rewards is not None else ())]
        return np.concatenate([(t.sum(0) if self.pooled else t).ravel() for t in tables])

    def entries(self, cells: Bools) -> Bools:
        """Mask ``(n,)`` of the integers of the cells ``(H, S, A)``."""
        counted = cells[: self.steps]
        flat = (counted.any(0) if self.pooled else counted).ravel()
        return np.concatenate([np.repeat(flat, self.states), *([flat] if self.rewards else [])])

    def sums(self, total: Array) -> tuple[Array, Array | None]:
        """The inverse on sums: ``n (G, S, A, S)``, and ``r (G, S, A)`` where rewards are learnt."""
        n, r = np.split(total, [self.tables[0].shape[0]])
        return n.reshape(*self.cells, self.states), r.reshape(self.cells) if self.rewards else None

    def shaped(self, release: Release) -> Release:
        """A release of the flat tables in their axes: ``n_sas (G, S, A, S)`` and ``r_sa (G, S, A)``."""
        axes = {"n_sas": (*self.cells, self.states), "r_sa": self.cells}
        return replace(
            release,
            mechanisms=tuple(replace(m, shape=axes[m.table]) for m in release.mechanisms),
            tables={name: table.reshape(axes[name]) for name, table in release.tables.items()},
        )


@dataclass(frozen=True)
class Tally:
    """Raw sums of one batch; only an interactive mechanism may read them.

    ``transitions``: ``(H, S, A, S)``.
    ``rewards`` ``(H, S, A)``: rewards rounded up less rewards rounded down, or None where they are known.
    ``people``: whole episodes, rewards as shares of their range, where every user sends messages.
    ``possible`` ``(H, S, A)``: the actions that the batch's policy, which is public, may take; None: all of them.
    """

    episodes: int
    transitions: Integers
    rewards: Integers | None = None
    people: Trajectory | None = None
    possible: Bools | None = None


@dataclass(frozen=True)
class OnlineCounts:
    """Released noisy sums over the batches so far, and their standard deviations.

    ``n_sas``, ``r_sa`` ``(G, S, A, S)``: and ``(G, S, A)`` in half ranges around the mid-range or None; unclipped.
    ``sd_sas``, ``sd_r``: standard deviation of the noise in one entry of each cell, ``(G, S, A)`` or one for all.
    """

    episodes: int
    n_sas: Array
    r_sa: Array | None
    sd_sas: Array | float
    sd_r: Array | float

    @property
    def sd_sa(self) -> Array | float:
        """Standard deviation of a visit count made by summation."""
        return self.sd_sas * math.sqrt(self.n_sas.shape[-1])

    def __add__(self, other: OnlineCounts) -> OnlineCounts:
        """Both, of other users, each with its own noise."""
        sd = [np.hypot(x, y) for x, y in ((self.sd_sas, other.sd_sas), (self.sd_r, other.sd_r))]
        r = None if other.r_sa is None or self.r_sa is None else self.r_sa + other.r_sa
        return OnlineCounts(self.episodes + other.episodes, self.n_sas + other.n_sas, r, sd[0], sd[1])


def consistent(counts: OnlineCounts) -> Array:
    """The consistency programme with n'_sa by summation: ``(G, S, A, S)``, nowhere negative, unshifted."""
    noisy = np.maximum(counts.n_sas, 0.0)
    return consistent_counts(np.maximum(counts.n_sas.sum(-1), 0.0), noisy, 0.0)


def never_under(x: Array, shift: Array | float) -> tuple[Array, Array]:
    """Consistent n~_sa ``(G, S, A)`` and n~_sas ``(G, S, A, S)`` that stay above the true visits unless noise exceeds
    ``shift``, z of its standard deviations (002 after eq. 5; DP-UCBVI).

    It is added to the visits of consistent counts ``x`` and spread evenly over the successors: n~_sa = sum n~_sas, and
    a cell without visits looks uniform.
    """
    return x.sum(-1) + shift, x + (np.asarray(shift) / x.shape[-1])[..., None]


def nothing_seen(layout: OnlineLayout) -> OnlineCounts:
    """Counts of ``layout`` before the first batch."""
    return OnlineCounts(0, np.zeros((*layout.cells, layout.states)), np.zeros(layout.cells), 0.0, 0.0)


@dataclass(frozen=True)
class BatchTables:
    """Exact sums over the users of a batch in a simulated world; only a privatizer may read them.

    ``n_sas`` ``(G, S, A, S)``: every user is in one cell of each of the G steps.
    ``r_sa`` ``(G, S, A)``: sums of reward *bits*: a reward in [0, 1] is rounded at random to one bit on the user's
    device.
    ``people``: contributions of each user to the counters ``(C,)``, where every user sends messages.
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
    """Counters of a batch for steps of ``shape (G, S, A)``.

    ``ends``: the last of the steps leads nowhere: it has visit counters and no transitions (paper 002 has no x_{H+1}).
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
        sizes = {"n_sas": (self.moving, S), "n_sa": (len(range(G)[self.visits]), 1), "r_sa": (G * self.rewards, 1)}
        return tuple(
            lattice_table(name, steps * S * A * width, 2 * steps, "one counter a step goes down and one up")
            for name, (steps, width) in sizes.items()
        )

    def extremes(self) -> Iterator[BatchTables]:
        """Two users, copied to every action, who stay in different states and always have the reward."""
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
        """Contributions of each user to the counters ``(C,)``: the bits of their steps, and rewards in [0, 1]."""
        G, S, A = self.shape  # noqa: N806
        moved, visits, rewards = np.zeros((G, S, A, S)), np.zeros((G, S, A)), np.zeros((G, S, A))
        for states, actions, earned in zip(people.states, people.actions, people.rewards, strict=True):
            cells = np.arange(G), states[:-1], actions
            for table in (moved, visits, rewards):
                table.fill(0.0)
            moved[(*cells, states[1:])] = visits[cells] = 1.0
            rewards[cells] = earned
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

    ``n_sas``, ``n_sa``, ``r_sa`` ``(G, S, A, S)``: ``(G, S, A)`` and ``(G, S, A)`` or None.
    """

    users: int
    n_sas: Array
    n_sa: Array
    r_sa: Array | None
    sd: float
    sd_sa: Array


@dataclass(frozen=True)
class PrivateBatch:
    """Released counts of a batch for a planner.

    ``n_sas``, ``n_sa``: consistent counts: ``n_sa = sum n_sas`` exactly, and, but for a small chance, never below the
    truth.
    ``r_sa``: unbiased noisy sums of reward bits; None where there are none.
    ``shift``: added to ``n_sa`` against underestimation: E/2 in paper 002; ``shift / S`` to each of ``n_sas``.
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


def consistent_batch(noisy: NoisyTables, layout: BatchLayout, slack: float, shift: float, error: float) -> PrivateBatch:
    """Clip at 0, solve (4) in closed form, shift by (5); where a step leads nowhere transitions are spread evenly.

    ``slack``: of the programme: largest distance of sums of transitions from visits (E/4 in paper 002).
    ``shift``: added to every visit count, evenly over its successors (E/2).
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
