"""The only door from rows of vectors to their sums: Parquet parts -> transitions, a batch in memory at a time.

What each person may contribute was settled by ``ingest``: m episodes, H steps each, no step twice.  A row without a
next observation counts nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.declaration.card import LqCard
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Means, Seen, Sums, summed
from pipeline.statistics.lq_moments import SummedRows, Transitions, batch_sums
from pipeline.statistics.lq_plan import LqPlan

Array = NDArray[np.float64]

pc: Any = pyarrow.compute
_COLUMNS = ["observation", "action", "next_observation"]
BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class SnapshotRows:
    """See :class:`~pipeline.statistics.lq_moments.LqRows`: the rows of one snapshot."""

    snapshot: Snapshot
    card: LqCard
    size: int = BATCH_ROWS

    @property
    def data_kind(self) -> str:
        """As the snapshot was ingested."""
        return self.snapshot.kind

    def batches(self) -> Iterator[Transitions]:
        """Every row that leads somewhere, once."""
        return (rows for rows, _ in _transitions(self.snapshot.part_files, self.card, self.size))


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
        for rows, read in _transitions(parts, self.card, BATCH_ROWS):
            gram, cross = batch_sums(self.plan, rows)
            np.add(sums["gram"], gram, out=sums["gram"])
            np.add(sums["cross"], cross, out=sums["cross"])
            seen(read)


def summed_rows(plan: LqPlan, snapshot: Snapshot, card: LqCard, means: Means) -> SummedRows:
    """The sums of a snapshot, made when they are asked for."""

    def sums() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        found = summed(LqSums(plan, card), snapshot, means)
        return found["gram"], found["cross"]

    return SummedRows(snapshot.kind, sums)


def _transitions(parts: Sequence[Path], card: LqCard, size: int) -> Iterator[tuple[Transitions, int]]:
    """Batches of rows that lead somewhere, and how many rows were read for each."""
    n, control = card.domain.observation.size, card.domain.action.size
    for part in parts:
        with pq.ParquetFile(part) as file:
            for records in file.iter_batches(size, columns=_COLUMNS):
                known = records.filter(pc.is_valid(records["next_observation"]))
                x, u, following = (known[c] for c in _COLUMNS)
                yield Transitions(vectors(x, n), vectors(u, control), vectors(following, n)), len(records)


def vectors(column: Any, width: int) -> Array:
    """List column ``(R,)`` of ``width`` numbers as ``(R, width)``; a null or a list of another length is NaN."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    out, fits = np.full((len(column), width), np.nan), lengths == width
    out[fits] = column.filter(pa.array(fits)).flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    return out
