"""One row an episode -> one row a step: a wide source is spilt as it is and unfolded before the rules.

Steps that are no column of the log: the rows of an episode numbered in a declared order, and where a gap is.

The place of a row depends on the rows of its person alone, and on what they say: not on where they stand in a file.
"""

from __future__ import annotations

import polars as pl

from pipeline.declaration.card import Card
from pipeline.declaration.columns import TELLING, step_role
from pipeline.declaration.source import constant
from pipeline.logs.contribution_bounding import keyed_hash
from pipeline.logs.decode import NUMBERS, Dtypes, holds_numbers, list_text, number_of

# a date and a time as text, with the offset from UTC; what is left out is 0
_DATE, _TIME = r"^(\d{4}-\d{2}-\d{2})", r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}"
_FORMAT = "%Y-%m-%d %H:%M:%S%.f%z"
_MICROSECONDS = 86_400 * 10**6
_EPISODE = ("user_id", "episode_id")


def order_of(dtypes: Dtypes) -> pl.Expr:
    """Where a row stands among others: its number, or its date in days; null where it is neither.

    Parameters
    ----------
    dtypes
        Role -> type of its cells; the role is ``order``.
    """
    cell = pl.col("raw_order")
    if dtypes["order"] != pl.String:
        return cell.cast(pl.Float64).fill_nan(None)
    number = number_of(cell)
    return pl.coalesce(pl.when(number.is_finite()).then(number), _days(cell.str.strip_chars()))


def _days(text: pl.Expr) -> pl.Expr:
    """Days since 1970 of ISO dates and times, each read by itself: what other rows hold decides nothing."""
    text = text.str.replace(_DATE + "T", "${1} ").str.replace(r"(?:Z| ?UTC)$", "+00:00")
    text = text.str.replace(_DATE + "$", "${1} 00:00").str.replace(f"({_TIME[1:]}.*[+-]\\d{{2}})$", "${1}:00")
    text = text.str.replace(f"({_TIME[1:]})($|[+-])", "${1}:00${2}")
    text = (
        pl.when(text.str.contains(r"[+-]\d{2}:?\d{2}$") & text.str.contains(_TIME))
        .then(text)
        .otherwise(text + "+00:00")
    )
    moment = text.str.to_datetime(_FORMAT, time_unit="us", time_zone="UTC", strict=False)
    # times the inverse: polars rounds a quotient otherwise where the column has one row
    return moment.to_physical().cast(pl.Float64) * (1 / _MICROSECONDS)


def number_steps(rows: pl.DataFrame, raw: pl.DataFrame, card: Card) -> tuple[pl.DataFrame, pl.Series]:
    """Number the rows of each episode from 0 in the order that the card names.

    Parameters
    ----------
    rows
        Decoded rows of whole people.
    raw
        The same rows as they were logged: where two stand at the same place, a keyed hash of all their cells decides.
    card
        Its ``source.gap_over`` says which rows stand too far apart.

    Returns
    -------
    The same rows but those that say again what another one at their place says, with ``step``; ``jump``: whether a row
    stands too far behind the one before it; ``same_place``: whether another row stands at its place.  A row whose place
    cannot be read is ``unreadable``.  And which rows say again what another one says.
    """
    here = [*_EPISODE, "order"]
    dtypes: Dtypes = {name.removeprefix("raw_"): dtype for name, dtype in raw.schema.items()}
    rows = rows.with_columns(raw.select(order_of(dtypes).alias("order")).to_series())
    rows = rows.with_columns(pl.col("unreadable") | pl.col("order").is_null())
    tied = rows.filter(pl.struct(here).is_duplicated() & pl.col("order").is_not_null()).select("row", *here)
    tied = tied.with_columns(keyed_hash(_texts(raw[tied["row"]]), card.name).alias("tie"))
    again = tied.filter(~pl.struct(*here, "tie").is_first_distinct())
    tied = tied.join(again, on="row", how="anti")
    ties = tied.select("row", "tie", pl.struct(here).is_duplicated().alias("same_place"))
    rows = rows.drop("same_place").join(again, on="row", how="anti", maintain_order="left")
    rows = rows.join(ties, on="row", how="left", maintain_order="left").sort(*here, "tie", "row", nulls_last=True)
    rows = rows.with_columns(pl.col("same_place").fill_null(value=False))
    apart = pl.col("order") - pl.col("order").shift().over(_EPISODE)
    far = None if card.source.gap == "keep" else card.source.gap_over
    jump = pl.lit(value=False) if far is None else (apart > far).fill_null(value=False)
    step = pl.when(pl.col("order").is_not_null()).then(pl.int_range(pl.len(), dtype=pl.Int64).over(_EPISODE))
    return rows.with_columns(step.alias("step"), jump.alias("jump")).drop("tie"), again["row"]


def _texts(raw: pl.DataFrame) -> list[str]:
    """What each row says, as one text; not its place, and alike whatever types other rows gave the columns."""
    told = {c: t for c, t in raw.schema.items() if c.startswith("raw_") and c != "raw_order"}
    cells = [_said(pl.col(c), dtype) for c, dtype in told.items()]
    # the length before each cell, that no cell can hold what looks like two
    sized = [x for cell in cells for x in (cell.str.len_bytes().cast(pl.String).fill_null("-"), cell.fill_null(""))]
    return raw.select(pl.concat_str(sized, separator=" ")).to_series().to_list()


def _said(cell: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if holds_numbers(dtype):
        return list_text(cell.cast(NUMBERS))
    text = (cell.fill_nan(None) if dtype.is_float() else cell).cast(pl.String)
    number = number_of(text)
    return pl.coalesce(pl.when(number.is_finite()).then(number.cast(pl.String)), text)


def behind_gap(card: Card) -> pl.Expr:
    """Of rows sorted by episode and step: whether a gap lies before the row, or before one before it."""
    # episodes stand together: what is carried forward over rows spares a group an episode
    row, new = pl.int_range(pl.len(), dtype=pl.Int64), pl.col("episode").ne_missing(pl.col("episode").shift())
    start = pl.when(new).then(row).forward_fill()
    # given that none repeats
    gap = pl.col("jump") if card.source.order_by is not None else (pl.col("step") != row - start)
    return (pl.when(gap).then(row).forward_fill() >= start).fill_null(value=False)


_NO_LABEL = "\x1f"


def unfold(raw: pl.DataFrame, card: Card) -> pl.DataFrame:
    """Unfold the rows of whole users.

    Parameters
    ----------
    raw
        Rows as spilt: ``raw_user``, perhaps ``raw_episode``, ``raw_<role>@<h>`` for each column of step h, ``file``,
        ``line``.
    card
        Declares the cells of each of its H steps.

    Returns
    -------
    The same columns as a long source has, ``raw_step`` 0-based, ``origin`` (position in ``raw``), by row and step.
    A step whose state and action cells are all empty is not there; constants are no sign of a step.
    """
    roles = card.log.steps
    if "raw_episode" not in raw.columns:
        # every row is an episode: the n-th of its user
        raw = raw.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over("raw_user").alias("raw_episode"))
    raw = raw.with_row_index("origin")
    as_text = {role: _needs_text(role, cells, raw, card) for role, cells in roles.items()}
    steps = [
        raw.filter(_taken(h, roles, raw)).select(
            pl.col("origin").cast(pl.Int64),
            "raw_user",
            "raw_episode",
            pl.lit(h, dtype=pl.Int64).alias("raw_step"),
            *(_cell(role, h, cells[h], raw, card, as_text=as_text[role]) for role, cells in roles.items()),
            "file",
            "line",
        )
        for h in range(card.domain.horizon)
    ]
    return pl.concat(steps).sort("origin", "raw_step")


def empty_rows(raw: pl.DataFrame, steps: pl.DataFrame) -> pl.Series:
    """Positions in ``raw`` of the rows that hold no step at all."""
    held = pl.Series(steps["origin"].unique())
    every = pl.int_range(len(raw), dtype=pl.Int64, eager=True)
    return every.filter(~every.is_in(held.implode()))


def _taken(h: int, roles: dict[str, list[str]], raw: pl.DataFrame) -> pl.Expr:
    """Some state or action cell of the step is filled."""
    telling = [r for r in TELLING if r in roles and constant(roles[r][h]) is None]
    return pl.any_horizontal(_filled(step_role(role, h), raw, number=role == "bin") for role in telling)


def _filled(role: str, raw: pl.DataFrame, *, number: bool) -> pl.Expr:
    cell = pl.col(f"raw_{role}")
    dtype = raw.schema[f"raw_{role}"]
    if dtype == pl.Float64:
        return cell.is_not_null() & cell.is_not_nan()
    if number and dtype == pl.String:
        nan = cell.str.strip_chars().cast(pl.Float64, strict=False).is_nan().fill_null(value=False)
        return cell.is_not_null() & ~nan
    return cell.is_not_null()


def _needs_text(role: str, cells: list[str], raw: pl.DataFrame, card: Card) -> bool:
    """Whether the cells of a role agree on a type only as text."""
    types = {raw.schema[f"raw_{step_role(role, h)}"] for h, cell in enumerate(cells) if constant(cell) is None}
    labels = role in ("state", "next_state", "action")
    return len(types) != 1 or any(constant(c) is not None for c in cells) or (labels and bool(_qualified(role, card)))


def _cell(role: str, h: int, source: str, raw: pl.DataFrame, card: Card, *, as_text: bool) -> pl.Expr:
    if (text := constant(source)) is not None:
        return pl.lit(text or None, dtype=pl.String).alias(f"raw_{role}")
    cell = pl.col(f"raw_{step_role(role, h)}")
    if as_text:
        if raw.schema[f"raw_{step_role(role, h)}"] == pl.Float64:
            cell = cell.fill_nan(None)
        cell = cell.cast(pl.String)
        if role in ("state", "next_state", "action") and (labels := _qualified(role, card)):
            cell = _named(cell, source, labels, card)
    return cell.alias(f"raw_{role}")


def _named(cell: pl.Expr, column: str, labels: dict[str, dict[str, str]], card: Card) -> pl.Expr:
    """Raw text -> the qualified label where the column has some; no other label of the key is meant then."""
    if column in labels:
        own = labels[column]
        floats = {f"{value}.0": label for value, label in own.items() if value.lstrip("-").isdecimal()}
        ends = {end: end for end in card.domain.states.ends}
        named = cell.replace_strict(floats | ends | own, default=_NO_LABEL, return_dtype=pl.String)
        return pl.when(cell.is_not_null()).then(named)
    others = [label for own in labels.values() for label in own.values()]
    return pl.when(cell.is_in(others)).then(pl.lit(_NO_LABEL)).otherwise(cell)


def _qualified(role: str, card: Card) -> dict[str, dict[str, str]]:
    """Column -> {raw value: label} of the labels that are written ``column=value``."""
    domain = card.domain
    labels = domain.actions.raw_labels() if role == "action" else domain.states.raw_labels()
    kinds = ("action",) if role == "action" else ("state", "next_state")
    columns = {cell for kind in kinds for cell in card.log.steps.get(kind, []) if constant(cell) is None}
    found: dict[str, dict[str, str]] = {}
    for label in labels:
        column, equals, value = label.partition("=")
        if equals and column in columns:
            found.setdefault(column, {})[value] = label
    return found
