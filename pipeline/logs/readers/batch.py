"""What readers share: what they are asked and yield, and names of what stands inside a cell."""

# pyright: reportUnknownVariableType=false
from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.toml import LogError
from pipeline.logs.decode import NUMBERS, holds_numbers


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
        Records that are no rows, each set aside alone: columns ``line``, ``text``.
    """

    frame: pl.DataFrame
    lines: NDArray[np.int64]
    malformed: pl.DataFrame

    def set_aside(self, odd: pl.Series, why: str) -> Batch:
        """The rows but those that ``odd`` marks: each is malformed, alone."""
        if not odd.any():
            return self
        at = odd.to_numpy()
        lost = pl.DataFrame({"line": self.lines[at], "text": why}, schema=NO_LINES.schema)
        return Batch(self.frame.filter(~odd), self.lines[~at], pl.concat([self.malformed, lost]).sort("line"))


def read_facts(path: Path) -> dict[str, Any]:
    """What a JSON file beside the data says; nothing if there is none.

    Raises
    ------
    LogError
        If it is no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise LogError(f"{path.parent.name}/{path.name}: no JSON object; write or copy it again")
    return content


def lines_from(first: int, rows: int) -> NDArray[np.int64]:
    """Numbers of ``rows`` rows from ``first`` on."""
    return np.arange(first, first + rows, dtype=np.int64)


def mark_numbers(mark: str, numbers: pl.Expr) -> pl.Expr:
    """Record numbers as ids that no other file gives."""
    return pl.lit(mark) + numbers.cast(pl.String)


# a record that is longer is set aside before it is parsed
RECORD_BYTES = 1 << 20
NO_LINES = pl.DataFrame(schema={"line": pl.Int64, "text": pl.String})


def cell_type(dtype: pl.DataType, *, lists: bool = False) -> pl.DataType | None:
    """The type that cells of a column are compared in; None if they are no cells."""
    if lists and holds_numbers(dtype):
        return NUMBERS
    if dtype.is_integer():
        return pl.String() if dtype.base_type() in (pl.UInt64, pl.Int128, pl.UInt128) else pl.Int64()
    if dtype.is_float() or dtype.is_decimal():
        return pl.Float64()
    if dtype == pl.Boolean:
        return pl.Boolean()
    text = (dtype.is_temporal() and dtype.base_type() is not pl.Duration) or dtype.base_type() in (
        pl.String,
        pl.Categorical,
        pl.Enum,
        pl.Null,
    )
    return pl.String() if text else None


# seconds since 1970 of the years 1 and 9999
_FIRST, _LAST, _A_DAY = -62_135_596_800, 253_402_300_799, 86_400


def readable_times(column: pl.Series) -> pl.Series:
    """Dates and times that no calendar of four digits holds are missing: they would end the process."""
    if isinstance(column.dtype, pl.Datetime):
        a_second = {"ms": 10**3, "us": 10**6, "ns": 10**9}[column.dtype.time_unit]
        low, high = _FIRST * a_second, _LAST * a_second
    elif column.dtype == pl.Date:
        low, high = _FIRST // _A_DAY, _LAST // _A_DAY
    elif column.dtype == pl.Time:
        low, high = 0, _A_DAY * 10**9 - 1
    else:
        return column
    whole = 2**63 - 1
    return column.set(~column.to_physical().cast(pl.Int64).is_between(max(low, -whole), min(high, whole)), None)


# what readers make of the order of rows: an id of the episode, and the step
NUMBERED: dict[str, pl.DataType] = {"episode": pl.String(), "step": pl.Int64()}
PLACE = re.compile(r"(.+)\[(\d{1,4})\]")

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
    place = PLACE.fullmatch(name)
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
