"""What readers share: what they are asked and yield, names of what stands inside a cell, text in blocks of lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.declaration.toml import LogError


@dataclass(frozen=True)
class Asked:
    """What is wanted of one file.

    Parameters
    ----------
    columns
        Source columns, each once.
    lists
        Those among them whose cells are lists of numbers.
    mark
        What stands before the numbers that a reader gives to records, so that those of two files differ.
    """

    columns: list[str]
    lists: frozenset[str] = frozenset()
    mark: str = ""

    def but(self, *made: str) -> list[str]:
        """Columns that the file itself has to hold."""
        return [column for column in self.columns if column not in made]


@dataclass(frozen=True)
class Batch:
    """Some consecutive rows of one file.

    Parameters
    ----------
    frame
        The needed source columns, ``n`` rows.
    lines
        ``(n,)`` int64, 1-based line (CSV, where the header is line 1; NDJSON) or row (Parquet, Arrow) of each row.
    malformed
        Lines that are no rows: columns ``line``, ``text``.
    """

    frame: pl.DataFrame
    lines: NDArray[np.int64]
    malformed: pl.DataFrame


def lines_from(first: int, rows: int) -> NDArray[np.int64]:
    """Numbers of ``rows`` rows from ``first`` on."""
    return np.arange(first, first + rows, dtype=np.int64)


def mark_numbers(mark: str, numbers: pl.Expr) -> pl.Expr:
    """Record numbers as ids that no other file gives."""
    return pl.lit(mark) + numbers.cast(pl.String)


NO_LINES = pl.DataFrame(schema={"line": pl.Int64, "text": pl.String})


_PLACE = re.compile(r"(.+)\[(\d{1,4})\]")

Types = Mapping[str, pl.DataType]


def field(name: str, types: Types) -> tuple[pl.DataType, pl.Expr] | None:
    """Type of a column or of what stands inside one, and how to take it out; None if there is no such thing.

    Parameters
    ----------
    types
        Columns as they stand in the file; a column of that very name is meant first.
    """
    if name in types:
        return types[name], pl.col(name)
    place = _PLACE.fullmatch(name)
    outer, slash, inner = name.rpartition("/")
    found = field(place[1], types) if place is not None else field(outer, types) if slash else None
    if found is None:
        return None
    dtype, cell = found
    if place is not None and isinstance(dtype, pl.List):
        return _type_of(dtype.inner), cell.list.get(int(place[2]), null_on_oob=True)
    if place is not None and isinstance(dtype, pl.Array) and int(place[2]) < dtype.size:
        return _type_of(dtype.inner), cell.arr.get(int(place[2]))
    if place is None and isinstance(dtype, pl.Struct):
        kinds = {part.name: _type_of(part.dtype) for part in dtype.fields}
        return (kinds[inner], cell.struct.field(inner)) if inner in kinds else None
    return None


def field_types(names: list[str], types: Types) -> dict[str, pl.DataType]:
    """Types of the ``names`` that are there, beside the columns themselves."""
    found = {name: field(name, types) for name in names}
    return {**types, **{name: it[0] for name, it in found.items() if it is not None}}


def take_fields(names: list[str], types: Types) -> list[pl.Expr]:
    """One expression a name; all are there."""
    return [it[1].alias(name) for name in names if (it := field(name, types)) is not None]


def column_of(name: str, types: Types) -> str | None:
    """The column that a name stands in."""
    found = field(name, types)
    return None if found is None else found[1].meta.root_names()[0]


def _type_of(dtype: Any) -> pl.DataType:
    return pl.Series(dtype=dtype).dtype


def read_lines(file: BinaryIO, first: int, size: int, path: Path, kind: str) -> Iterator[tuple[bytes, int]]:
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
            decode_utf8(whole, path, first)
            yield whole, first
            first += whole.count(b"\n")
        else:
            rest += block
    if rest:
        decode_utf8(rest, path, first)
        yield rest + b"\n", first


def decode_utf8(data: bytes, path: Path, first: int) -> str:
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


def cut_text(data: bytes, bounds: NDArray[np.int64]) -> pl.Series:
    """``(len(bounds) - 1,)`` strings ``data[bounds[i]:bounds[i + 1]]``, without copying; ``data`` is UTF-8."""
    offsets = pa.py_buffer(bounds.astype(np.int64).tobytes())
    return pl.Series(pl.from_arrow(pa.LargeStringArray.from_buffers(len(bounds) - 1, offsets, pa.py_buffer(data))))


def split_lines(data: bytes, ends: NDArray[np.int64]) -> pl.Series:
    """The lines of ``data``, newlines included; ``ends`` are the positions of the newlines."""
    return cut_text(data, np.concatenate([[0], ends + 1]))
