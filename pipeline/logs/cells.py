"""Cells that hold lists of numbers: their common type, and as text."""

from __future__ import annotations

import polars as pl

NUMBERS = pl.List(pl.Float64)


def holds_numbers(dtype: pl.DataType) -> bool:
    """Whether a column of this type holds lists of numbers."""
    inner = dtype.inner if isinstance(dtype, pl.List | pl.Array) else None
    return inner is not None and (inner.is_numeric() or inner == pl.Null)


def list_text(cell: pl.Expr) -> pl.Expr:
    """``[1.5, null]`` of a list of numbers; null of none."""
    return pl.when(cell.is_not_null()).then(
        "[" + cell.list.eval(pl.element().cast(pl.String).fill_null("null")).list.join(", ") + "]"
    )
