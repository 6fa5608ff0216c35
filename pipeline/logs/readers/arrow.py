"""Parquet, and Arrow IPC as a file (Feather version 2) or a stream: types are what the schema says, rows in batches."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.declaration.toml import LogError
from pipeline.logs.readers.batch import RECORD_BYTES, Batch
from pipeline.logs.readers.rows import batch_rows, frame_rows, types_of

_FAULTS = (
    pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, EOFError,
)  # fmt: skip


def _damaged(path: Path, kind: str, rows: int | None = None) -> LogError:
    where = "" if rows is None else f" after row {rows}"
    return LogError(f"{path.name}: not a whole {kind} file{where}; write or copy it again")


def parquet_types(path: Path) -> dict[str, pl.DataType]:
    """Column name -> type, as the file declares it.

    Raises
    ------
    LogError
        If the file is no readable Parquet file.
    """
    with _open_parquet(path) as file:
        return types_of(file.schema_arrow)


def row_count(path: Path) -> int:
    """Rows, from the footer."""
    with _open_parquet(path) as file:
        return int(file.metadata.num_rows)


def read_parquet(path: Path, columns: list[str], most: int = RECORD_BYTES) -> Iterator[Batch]:
    """Yield the rows of ``columns``, a bounded number at a time; one of more than ``most`` bytes is malformed.

    Raises
    ------
    LogError
        If the file is truncated or damaged.
    """
    first = 1
    with _open_parquet(path) as file:
        try:
            for batch in file.iter_batches(batch_size=batch_rows(columns), columns=columns):
                yield frame_rows(batch, columns, first, most)
                first += batch.num_rows
        except _FAULTS:
            raise _damaged(path, "Parquet", first - 1) from None


def _open_parquet(path: Path) -> Any:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError):
        raise _damaged(path, "Parquet") from None


_FILE, _FEATHER_1 = b"ARROW1", b"FEA1"


def ipc_types(path: Path) -> dict[str, pl.DataType]:
    """Column name -> type, as the file declares it.

    Raises
    ------
    LogError
        If the file is no readable Arrow file.
    """
    with _open_ipc(path, None) as (reader, _):
        return types_of(reader.schema)


def read_ipc(path: Path, columns: list[str]) -> Iterator[Batch]:
    """Yield the rows of ``columns``, one record batch at a time in slices of bounded size.

    Raises
    ------
    LogError
        If the file is truncated or damaged.
    """
    first, most = 1, batch_rows(columns)
    with _open_ipc(path, columns) as (reader, source):
        batches = _file_batches(reader) if source is None else _stream_batches(reader, source)
        while True:
            try:
                batch = next(batches, None)
                if batch is None:
                    return
                framed = [frame_rows(batch.slice(i, most), columns, first + i) for i in range(0, batch.num_rows, most)]
            except _FAULTS:
                raise _damaged(path, "Arrow", first - 1) from None
            yield from framed
            first += batch.num_rows


def _file_batches(reader: Any) -> Iterator[Any]:
    for i in range(reader.num_record_batches):
        yield reader.get_batch(i)


def _stream_batches(reader: Any, source: Any) -> Iterator[Any]:
    """Batches up to the end-of-stream mark: a stream that just stops was cut, and one that goes on was glued."""
    while True:
        before = source.tell()
        try:
            yield reader.read_next_batch()
        except StopIteration:
            if source.tell() == before or source.tell() != source.size():
                raise EOFError from None
            return


@contextmanager
def _open_ipc(path: Path, columns: list[str] | None) -> Generator[tuple[Any, Any]]:
    """The reader, and the open file if it is a stream; only ``columns`` are read."""
    with path.open("rb") as file:
        magic = file.read(len(_FILE))
    if magic.startswith(_FEATHER_1):
        raise LogError(f"{path.name}: Feather version 1; write it as version 2, which is the Arrow file format")
    opening = pa.ipc.open_file if magic == _FILE else pa.ipc.open_stream
    try:
        source = pa.OSFile(str(path), "rb")
    except _FAULTS:
        raise _damaged(path, "Arrow") from None
    with source:
        try:
            reader = opening(source)
            if columns is not None:
                wanted = pa.ipc.IpcReadOptions(included_fields=[reader.schema.get_field_index(c) for c in columns])
                source.seek(0)
                reader = opening(source, options=wanted)
        except _FAULTS:
            raise _damaged(path, "Arrow") from None
        yield reader, source if magic != _FILE else None
