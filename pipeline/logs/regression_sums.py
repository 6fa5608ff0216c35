"""Sums of linear and LQ releases: visits and reward integers over declared states, moments of vectors.

Canonical rows -> int64 sums, a batch in memory at a time.  ``ingest`` has bounded each person's contribution: m
episodes, H steps each, no step twice.  A linear release sums two halves of the people separately; a keyed hash of the
id decides a person's half.  A row of vectors without a next observation is in no sum.

An interactive mechanism reads rows with observations one step at a time, anew in each call.  If all rows fit into the
operator's memory they are read once and kept by step; no sum depends on it.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.arrays import Array, Integers
from pipeline.declaration.card import Card, LqCard
from pipeline.logs import elsewhere, store
from pipeline.logs.aggregate import PARTS_TOGETHER, read_parts, successor
from pipeline.logs.contribution_bounding import IDENTITY, CapsAgain, keyed_hash
from pipeline.logs.summing import HERE, Resources, Sums, reporter, sum_snapshot
from pipeline.mdp.features import ObservedMap
from pipeline.statistics.layout import as_integers
from pipeline.statistics.linear_sums import Side, StepRows, Tallies
from pipeline.statistics.lq import LqSums, SummedRows, Transitions


def in_second_half(users: pl.Series, salt: str) -> pl.Series:
    """Whether each user belongs to D', by a keyed hash of the id alone, so that no person's rows affect another's."""
    # no array of numpy: each of its texts would take the bytes of the longest
    distinct = users.unique()
    return users.replace_strict(distinct, keyed_hash(distinct.cast(pl.String), salt) % 2 == 1, return_dtype=pl.Boolean)


def tally(
    snapshot: store.Snapshot,
    card: Card,
    lattice: int,
    reward_steps: tuple[int, int],
    *,
    split: bool,
    resources: Resources = HERE,
) -> dict[Side, Tallies]:
    """Sum a snapshot, in units of the reward's span.

    ``reward_steps``: least and largest reward on the lattice; every reward is clipped, then floored.
    Returns visits ``(H, L, A, L + END)``, reward integers ``(H, L, A)`` and first states ``(L,)`` of each side; secret.
    """
    work = TallySums(card, lattice, reward_steps, split)
    return work.tallies(sum_snapshot(work, snapshot, resources))


def _steps_apart(card: Card) -> Card:
    """The card with tables by step: these sums differ by step, whatever the card declares."""
    return card.model_copy(update={"domain": card.domain.model_copy(update={"dynamics": "per_step"})})


@dataclass(frozen=True)
class TallySums:
    """Sums of visits (unknown successors last) and rewards, for each side."""

    card: Card = field(repr=False)
    lattice: int
    reward_steps: tuple[int, int]
    split: bool
    # rows are summed independently
    together = PARTS_TOGETHER

    @property
    def sides(self) -> tuple[Side, ...]:
        """Sides that are summed separately."""
        return ("D", "D'") if self.split else ("both",)

    @property
    def columns(self) -> list[pl.Expr]:
        """Expressions of the rows' cells, successors (all ends are one state, unknown comes last) and rewards."""
        _, live, actions, successors = self._shape
        step, state = pl.col("step").cast(pl.Int64), pl.col("state").cast(pl.Int64)
        onto = successor(_steps_apart(self.card)).cast(pl.Int64).clip(upper_bound=successors - 1).fill_null(successors)
        columns = [((step * live + state) * actions + pl.col("action")).alias("cell"), onto.alias("successor")]
        return columns + ([pl.col("reward")] if self.card.reward.table is None else [])

    def zero(self) -> dict[str, Integers]:
        """Zero tables ``visits`` and ``rewards`` of each side."""
        cells = int(np.prod(self._shape[:-1]))
        sizes = {"visits": cells * (self._shape[-1] + 1), "rewards": cells}
        return {f"{side} {name}": np.zeros(size, dtype=np.int64) for side in self.sides for name, size in sizes.items()}

    def add(self, sums: Sums, parts: Sequence[Path], seen: elsewhere.Seen) -> None:
        """Add the rows of part files, a batch in memory at a time."""
        for rows in read_parts(parts, self.card, self.columns):
            if self.split:
                second = in_second_half(rows["user_id"], self.card.name)
                self.add_rows(sums, "D'", rows.filter(second))
                self.add_rows(sums, "D", rows.filter(~second))
            else:
                self.add_rows(sums, "both", rows)
            seen(len(rows))

    def tallies(self, sums: Sums) -> dict[Side, Tallies]:
        """Sums of each side, in their shapes."""
        return {side: self._tallies(sums[f"{side} visits"], sums[f"{side} rewards"]) for side in self.sides}

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        """Steps, live states, actions, known successors."""
        d, live = self.card.domain, len(self.card.domain.live_states)
        return d.horizon, live, len(d.action_labels), live + bool(d.states.ends)

    def add_rows(self, sums: Sums, side: Side, rows: pl.DataFrame) -> None:
        """Count the rows; a row without a known successor is in no sum but the first states'."""
        cell, onto, successors = rows["cell"].to_numpy(), rows["successor"].to_numpy(), self._shape[-1]
        np.add.at(sums[f"{side} visits"], cell * (successors + 1) + onto, 1)
        if self.card.reward.table is None:
            has_next = onto < successors
            np.add.at(sums[f"{side} rewards"], cell[has_next], self._integers(rows["reward"].to_numpy()[has_next]))

    def _tallies(self, visits: Integers, rewards: Integers) -> Tallies:
        visits, rewards = visits.reshape(*self._shape[:-1], -1), rewards.reshape(self._shape[:-1])
        counted = np.ascontiguousarray(visits[..., :-1])
        if self.card.reward.table is not None:
            rewards = self._integers(np.array(self.card.reward.table)) * counted.sum(-1)
        return Tallies(counted, rewards, visits[0].sum((1, 2)))

    def _integers(self, reward: Array) -> Integers:
        low, high = self.card.reward.range
        steps = np.floor(reward * (self.lattice / (high - low)) + 1e-9)
        return as_integers(np.clip(steps, *self.reward_steps), *self.reward_steps)


_COLUMNS = ["observation", "action", "next_observation"]
_VECTOR_ROWS = 1 << 16


@dataclass(frozen=True)
class LqSummation:
    """Sums of both moments of an LQ release."""

    layout: LqSums = field(repr=False)
    card: LqCard = field(repr=False)
    together = 1

    def zero(self) -> dict[str, Integers]:
        """Zero tables ``gram (n+d, n+d)`` and ``target (n+d, n)``."""
        return self.layout.add(())

    def add(self, sums: Sums, parts: Sequence[Path], seen: elsewhere.Seen) -> None:
        """Add the rows of part files, a batch in memory at a time."""
        for rows, read in read_transitions(parts, self.card, _VECTOR_ROWS):
            for name, part in self.layout.add([rows]).items():
                np.add(sums[name], part, out=sums[name])
            seen(read)


def lazy_lq_sums(layout: LqSums, snapshot: store.Snapshot, card: LqCard, resources: Resources) -> SummedRows:
    """Sums of a snapshot, which is read only when they are used."""
    return SummedRows(snapshot.kind, lambda: sum_snapshot(LqSummation(layout, card), snapshot, resources))


def read_transitions(parts: Sequence[Path], card: LqCard, size: int) -> Iterator[tuple[Transitions, int]]:
    """Yield batches of rows with a next observation, and the number of rows that were read for each."""
    n, control = card.domain.observation.size, card.domain.action.size
    for part in parts:
        with pq.ParquetFile(part) as file:
            caps = CapsAgain(card, [file.metadata.num_rows])
            for records in file.iter_batches(size, columns=[*IDENTITY, *_COLUMNS]):
                caps.check(pl.DataFrame(records.select(list(IDENTITY))))
                complete = records.filter(records["next_observation"].is_valid())
                x, u, following = (complete[c] for c in _COLUMNS)
                yield Transitions(list_matrix(x, n), list_matrix(u, control), list_matrix(following, n)), len(records)


def list_matrix(column: Any, width: int) -> Array:
    """Convert a list column ``(R,)`` to ``(R, width)``; a null or a list of another length is NaN."""
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    out, fits = np.full((len(column), width), np.nan), lengths == width
    out[fits] = column.filter(pa.array(fits)).flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    return out


# numbers of all actions' features that are in memory at once
_NUMBERS = 1 << 22
# bytes of a kept row beside its observations; kept rows take at most one part in _SHARE of the memory
_ROW_BYTES, _SHARE = 64, 4


@dataclass(frozen=True)
class ObservedRows:
    """Batches of a snapshot's rows; ``ingest`` has bounded each person's rows, which is checked again.

    ``features``, ``onto``: the declared feature map, and that of next observations; None: the same.
    """

    snapshot: store.Snapshot
    card: Card = field(repr=False)
    features: ObservedMap
    resources: Resources = HERE
    onto: ObservedMap | None = None

    def __call__(self, h: int, side: Side) -> Iterator[StepRows]:
        """Yield the rows of step ``h``, from 0, of the people of a side, without those whose successor is unknown."""
        piece_rows = max(1, _NUMBERS // (len(self.features.actions) * self.features.dimension))
        by_step = self._by_step
        for rows in self._read() if by_step is None else by_step.get(h, []):
            of_step = rows.filter(pl.col("step") == h) if by_step is None else rows
            if side != "both" and len(of_step):
                second = in_second_half(of_step["user_id"], self.card.name)
                of_step = of_step.filter(second if side == "D'" else ~second)
            for piece in of_step.iter_slices(piece_rows):
                yield self._batch(piece, h)

    @cached_property
    def _by_step(self) -> dict[int, list[pl.DataFrame]] | None:
        """Rows by step; None if they might not fit into the memory."""
        row = _ROW_BYTES + 2 * 4 * self.features.size
        if self.snapshot.rows * row * _SHARE > self.resources.memory:
            return None
        by_step = defaultdict[int, list[pl.DataFrame]](list)
        for rows in self._read():
            for (step,), of_step in rows.partition_by("step", as_dict=True).items():
                by_step[int(step)].append(of_step)
        return by_step

    def _read(self) -> Iterator[pl.DataFrame]:
        """Yield all rows with a known successor, a batch at a time."""
        columns = [*map(pl.col, ("step", "state", "action", "observation", "next_observation"))]
        columns.append(successor(_steps_apart(self.card)).alias("onto"))
        columns += [] if self.card.reward.table else [pl.col("reward")]
        seen = reporter(self.resources.progress, self.snapshot.rows)
        for rows in read_parts(self.snapshot.part_files, self.card, columns):
            seen(len(rows))
            yield rows.filter(pl.col("onto").is_not_null())

    def _batch(self, rows: pl.DataFrame, h: int) -> StepRows:
        ends, size = self.card.domain.states.first_terminal, self.features.size
        x, x_next = (list_matrix(rows[c].to_arrow(), size) for c in ("observation", "next_observation"))
        state, action, onto = (rows[c].cast(pl.Int64).to_numpy() for c in ("state", "action", "onto"))
        ended, (low, high) = onto >= ends, self.card.reward.range
        table = self.card.reward.table
        if table is None:
            reward = rows["reward"].to_numpy()
        else:
            declared = np.array(table, dtype=np.float64)
            reward = (declared if declared.ndim == 2 else declared[h])[state, action]
        return StepRows(
            self.features.of_taken(x, state, action),
            reward / (high - low),
            (self.onto or self.features).of_actions(x_next, np.where(ended, 0, onto)),
            ended,
        )
