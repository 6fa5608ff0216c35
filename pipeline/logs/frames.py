"""A log that is handed in as a table in memory: written for the readers, and gone when the ingest is over."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.declaration.toml import CardError
from pipeline.files import open_private, private_folder

FRAME = "frame.parquet"
"""What messages and the quarantine call such a log."""


def table_of(frame: object) -> pa.Table:
    """The Arrow table of any table that speaks Arrow: polars, pandas from 2.2, pyarrow, DuckDB.

    Parameters
    ----------
    frame
        Of any library with Arrow's PyCapsule interface; a lazy frame is collected.

    Raises
    ------
    CardError
        If it is none.
    """
    if collect := getattr(frame, "collect", None):
        frame = collect()
    try:
        return pa.table(frame)
    except (TypeError, ValueError, pa.ArrowException) as e:
        raise CardError(
            f"a {type(frame).__name__} is no table ({type(e).__name__}); give a data frame of polars, pandas (2.2 or "
            "later) or pyarrow, with columns of one type each"
        ) from None


@contextmanager
def frame_file(frame: object, lineage: Path) -> Generator[Sequence[Path] | None]:
    """The file of a frame while it is read, or None where there is no frame.

    Parameters
    ----------
    frame
        See :func:`table_of`.
    lineage
        The lineage's folder in the operator's store, where the file is as safe as the snapshot will be.
    """
    if frame is None:
        yield None
        return
    table = table_of(frame)
    with tempfile.TemporaryDirectory(prefix=".frame-", dir=private_folder(lineage)) as there:
        path = Path(there) / FRAME
        with open_private(path) as file:
            pq.write_table(table, file, compression="zstd")
        yield [path]
