"""The sums of linear and LQ releases: visits and reward integers over declared states, moments of vectors.

Canonical rows -> int64 sums, a batch in memory at a time.  What each person may contribute was settled by ``ingest``:
m episodes, H steps each, no step twice.  A linear release sums the two halves of the people apart; whose row it is
decides the half, by a keyed hash of the id alone.  A row of vectors without a next observation counts nowhere.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.declaration.card import Card, LqCard
from pipeline.logs.aggregate import BATCH_ROWS, PARTS_TOGETHER, read_parts, successor
from pipeline.logs.contribution_bounding import IDENTITY, CapsAgain, keyed_hash
from pipeline.logs.elsewhere import Seen
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import HERE, Resources, Sums, sum_snapshot
from pipeline.statistics.lq_layout import LqPlan
from pipeline.statistics.lq_moments import batch_sums
from pipeline.statistics.lq_rows import SummedRows, Transitions
from pipeline.statistics.regression_rows import Side, Tallies


def in_second_half(users: NDArray[Any], salt: str) -> NDArray[np.bool_]:
    """Whether each user belongs to D': a keyed hash of the id alone, so that nobody's rows move another."""
    distinct, where = np.unique(users.astype(str), return_inverse=True)
    return (keyed_hash(distinct.tolist(), salt).to_numpy() % 2 == 1)[where]


Integers = NDArray[np.int64]


def tally(
    snapshot: Snapshot,
    card: Card,
    lattice: int,
    reward_steps: tuple[int, int],
    *,
    split: bool,
    resources: Resources = HERE,
) -> dict[Side, Tallies]:
    """Sum a snapshot, in units of the reward's span.

    Parameters
    ----------
    snapshot
        What ``ingest`` wrote.
    card
        Declares states, actions and the reward range; a declared reward table is taken as it stands.
    lattice
        Steps of one unit: the width of the declared reward range.
    reward_steps
        Least and largest reward on the lattice; every reward is clipped, then floored.
    split
        Whether D and D' are summed apart; else everybody is ``both``.
    resources
        Where partitions are summed, and who hears of progress; no sum depends on it.

    Returns
    -------
    Visits ``(H, L, A, L + END)``, reward integers ``(H, L, A)`` and first states ``(L,)`` of each side; secret.
    """
    work = TallySums(card, lattice, reward_steps, split)
    return work.tallies(sum_snapshot(work, snapshot, resources))


def add_tallies(card: Card, lattice: int, reward_steps: tuple[int, int], people: Iterable[pl.DataFrame]) -> Tallies:
    """The same of people who do not exist, all on one side.

    Parameters
    ----------
    card, lattice, reward_steps
        See :func:`tally`.
    people
        Canonical rows.
    """
    work = TallySums(card, lattice, reward_steps, split=False)
    sums = work.zero()
    for rows in people:
        work.add_rows(sums, "both", rows.select(_columns(card)))
    return work.tallies(sums)["both"]


def _columns(card: Card) -> list[pl.Expr]:
    """Cells, successors (an end is one state, unknown ones come last) and rewards of the rows."""
    live, actions = len(card.domain.live_states), len(card.domain.action_labels)
    step, state = pl.col("step").cast(pl.Int64), pl.col("state").cast(pl.Int64)
    ends = card.domain.states.first_terminal if card.domain.states.ends else live - 1
    found = successor(card).cast(pl.Int64).clip(upper_bound=ends).fill_null(ends + 1)
    columns = [((step * live + state) * actions + pl.col("action")).alias("cell"), found.alias("successor")]
    return columns + ([pl.col("reward")] if card.reward.table is None else [])


@dataclass(frozen=True)
class TallySums:
    """See :class:`~pipeline.logs.summing.Summation`: of each side, visits with unknown successors last, and rewards."""

    card: Card = field(repr=False)
    lattice: int
    reward_steps: tuple[int, int]
    split: bool

    @property
    def together(self) -> int:
        """Every row is of its own."""
        return PARTS_TOGETHER

    @property
    def sides(self) -> tuple[Side, ...]:
        """What is summed apart."""
        return ("D", "D'") if self.split else ("both",)

    def depends_on(self) -> Any:
        """The whole card: more than decides the integers, never less."""
        return ["tallies", self.card.model_dump(mode="json"), self.lattice, list(self.reward_steps), self.split]

    def zero(self) -> dict[str, Integers]:
        """``visits`` and ``rewards`` of each side."""
        cells = int(np.prod(self._cells))
        sizes = {"visits": cells * (self._successors + 1), "rewards": cells}
        return {f"{side} {name}": np.zeros(size, dtype=np.int64) for side in self.sides for name, size in sizes.items()}

    def add(self, sums: Sums, parts: Sequence[Path], seen: Seen) -> None:
        """A batch of rows in memory at a time."""
        for rows in read_parts(parts, self.card, _columns(self.card), BATCH_ROWS):
            if self.split:
                second = pl.Series(in_second_half(rows["user_id"].to_numpy(), self.card.name))
                self.add_rows(sums, "D'", rows.filter(second))
                self.add_rows(sums, "D", rows.filter(~second))
            else:
                self.add_rows(sums, "both", rows)
            seen(len(rows))

    def tallies(self, sums: Sums) -> dict[Side, Tallies]:
        """The sums of each side, in their shapes."""
        return {side: self._tallies(sums[f"{side} visits"], sums[f"{side} rewards"]) for side in self.sides}

    @property
    def _cells(self) -> tuple[int, int, int]:
        d = self.card.domain
        return d.horizon, len(d.live_states), len(d.action_labels)

    @property
    def _successors(self) -> int:
        d = self.card.domain
        return len(d.live_states) + bool(d.states.ends)

    def add_rows(self, sums: Sums, side: Side, rows: pl.DataFrame) -> None:
        """Count the rows; a row without a known successor is in no sum but the first states'."""
        cell, to = rows["cell"].to_numpy(), rows["successor"].to_numpy()
        np.add.at(sums[f"{side} visits"], cell * (self._successors + 1) + to, 1)
        if self.card.reward.table is None:
            known = to < self._successors
            np.add.at(sums[f"{side} rewards"], cell[known], self._integers(rows["reward"].to_numpy()[known]))

    def _tallies(self, visits: Integers, rewards: Integers) -> Tallies:
        visits, rewards = visits.reshape(*self._cells, -1), rewards.reshape(self._cells)
        known = np.ascontiguousarray(visits[..., :-1])
        if self.card.reward.table is not None:
            rewards = self._integers(np.array(self.card.reward.table)) * known.sum(-1)
        return Tallies(known, rewards, visits[0].sum((1, 2)))

    def _integers(self, reward: NDArray[np.float64]) -> Integers:
        low, high = self.card.reward.range
        return np.clip(np.floor(reward * (self.lattice / (high - low)) + 1e-9), *self.reward_steps).astype(np.int64)


Array = NDArray[np.float64]

_COLUMNS = ["observation", "action", "next_observation"]
_VECTOR_ROWS = 1 << 16


@dataclass(frozen=True)
class LqSums:
    """See :class:`~pipeline.logs.summing.Summation`: both moments of a plan."""

    plan: LqPlan = field(repr=False)
    card: LqCard = field(repr=False)

    @property
    def together(self) -> int:
        """A file at a time."""
        return 1

    def depends_on(self) -> Any:
        """The whole card and the whole plan: more than decides the integers, never less."""
        return ["moments", self.card.model_dump(mode="json"), repr(self.plan)]

    def zero(self) -> dict[str, NDArray[np.int64]]:
        """``gram (n+d, n+d)`` and ``cross (n+d, n)``."""
        d, n = self.plan.domain.dimension, self.plan.domain.state
        return {"gram": np.zeros((d, d), dtype=np.int64), "cross": np.zeros((d, n), dtype=np.int64)}

    def add(self, sums: Sums, parts: Sequence[Path], seen: Seen) -> None:
        """A batch of rows in memory at a time."""
        for rows, read in read_transitions(parts, self.card, _VECTOR_ROWS):
            gram, cross = batch_sums(self.plan, rows)
            np.add(sums["gram"], gram, out=sums["gram"])
            np.add(sums["cross"], cross, out=sums["cross"])
            seen(read)


def lazy_lq_sums(plan: LqPlan, snapshot: Snapshot, card: LqCard, resources: Resources) -> SummedRows:
    """The sums of a snapshot, made when they are asked for.

    Parameters
    ----------
    plan
        Balls, lattices and dimensions n, d (privacy.md §7).
    snapshot
        What ``ingest`` wrote.
    card
        Its sizes of observation and control.
    resources
        Where partitions are summed, and who hears of progress; no sum depends on it.

    Returns
    -------
    Gram ``(n+d, n+d)`` and cross sums ``(n+d, n)``, int64; nothing is read before they are asked for.
    """

    def sums() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        found = sum_snapshot(LqSums(plan, card), snapshot, resources)
        return found["gram"], found["cross"]

    return SummedRows(snapshot.kind, sums)


def read_transitions(parts: Sequence[Path], card: LqCard, size: int) -> Iterator[tuple[Transitions, int]]:
    """Batches of rows that lead somewhere, and how many rows were read for each."""
    n, control = card.domain.observation.size, card.domain.action.size
    for part in parts:
        with pq.ParquetFile(part) as file:
            caps = CapsAgain(card, [file.metadata.num_rows])
            for records in file.iter_batches(size, columns=[*IDENTITY, *_COLUMNS]):
                caps.check(pl.DataFrame(records.select(list(IDENTITY))))
                known = records.filter(records["next_observation"].is_valid())
                x, u, following = (known[c] for c in _COLUMNS)
                yield Transitions(list_matrix(x, n), list_matrix(u, control), list_matrix(following, n)), len(records)


def list_matrix(column: Any, width: int) -> Array:
    """List column ``(R,)`` of ``width`` numbers as ``(R, width)``; a null or a list of another length is NaN.

    Parameters
    ----------
    column
        An Arrow array of lists, R rows.
    width
        Numbers that a list must hold.
    """
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    out, fits = np.full((len(column), width), np.nan), lengths == width
    out[fits] = column.filter(pa.array(fits)).flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    return out
