"""Rows with observations as an interactive mechanism reads them: one step, a batch in memory, anew each call.

Where all rows fit into the operator's memory they are read once and kept by step; no sum depends on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import polars as pl

from pipeline.declaration.card import Card
from pipeline.logs.aggregate import BATCH_ROWS, read_parts, successor
from pipeline.logs.regression_sums import in_second_half, list_matrix
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import HERE, Resources
from pipeline.mdp.observed_features import ObservedMap
from pipeline.statistics.regression_rows import Batch, Side

# numbers of all actions' features that are in memory at once
_NUMBERS = 1 << 22
# of a kept row, beside its observations; and the share of memory that kept rows may take
_ROW_BYTES, _SHARE = 64, 4


@dataclass(frozen=True)
class ObservedRows:
    """Batches of a snapshot's rows; what of a person is read was bounded by ``ingest`` and is checked again.

    Parameters
    ----------
    snapshot, card
        What ``ingest`` wrote, and the card it used.
    features, onto
        The declared map, and that of where a row led; the same where it is None.
    resources
        How much memory there is, and who hears of progress.
    """

    snapshot: Snapshot
    card: Card = field(repr=False)
    features: ObservedMap
    resources: Resources = HERE
    onto: ObservedMap | None = None

    def __call__(self, h: int, side: Side) -> Iterator[Batch]:
        """Rows of step ``h`` of the people of a side; one that leads nowhere known is in none.

        Parameters
        ----------
        h
            Step, from 0.
        side
            Whose rows.
        """
        each = max(1, _NUMBERS // (len(self.features.actions) * self.dimension))
        kept = self._kept
        for rows in self._read() if kept is None else kept.get(h, []):
            of_step = rows.filter(pl.col("step") == h) if kept is None else rows
            if side != "both" and len(of_step):
                second = pl.Series(in_second_half(of_step["user_id"].to_numpy(), self.card.name))
                of_step = of_step.filter(second if side == "D'" else ~second)
            for piece in of_step.iter_slices(each):
                yield self._batch(piece, h)

    @cached_property
    def _kept(self) -> dict[int, list[pl.DataFrame]] | None:
        """Rows by step; None where they might not fit."""
        row = _ROW_BYTES + 2 * 4 * self.features.size
        if self.snapshot.rows * row * _SHARE > self.resources.memory:
            return None
        found = defaultdict[int, list[pl.DataFrame]](list)
        for rows in self._read():
            for (step,), of_step in rows.partition_by("step", as_dict=True).items():
                found[int(step)].append(of_step)
        return found

    def _read(self) -> Iterator[pl.DataFrame]:
        """All rows that lead somewhere, a batch at a time."""
        columns = [*map(pl.col, ("step", "state", "action", "observation", "next_observation"))]
        columns += [successor(self.card).alias("onto")] + ([] if self.card.reward.table else [pl.col("reward")])
        read = 0
        for rows in read_parts(self.snapshot.part_files, self.card, columns, BATCH_ROWS):
            read += len(rows)
            if self.resources.progress is not None:
                self.resources.progress(read, self.snapshot.rows)
            yield rows.filter(pl.col("onto").is_not_null())

    @property
    def dimension(self) -> int:
        """d: length of a feature."""
        return self.features.dimension

    def _batch(self, rows: pl.DataFrame, h: int) -> Batch:
        ends, size = self.card.domain.states.first_terminal, self.features.size
        here, after = (list_matrix(rows[c].to_arrow(), size) for c in ("observation", "next_observation"))
        state, action, onto = (rows[c].cast(pl.Int64).to_numpy() for c in ("state", "action", "onto"))
        ended, (low, high) = onto >= ends, self.card.reward.range
        table = self.card.reward.table
        if table is None:
            reward = rows["reward"].to_numpy()
        else:
            declared = np.array(table, dtype=np.float64)
            reward = (declared if declared.ndim == 2 else declared[h])[state, action]
        return Batch(
            self.features.of_taken(here, state, action),
            reward / (high - low),
            (self.onto or self.features).of_actions(after, np.where(ended, 0, onto)),
            ended,
        )
