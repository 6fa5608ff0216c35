"""Text files in blocks of whole physical lines: UTF-8, bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.logs.errors import LogError


def whole_lines(file: BinaryIO, first: int, size: int, path: Path, kind: str) -> Iterator[tuple[bytes, int]]:
    """Yield what is left of a file as (bytes that end in a newline, number of their first line), about ``size`` each.

    Raises
    ------
    LogError
        If a line is longer than a block, or the text is not UTF-8.
    """
    rest = b""
    while block := file.read(size):
        cut = block.rfind(b"\n") + 1
        if not cut and len(rest) + len(block) > size:
            raise LogError(f"{path.name}: line {first}: longer than {size >> 20} MiB; is this {kind} file?")
        if cut:
            whole, rest = rest + block[:cut], block[cut:]
            utf8(whole, path, first)
            yield whole, first
            first += whole.count(b"\n")
        else:
            rest += block
    if rest:
        utf8(rest, path, first)
        yield rest + b"\n", first


def utf8(data: bytes, path: Path, first: int) -> str:
    """Text of lines that begin at line ``first``.

    Raises
    ------
    LogError
        Naming the first line that is not UTF-8 text, or holds a zero byte.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        line = first + data[: e.start].count(b"\n")
        raise LogError(f"{path.name}: line {line}: not UTF-8 text; save the file as UTF-8") from None
    if "\0" in text:
        line = first + text[: text.index("\0")].count("\n")
        raise LogError(f"{path.name}: line {line}: a zero byte, so not UTF-8 text; save the file as UTF-8")
    return text


def pieces(data: bytes, bounds: NDArray[np.int64]) -> pl.Series:
    """``(len(bounds) - 1,)`` strings ``data[bounds[i]:bounds[i + 1]]``, without copying; ``data`` is UTF-8."""
    offsets = pa.py_buffer(bounds.astype(np.int64).tobytes())
    return pl.Series(pl.from_arrow(pa.LargeStringArray.from_buffers(len(bounds) - 1, offsets, pa.py_buffer(data))))


def lines(data: bytes, ends: NDArray[np.int64]) -> pl.Series:
    """The lines of ``data``, newlines included; ``ends`` are the positions of the newlines."""
    return pieces(data, np.concatenate([[0], ends + 1]))
