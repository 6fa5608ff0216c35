"""Rows of a snapshot of vectors, one by one, where production only sums them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.declaration.card import LqCard
from pipeline.logs.regression_sums import read_transitions
from pipeline.logs.store import Snapshot
from pipeline.statistics.lq_rows import Transitions


@dataclass(frozen=True)
class SnapshotRows:
    """See :class:`~pipeline.statistics.lq_moments.LqRows`."""

    snapshot: Snapshot
    card: LqCard
    size: int = 1 << 16

    @property
    def data_kind(self) -> str:
        """As the snapshot was ingested."""
        return self.snapshot.kind

    def batches(self) -> Iterator[Transitions]:
        """Every row that leads somewhere, once."""
        return (rows for rows, _ in read_transitions(self.snapshot.part_files, self.card, self.size))
