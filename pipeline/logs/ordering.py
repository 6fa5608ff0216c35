"""Steps that are no column of the log: the rows of an episode numbered in a declared order, and where a gap is.

The place of a row depends on the rows of its person alone, and on what they say: not on where they stand in a file.
"""

from __future__ import annotations

import polars as pl

from pipeline.declaration.card import Card
from pipeline.logs.decode import Dtypes, keyed_hash, number_of

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
    text = text.str.replace(_DATE + "$", "${1} 00:00")
    text = text.str.replace(f"({_TIME[1:]})($|[+-])", "${1}:00${2}")
    text = (
        pl.when(text.str.contains(r"[+-]\d{2}:?\d{2}$") & text.str.contains(_TIME))
        .then(text)
        .otherwise(text + "+00:00")
    )
    moment = text.str.to_datetime(_FORMAT, time_unit="us", time_zone="UTC", strict=False)
    return moment.to_physical().cast(pl.Float64) / _MICROSECONDS


def number_steps(rows: pl.DataFrame, raw: pl.DataFrame, card: Card) -> pl.DataFrame:
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
    The same rows with ``step``, and ``jump``: whether a row stands too far behind the one before it.  A row whose place
    cannot be read is ``unreadable``.
    """
    here = [*_EPISODE, "order"]
    dtypes: Dtypes = {name.removeprefix("raw_"): dtype for name, dtype in raw.schema.items()}
    rows = rows.with_columns(raw.select(order_of(dtypes).alias("order")).to_series())
    rows = rows.with_columns(pl.col("unreadable") | pl.col("order").is_null())
    tied = rows.filter(pl.struct(here).is_duplicated() & pl.col("order").is_not_null())["row"]
    digests = keyed_hash(_texts(raw[tied]), card.name)
    ties = pl.DataFrame({"row": tied, "tie": digests})
    rows = rows.join(ties, on="row", how="left", maintain_order="left").sort(*here, "tie", "row", nulls_last=True)
    apart = pl.col("order") - pl.col("order").shift().over(_EPISODE)
    far = None if card.source.gap == "keep" else card.source.gap_over
    jump = pl.lit(value=False) if far is None else (apart > far).fill_null(value=False)
    step = pl.when(pl.col("order").is_not_null()).then(pl.int_range(pl.len(), dtype=pl.Int64).over(_EPISODE))
    return rows.with_columns(step.alias("step"), jump.alias("jump")).drop("tie")


def _texts(raw: pl.DataFrame) -> list[str]:
    """All cells of each row as one text, but its place in the files."""
    cells = [pl.col(c).cast(pl.String).fill_null("\x00") for c in raw.columns if c.startswith("raw_")]
    return raw.select(pl.concat_str(cells, separator="\x1f")).to_series().to_list()


def behind_gap(card: Card) -> pl.Expr:
    """Of rows sorted by episode and step: whether a gap lies before the row, or before one before it."""
    # episodes stand together: what is carried forward over rows spares a group an episode
    row, new = pl.int_range(pl.len(), dtype=pl.Int64), pl.col("episode").ne_missing(pl.col("episode").shift())
    start = pl.when(new).then(row).forward_fill()
    # given that none repeats
    gap = pl.col("jump") if card.source.order_by is not None else (pl.col("step") != row - start)
    return (pl.when(gap).then(row).forward_fill() >= start).fill_null(value=False)
