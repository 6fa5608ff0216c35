"""Parquet in batches; types are what the file's schema says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.logs.errors import LogError
from pipeline.logs.readers.arrow import batch_rows, frame_of, types_of
from pipeline.logs.readers.batch import NO_LINES, Batch


def column_types(path: Path) -> dict[str, pl.DataType]:
    """Column name -> type, as the file declares it.

    Raises
    ------
    LogError
        If the file is no readable Parquet file.
    """
    with _opened(path) as file:
        return types_of(file.schema_arrow)


def row_count(path: Path) -> int:
    """Rows, from the footer."""
    with _opened(path) as file:
        return int(file.metadata.num_rows)


def read_parquet(path: Path, columns: list[str]) -> Iterator[Batch]:
    """Yield the rows of ``columns``, a bounded number at a time.

    Raises
    ------
    LogError
        If the file is truncated or damaged.
    """
    first = 1
    with _opened(path) as file:
        try:
            for batch in file.iter_batches(batch_size=batch_rows(columns), columns=columns):
                frame = frame_of(batch, columns)
                yield Batch(frame, np.arange(first, first + len(frame), dtype=np.int64), NO_LINES)
                first += len(frame)
        except (pa.ArrowException, pl.exceptions.PolarsError, OSError):
            raise _damaged(path, f" after row {first - 1}") from None


def _opened(path: Path) -> Any:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError):
        raise _damaged(path, "") from None


def _damaged(path: Path, where: str) -> LogError:
    return LogError(f"{path.name}: not a whole Parquet file{where}; write or copy it again")
