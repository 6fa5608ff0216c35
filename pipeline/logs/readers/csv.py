"""CSV in blocks: UTF-8, commas, a header; every column is text, no type is guessed from values.

A physical line is a record.  A newline inside quotes is not one value but two malformed lines: otherwise one person's
stray quote would swallow the lines of the people after it, and no rule could be 1-stable.

Open Bandit data is a CSV of impressions, each an episode of one step.  Its columns are the file's (``item_id``,
``position``, ``click``, ``propensity_score``, ``user_feature_0``, …), beside ``impression``: the line as an id.  There
are no user ids, so the impression is all that can be protected.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.toml import LogError
from pipeline.logs.readers.batch import NO_LINES, Asked, Batch, decode_utf8, mark_numbers, read_lines, split_lines

BLOCK_BYTES = 1 << 24
_NEWLINE, _RETURN, _COMMA, _QUOTE = b'\n\r,"'
_FIELD = r'(?:"(?:[^"\r\n]|"")*"|[^",\r\n]*)'


def header(path: Path) -> list[str]:
    """Column names on line 1.

    Raises
    ------
    LogError
        If the file is empty or not UTF-8 text, or its first line is no line of a CSV.
    """
    with path.open("rb") as file:
        line = file.readline(BLOCK_BYTES).removeprefix(b"\xef\xbb\xbf")
    try:
        names = next(csv.reader([decode_utf8(line, path, 1).rstrip("\r\n")]), [])
    except csv.Error:
        raise LogError(f"{path.name}: line 1: not a line of a CSV; write the column names on the first line") from None
    if not names:
        raise LogError(f"{path.name}: line 1: empty, no header; write the column names on the first line")
    return names


def csv_types(path: Path) -> dict[str, pl.DataType]:
    """The columns that the header names once; all are text."""
    found = header(path)
    return {column: pl.String() for column in found if found.count(column) == 1}


def read_csv(path: Path, columns: list[str]) -> Iterator[Batch]:
    """Yield the rows of ``columns`` (each once in the header) as text, about ``BLOCK_BYTES`` at a time.

    Raises
    ------
    LogError
        If the file is not UTF-8 text or a line is longer than a block.
    """
    names = header(path)
    with path.open("rb") as file:
        file.readline()
        for data, first in read_lines(file, 2, BLOCK_BYTES, path, "a CSV"):
            yield _batch(data, first, names, columns)


def _batch(data: bytes, first: int, names: list[str], columns: list[str]) -> Batch:
    raw = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(raw == _NEWLINE)
    starts = np.concatenate([[0], ends[:-1] + 1])
    length = ends - starts
    blank = (length == 0) | ((length == 1) & (raw[starts] == _RETURN))
    good = ~blank & _well_formed(data, raw, starts, ends, len(names))
    bad = ~blank & ~good
    malformed = NO_LINES
    if bad.any():
        text = split_lines(data, ends).filter(pl.Series(bad)).str.strip_chars_end("\r\n")
        malformed = pl.DataFrame({"line": np.flatnonzero(bad) + first, "text": text})
    kept = data if good.all() else raw[np.repeat(good, length + 1)].tobytes()
    return Batch(_parsed(kept, names, columns), np.flatnonzero(good) + first, malformed)


def _parsed(data: bytes, names: list[str], columns: list[str]) -> pl.DataFrame:
    if not data:
        return pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
    at = {name: i for i, name in enumerate(names)}
    frame = pl.read_csv(io.BytesIO(data), has_header=False, infer_schema=False, columns=sorted(at[c] for c in columns))
    frame = frame.rename(dict(zip(frame.columns, sorted(columns, key=at.__getitem__), strict=True)))
    # an empty cell is null, quoted or not
    return frame.select(pl.when(pl.col(c) != "").then(pl.col(c)).alias(c) for c in columns)


def _well_formed(
    data: bytes, raw: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], fields: int
) -> NDArray[np.bool_]:
    """``(n,)``: as many fields as the header, quotes balanced, no carriage return inside."""
    commas = np.flatnonzero(raw == _COMMA)
    good = np.searchsorted(commas, ends) - np.searchsorted(commas, starts) == fields - 1
    if b'"' in data:
        quoted = np.unique(np.searchsorted(ends, np.flatnonzero(raw == _QUOTE)))
        pattern = rf"^{_FIELD}(?:,{_FIELD}){{{fields - 1}}}\r?\n$"
        good[quoted] = split_lines(data, ends).gather(quoted).str.contains(pattern).to_numpy()
    if b"\r" in data:
        lone = np.flatnonzero(raw == _RETURN)
        lone = lone[raw[lone + 1] != _NEWLINE]
        good[np.searchsorted(ends, lone)] = False
    return good


IMPRESSION = "impression"


def obp_types(path: Path) -> dict[str, pl.DataType]:
    """The header's columns and ``impression``; all are text."""
    return {**csv_types(path), IMPRESSION: pl.String()}


def read_obp(path: Path, asked: Asked) -> Iterator[Batch]:
    """Yield the rows; errors as of :func:`~pipeline.logs.readers.csv.read_csv`."""
    for batch in read_csv(path, asked.but(IMPRESSION)):
        numbers = pl.Series(IMPRESSION, batch.lines)
        frame = batch.frame.with_columns(numbers).with_columns(
            mark_numbers(asked.mark, pl.col(IMPRESSION)).alias(IMPRESSION)
        )
        yield Batch(frame.select(asked.columns), batch.lines, batch.malformed)
