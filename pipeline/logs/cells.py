"""Cells that hold numbers: read from text, and lists of them."""

from __future__ import annotations

import polars as pl

NUMBERS = pl.List(pl.Float64)
_BOOLEANS = {"true": "1.0", "false": "0.0"}


def holds_numbers(dtype: pl.DataType) -> bool:
    """Whether a column of this type holds lists of numbers."""
    inner = dtype.inner if isinstance(dtype, pl.List | pl.Array) else None
    return inner is not None and (inner.is_numeric() or inner == pl.Null)


def number_of(text: pl.Expr) -> pl.Expr:
    """Text as a number, null if it is none; ``true`` and ``false`` as a column of booleans gives them."""
    # a file of other types turns a column into text: no row of another file may read otherwise then
    return text.str.strip_chars().replace(_BOOLEANS).cast(pl.Float64, strict=False)


def list_text(cell: pl.Expr) -> pl.Expr:
    """``[1.5, null]`` of a list of numbers; null of none."""
    return pl.when(cell.is_not_null()).then(
        "[" + cell.list.eval(pl.element().cast(pl.String).fill_null("null")).list.join(", ") + "]"
    )
