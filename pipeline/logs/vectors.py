"""Logs of vectors: decoding, the rules, and the canonical rows of a partition that holds whole users.

A logged number is divided by its declared scale; nothing is shortened here, so that another radius needs no other
snapshot: the sums shorten (privacy.md §7).
"""

from __future__ import annotations

import polars as pl

from pipeline.declaration.card import LqCard
from pipeline.declaration.columns import step_role
from pipeline.declaration.linear_quadratic import Vector
from pipeline.logs.decode import NUMBERS, Dtypes, episode_number, flag, number_of, probability, step_number
from pipeline.logs.screening import file_entries, mark_broken, quarantine_rows, sort_episodes
from pipeline.logs.store import VECTORS

# a vector on its ball may pass it by the rounding of 32-bit numbers
_ROUNDING = 1e-5


def screen_vectors(raw: pl.DataFrame, card: LqCard, names: tuple[str, ...]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Apply every rule; parameters and results as of :func:`~pipeline.logs.screening.screen`."""
    rows = sort_episodes(decode_vectors(raw, card), pl.col("terminated"))
    rows = mark_broken(rows.with_columns(_next_observation(card).alias("following")), card)
    kept = rows.filter(pl.col("rule").is_null())
    d = card.domain
    far = [_longer(pl.col(c), v.radius) for c, v in _vectors(card).items()]
    far.append(_longer(pl.col("following"), d.observation.radius))
    entries = file_entries(rows, kept, {"beyond_radius": pl.any_horizontal(far)})
    return _canonical(kept), quarantine_rows(raw, entries, card, names)


def decode_vectors(raw: pl.DataFrame, card: LqCard) -> pl.DataFrame:
    """Decode the rows of whole users.

    Returns
    -------
    One row a row of ``raw``, in its order: ``row``, the canonical columns (``logged`` is the logged next observation,
    null where there is none), and the marks ``unreadable``, ``wrong_length``, ``not_finite``.
    """
    dtypes: Dtypes = {name.removeprefix("raw_"): dtype for name, dtype in raw.schema.items()}
    episode, step = episode_number(dtypes), step_number(dtypes)
    terminated, bad_terminated = flag("terminated", dtypes)
    truncated, bad_truncated = flag("truncated", dtypes)
    prob, bad_prob = probability(dtypes)
    unreadable = [episode.is_null(), step.is_null(), bad_terminated, bad_truncated, bad_prob]
    found = {role: _Cells(role, columns, card, dtypes) for role, columns in card.log.vectors.items()}
    values = [cells.values(vector).alias(role) for role, cells in found.items() for vector in [_declared(role, card)]]
    rows = raw.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
        pl.col("raw_user").alias("user_id"),
        episode.alias("episode_id"),
        step.alias("step"),
        *values,
        terminated.alias("terminated"),
        truncated.alias("truncated"),
        prob.alias("behavior_prob"),
        pl.any_horizontal(*unreadable, *(cells.words() for cells in found.values())).alias("unreadable"),
        pl.any_horizontal(cells.wrong_length() for cells in found.values()).alias("wrong_length"),
        *(cells.missing().alias(f"no_{role}") for role, cells in found.items()),
    )
    logged = pl.col("next_observation") if "next_observation" in found else pl.lit(None, dtype=VECTORS["observation"])
    none_logged = pl.col("no_next_observation") if "next_observation" in found else pl.lit(value=True)
    not_finite = [~_finite(pl.col("observation")), ~_finite(pl.col("action"))]
    not_finite.append(~none_logged & ~_finite(logged))
    return rows.with_columns(
        pl.when(~none_logged).then(logged).alias("logged"), pl.any_horizontal(not_finite).alias("not_finite")
    )


class _Cells:
    """Expressions over the raw cells of one vector: a list of numbers, its text, or one cell a coordinate."""

    def __init__(self, role: str, columns: str | list[str], card: LqCard, dtypes: Dtypes) -> None:
        self._size = _declared(role, card).size
        self._split = not isinstance(columns, str)
        self._types = [dtypes[step_role(role, i)] for i in range(self._size)] if self._split else [dtypes[role]]
        names = [f"raw_{step_role(role, i)}" for i in range(self._size)] if self._split else [f"raw_{role}"]
        self._raw = [pl.col(name) for name in names]

    def values(self, vector: Vector) -> pl.Expr:
        """Coordinates in units of their scales; what is missing or no number is null."""
        each = self._numbers() if self._split else self._list()
        return pl.concat_list([(x / scale).cast(pl.Float32) for x, scale in zip(each, vector.scales, strict=True)])

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


def _finite(vector: pl.Expr) -> pl.Expr:
    """All coordinates are there and finite."""
    return vector.list.eval(pl.element().is_finite().fill_null(value=False)).list.all().fill_null(value=False)


def _longer(vector: pl.Expr, radius: float) -> pl.Expr:
    square = vector.list.eval(pl.element().cast(pl.Float64) ** 2).list.sum()
    return (square > (radius * (1 + _ROUNDING)) ** 2).fill_null(value=False)


def _declared(role: str, card: LqCard) -> Vector:
    return card.domain.action if role == "action" else card.domain.observation


def _vectors(card: LqCard) -> dict[str, Vector]:
    return {role: _declared(role, card) for role in ("observation", "action")}


def _next_observation(card: LqCard) -> pl.Expr:
    """As logged; else, unless the episode ended here, the observation of the next row, one beyond H too; else null."""
    follows = (pl.col("episode") == pl.col("episode").shift(-1)) & (pl.col("step") + 1 == pl.col("step").shift(-1))
    after = pl.col("observation").shift(-1)
    usable = follows & ~pl.col("terminated") & _finite(after) & ~pl.col("wrong_length").shift(-1)
    return pl.coalesce("logged", pl.when(usable).then(after))


def _canonical(kept: pl.DataFrame) -> pl.DataFrame:
    rows = kept.with_columns(
        pl.lit(None, dtype=pl.Float64).alias("reward"),
        pl.col("following").alias("next_observation"),
        (pl.col("truncated") | pl.col("following").is_null()).alias("truncated"),
    )
    return rows.select(pl.col(name) if name == "user_id" else pl.col(name).cast(t) for name, t in VECTORS.items())
