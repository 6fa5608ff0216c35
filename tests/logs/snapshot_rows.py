"""Rows of a snapshot of vectors, one by one, where production only sums them."""

from collections.abc import Iterator

from pipeline.declaration.card import LqCard
from pipeline.logs.regression_sums import read_transitions
from pipeline.logs.store import Snapshot
from pipeline.statistics.lq import Transitions


def rows_of(snapshot: Snapshot, card: LqCard, size: int = 1 << 16) -> Iterator[Transitions]:
    """Every row that leads somewhere, once."""
    return (rows for rows, _ in read_transitions(snapshot.part_files, card, size))
