"""Names of what stands inside a cell: ``observation/velocity`` of a struct, ``observation[2]`` of a list."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import polars as pl

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


def fields(names: list[str], types: Types) -> dict[str, pl.DataType]:
    """Types of the ``names`` that are there, beside the columns themselves."""
    found = {name: field(name, types) for name in names}
    return {**types, **{name: it[0] for name, it in found.items() if it is not None}}


def taken(names: list[str], types: Types) -> list[pl.Expr]:
    """One expression a name; all are there."""
    return [it[1].alias(name) for name in names if (it := field(name, types)) is not None]


def column_of(name: str, types: Types) -> str | None:
    """The column that a name stands in."""
    found = field(name, types)
    return None if found is None else found[1].meta.root_names()[0]


def _type_of(dtype: Any) -> pl.DataType:
    return pl.Series(dtype=dtype).dtype
