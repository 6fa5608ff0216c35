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
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.toml import LogError
from pipeline.logs.readers.batch import Asked, Batch, mark_numbers
from pipeline.logs.readers.lines import BLOCK_BYTES, RETURN, Lines, frame_lines

_NEWLINE, _COMMA, _QUOTE = b'\n,"'
_FIELD = r'(?:"(?:[^"\r\n]|"")*"|[^",\r\n]*)'
_LINE = rf"^{_FIELD}(?:,{_FIELD})*\r?\n$"


def header(path: Path) -> list[str]:
    """Column names on line 1.

    Raises
    ------
    LogError
        If the file is empty, or its first line is not UTF-8 text or no line of a CSV.
    """
    with path.open("rb") as file:
        line = file.readline(BLOCK_BYTES).removeprefix(b"\xef\xbb\xbf")
    try:
        names = next(csv.reader([line.decode("utf-8").rstrip("\r\n")]), [])
    except UnicodeDecodeError:
        raise LogError(f"{path.name}: line 1: not UTF-8 text; save the file as UTF-8") from None
    except csv.Error:
        raise LogError(f"{path.name}: line 1: not a line of a CSV; write the column names on the first line") from None
    if not names:
        raise LogError(f"{path.name}: line 1: empty, no header; write the column names on the first line")
    return names


def csv_types(path: Path) -> dict[str, pl.DataType]:
    """The columns that the header names once; all are text."""
    return {column: pl.String() for column, times in Counter(header(path)).items() if times == 1}


def read_csv(path: Path, columns: list[str]) -> Iterator[Batch]:
    """Yield the rows of ``columns`` (each once in the header) as text; a line that is no row is malformed."""
    names = header(path)
    for lines in frame_lines(path, header=True):
        good = _well_formed(lines, len(names))
        frame = _parsed(lines.bytes_of(good), names, columns)
        yield Batch(frame, lines.numbers[good], lines.malformed(~good))


def _parsed(data: bytes, names: list[str], columns: list[str]) -> pl.DataFrame:
    if not data:
        return pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
    at = {name: i for i, name in enumerate(names)}
    frame = pl.read_csv(io.BytesIO(data), has_header=False, infer_schema=False, columns=sorted(at[c] for c in columns))
    frame = frame.rename(dict(zip(frame.columns, sorted(columns, key=at.__getitem__), strict=True)))
    # an empty cell is null, quoted or not
    return frame.select(pl.when(pl.col(c) != "").then(pl.col(c)).alias(c) for c in columns)


def _well_formed(lines: Lines, fields: int) -> NDArray[np.bool_]:
    """``(n,)``: as many fields as the header, quotes balanced, no carriage return inside."""
    raw, starts, ends = lines.raw, lines.starts, lines.ends
    commas = np.flatnonzero(raw == _COMMA)
    each = np.searchsorted(commas, ends) - np.searchsorted(commas, starts)
    good = each == fields - 1
    if b'"' in lines.data:
        quotes = np.cumsum(raw == _QUOTE, dtype=np.int32)
        quoted = np.flatnonzero(quotes[ends] > quotes[starts] - (raw[starts] == _QUOTE))
        # a comma separates where an even number of quotes stands before it in its line
        line = np.repeat(np.arange(len(ends)), each)
        apart = (quotes[commas] - quotes[starts[line]] + (raw[starts[line]] == _QUOTE)) % 2 == 0
        good = np.bincount(line[apart], minlength=len(ends)) == fields - 1
        good[quoted] &= lines.texts.gather(quoted).str.contains(_LINE).to_numpy()
    if b"\r" in lines.data:
        lone = np.flatnonzero(raw == RETURN)
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
