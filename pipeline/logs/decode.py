"""From cells as they were logged to numbers, keyed hashes, and marks of what is wrong; row by row, no rule applied."""

from __future__ import annotations

import hashlib
import re

import polars as pl

from pipeline.declaration.card import Card
from pipeline.declaration.domain import States

NUMBERS = pl.List(pl.Float64)
_BOOLEANS = {"true": "1.0", "false": "0.0", "True": "1.0", "False": "0.0", "TRUE": "1.0", "FALSE": "0.0"}
# a smaller chance of what was done is none: its inverse would overflow, with a warning that tells of one row
LEAST_CHANCE = 1e-300


def holds_numbers(dtype: pl.DataType) -> bool:
    """Whether a column of this type holds lists of numbers."""
    inner = dtype.inner if isinstance(dtype, pl.List | pl.Array) else None
    return inner is not None and (inner.is_numeric() or inner == pl.Null)


def number_of(text: pl.Expr) -> pl.Expr:
    """Text as a number, null if it is none; ``true``, ``False`` and so on as a column of booleans gives them."""
    # a file of other types turns a column into text: no row of another file may read otherwise then
    return text.str.strip_chars().replace(_BOOLEANS).cast(pl.Float64, strict=False)


def list_text(cell: pl.Expr) -> pl.Expr:
    """``[1.5, null]`` of a list of numbers; null of none."""
    return pl.when(cell.is_not_null()).then(
        "[" + cell.list.eval(pl.element().cast(pl.String).fill_null("null")).list.join(", ") + "]"
    )


_EXACT_FLOAT = 2**53
_ROUNDING = 1e-9
# of the table in which integer labels are looked up
_PLACES = 2**16
_TRUE, _FALSE = ["true", "t", "yes", "y", "1", "1.0"], ["false", "f", "no", "n", "0", "0.0"]
_INTEGER = r"^(?:0|-?[1-9][0-9]{0,17})$"

Dtypes = dict[str, pl.DataType]


def decode(raw: pl.DataFrame, card: Card) -> pl.DataFrame:
    """Decode the rows of whole users.

    Parameters
    ----------
    raw
        Columns ``raw_<role>`` of a long log, rows of whole users.
    card
        Declares labels, bins, and the lattice of rewards.

    Returns
    -------
    One row a row of ``raw``, in its order: ``row`` (position in ``raw``), the canonical columns (``logged`` is the
    logged next state), and the marks ``unreadable``, ``homeless`` (an undeclared label with no OTHER), ``relabelled``
    (one with), ``not_a_reward``, ``clipped``, ``floored``, ``has_next``.
    """
    dtypes: Dtypes = {name.removeprefix("raw_"): dtype for name, dtype in raw.schema.items()}
    # each made once: polars does not see that the parts of a condition are the same
    names = ["state", "odd_state", "bad_bin", "logged", "odd_next", "bad_next_bin", "action", "has_next", "reward_cell"]
    states, actions = card.domain.states, card.domain.actions
    looked_up = (
        *state_index("state", "bin", dtypes, states),
        *state_index("next_state", "next_bin", dtypes, states),
        _index("action", dtypes, actions.raw_labels()),
        _has_next(dtypes, states),
        _reward_cell(dtypes, card),
    )
    state, odd_state, bad_bin, logged, odd_next, bad_next_bin, action, has_next, reward = map(pl.col, names)
    other_state, other_action = (pl.lit(of.other_index, dtype=pl.Int32) for of in (states, actions))
    lost_state, lost_action = states.other_index is None, actions.other_index is None
    odd_action, odd_next = action.is_null(), has_next & odd_next
    homeless = pl.any_horizontal(odd_state & lost_state, odd_next & lost_state, odd_action & lost_action)
    # an unfolded row counts from 0 whatever the names of its columns began with
    first = card.source.starts_at if card.source.layout == "long" else 0
    columns, unreadable = identify(dtypes, first)
    rows = (
        raw.lazy()
        .with_columns(*(cell.alias(name) for name, cell in zip(names, looked_up, strict=True)), **columns)
        .select(
            *columns,
            state.fill_null(other_state),
            action.fill_null(other_action),
            *_reward(reward if "reward" in dtypes else None, card),
            pl.when(has_next).then(logged.fill_null(other_state)).alias("logged"),
            has_next,
            pl.any_horizontal(*unreadable, bad_bin, has_next & bad_next_bin).alias("unreadable"),
            homeless.alias("homeless"),
            pl.any_horizontal(odd_state, odd_action, odd_next).alias("relabelled"),
            pl.lit(value=False).alias("same_place"),
        )
        .collect()
    )
    # one value instead of a column that says the same of every row: sorting then moves none
    marks = [mark for mark in rows.iter_columns() if mark.dtype == pl.Boolean and not mark.null_count()]
    return rows.with_columns(pl.lit(mark.any()).alias(mark.name) for mark in marks if mark.any() == mark.all())


def identify(dtypes: Dtypes, first: int = 0) -> tuple[dict[str, pl.Expr], list[pl.Expr]]:
    """What the rows of every log say: ``row`` (position), whose, where, flags; and over these what cannot be read."""
    told = {name: flag(name, dtypes) for name in ("terminated", "truncated")} | {"behavior_prob": _probability(dtypes)}
    columns = {
        "row": pl.int_range(pl.len(), dtype=pl.Int64),
        "user_id": pl.col("raw_user"),
        "episode_id": _episode_number(dtypes),
        "step": _step_number(dtypes, first),
        **{name: value for name, (value, _) in told.items()},
    }
    lost = [pl.col(name).is_null() for name in ("episode_id", "step")]
    return columns, [*lost, *(unread for _, unread in told.values())]


def _text(role: str, dtypes: Dtypes) -> pl.Expr:
    cell = pl.col(f"raw_{role}")
    if dtypes[role] == pl.Float64:
        cell = cell.fill_nan(None)
    return cell.cast(pl.String)


def _number(role: str, dtypes: Dtypes) -> pl.Expr:
    cell = pl.col(f"raw_{role}")
    return number_of(cell) if dtypes[role] == pl.String else cell.cast(pl.Float64, strict=False)


def _index(role: str, dtypes: Dtypes, table: dict[str, int]) -> pl.Expr:
    """Index of a raw label; an integer written ``3.0`` is the label ``3`` unless ``3.0`` is declared itself."""
    known: dict[str, int] | dict[int, int]
    if dtypes[role] == pl.Int64:
        # as their text would be looked up, without writing it
        numbers = {int(label): i for label, i in table.items() if re.fullmatch(r"0|-?[1-9][0-9]*", label)}
        cell, known = pl.col(f"raw_{role}"), {n: i for n, i in numbers.items() if -(2**63) <= n < 2**63}
        least, most = min(known, default=0) - 1, max(known, default=0) + 1
        if least > -_EXACT_FLOAT and most < min(least + _PLACES, _EXACT_FLOAT):
            # a place in a table for each number there may be, and one for those that are smaller or larger
            places = pl.Series([known.get(n) for n in range(least, most + 1)], dtype=pl.Int32)
            return pl.lit(places).gather(cell.clip(least, most) - least)
    else:
        floats = {f"{label}.0": i for label, i in table.items() if label.lstrip("-").isdecimal()}
        cell, known = _text(role, dtypes), floats | table
    return cell.replace_strict(known, default=None, return_dtype=pl.Int32) if known else pl.lit(None, dtype=pl.Int32)


def state_index(label: str, number: str, dtypes: Dtypes, states: States) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Which declared state a row stands in, as expressions over its raw cells.

    Parameters
    ----------
    label, number
        Roles of the label and of the number that is binned: ``state`` and ``bin``, or ``next_state`` and ``next_bin``.
    dtypes
        Role -> type of its cells; a role that is not there is not read.
    states
        As declared.

    Returns
    -------
    Index among live states and ends (null if undeclared), the mark of an undeclared one, and the mark of a bin number
    that cannot be read.
    """
    never = pl.lit(value=False)
    if states.undivided:
        return pl.lit(0, dtype=pl.Int32), never, never
    if label not in dtypes and number not in dtypes:
        return pl.lit(None, dtype=pl.Int32), never, never
    ends = {end: states.first_terminal + i for i, end in enumerate(states.ends)}
    if states.bins is None:
        index = _index(label, dtypes, states.raw_labels() | ends)
        return index, index.is_null(), never
    end = _index(label, dtypes, ends) if label in dtypes else pl.lit(None, dtype=pl.Int32)
    if number not in dtypes:
        return end, never, never
    x = _number(number, dtypes)
    edges = pl.lit(pl.Series(states.bins.edges, dtype=pl.Float64))
    x_or_null = x.fill_nan(None)
    bin_ = pl.when(x_or_null.is_not_null()).then(edges.search_sorted(x_or_null, side="right").cast(pl.Int32))
    index = pl.coalesce(end, bin_)
    unread = pl.col(f"raw_{number}").is_not_null() & x.is_null() & end.is_null()
    return index, index.is_null() & ~unread, unread


def _has_next(dtypes: Dtypes, states: States) -> pl.Expr:
    """Whether the row itself says where it leads."""
    if "next_state" not in dtypes:
        return pl.lit(value=False)
    if states.bins is not None and "next_bin" not in dtypes:
        # without the number only an end can be told
        return state_index("next_state", "next_bin", dtypes, states)[0].is_not_null()
    cell = pl.col("raw_next_state")
    return (cell.fill_nan(None) if dtypes["next_state"] == pl.Float64 else cell).is_not_null()


def _integer(role: str, dtypes: Dtypes) -> pl.Expr:
    cell = pl.col(f"raw_{role}")
    if dtypes[role] != pl.String and dtypes[role] != pl.Float64:
        return cell.cast(pl.Int64)
    x = _number(role, dtypes)
    whole = pl.when((x == x.floor()) & (x.abs() <= _EXACT_FLOAT)).then(x).cast(pl.Int64)
    return (
        whole if dtypes[role] == pl.Float64 else pl.coalesce(cell.str.strip_chars().cast(pl.Int64, strict=False), whole)
    )


def _step_number(dtypes: Dtypes, first: int) -> pl.Expr:
    """Step of each row from 0, 0 where none is logged; null where it cannot be read, or is before the ``first``."""
    if "step" not in dtypes:
        return pl.lit(0, dtype=pl.Int64)
    step = _integer("step", dtypes)
    return pl.when(step >= first).then(step - first)


def _episode_number(dtypes: Dtypes) -> pl.Expr:
    """Episode id as an integer; null where it cannot be read."""
    if "episode" not in dtypes:
        # every row is an episode: the n-th of its user
        return pl.int_range(pl.len(), dtype=pl.Int64).over("raw_user")
    if dtypes["episode"] == pl.Int64:
        return pl.col("raw_episode")
    text = _text("episode", dtypes)
    if dtypes["episode"] == pl.String:
        text = pl.when(text.str.strip_chars() != "").then(text)
    # ids that became floats on their way are the integers they were
    text = text.str.replace(r"^(-?[0-9]+)\.0$", "$1")
    whole = pl.when(text.str.contains(_INTEGER)).then(text).cast(pl.Int64, strict=False)
    hashed = pl.when(~text.str.contains(_INTEGER)).then(text).map_batches(_numbers, return_dtype=pl.Int64)
    return pl.coalesce(whole, hashed)


def _numbers(labels: pl.Series) -> pl.Series:
    distinct = labels.drop_nulls().unique()
    if distinct.is_empty():
        return pl.Series(labels.name, [None], dtype=pl.Int64).new_from_index(0, len(labels))
    hashes = (hashlib.blake2b(x.encode(), digest_size=8).digest() for x in distinct)
    numbers = pl.Series([int.from_bytes(h, "little") >> 1 for h in hashes], dtype=pl.Int64)
    return labels.replace_strict(distinct, numbers, default=None, return_dtype=pl.Int64)


def flag(role: str, dtypes: Dtypes) -> tuple[pl.Expr, pl.Expr]:
    """A boolean (empty is false) and the mark of an unreadable one."""
    if role not in dtypes:
        return pl.lit(value=False), pl.lit(value=False)
    if dtypes[role] == pl.Boolean:
        return pl.col(f"raw_{role}").fill_null(value=False), pl.lit(value=False)
    text = _text(role, dtypes).str.strip_chars().str.to_lowercase()
    true = text.is_in(_TRUE).fill_null(value=False)
    return true, (~true & ~text.is_in(_FALSE)).fill_null(value=False)


def read_flag(cell: pl.Series) -> pl.DataFrame:
    """Columns ``value`` and ``unread`` of cells as a file has them."""
    if cell.dtype == pl.Binary:
        # polars refuses a whole column for one cell that is no text
        cell = pl.Series([None if b is None else b.decode(errors="replace") for b in cell], dtype=pl.String)
    raw = (cell if cell.dtype == pl.Boolean or cell.dtype == pl.Float64 else cell.cast(pl.String)).alias("raw_flag")
    value, unread = flag("flag", {"flag": raw.dtype})
    return raw.to_frame().select(value.alias("value"), unread.alias("unread"))


def _probability(dtypes: Dtypes) -> tuple[pl.Expr, pl.Expr]:
    """Behaviour probability, and the mark of one that is none: what was done had some chance."""
    if "behavior_prob" not in dtypes:
        return pl.lit(None, dtype=pl.Float64), pl.lit(value=False)
    p = _number("behavior_prob", dtypes)
    bad = pl.col("raw_behavior_prob").is_not_null() & (p.is_null() | (p.is_not_nan() & ~p.is_between(LEAST_CHANCE, 1)))
    return p.fill_nan(None), bad


def _reward_cell(dtypes: Dtypes, card: Card) -> pl.Expr:
    """Reward as it was logged, or what an empty cell stands for."""
    if "reward" not in dtypes:
        return pl.lit(None, dtype=pl.Float64)
    r = _number("reward", dtypes)
    if card.reward.empty is None:
        return r
    return pl.when(pl.col("raw_reward").is_null() | r.is_nan()).then(card.reward.empty).otherwise(r)


def _reward(r: pl.Expr | None, card: Card) -> list[pl.Expr]:
    """Reward clipped and floored, and its marks; null and unmarked where the card declares a table."""
    if r is None:
        marks = (pl.lit(value=False).alias(mark) for mark in ("not_a_reward", "clipped", "floored"))
        return [pl.lit(None, dtype=pl.Float64).alias("reward"), *marks]
    (low, high), steps, unit = card.reward.range, card.reward.steps, card.reward.unit
    finite = r.is_finite().fill_null(value=False)
    # times the inverse, as polars divides a long column: one of a single row it would divide, and round otherwise
    at = (r.clip(low, high) - low) * (1 / (high - low)) * steps
    # rounding may leave a lattice point a hair too low: it still counts as the point
    k = (at + _ROUNDING).floor().clip(0, steps)
    outside = (r < low - _ROUNDING * unit) | (r > high + _ROUNDING * unit)
    return [
        pl.when(finite & (k == steps)).then(high).when(finite).then(low + k * unit).alias("reward"),
        (~finite).alias("not_a_reward"),
        (finite & outside).alias("clipped"),
        (finite & (at - k > _ROUNDING)).alias("floored"),
    ]
