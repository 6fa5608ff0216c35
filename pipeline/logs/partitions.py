"""Into how many partitions a log is cut: ingest, and all that reads a partition at a time, hold one of them."""

from __future__ import annotations

import resource

from pipeline.declaration.card import AnyCard, Card, CardError
from pipeline.logs.sources import Sources

ROWS_PER_PARTITION = 1_000_000
# one open file each while rows are spilt
MOST_PARTITIONS = 2048
_OTHER_FILES = 128
# measured with room to spare (docs/lab/scale.md): libraries and batches; a row while the rules look at it
_BASE_BYTES = 512 << 20
_ROW_BYTES, _NUMBER_BYTES = 512, 64


def likely_partitions(card: AnyCard, sources: Sources, memory: int) -> int:
    """About a million rows each, fewer where ``memory`` (bytes) asks for it, more where there are too many.

    Raises
    ------
    CardError
        If a partition of even the largest number of them would not fit.
    """
    steps = card.domain.horizon if card.source.layout == "wide" else 1
    rows, most = sources.likely_rows * steps, most_partitions()
    fit = max(1, (memory - _BASE_BYTES) // _row_bytes(card))
    if rows > fit * most:
        needed = _BASE_BYTES + _row_bytes(card) * rows // most
        raise CardError(
            f"{card.name}: about {rows:,} rows in at most {most:,} partitions need about {needed / (1 << 30):.1f} GiB; "
            "give --memory more, or raise the limit of open files (ulimit -n)"
        )
    return min(most, 1 + rows // min(ROWS_PER_PARTITION, fit))


def most_partitions() -> int:
    """As many as this process may open files for, with room for others."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_PARTITIONS if hard == resource.RLIM_INFINITY else max(1, min(MOST_PARTITIONS, hard - _OTHER_FILES))


def allow_files(partitions: int) -> None:
    """Raise this process's own limit of open files where it is below what the partitions need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = partitions + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


def _row_bytes(card: AnyCard) -> int:
    if isinstance(card, Card):
        return _ROW_BYTES
    return _ROW_BYTES + _NUMBER_BYTES * (2 * card.domain.observation.size + card.domain.action.size)
