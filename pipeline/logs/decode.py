"""Logged cells -> numbers, keyed hashes, and marks of what is wrong; row by row, no rule applied.

Vectors and observations come as a list of numbers, its text, or one cell a coordinate.  The declared center is
subtracted from a logged number, and the difference divided by the declared scale; vectors are not shortened here, so
that another radius needs no other snapshot.  A wide source (one row an episode) is spilt as it is and unfolded before
the rules; where the log has no column of steps, the rows of an episode are numbered in a declared order.  The place of
a row depends on the contents of its person's rows alone, not on their positions in a file.

Queries (states or observations, from CSV or NDJSON; other columns are ignored) are decoded by the same rules.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pc

from pipeline.arrays import Array, Integers
from pipeline.declaration.card import TELLING, AnyCard, Card, CardError, Reward, step_role
from pipeline.declaration.domain import Product, States, Vector
from pipeline.declaration.source import DatesForm, NumbersForm, constant
from pipeline.logs.contribution_bounding import canonical, digests, keyed_hash
from pipeline.logs.store import OBSERVED

_T = TypeVar("_T")

NUMBERS = pl.List(pl.Float64)

CELLS = 3
"""Of the reading in which no cell's meaning depends on the types of others (1; snapshots of before it have 0),
``same_place`` goes by no time that cannot be read (2), and a row leads where the next one is, whatever blanks an
episode's id has (3)."""

_BOOLEANS = {"true": "1.0", "false": "0.0", "True": "1.0", "False": "0.0", "TRUE": "1.0", "FALSE": "0.0"}
# a smaller probability counts as none: its inverse would overflow, with a warning that depends on one row
LEAST_CHANCE = 1e-300


def holds_numbers(dtype: pl.DataType) -> bool:
    """Whether a column of this type holds lists of numbers."""
    inner = dtype.inner if isinstance(dtype, pl.List | pl.Array) else None
    return inner is not None and (inner.is_numeric() or inner == pl.Null)


def number_of(text: pl.Expr) -> pl.Expr:
    """Text as a number, null if it is none; ``true``, ``False`` and so on as a column of booleans gives them."""
    # a file of other types turns a column into text; the rows of all files must still be read alike
    return text.str.strip_chars().replace(_BOOLEANS).cast(pl.Float64, strict=False)


def list_text(cell: pl.Expr) -> pl.Expr:
    """``[1.5, null]`` of a list of numbers; null of none."""
    return pl.when(cell.is_not_null()).then(
        "[" + cell.list.eval(pl.element().cast(pl.String).fill_null("null")).list.join(", ") + "]"
    )


_SEPARATORS: dict[NumbersForm, tuple[str, str]] = {
    "1234,5": ("", ","), "1.234,5": (".", ","), "1,234.5": (",", "."), "1 234,5": (" ", ","),
}  # fmt: skip


def plain_number(text: pl.Expr, form: NumbersForm) -> pl.Expr:
    """A number in the log's notation -> in the usual one; other text unchanged."""
    thousands, decimal = _SEPARATORS[form]
    text = text.str.replace_all("[\u00a0\u202f]", " ")
    groups = rf"\d{{1,3}}(?:{re.escape(thousands)}\d{{3}})+|" if thousands else ""
    plain = text.str.replace_all(thousands, "", literal=True) if thousands else text
    fits = text.str.contains(rf"^[+-]?(?:{groups}\d+)(?:{re.escape(decimal)}\d+)?$")
    return pl.when(fits).then(plain.str.replace(decimal, ".", literal=True)).otherwise(text)


def plain_date(text: pl.Expr, form: DatesForm) -> pl.Expr:
    """A date, with or without a time, in the log's notation -> in ISO's; other text unchanged."""
    mark = next(c for c in form if not c.isalpha())
    parts = form.split(mark)
    digits = (r"(\d{4})" if part == "yyyy" else r"(\d{1,2})" for part in parts)
    pattern = f"^{re.escape(mark).join(digits)}(?:[ T]+(.*))?$"
    year, month, day = (text.str.extract(pattern, 1 + parts.index(part)).str.zfill(2) for part in ("yyyy", "mm", "dd"))
    time = text.str.extract(pattern, 4).str.replace(r"^(\d):", "0${1}:")
    iso = pl.concat_str([year, month, day], separator="-")
    iso = pl.when(time.is_not_null()).then(pl.concat_str([iso, time], separator=" ")).otherwise(iso)
    return pl.coalesce(iso, text)


# units that stand before a number as often as behind it
_SIGNS = ("€", "$", "£")


def plain_cell(text: pl.Expr, numbers: NumbersForm | None, units: Mapping[str, float] | None) -> pl.Expr:
    """A number as logged, its unit behind it, a currency's sign before -> in the card's unit; other text unchanged."""
    bare, factor = text.str.strip_chars(), pl.lit(1.0)
    stripped = bare
    # the longest unit that fits is meant: kg, not g
    for unit in sorted(units or {}, key=len):
        before = stripped.str.starts_with(unit) if unit in _SIGNS else pl.lit(value=False)
        fits = stripped.str.ends_with(unit) | before
        number = stripped.str.strip_prefix(unit) if unit in _SIGNS else stripped
        bare = pl.when(fits).then(number.str.strip_suffix(unit).str.strip_chars()).otherwise(bare)
        factor = pl.when(fits).then(pl.lit((units or {})[unit])).otherwise(factor)
    plain = bare if numbers is None else plain_number(bare, numbers)
    number = plain.cast(pl.Float64, strict=False)
    converted = pl.when(factor == 1).then(plain).otherwise((number * factor).cast(pl.String))
    return pl.when(number.is_not_null()).then(converted).otherwise(text)


_EXACT_FLOAT = 2**53
_ROUNDING = 1e-9
# size of the table in which integer labels are looked up
_PLACES = 2**16
_TRUE, _FALSE = ["true", "t", "yes", "y", "1", "1.0"], ["false", "f", "no", "n", "0", "0.0"]
_INTEGER, _WHOLE = r"^(?:0|-?[1-9][0-9]{0,18})$", r"^(-?[0-9]+)\.0$"

Dtypes = dict[str, pl.DataType]


def role_types(raw: pl.DataFrame) -> Dtypes:
    """Role -> type of its raw cells."""
    return {name.removeprefix("raw_"): dtype for name, dtype in raw.schema.items()}


def decode(raw: pl.DataFrame, card: Card) -> pl.DataFrame:
    """Decode the rows of whole users.

    ``card``: declares labels, bins, and the lattice of rewards.
    Returns one row a row of ``raw``, in its order: ``row`` (position in ``raw``), the canonical columns (``logged`` is
    the logged next state), and the marks ``unreadable``, ``homeless`` (an undeclared label with no OTHER),
    ``relabelled`` (one with), ``not_a_reward``, ``clipped``, ``floored``, ``has_next``.
    """
    dtypes = role_types(raw)
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
    other_state, other_action = (pl.lit(labels.other_index, dtype=pl.Int32) for labels in (states, actions))
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
        # the streaming engine, which is the default, takes three times as long to begin and more memory
        .collect(engine="in-memory")
    )
    # one value instead of a constant column: sorting then moves none
    marks = [mark for mark in rows.iter_columns() if mark.dtype == pl.Boolean and not mark.null_count()]
    return rows.with_columns(pl.lit(mark.any()).alias(mark.name) for mark in marks if mark.any() == mark.all())


def identify(dtypes: Dtypes, first: int = 0) -> tuple[dict[str, pl.Expr], list[pl.Expr]]:
    """Columns of every log (``row``: the position, ids, step, flags), and marks of those that cannot be read."""
    parsed = {name: flag(name, dtypes) for name in ("terminated", "truncated")}
    parsed["behavior_prob"] = _probability(dtypes)
    columns = {
        "row": pl.int_range(pl.len(), dtype=pl.Int64),
        "user_id": pl.col("raw_user"),
        "episode_id": _episode_number(dtypes),
        "step": _step_number(dtypes, first),
        **{name: value for name, (value, _) in parsed.items()},
    }
    lost = [pl.col(name).is_null() for name in ("episode_id", "step")]
    return columns, [*lost, *(unread for _, unread in parsed.values())]


def _cells(role: str, dtypes: Dtypes) -> pl.Expr:
    """Raw cells of a role, null of what is no number."""
    cell = pl.col(f"raw_{role}")
    return cell.fill_nan(None) if dtypes[role] == pl.Float64 else cell


def text_of(role: str, dtypes: Dtypes) -> pl.Expr:
    """Raw cells as text, null of what is no number: what they are where a file of other types makes text of them."""
    return _cells(role, dtypes).cast(pl.String)


def _number(role: str, dtypes: Dtypes) -> pl.Expr:
    cell = pl.col(f"raw_{role}")
    return number_of(cell) if dtypes[role] == pl.String else cell.cast(pl.Float64, strict=False)


def _either_form(labels: Mapping[str, _T]) -> dict[str, _T]:
    """Labels, and each integer among them as the float that an empty cell of another row makes of it, and back."""
    floats = {f"{label}.0": x for label, x in labels.items() if label.lstrip("-").isdecimal()}
    return floats | {re.sub(_WHOLE, r"\1", label): x for label, x in labels.items()} | {**labels}


def _index(role: str, dtypes: Dtypes, table: dict[str, int]) -> pl.Expr:
    """Index of a raw label; ``3`` and ``3.0`` are one label unless both are declared."""
    index: dict[str, int] | dict[int, int]
    table = _either_form(table)
    if dtypes[role] == pl.Int64:
        # as their text would be looked up, without writing it
        numbers = {int(label): i for label, i in table.items() if re.fullmatch(r"0|-?[1-9][0-9]*", label)}
        cell, index = pl.col(f"raw_{role}"), {n: i for n, i in numbers.items() if -(2**63) <= n < 2**63}
        least, most = min(index, default=0) - 1, max(index, default=0) + 1
        if least > -_EXACT_FLOAT and most < min(least + _PLACES, _EXACT_FLOAT):
            # a place in a table for each possible number, and one at each end for smaller and larger ones
            places = pl.Series([index.get(n) for n in range(least, most + 1)], dtype=pl.Int32)
            return pl.lit(places).gather(cell.clip(least, most) - least)
    else:
        cell, index = text_of(role, dtypes), table
    return cell.replace_strict(index, default=None, return_dtype=pl.Int32) if index else pl.lit(None, dtype=pl.Int32)


def state_index(label: str, number: str, dtypes: Dtypes, states: States) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Declared state of a row, as expressions over its raw cells.

    Returns index among live states and ends (null if undeclared), the mark of an undeclared one, and the mark of a bin
    number that cannot be read.
    """
    never, product = pl.lit(value=False), states.product if label == "state" else None
    if states.undivided:
        return pl.lit(0, dtype=pl.Int32), never, never
    if product is None and label not in dtypes and number not in dtypes:
        return pl.lit(None, dtype=pl.Int32), never, never
    ends = {end: states.first_terminal + i for i, end in enumerate(states.ends)}
    if product is None and states.bins is None:
        index = _index(label, dtypes, states.raw_labels() | ends)
        return index, index.is_null(), never
    end = _index(label, dtypes, ends) if label in dtypes else pl.lit(None, dtype=pl.Int32)
    if product is not None:
        index, unread = _combined(dtypes, product)
    elif states.bins is not None and number in dtypes:
        index, unread = _in_bin(number, dtypes, states.bins.edges)
    else:
        return end, never, never
    index, unread = pl.coalesce(end, index), unread & end.is_null()
    return index, index.is_null() & ~unread, unread


def _in_bin(role: str, dtypes: Dtypes, edges: Sequence[float]) -> tuple[pl.Expr, pl.Expr]:
    """Index of the bin ``[e, e')`` that a number lies in (null of none or NaN), and the mark of a cell that is none."""
    number = _number(role, dtypes)
    x, unread = number.fill_nan(None), pl.col(f"raw_{role}").is_not_null() & number.is_null()
    bin_ = pl.lit(pl.Series(edges, dtype=pl.Float64)).search_sorted(x, side="right").cast(pl.Int32)
    return pl.when(x.is_not_null()).then(bin_), unread


def _combined(dtypes: Dtypes, product: Product) -> tuple[pl.Expr, pl.Expr]:
    """Index of a state that is a product of several columns, and the mark of an unreadable number in one of them."""
    index, unread = pl.lit(0, dtype=pl.Int32), pl.lit(value=False)
    for i, (column, size) in enumerate(zip(product.columns, product.sizes, strict=True)):
        role, part = step_role("part", i), product.bins[column]
        if part.labels is not None:
            index = index * size + _index(role, dtypes, {text: k for k, text in enumerate(part.labels)})
        else:
            bin_, odd = _in_bin(role, dtypes, part.edges or [])
            index, unread = index * size + bin_, unread | odd
    return index, unread


def _has_next(dtypes: Dtypes, states: States) -> pl.Expr:
    """Whether the row logs its next state."""
    if "next_state" not in dtypes:
        return pl.lit(value=False)
    if states.bins is not None and "next_bin" not in dtypes:
        # without the number only an end can be read
        return state_index("next_state", "next_bin", dtypes, states)[0].is_not_null()
    return _cells("next_state", dtypes).is_not_null()


def _integer(role: str, dtypes: Dtypes) -> pl.Expr:
    cell = pl.col(f"raw_{role}")
    if dtypes[role] != pl.String and dtypes[role] != pl.Float64:
        return cell.cast(pl.Int64)
    x = _number(role, dtypes)
    integer = pl.when((x == x.floor()) & (x.abs() <= _EXACT_FLOAT)).then(x).cast(pl.Int64)
    if dtypes[role] == pl.Float64:
        return integer
    return pl.coalesce(cell.str.strip_chars().cast(pl.Int64, strict=False), integer)


def _step_number(dtypes: Dtypes, first: int) -> pl.Expr:
    """Step of each row from 0 (0 if the log has no steps); null where it cannot be read, or is before the ``first``."""
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
    text = text_of("episode", dtypes)
    if dtypes["episode"] == pl.String:
        # in the form of a user id, which may be the episode's: a blank behind it would cut a person's rows in two
        text = canonical(text)
        text = pl.when(text != "").then(text)
    # integer ids that became floats are integers again
    text = text.str.replace(_WHOLE, "$1")
    # every id that a column of integers can hold: a file of other types must not renumber another person's episodes
    integers = pl.when(text.str.contains(_INTEGER)).then(text).cast(pl.Int64, strict=False)
    hashed = pl.when(integers.is_null()).then(text).map_batches(_numbers, return_dtype=pl.Int64)
    return pl.coalesce(integers, hashed)


def _numbers(labels: pl.Series) -> pl.Series:
    distinct = labels.drop_nulls().unique()
    if distinct.is_empty():
        return pl.Series(labels.name, [None], dtype=pl.Int64).new_from_index(0, len(labels))
    numbers = np.frombuffer(digests(distinct, b""), dtype="<u8") >> np.uint64(1)
    return labels.replace_strict(distinct, pl.Series(numbers), default=None, return_dtype=pl.Int64)


def flag(role: str, dtypes: Dtypes) -> tuple[pl.Expr, pl.Expr]:
    """A boolean (empty is false) and the mark of an unreadable one."""
    if role not in dtypes:
        return pl.lit(value=False), pl.lit(value=False)
    if dtypes[role] == pl.Boolean:
        return pl.col(f"raw_{role}").fill_null(value=False), pl.lit(value=False)
    text = text_of(role, dtypes).str.strip_chars().str.to_lowercase()
    true = text.is_in(_TRUE).fill_null(value=False)
    return true, (~true & ~text.is_in(_FALSE)).fill_null(value=False)


def read_flag(cell: pl.Series) -> pl.DataFrame:
    """Columns ``value`` and ``unread`` (a mark) of the raw cells of a flag."""
    if cell.dtype == pl.Binary:
        # polars refuses a whole column for one cell that is no text
        cell = pl.Series([None if b is None else b.decode(errors="replace") for b in cell], dtype=pl.String)
    raw = (cell if cell.dtype == pl.Boolean or cell.dtype == pl.Float64 else cell.cast(pl.String)).alias("raw_flag")
    value, unread = flag("flag", {"flag": raw.dtype})
    return raw.to_frame().select(value.alias("value"), unread.alias("unread"))


def _probability(dtypes: Dtypes) -> tuple[pl.Expr, pl.Expr]:
    """Behaviour probability, and the mark of one outside (0, 1]: the logged action had some probability."""
    if "behavior_prob" not in dtypes:
        return pl.lit(None, dtype=pl.Float64), pl.lit(value=False)
    p = _number("behavior_prob", dtypes)
    bad = pl.col("raw_behavior_prob").is_not_null() & (p.is_null() | (p.is_not_nan() & ~p.is_between(LEAST_CHANCE, 1)))
    return p.fill_nan(None), bad


def _reward_cell(dtypes: Dtypes, card: Card) -> pl.Expr:
    """Logged reward; an empty cell has the card's reward for empty cells."""
    if "reward" not in dtypes:
        return pl.lit(None, dtype=pl.Float64)
    r = _number("reward", dtypes)
    if (words := card.reward.words) is not None:
        # in numbers too, and in integers that became floats: the types of other rows must not change this cell
        text = text_of("reward", dtypes).str.strip_chars()
        integer_words = {re.sub(_WHOLE, r"\1", word): worth for word, worth in words.items()} | words
        lookups = (text, words), (text.str.replace(_WHOLE, "$1"), integer_words)
        worths = (cell.replace_strict(of, default=None, return_dtype=pl.Float64) for cell, of in lookups)
        r = pl.coalesce(*worths, r)
    if card.reward.empty is None:
        return r
    return pl.when(pl.col("raw_reward").is_null() | r.is_nan()).then(card.reward.empty).otherwise(r)


def _places(r: pl.Expr, reward: Reward) -> tuple[pl.Expr, pl.Expr]:
    """Position of a reward on the lattice, in steps, and the index of the lattice point at or below it."""
    low, high = reward.range
    # times the inverse, as polars divides a long column: it divides a column of one row, which rounds differently
    position = (r.clip(low, high) - low) * (1 / (high - low)) * reward.steps
    # rounding may leave a lattice point a hair too low: it still counts as the point
    return position, (position + _ROUNDING).floor().clip(0, reward.steps)


def on_lattice(r: pl.Expr, reward: Reward) -> pl.Expr:
    """Finite rewards clipped to the range and rounded down to the lattice."""
    _, k = _places(r, reward)
    return pl.when(k == reward.steps).then(reward.range[1]).otherwise(reward.range[0] + k * reward.unit)


def _reward(r: pl.Expr | None, card: Card) -> list[pl.Expr]:
    """Reward clipped and floored, and its marks; null and unmarked where the card declares a table."""
    if r is None:
        marks = (pl.lit(value=False).alias(mark) for mark in ("not_a_reward", "clipped", "floored"))
        return [pl.lit(None, dtype=pl.Float64).alias("reward"), *marks]
    (low, high), unit = card.reward.range, card.reward.unit
    finite = r.is_finite().fill_null(value=False)
    position, k = _places(r, card.reward)
    outside = (r < low - _ROUNDING * unit) | (r > high + _ROUNDING * unit)
    return [
        pl.when(finite).then(on_lattice(r, card.reward)).alias("reward"),
        (~finite).alias("not_a_reward"),
        (finite & outside).alias("clipped"),
        (finite & (position - k > _ROUNDING)).alias("floored"),
    ]


# relative excess over its radius that a vector may have by the rounding of 32-bit numbers
_BEYOND = 1e-5


def vector_cells(
    role: str, columns: str | list[str], vector: Vector, dtypes: Dtypes
) -> tuple[pl.Expr, pl.Expr, pl.Expr, pl.Expr]:
    """Expressions over the raw cells of one vector: a list of numbers, its text, or a cell for each coordinate.

    Returns the centered and scaled coordinates (null where the cell is missing or no number), and marks: of vectors of
    which some cell holds text that is no number, of lists without the declared number of entries (not of missing ones),
    and of vectors whose cells are all empty.
    """
    never = pl.lit(value=False)
    if isinstance(columns, str):
        raw, dtype, words = pl.col(f"raw_{role}"), dtypes[role], never
        listed = raw
        if dtype == pl.String:
            listed = _pieces(raw).list.eval(number_of(pl.element()))
            words = _pieces(raw).list.eval(_word(pl.element())).list.any().fill_null(value=False)
        elif dtype != NUMBERS:
            # a plain number is a list of one
            listed = pl.when(raw.is_not_null()).then(pl.concat_list([raw.cast(pl.Float64)]))
        numbers = [listed.list.get(i, null_on_oob=True) for i in range(vector.size)]
        wrong_length = (listed.list.len() != vector.size).fill_null(value=False)
        blank = pl.element().fill_nan(None).is_null()
        missing = listed.list.eval(blank).list.all().fill_null(value=True) & ~words
    else:
        names = [step_role(role, i) for i in range(vector.size)]
        numbers = [_number(name, dtypes) for name in names]
        marks = [_word(pl.col(f"raw_{name}")) for name in names if dtypes[name] == pl.String]
        words, wrong_length = pl.any_horizontal(never, *marks).fill_null(value=False), never
        missing = pl.all_horizontal(_cells(name, dtypes).is_null() for name in names)
    coordinates = zip(numbers, vector.scales, vector.centers, strict=True)
    # times the inverse: polars rounds a quotient differently if the column has one row
    values = pl.concat_list([((x - c) * (1 / s)).cast(pl.Float32) for x, s, c in coordinates])
    return values, words, wrong_length, missing


def _pieces(text: pl.Expr) -> pl.Expr:
    """``[1, 2]`` or ``1, 2`` as pieces of text; empty text gives null, ``[]`` an empty list."""
    bare = text.str.strip_chars()
    inside = bare.str.strip_prefix("[").str.strip_suffix("]").str.strip_chars()
    none = pl.lit([], dtype=pl.List(pl.String))
    return pl.when(bare == "").then(None).when(inside == "").then(none).otherwise(inside.str.split(","))


def _word(text: pl.Expr) -> pl.Expr:
    plain = text.str.strip_chars()
    return ~plain.is_in(["", "null"]) & number_of(plain).is_null()


def finite(vector: pl.Expr) -> pl.Expr:
    """Mark of vectors whose coordinates are all present and finite."""
    return vector.list.eval(pl.element().is_finite().fill_null(value=False)).list.all().fill_null(value=False)


def longer(vector: pl.Expr, radius: float) -> pl.Expr:
    """Mark of vectors longer than the radius by more than the rounding of 32-bit numbers."""
    square = vector.list.eval(pl.element().cast(pl.Float64) ** 2).list.sum()
    return (square > (radius * (1 + _BEYOND)) ** 2).fill_null(value=False)


def next_observation() -> pl.Expr:
    """Logged next observation; else that of the next row, unless the episode ended; else null.

    Rows are sorted by episode and step.  The next row may be one beyond H.
    """
    follows = (pl.col("episode") == pl.col("episode").shift(-1)) & (pl.col("step") + 1 == pl.col("step").shift(-1))
    after = pl.col("observation").shift(-1)
    usable = follows & ~pl.col("terminated") & finite(after) & ~pl.col("wrong_length").shift(-1)
    return pl.coalesce("logged_observation", pl.when(usable).then(after))


def with_vectors(rows: pl.DataFrame, raw: pl.DataFrame, card: AnyCard, declared: Mapping[str, Vector]) -> pl.DataFrame:
    """Decoded rows with their vectors, ``logged_observation`` (null where none is logged), and marks."""
    dtypes = role_types(raw)
    cells_of = {role: vector_cells(role, column, declared[role], dtypes) for role, column in card.log.vectors.items()}
    vectors = raw.select(
        *(values.alias(role) for role, (values, *_) in cells_of.items()),
        pl.any_horizontal(words for _, words, *_ in cells_of.values()).alias("words"),
        pl.any_horizontal(wrong_length for *_, wrong_length, _ in cells_of.values()).alias("wrong_length"),
        *(missing.alias(f"no_{role}") for role, (*_, missing) in cells_of.items()),
    )
    if "next_observation" not in cells_of:
        none = pl.lit(None, dtype=OBSERVED["next_observation"])
        vectors = vectors.with_columns(none.alias("next_observation"), pl.lit(value=True).alias("no_next_observation"))
    logged, none_logged = pl.col("next_observation"), pl.col("no_next_observation")
    not_finite = [~finite(pl.col(role)) for role in cells_of if role != "next_observation"]
    return pl.concat([rows, vectors], how="horizontal").with_columns(
        pl.col("unreadable") | pl.col("words"),
        pl.when(~none_logged).then(logged).alias("logged_observation"),
        pl.any_horizontal(*not_finite, ~none_logged & ~finite(logged)).alias("not_finite"),
    )


def with_successors(rows: pl.DataFrame, card: Card, vector: Vector) -> pl.DataFrame:
    """Sorted rows with ``next_observation``, and a next state that is known only if its observation is.

    If there is only one state, a logged next observation determines the next state, too.

    ``rows``: as :func:`~pipeline.logs.ingest.sort_episodes` leaves them, with ``next_state``.
    """
    first_end, observed = card.domain.states.first_terminal, pl.col("next_observation").is_not_null()
    state, undivided = pl.col("next_state"), pl.lit(0 if card.domain.states.undivided else None, dtype=pl.Int32)
    rows = rows.with_columns(next_observation().alias("next_observation"))
    # the next row by its step alone may stand behind a gap: then the next state stays unknown
    logged = pl.col("logged_observation").is_not_null() & ~pl.col("terminated")
    successor = pl.coalesce(state, pl.when(logged).then(undivided))
    return rows.with_columns(
        pl.when((successor >= first_end) | observed).then(successor).cast(pl.Int32).alias("next_state"),
        pl.any_horizontal(longer(pl.col(c), vector.radius) for c in OBSERVED).alias("beyond_radius"),
    )


# a date and a time as text, with the offset from UTC; omitted parts are 0
_DATE, _TIME = r"^(\d{4}-\d{2}-\d{2})", r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}"
_FORMAT = "%Y-%m-%d %H:%M:%S%.f%z"
_MICROSECONDS = 86_400 * 10**6
_EPISODE_KEYS = ("user_id", "episode_id")


def order_of(dtypes: Dtypes, role: str = "order") -> pl.Expr:
    """Number of a row, or its date in days, by which rows are ordered; null where it is neither."""
    number = _number(role, dtypes)
    # as in text: an infinite number is no place
    number = pl.when(number.is_finite()).then(number)
    return pl.coalesce(number, _days(pl.col(f"raw_{role}").str.strip_chars())) if dtypes[role] == pl.String else number


def _days(text: pl.Expr) -> pl.Expr:
    """Days since 1970 of ISO dates and times, each read independently of other rows."""
    text = text.str.replace(_DATE + "T", "${1} ").str.replace(r"(?:Z| ?UTC)$", "+00:00")
    text = text.str.replace(_DATE + "$", "${1} 00:00").str.replace(f"({_TIME[1:]}.*[+-]\\d{{2}})$", "${1}:00")
    text = text.str.replace(f"({_TIME[1:]})($|[+-])", "${1}:00${2}")
    with_offset = text.str.contains(r"[+-]\d{2}:?\d{2}$") & text.str.contains(_TIME)
    text = pl.when(with_offset).then(text).otherwise(text + "+00:00")
    moment = text.str.to_datetime(_FORMAT, time_unit="us", time_zone="UTC", strict=False)
    # times the inverse: polars rounds a quotient differently if the column has one row
    return moment.to_physical().cast(pl.Float64) * (1 / _MICROSECONDS)


def number_steps(rows: pl.DataFrame, raw: pl.DataFrame, card: Card) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Number the rows of each episode from 0 in the order that the card names.

    Returns the rows with ``step``, ``jump`` (whether a row stands too far behind the one before it) and ``same_place``
    (whether another row stands at its place), without those that repeat or that the card's ``same_place`` replaces by
    another row of their place; and these, each with its ``rule``.  A row whose place cannot be read is ``unreadable``.
    """
    place, dtypes = [*_EPISODE_KEYS, "order"], role_types(raw)
    order = order_of(dtypes)
    if card.source.order_by in (card.source.optional or ()):
        # the outcome of an episode stands behind its rows if its file has no date
        order = pl.when(text_of("order", dtypes).is_null()).then(math.inf).otherwise(order)
    rows = rows.with_columns(raw.select(order.alias("order")).to_series())
    rows = rows.with_columns(pl.col("unreadable") | pl.col("order").is_null())
    tied = rows.filter(pl.struct(place).is_duplicated() & pl.col("order").is_not_null()).select("row", *place)
    tied = tied.with_columns(keyed_hash(_texts(raw[tied["row"]]), card.name).alias("tie"))
    repeats = tied.filter(~pl.struct(*place, "tie").is_first_distinct())
    tied = tied.join(repeats, on="row", how="anti")
    out = repeats.select("row", rule=pl.lit("repeated_row"))
    if card.source.same_place is not None:
        entered = raw.select(order_of(dtypes, "entered").alias("entered")).to_series()
        # a text that is no date, such as 1:30 PM, does not tell which of several rows came last
        unread = entered.is_null() & raw.select(text_of("entered", dtypes).str.strip_chars() != "").to_series()
        among_tied = pl.int_range(len(raw), eager=True).is_in(tied["row"].implode())
        unread = unread.fill_null(value=False) & among_tied
        rows = rows.with_columns(pl.col("unreadable") | unread)
        descending = card.source.same_place.keep == "last"
        tied = tied.with_columns(entered.gather(tied["row"]).alias("entered"))
        tied = tied.sort("entered", "tie", descending=[descending, False], nulls_last=True)
        # nor does a readable one beside it
        superseded = tied.filter(~pl.struct(place).is_first_distinct() & ~pl.lit(unread.gather(tied["row"])))
        tied = tied.join(superseded, on="row", how="anti")
        out = pl.concat([out, superseded.select("row", rule=pl.lit("superseded"))])
    ties = tied.select("row", "tie", pl.struct(place).is_duplicated().alias("same_place"))
    rows = rows.drop("same_place").join(out, on="row", how="anti", maintain_order="left")
    rows = rows.join(ties, on="row", how="left", maintain_order="left").sort(*place, "tie", "row", nulls_last=True)
    rows = rows.with_columns(pl.col("same_place").fill_null(value=False))
    distance = pl.col("order") - pl.col("order").shift().over(_EPISODE_KEYS)
    limit = None if card.source.gap == "keep" else card.source.gap_over
    jump = pl.lit(value=False) if limit is None else (distance.is_finite() & (distance > limit)).fill_null(value=False)
    step = pl.when(pl.col("order").is_not_null()).then(pl.int_range(pl.len(), dtype=pl.Int64).over(_EPISODE_KEYS))
    return rows.with_columns(step.alias("step"), jump.alias("jump")).drop("tie"), out


def _texts(raw: pl.DataFrame) -> list[str]:
    """Contents of each row, without its place, as one text that does not depend on the types of the columns."""
    contents = {c: t for c, t in raw.schema.items() if c.startswith("raw_") and c != "raw_order"}
    cells = [_normal_text(pl.col(c), dtype) for c, dtype in contents.items()]
    # the length before each cell, so that no cell can look like two
    sized = [x for cell in cells for x in (cell.str.len_bytes().cast(pl.String).fill_null("-"), cell.fill_null(""))]
    return raw.select(pl.concat_str(sized, separator=" ")).to_series().to_list()


def _normal_text(cell: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if holds_numbers(dtype):
        return list_text(cell.cast(NUMBERS))
    text = (cell.fill_nan(None) if dtype.is_float() else cell).cast(pl.String)
    number = number_of(text)
    return pl.coalesce(pl.when(number.is_finite()).then(number.cast(pl.String)), text)


def behind_gap(card: Card) -> pl.Expr:
    """Mark of rows with a gap before them in their episode; rows are sorted by episode and step."""
    # episodes stand together: filling forward over rows is cheaper than a group for each episode
    row, new = pl.int_range(pl.len(), dtype=pl.Int64), pl.col("episode").ne_missing(pl.col("episode").shift())
    start = pl.when(new).then(row).forward_fill()
    # steps are distinct here
    gap = pl.col("jump") if card.source.order_by is not None else (pl.col("step") != row - start)
    return (pl.when(gap).then(row).forward_fill() >= start).fill_null(value=False)


_NO_LABEL = "\x1f"


def unfold(raw: pl.DataFrame, card: Card) -> pl.DataFrame:
    """Unfold the rows of whole users.

    Returns the same columns as a long source has, ``raw_step`` 0-based, ``origin`` (position in ``raw``), by row and
    step. A step whose state and action cells are all empty is left out; constants do not fill a step.
    """
    roles = card.log.steps
    if "raw_episode" not in raw.columns:
        # every row is an episode: the n-th of its user
        raw = raw.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over("raw_user").alias("raw_episode"))
    raw = raw.with_row_index("origin")
    dtypes = role_types(raw)
    as_text = {role: _needs_text(role, cells, dtypes, card) for role, cells in roles.items()}
    steps = [
        raw.filter(_step_filled(h, roles, dtypes)).select(
            pl.col("origin").cast(pl.Int64),
            "raw_user",
            "raw_episode",
            pl.lit(h, dtype=pl.Int64).alias("raw_step"),
            *(_cell(role, h, cells[h], dtypes, card, as_text=as_text[role]) for role, cells in roles.items()),
            "file",
            "line",
        )
        for h in range(card.domain.horizon)
    ]
    return pl.concat(steps).sort("origin", "raw_step")


def _step_filled(h: int, roles: dict[str, list[str]], dtypes: Dtypes) -> pl.Expr:
    """Mark of rows of which some state or action cell of the step is filled."""
    telling = [r for r in TELLING if r in roles and constant(roles[r][h]) is None]
    return pl.any_horizontal(_filled(step_role(role, h), dtypes, number=role == "bin") for role in telling)


def _filled(role: str, dtypes: Dtypes, *, number: bool) -> pl.Expr:
    cell = _cells(role, dtypes)
    if number and dtypes[role] == pl.String:
        nan = cell.str.strip_chars().cast(pl.Float64, strict=False).is_nan().fill_null(value=False)
        return cell.is_not_null() & ~nan
    return cell.is_not_null()


def _needs_text(role: str, cells: list[str], dtypes: Dtypes, card: Card) -> bool:
    """Whether the cells of a role agree on a type only as text."""
    types = {dtypes[step_role(role, h)] for h, cell in enumerate(cells) if constant(cell) is None}
    return len(types) != 1 or any(constant(c) is not None for c in cells) or bool(_qualified(role, card))


def _cell(role: str, h: int, source: str, dtypes: Dtypes, card: Card, *, as_text: bool) -> pl.Expr:
    if (text := constant(source)) is not None:
        return pl.lit(text or None, dtype=pl.String).alias(f"raw_{role}")
    cell = pl.col(f"raw_{step_role(role, h)}")
    if as_text:
        cell = text_of(step_role(role, h), dtypes)
        if labels := _qualified(role, card):
            cell = _named(cell, source, labels, card)
    return cell.alias(f"raw_{role}")


def _named(cell: pl.Expr, column: str, labels: dict[str, dict[str, str]], card: Card) -> pl.Expr:
    """Raw text -> the qualified label where the column has some; no other label of the key is meant then."""
    if column in labels:
        by_value = labels[column]
        ends = {end: end for end in card.domain.states.ends}
        named = cell.replace_strict(_either_form(by_value) | ends | by_value, default=_NO_LABEL, return_dtype=pl.String)
        return pl.when(cell.is_not_null()).then(named)
    qualified = [label for by_value in labels.values() for label in by_value.values()]
    return pl.when(cell.is_in(qualified)).then(pl.lit(_NO_LABEL)).otherwise(cell)


def _qualified(role: str, card: Card) -> dict[str, dict[str, str]]:
    """Column -> {raw value: label} of a role's labels that are written ``column=value``."""
    kinds = ("action",) if role == "action" else ("state", "next_state")
    if role not in kinds:
        return {}
    labels = (card.domain.actions if role == "action" else card.domain.states).raw_labels()
    columns = {cell for kind in kinds for cell in card.log.steps.get(kind, []) if constant(cell) is None}
    qualified: dict[str, dict[str, str]] = {}
    for label in labels:
        column, equals, value = label.partition("=")
        if equals and column in columns:
            qualified.setdefault(column, {})[value] = label
    return qualified


_COLUMNS = {"state": pl.String, "step": pl.Int64}


def read_queries(content: bytes, name: str) -> tuple[list[str | None], Integers]:
    """States as text (None where empty) and steps, in the order of the file.

    ``content``: UTF-8.  NDJSON if the first character is a brace, else CSV with a header.
    Raises CardError if it is neither, or a step is missing or no integer; records are named by number, never by value.
    """
    try:
        rows = _objects(content, _COLUMNS) if _is_ndjson(content) else _csv(content)
    except (pl.exceptions.PolarsError, pa.ArrowException, KeyError):
        raise CardError(
            f"{name}: not readable; give CSV with the columns state and step (an integer), or one JSON object "
            'a line such as {"state": "…", "step": 0}'
        ) from None
    if missing := (rows["step"].is_null().arg_true() + 1).head(5).to_list():
        raise CardError(f"{name}: record {', '.join(map(str, missing))}: no step; give each record one")
    return rows["state"].to_list(), rows["step"].to_numpy()


def _is_ndjson(content: bytes) -> bool:
    return content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")


def _objects(content: bytes, schema: Mapping[str, Any]) -> pl.DataFrame:
    return pl.read_ndjson(io.BytesIO(content.removeprefix(b"\xef\xbb\xbf")), schema=schema)


def _csv(content: bytes) -> pl.DataFrame:
    types = {"state": pa.string(), "step": pa.int64()}
    cells = pc.ConvertOptions(column_types=types, include_columns=[*types], strings_can_be_null=True, null_values=[""])
    table = pc.read_csv(io.BytesIO(content), None, pc.ParseOptions(newlines_in_values=True), cells)
    return pl.DataFrame({name: pl.Series(name, table[name].to_numpy(), dtype=t) for name, t in _COLUMNS.items()})


def read_observations(content: bytes, name: str, names: Sequence[str]) -> tuple[Array, Integers]:
    """Observations ``(N, n)`` and steps ``(N,)``, in the order of the file; other columns are ignored.

    ``content``: UTF-8.  NDJSON if the first character is a brace, else CSV with a header.
    Raises CardError if it is neither, or a record has no step or not n numbers; records are named by number, never by
    value.
    """
    n = len(names)
    try:
        if _is_ndjson(content):
            rows = _objects(content, {"observation": pl.List(pl.Float64), "step": pl.Int64})
        else:
            texts = pl.read_csv(io.BytesIO(content), infer_schema=False, columns=[*names, "step"])
            numbers = [pl.col(c).str.strip_chars().cast(pl.Float64, strict=False) for c in names]
            step = pl.col("step").str.strip_chars().cast(pl.Int64, strict=False)
            rows = texts.select(pl.concat_list(numbers).alias("observation"), step.alias("step"))
    except pl.exceptions.PolarsError:
        raise CardError(
            f"{name}: not readable; give CSV with the columns {', '.join(names)} and step, or one JSON object a line "
            f'such as {{"observation": [{", ".join(["0.0"] * n)}], "step": 0}}'
        ) from None
    wrong = (rows["observation"].list.len() != n) | rows["observation"].list.eval(pl.element().is_null()).list.any()
    bad = (rows["step"].is_null() | wrong.fill_null(value=True)).arg_true() + 1
    if len(bad):
        records = ", ".join(map(str, bad.head(5).to_list()))
        raise CardError(f"{name}: record {records}: give each a step and {n} numbers ({', '.join(names)})")
    return np.array(rows["observation"].to_list(), dtype=np.float64).reshape(-1, n), rows["step"].to_numpy()


# codes instead of an index
UNREADABLE, UNDECLARED = -1, -2


def as_written(
    values: Sequence[str | None], numbers: NumbersForm | None = None, units: Mapping[str, float] | None = None
) -> Sequence[str | None]:
    """Cells as ``ingest`` reads them where the card says how its log writes numbers, and which units stand behind."""
    if numbers is None and units is None:
        return values
    cells = pl.Series("cell", values, dtype=pl.String).to_frame()
    return cells.select(plain_cell(pl.first(), numbers, units)).to_series().to_list()


def index_states(values: Sequence[str | None], states: States) -> Integers:
    """Index of each raw value among live states and ends.

    ``values``: cells as text, None for an empty one: of the binned column (or the name of an end) where states are
    bins, of the state column otherwise.
    Returns ``(N,)``; ``UNREADABLE`` for a word where a number belongs, ``UNDECLARED`` for a value that ``ingest`` would
    drop because no OTHER takes it in.
    """
    text = pl.Series(values, dtype=pl.String)
    if states.product is not None:
        # no single cell determines a state of several columns: the query names the state
        names = {label: i for i, label in enumerate([*states.live(), *states.ends])}
        named = text.replace_strict(names, default=states.other_index, return_dtype=pl.Int64)
        return named.fill_null(UNDECLARED).to_numpy()
    roles = (["state"] if states.bins is None or states.ends else []) + (["bin"] if states.bins else [])
    raw = pl.DataFrame([text.alias(f"raw_{role}") for role in roles])
    index, _, unread = state_index("state", "bin", dict.fromkeys(roles, pl.String()), states)
    declared = pl.coalesce(index, states.other_index).fill_null(UNDECLARED)
    return raw.select(pl.when(unread).then(UNREADABLE).otherwise(declared).cast(pl.Int64)).to_series().to_numpy()
