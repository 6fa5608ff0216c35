"""Vectors and observations as they were logged: a list of numbers, its text, or one cell a coordinate.

A logged number is taken from its declared center and divided by its declared scale; nothing is shortened here, so that
another radius needs no other snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from pipeline.declaration.card import Card
from pipeline.declaration.columns import step_role
from pipeline.declaration.linear_quadratic import Vector
from pipeline.logs.decode import NUMBERS, Dtypes, number_of
from pipeline.logs.store import OBSERVED

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
        """Coordinates from their centers, in units of their scales; what is missing or no number is null."""
        each, vector = self._numbers() if self._split else self._list(), self._vector
        # times the inverse: polars rounds a quotient otherwise where the column has one row
        return pl.concat_list(
            [((x - c) * (1 / s)).cast(pl.Float32) for x, s, c in zip(each, vector.scales, vector.centers, strict=True)]
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


def next_observation() -> pl.Expr:
    """Of rows sorted by episode and step: as it was logged; else, unless the episode ended here, that of the next row.

    The next row may be one beyond H; null where nothing tells.
    """
    follows = (pl.col("episode") == pl.col("episode").shift(-1)) & (pl.col("step") + 1 == pl.col("step").shift(-1))
    after = pl.col("observation").shift(-1)
    usable = follows & ~pl.col("terminated") & finite(after) & ~pl.col("wrong_length").shift(-1)
    return pl.coalesce("logged_observation", pl.when(usable).then(after))


def with_vectors(
    rows: pl.DataFrame, raw: pl.DataFrame, columns: Mapping[str, str | list[str]], declared: Mapping[str, Vector]
) -> pl.DataFrame:
    """Decoded rows with their vectors, ``logged_observation`` (null where none is logged), and marks.

    Parameters
    ----------
    rows, raw
        Decoded rows, and the raw ones that they were decoded of, in the same order.
    columns, declared
        Of each vector by its role: where it stands; size and scales.
    """
    dtypes: Dtypes = {name.removeprefix("raw_"): dtype for name, dtype in raw.schema.items()}
    found = {role: VectorCells(role, where, declared[role], dtypes) for role, where in columns.items()}
    seen = raw.select(
        *(cells.values().alias(role) for role, cells in found.items()),
        pl.any_horizontal(cells.words() for cells in found.values()).alias("words"),
        pl.any_horizontal(cells.wrong_length() for cells in found.values()).alias("wrong_length"),
        *(cells.missing().alias(f"no_{role}") for role, cells in found.items()),
    )
    if "next_observation" not in found:
        none = pl.lit(None, dtype=OBSERVED["next_observation"])
        seen = seen.with_columns(none.alias("next_observation"), pl.lit(value=True).alias("no_next_observation"))
    logged, none_logged = pl.col("next_observation"), pl.col("no_next_observation")
    not_finite = [~finite(pl.col(role)) for role in found if role != "next_observation"]
    return pl.concat([rows, seen], how="horizontal").with_columns(
        pl.col("unreadable") | pl.col("words"),
        pl.when(~none_logged).then(logged).alias("logged_observation"),
        pl.any_horizontal(*not_finite, ~none_logged & ~finite(logged)).alias("not_finite"),
    )


def with_successors(rows: pl.DataFrame, card: Card, vector: Vector) -> pl.DataFrame:
    """Sorted rows with ``next_observation``, and a next state that is known only if its observation is.

    Where nothing divides the states, a next observation that is logged tells the next state, too.

    Parameters
    ----------
    rows
        As :func:`~pipeline.logs.screening.sort_episodes` leaves them, with ``next_state``.
    card, vector
        Whether states are divided, and how long an observation may be.
    """
    first_end, known = card.domain.states.first_terminal, pl.col("next_observation").is_not_null()
    state, here = pl.col("next_state"), pl.lit(0 if card.domain.states.undivided else None, dtype=pl.Int32)
    rows = rows.with_columns(next_observation().alias("next_observation"))
    # what follows by its step alone may stand behind a gap: then no state is told, and none is here
    logged = pl.col("logged_observation").is_not_null() & ~pl.col("terminated")
    told = pl.coalesce(state, pl.when(logged).then(here))
    return rows.with_columns(
        pl.when((told >= first_end) | known).then(told).cast(pl.Int32).alias("next_state"),
        pl.any_horizontal(longer(pl.col(c), vector.radius) for c in OBSERVED).alias("beyond_radius"),
    )
