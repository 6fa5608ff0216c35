"""LeRobot v3 (and v2, with a file an episode): few Parquet files, ``meta/info.json`` beside ``data/``.

Columns are the files' (``observation.state``, ``action``, ``next.reward``, ``next.done``, ``episode_index``, …),
entries of lists as ``action[0]``, beside ``episode`` and ``step`` (``episode_index`` as an id, ``frame_index``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from pipeline.logs.errors import LogError
from pipeline.logs.readers import parquet
from pipeline.logs.readers.batch import Asked, Batch, marked
from pipeline.logs.readers.fields import column_of, fields, taken
from pipeline.logs.readers.minari_hdf5 import told

MADE = {"episode": "episode_index", "step": "frame_index"}


def root(path: Path) -> Path:
    """Folder of the data set: that of ``data/chunk-XXX/file-XXX.parquet``."""
    return path.parents[2]


def column_types(path: Path, asked: Asked) -> dict[str, pl.DataType]:
    """Columns and their types.

    Raises
    ------
    LogError
        If the file is damaged, has no episode or frame index, or fewer frames are there than ``meta/info.json`` tells.
    """
    types = parquet.column_types(path)
    if missing := [own for own in MADE.values() if not types.get(own, pl.Object()).is_integer()]:
        raise LogError(f"{path.name}: no integers {missing[0]!r}; is this a LeRobot data file?")
    frames = told(root(path) / "meta" / "info.json").get("total_frames")
    found = sum(map(parquet.row_count, sorted(path.parent.parent.glob("*/*.parquet")))) if frames is not None else None
    if found != frames:
        raise LogError(
            f"{path.name}: {found} frames in data/, meta/info.json tells of {frames}; copy the data set again"
        )
    return fields(asked.columns, types) | {"episode": pl.String(), "step": types["frame_index"]}


def read(path: Path, asked: Asked) -> Iterator[Batch]:
    """Yield the rows; errors as of :func:`~pipeline.logs.readers.parquet.read_parquet`."""
    types = parquet.column_types(path)
    bases = dict.fromkeys(column_of(MADE.get(name, name), types) for name in asked.columns)
    for batch in parquet.read_parquet(path, [base for base in bases if base is not None]):
        frame = batch.frame
        if "episode" in asked.columns:
            frame = frame.with_columns(marked(asked.mark, pl.col("episode_index")).alias("episode"))
        if "step" in asked.columns:
            frame = frame.with_columns(pl.col("frame_index").alias("step"))
        yield Batch(frame.select(taken(asked.columns, frame.schema)), batch.lines, batch.malformed)
