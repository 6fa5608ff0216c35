"""Text files in blocks of physical lines, framed before anything is parsed: a line is one record, whatever it holds.

A line that is too long or not UTF-8 is set aside alone, so that no person's bytes reach another's line.

CSV is UTF-8 with commas and a header; every column is text, no type is guessed from values.  A newline inside quotes is
not one value but two malformed lines: otherwise one person's stray quote would swallow the lines of the people after
it, and no rule could be 1-stable.

Open Bandit data is a CSV of impressions, each an episode of one step.  Its columns are the file's (``item_id``,
``position``, ``click``, ``propensity_score``, ``user_feature_0``, …), beside ``impression``: the line as an id.  There
are no user ids, so the impression is all that can be protected.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.declaration.toml import LogError
from pipeline.logs.readers.batch import NO_LINES, RECORD_BYTES, Asked, Batch, lines_from, mark_numbers

BLOCK_BYTES = 1 << 24
_BOM = b"\xef\xbb\xbf"
_NEWLINE, RETURN = b"\n\r"
# of a line that is no text, as much as an operator needs to find it
_SHOWN = 1000


@dataclass(frozen=True)
class Lines:
    """Some consecutive lines, none of them blank.

    Parameters
    ----------
    data
        UTF-8 text; each of the ``n`` lines ends in a newline.
    ends
        ``(n,)`` positions of the newlines.
    numbers
        ``(n,)`` 1-based numbers in the file.
    lost
        Lines that are no text: columns ``line``, ``text``.
    """

    data: bytes
    ends: NDArray[np.int64]
    numbers: NDArray[np.int64]
    lost: pl.DataFrame

    @cached_property
    def raw(self) -> NDArray[np.uint8]:
        """The bytes of ``data``."""
        return np.frombuffer(self.data, dtype=np.uint8)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """``(n,)`` positions of the first bytes."""
        return np.concatenate([[0], self.ends[:-1] + 1])[: len(self.ends)]

    @cached_property
    def texts(self) -> pl.Series:
        """The lines, newlines included."""
        return cut_text(self.data, np.concatenate([[0], self.ends + 1]))

    def bytes_of(self, kept: NDArray[np.bool_]) -> bytes:
        """The lines that ``kept`` ``(n,)`` marks."""
        return self.data if kept.all() else self.raw[np.repeat(kept, self.ends + 1 - self.starts)].tobytes()

    def malformed(self, bad: NDArray[np.bool_]) -> pl.DataFrame:
        """What was lost and the lines that ``bad`` ``(n,)`` marks, in the order of the file."""
        if not bad.any():
            return self.lost
        text = self.texts.filter(pl.Series(bad)).str.strip_chars_end("\r\n")
        return pl.concat([self.lost, pl.DataFrame({"line": self.numbers[bad], "text": text})]).sort("line")


def frame_lines(path: Path, *, header: bool = False) -> Iterator[Lines]:
    """Yield the lines of a file, about ``BLOCK_BYTES`` at a time, without its first one if that is a header."""
    first, rest = 1 + header, b""
    with path.open("rb") as file:
        if header:
            file.readline()
        elif file.read(len(_BOM)) != _BOM:
            file.seek(0)
        while block := file.read(BLOCK_BYTES):
            cut = block.rfind(b"\n") + 1
            if cut:
                whole, rest = rest + block[:cut], block[cut:]
                yield frame_block(whole, first)
                first += whole.count(b"\n")
            else:
                # of a line without an end, as much as shows that it is too long
                rest = (rest + block)[: RECORD_BYTES + 1]
        if rest:
            yield frame_block(rest + b"\n", first)


def frame_block(data: bytes, first: int) -> Lines:
    """The lines of a block that ends in a newline; its first line has the number ``first``."""
    whole = Lines(data, np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _NEWLINE), lines_from(first, 0), NO_LINES)
    starts, ends = whole.starts, whole.ends
    length, numbers = ends - starts, lines_from(first, len(ends))
    blank = (length == 0) | ((length == 1) & (whole.raw[starts] == RETURN))
    bad = length > RECORD_BYTES
    if not is_text(data):
        bad |= [not is_text(data[low:high]) for low, high in zip(starts, ends, strict=True)]
    kept = ~blank & ~bad
    if kept.all():
        return Lines(data, ends, numbers, NO_LINES)
    shown = [data[low : min(high, low + _SHOWN)] for low, high in zip(starts[bad], ends[bad], strict=True)]
    texts = [text.decode("utf-8", "backslashreplace").replace("\0", "\\x00").rstrip("\r\n") for text in shown]
    lost = pl.DataFrame({"line": numbers[bad], "text": texts}, schema=NO_LINES.schema)
    return Lines(whole.bytes_of(kept), np.cumsum(length[kept] + 1) - 1, numbers[kept], lost)


def is_text(data: bytes) -> bool:
    """UTF-8 without a zero byte; text cut at newlines is text in each piece, and only then."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def cut_text(data: bytes, bounds: NDArray[np.int64]) -> pl.Series:
    """``(len(bounds) - 1,)`` strings ``data[bounds[i]:bounds[i + 1]]``, without copying; ``data`` is UTF-8."""
    offsets = pa.py_buffer(np.ascontiguousarray(bounds, dtype=np.int64))
    return pl.Series(pl.from_arrow(pa.LargeStringArray.from_buffers(len(bounds) - 1, offsets, pa.py_buffer(data))))


_COMMA, _QUOTE = b',"'
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
        line = file.readline(BLOCK_BYTES).removeprefix(_BOM)
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
    """Yield the rows; errors as of :func:`~pipeline.logs.readers.lines.read_csv`."""
    for batch in read_csv(path, asked.but(IMPRESSION)):
        numbers = pl.Series(IMPRESSION, batch.lines)
        frame = batch.frame.with_columns(numbers).with_columns(
            mark_numbers(asked.mark, pl.col(IMPRESSION)).alias(IMPRESSION)
        )
        yield Batch(frame.select(asked.columns), batch.lines, batch.malformed)
