"""Parquet, and Arrow IPC as a file (Feather version 2) or a stream: types from the schema, rows in batches."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.declaration.toml import LogError
from pipeline.logs.readers.batch import RECORD_BYTES, Batch, batch_rows, frame_rows, types_of

_FAULTS = (
    pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, EOFError,
)  # fmt: skip


def _damaged(path: Path, kind: str, rows: int | None = None) -> LogError:
    place = "" if rows is None else f" after row {rows}"
    return LogError(f"{path.name}: not a whole {kind} file{place}; write or copy it again")


@dataclass(frozen=True)
class ArrowFile:
    """An open file: its types, and a function that reads columns."""

    types: dict[str, pl.DataType]
    read: Callable[[list[str]], Iterator[Batch]]


@contextmanager
def open_parquet(path: Path, most: int = RECORD_BYTES) -> Generator[ArrowFile]:
    """Open a Parquet file; a row of more than ``most`` bytes is malformed.
    Raises LogError if the file is no readable Parquet file.
    """
    with _open_parquet(path) as file:
        yield ArrowFile(types_of(file.schema_arrow), partial(_parquet_rows, path, file, most))


def parquet_types(path: Path) -> dict[str, pl.DataType]:
    """Types of a file; errors as of :func:`open_parquet`."""
    with open_parquet(path) as file:
        return file.types


def row_count(path: Path) -> int:
    """Read the number of rows from the footer."""
    with _open_parquet(path) as file:
        return int(file.metadata.num_rows)


def read_parquet(path: Path, columns: list[str], most: int = RECORD_BYTES) -> Iterator[Batch]:
    """Yield the rows of ``columns``; see :func:`open_parquet`."""
    with open_parquet(path, most) as file:
        yield from file.read(columns)


def _parquet_rows(path: Path, file: Any, most: int, columns: list[str]) -> Iterator[Batch]:
    first = 1
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
_SMALL = 1 << 16


@contextmanager
def open_ipc(path: Path) -> Generator[ArrowFile]:
    """Open an Arrow file or stream.
    Raises LogError if the file is no readable Arrow file.
    """
    try:
        source = pa.OSFile(str(path), "rb")
    except _FAULTS:
        raise _damaged(path, "Arrow") from None
    with source:
        try:
            if source.size() <= _SMALL:
                # pyarrow reads a file in a thread of its own, which costs more than a short file's bytes
                source = pa.BufferReader(source.read_buffer())
            magic = source.read(len(_FILE))
            source.seek(0)
            opening = pa.ipc.open_file if magic == _FILE else pa.ipc.open_stream
            reader = None if magic.startswith(_FEATHER_1) else opening(source)
        except _FAULTS:
            raise _damaged(path, "Arrow") from None
        if reader is None:
            raise LogError(f"{path.name}: Feather version 1; write it as version 2, which is the Arrow file format")
        yield ArrowFile(types_of(reader.schema), partial(_ipc_rows, path, source, opening, reader))


def ipc_types(path: Path) -> dict[str, pl.DataType]:
    """Types of a file; errors as of :func:`open_ipc`."""
    with open_ipc(path) as file:
        return file.types


def read_ipc(path: Path, columns: list[str]) -> Iterator[Batch]:
    """Yield the rows of ``columns``, one record batch at a time in slices of bounded size; see :func:`open_ipc`."""
    with open_ipc(path) as file:
        yield from file.read(columns)


def _ipc_rows(path: Path, source: Any, opening: Callable[..., Any], reader: Any, columns: list[str]) -> Iterator[Batch]:
    first, most = 1, batch_rows(columns)
    try:
        if sorted(columns) != sorted(reader.schema.names):
            # other columns are not read, even if damaged; a column that is missing by now is damage
            wanted = pa.ipc.IpcReadOptions(included_fields=[reader.schema.get_field_index(c) for c in columns])
            source.seek(0)
            reader = opening(source, options=wanted)
    except _FAULTS:
        raise _damaged(path, "Arrow") from None
    in_file = opening is pa.ipc.open_file
    batches = map(reader.get_batch, range(reader.num_record_batches)) if in_file else _stream_batches(reader, source)
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


def _stream_batches(reader: Any, source: Any) -> Iterator[Any]:
    """Yield batches up to the end-of-stream mark, which must be there and must be the end of the file."""
    while True:
        before = source.tell()
        try:
            yield reader.read_next_batch()
        except StopIteration:
            if source.tell() == before or source.tell() != source.size():
                raise EOFError from None
            return
