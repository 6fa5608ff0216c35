"""The only door from rows of vectors to their sums: Parquet parts -> transitions, a batch in memory at a time.

What each person may contribute was settled by ``ingest``: m episodes, H steps each, no step twice.  A row without a
next observation counts nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.card import LqCard
from pipeline.logs.store import Snapshot
from pipeline.statistics.lq_moments import Transitions

Array = NDArray[np.float64]

pc: Any = pyarrow.compute
_COLUMNS = ["observation", "action", "next_observation"]
BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class SnapshotRows:
    """See :class:`~pipeline.statistics.lq_moments.LqRows`: the rows of one snapshot."""

    snapshot: Snapshot
    card: LqCard
    progress: Callable[[int, int], None] | None = None
    size: int = BATCH_ROWS

    @property
    def data_kind(self) -> str:
        """As the snapshot was ingested."""
        return self.snapshot.kind

    def batches(self) -> Iterator[Transitions]:
        """Every row that leads somewhere, once."""
        d, parts = self.card.domain, self.snapshot.part_files
        n, control = d.observation.size, d.action.size
        for done, part in enumerate(parts, start=1):
            with pq.ParquetFile(part) as file:
                for records in file.iter_batches(self.size, columns=_COLUMNS):
                    known = records.filter(pc.is_valid(records["next_observation"]))
                    x, u, following = (known[c] for c in _COLUMNS)
                    yield Transitions(vectors(x, n), vectors(u, control), vectors(following, n))
            if self.progress is not None:
                self.progress(done, len(parts))


def vectors(column: Any, width: int) -> Array:
    """List column ``(R,)`` of ``width`` numbers as ``(R, width)``; a null or a list of another length is NaN."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    out, fits = np.full((len(column), width), np.nan), lengths == width
    out[fits] = column.filter(pa.array(fits)).flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    return out
