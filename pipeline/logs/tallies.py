"""The sums of a linear release over declared states: canonical rows -> visits and reward integers, a step and a half.

One pass, a batch in memory at a time.  Whose row it is decides the half, by a keyed hash of the id alone; a person has
at most one row an episode and step, because ``ingest`` wrote the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.card import Card
from pipeline.logs.aggregate import BATCH_ROWS, PARTS_PER_SCAN, successor
from pipeline.logs.linear_rows import in_second_half
from pipeline.logs.schema import first_end
from pipeline.logs.store import Snapshot
from pipeline.statistics.rows import Side, Tallies

Integers = NDArray[np.int64]


def tally(
    snapshot: Snapshot,
    card: Card,
    lattice: int,
    reward_steps: tuple[int, int],
    *,
    split: bool,
    progress: Callable[[int, int], None] | None = None,
) -> dict[Side, Tallies]:
    """Sum a snapshot, in units of the reward's span.

    Parameters
    ----------
    lattice
        Steps of one unit: the width of the declared reward range.
    reward_steps
        Least and largest reward on the lattice; every reward is clipped, then floored.
    split
        Whether D and D' are summed apart; else everybody is ``both``.
    """
    sides: list[Side] = ["D", "D'"] if split else ["both"]
    sums: dict[Side, _Sums] = {side: _Sums(card, lattice, reward_steps) for side in sides}
    parts = snapshot.part_files
    for start in range(0, len(parts), PARTS_PER_SCAN):
        scanned = parts[start : start + PARTS_PER_SCAN]
        for rows in _batches(pl.scan_parquet(scanned, glob=False), card, split=split):
            if not split:
                sums["both"].add(rows)
                continue
            second = pl.Series(in_second_half(rows["user_id"].to_numpy(), card.name))
            sums["D'"].add(rows.filter(second))
            sums["D"].add(rows.filter(~second))
        if progress is not None:
            progress(start + len(scanned), len(parts))
    return {side: found.tallies() for side, found in sums.items()}


def _batches(rows: pl.LazyFrame, card: Card, *, split: bool) -> Iterator[pl.DataFrame]:
    """Cells, successors (an end is one state, unknown ones come last) and rewards of the rows."""
    live, actions = len(card.domain.live_states), len(card.domain.action_labels)
    step, state = pl.col("step").cast(pl.Int64), pl.col("state").cast(pl.Int64)
    ends = first_end(card) if card.domain.states.ends else live - 1
    found = successor(card).cast(pl.Int64).clip(upper_bound=ends).fill_null(ends + 1)
    columns = [((step * live + state) * actions + pl.col("action")).alias("cell"), found.alias("successor")]
    columns += [pl.col("reward")] if card.reward.table is None else []
    columns += [pl.col("user_id")] if split else []
    return iter(rows.select(columns).collect_batches(chunk_size=BATCH_ROWS, maintain_order=True))


class _Sums:
    """Running sums over batches."""

    def __init__(self, card: Card, lattice: int, reward_steps: tuple[int, int]) -> None:
        d, low, high = card.domain, *card.reward.range
        self._cells = d.horizon, len(d.live_states), len(d.action_labels)
        self._successors = len(d.live_states) + bool(d.states.ends)
        self._lattice, self._ends, self._table = lattice / (high - low), reward_steps, card.reward.table
        self._visits = np.zeros((int(np.prod(self._cells)), self._successors + 1), dtype=np.int64)
        self._rewards = np.zeros(len(self._visits), dtype=np.int64)

    def add(self, rows: pl.DataFrame) -> None:
        """Count the rows; a row without a known successor is in no sum but the first states'."""
        cell, to = rows["cell"].to_numpy(), rows["successor"].to_numpy()
        np.add.at(self._visits.reshape(-1), cell * (self._successors + 1) + to, 1)
        if self._table is None:
            known = to < self._successors
            np.add.at(self._rewards, cell[known], self._integers(rows["reward"].to_numpy()[known]))

    def tallies(self) -> Tallies:
        """All sums so far."""
        visits = self._visits.reshape(*self._cells, -1)
        known, rewards = np.ascontiguousarray(visits[..., :-1]), self._rewards.reshape(self._cells)
        if self._table is not None:
            rewards = self._integers(np.array(self._table)) * known.sum(-1)
        return Tallies(known, rewards, visits[0].sum((1, 2)))

    def _integers(self, reward: NDArray[np.float64]) -> Integers:
        return np.clip(np.floor(reward * self._lattice + 1e-9), *self._ends).astype(np.int64)
