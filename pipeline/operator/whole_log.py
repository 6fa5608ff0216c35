"""A whole log in memory with all its columns, before there is a card: for the operator's assistant only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import polars as pl

from pipeline.declaration.toml import CardError, LogError
from pipeline.logs.formats import TABLES
from pipeline.logs.frames import table_of
from pipeline.logs.readers.batch import Asked


def read_files(paths: Sequence[Path]) -> tuple[pl.DataFrame, int]:
    """The rows of tables of one kind, every cell as text, and how many records were none.

    Parameters
    ----------
    paths
        Of files that ingest could read.

    Raises
    ------
    CardError
        If one is not there, or of no kind that holds a table.
    LogError
        If one cannot be read.
    """
    frames, lost = list[pl.DataFrame](), 0
    for path in paths:
        if not path.is_file():
            raise CardError(f"draft: {path} is no file; name files of {', '.join(TABLES)}")
        if (reader := TABLES.get(path.suffix)) is None:
            raise CardError(f"draft: {path.name}: not a table; give files of {', '.join(TABLES)} (docs/formats.md)")
        names = _keys(path) if reader.types is None else list(reader.types(path, Asked([])))
        if len(names) == 1 and ";" in names[0]:
            raise LogError(f"{path.name}: its cells are separated by ';'; write it with commas")
        for batch in reader.read(path, Asked(names)):
            frames.append(_as_text(batch.frame))
            lost += len(batch.malformed)
    if not frames:
        raise CardError("draft: the files hold no row")
    return pl.concat(frames, how="diagonal"), lost


def _keys(path: Path) -> list[str]:
    """The keys of all objects of an NDJSON file, in the order in which they come."""
    found: dict[str, None] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            told = json.loads(line)
            found |= dict.fromkeys(told) if isinstance(told, dict) else {}
    return list(found)


def frame_of(log: object) -> pl.DataFrame:
    """A frame of any library, every cell as text.

    Parameters
    ----------
    log
        See :func:`~pipeline.logs.frames.table_of`.
    """
    found = pl.from_arrow(table_of(log))
    assert isinstance(found, pl.DataFrame)
    return _as_text(found)


def _as_text(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(pl.col(c).cast(pl.String) for c in frame.columns if not frame[c].dtype.is_nested())
