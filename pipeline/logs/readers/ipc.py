"""Arrow IPC, the file format (Feather version 2) and the stream format, told apart by their first bytes."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from pipeline.logs.errors import LogError
from pipeline.logs.readers.arrow import batch_rows, frame_of, types_of
from pipeline.logs.readers.batch import NO_LINES, Batch

_FILE, _FEATHER_1 = b"ARROW1", b"FEA1"
_FAULTS = (pa.ArrowException, pl.exceptions.PolarsError, OSError, ValueError, EOFError)


def column_types(path: Path) -> dict[str, pl.DataType]:
    """Column name -> type, as the file declares it.

    Raises
    ------
    LogError
        If the file is no readable Arrow file.
    """
    with _opened(path, None) as (reader, _):
        return types_of(reader.schema)


def read_ipc(path: Path, columns: list[str]) -> Iterator[Batch]:
    """Yield the rows of ``columns``, one record batch at a time in slices of bounded size.

    Raises
    ------
    LogError
        If the file is truncated or damaged.
    """
    first, most = 1, batch_rows(columns)
    with _opened(path, columns) as (reader, source):
        batches = _file_batches(reader) if source is None else _stream_batches(reader, source)
        while True:
            try:
                batch = next(batches, None)
                if batch is None:
                    return
                # unchecked offsets of a damaged batch would be read as addresses
                batch.validate(full=True)
                frames = [frame_of(batch.slice(i, most), columns) for i in range(0, batch.num_rows, most)]
            except _FAULTS:
                raise _damaged(path, f" after row {first - 1}") from None
            for frame in frames:
                yield Batch(frame, np.arange(first, first + len(frame), dtype=np.int64), NO_LINES)
                first += len(frame)


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
def _opened(path: Path, columns: list[str] | None) -> Generator[tuple[Any, Any]]:
    """The reader, and the open file if it is a stream; only ``columns`` are read."""
    with path.open("rb") as file:
        magic = file.read(len(_FILE))
    if magic.startswith(_FEATHER_1):
        raise LogError(f"{path.name}: Feather version 1; write it as version 2, which is the Arrow file format")
    opening = pa.ipc.open_file if magic == _FILE else pa.ipc.open_stream
    try:
        source = pa.OSFile(str(path), "rb")
    except _FAULTS:
        raise _damaged(path, "") from None
    with source:
        try:
            reader = opening(source)
            if columns is not None:
                wanted = pa.ipc.IpcReadOptions(included_fields=[reader.schema.get_field_index(c) for c in columns])
                source.seek(0)
                reader = opening(source, options=wanted)
        except _FAULTS:
            raise _damaged(path, "") from None
        yield reader, source if magic != _FILE else None


def _damaged(path: Path, where: str) -> LogError:
    return LogError(f"{path.name}: not a whole Arrow file{where}; write or copy it again")
