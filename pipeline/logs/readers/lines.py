"""Text files in blocks of physical lines, framed before anything is parsed: a line is one record, whatever it holds.

A line that is too long or not UTF-8 is set aside alone, so that no person's bytes reach another's line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.logs.readers.batch import NO_LINES, RECORD_BYTES, lines_from

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
