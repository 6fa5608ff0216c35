"""Vectors as they were logged: a list of numbers, its text, or one cell a coordinate; expressions over raw cells.

A logged number is divided by its declared scale; nothing is shortened here, so that another radius needs no other
snapshot: the sums shorten (privacy.md §7).
"""

from __future__ import annotations

import polars as pl

from pipeline.declaration.columns import step_role
from pipeline.declaration.linear_quadratic import Vector
from pipeline.logs.decode import NUMBERS, Dtypes, number_of

# a vector on its ball may pass it by the rounding of 32-bit numbers
_ROUNDING = 1e-5


class VectorCells:
    """Expressions over the raw cells of one vector: a list of numbers, its text, or one cell a coordinate."""

    def __init__(self, role: str, columns: str | list[str], vector: Vector, dtypes: Dtypes) -> None:
        self._vector, self._size = vector, vector.size
        self._split = not isinstance(columns, str)
        self._types = [dtypes[step_role(role, i)] for i in range(self._size)] if self._split else [dtypes[role]]
        names = [f"raw_{step_role(role, i)}" for i in range(self._size)] if self._split else [f"raw_{role}"]
        self._raw = [pl.col(name) for name in names]

    def values(self) -> pl.Expr:
        """Coordinates in units of their scales; what is missing or no number is null."""
        each = self._numbers() if self._split else self._list()
        return pl.concat_list(
            [(x / scale).cast(pl.Float32) for x, scale in zip(each, self._vector.scales, strict=True)]
        )

    def words(self) -> pl.Expr:
        """Some cell holds text that is no number."""
        marks = [_word(raw) for raw, dtype in zip(self._raw, self._types, strict=True) if dtype == pl.String]
        if not marks:
            return pl.lit(value=False)
        if self._split:
            return pl.any_horizontal(marks).fill_null(value=False)
        return _pieces(self._raw[0]).list.eval(_word(pl.element())).list.any().fill_null(value=False)

    def wrong_length(self) -> pl.Expr:
        """The list has not the declared number of entries; a missing list has no length."""
        if self._split:
            return pl.lit(value=False)
        return (self._listed().list.len() != self._size).fill_null(value=False)

    def missing(self) -> pl.Expr:
        """No cell says anything."""
        if self._split:
            return pl.all_horizontal(self._empty(raw, dtype) for raw, dtype in zip(self._raw, self._types, strict=True))
        blank = pl.element().fill_nan(None).is_null()
        return self._listed().list.eval(blank).list.all().fill_null(value=True) & ~self.words()

    @staticmethod
    def _empty(raw: pl.Expr, dtype: pl.DataType) -> pl.Expr:
        return raw.is_null() | (raw.is_nan().fill_null(value=False) if dtype == pl.Float64 else pl.lit(value=False))

    def _listed(self) -> pl.Expr:
        """The list of a list column; a column of plain numbers holds lists of one."""
        raw, dtype = self._raw[0], self._types[0]
        if dtype == NUMBERS:
            return raw
        if dtype == pl.String:
            return _pieces(raw).list.eval(number_of(pl.element()))
        return pl.when(raw.is_not_null()).then(pl.concat_list([raw.cast(pl.Float64)]))

    def _list(self) -> list[pl.Expr]:
        return [self._listed().list.get(i, null_on_oob=True) for i in range(self._size)]

    def _numbers(self) -> list[pl.Expr]:
        pairs = zip(self._raw, self._types, strict=True)
        return [number_of(raw) if dtype == pl.String else raw.cast(pl.Float64) for raw, dtype in pairs]


def _pieces(text: pl.Expr) -> pl.Expr:
    """``[1, 2]`` or ``1, 2`` as pieces of text; empty text is no list, ``[]`` one without entries."""
    bare = text.str.strip_chars()
    inside = bare.str.strip_prefix("[").str.strip_suffix("]").str.strip_chars()
    none = pl.lit([], dtype=pl.List(pl.String))
    return pl.when(bare == "").then(None).when(inside == "").then(none).otherwise(inside.str.split(","))


def _word(text: pl.Expr) -> pl.Expr:
    plain = text.str.strip_chars()
    return ~plain.is_in(["", "null"]) & number_of(plain).is_null()


def finite(vector: pl.Expr) -> pl.Expr:
    """All coordinates are there and finite."""
    return vector.list.eval(pl.element().is_finite().fill_null(value=False)).list.all().fill_null(value=False)


def longer(vector: pl.Expr, radius: float) -> pl.Expr:
    """Longer than declared, beyond the rounding of 32-bit numbers."""
    square = vector.list.eval(pl.element().cast(pl.Float64) ** 2).list.sum()
    return (square > (radius * (1 + _ROUNDING)) ** 2).fill_null(value=False)


def next_observation(logged: str) -> pl.Expr:
    """Of rows sorted by episode and step: as ``logged``; else, unless the episode ended here, that of the next row.

    The next row may be one beyond H; null where nothing tells.
    """
    follows = (pl.col("episode") == pl.col("episode").shift(-1)) & (pl.col("step") + 1 == pl.col("step").shift(-1))
    after = pl.col("observation").shift(-1)
    usable = follows & ~pl.col("terminated") & finite(after) & ~pl.col("wrong_length").shift(-1)
    return pl.coalesce(logged, pl.when(usable).then(after))
