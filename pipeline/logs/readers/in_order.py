"""Rows in the order they were logged -> episodes and steps: a flag ends an episode, or a row that leads elsewhere.

A person's rows are cut by that person's rows alone, wherever other rows lie between them.  The readers make the columns
``episode`` and ``step``.

``transitions``: flat (s, a, r, s') rows of any table format.  ``d4rl``, D4RL and its kin: one HDF5 file of long arrays;
columns are the arrays (``observations``, ``actions``, ``rewards``, ``terminals``, ``timeouts``, perhaps
``next_observations``, ``infos/…``).  Two terminals in a row are an episode of one step, not an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.declaration.card import CardError
from pipeline.declaration.toml import LogError
from pipeline.logs.decode import flag
from pipeline.logs.readers import hdf5
from pipeline.logs.readers.batch import (
    NO_LINES,
    Asked,
    Batch,
    column_of,
    field_types,
    lines_from,
    mark_numbers,
    take_fields,
)
from pipeline.logs.readers.rows import BATCH_ROWS

NUMBERED = ("episode", "step")


@dataclass(frozen=True)
class Cut:
    """What tells where an episode ends.

    Parameters
    ----------
    user
        Column of user ids; None where the episode itself is the unit.
    flags
        Columns that are true at the last row of an episode.
    chain
        Pairs (where the row leads, where the next row stands): an episode ends where they differ.
    """

    user: str | None
    flags: tuple[str, ...]
    chain: tuple[tuple[str, str], ...]

    @property
    def columns(self) -> list[str]:
        """Every column that is looked at."""
        found = [*self.flags, *(column for pair in self.chain for column in pair)]
        return list(dict.fromkeys(found if self.user is None else [self.user, *found]))


class Cutter:
    """Numbers the rows of one file, batch after batch; holds the last row of each user."""

    def __init__(self, cut: Cut, path: Path, mark: str) -> None:
        self._cut, self._path, self._mark = cut, path, mark
        self._last: pl.DataFrame | None = None

    def number_rows(self, batch: Batch) -> pl.DataFrame:
        """The batch's frame with ``episode`` (text) and ``step`` (0-based).

        Raises
        ------
        LogError
            If a line is malformed or a flag cannot be read: nobody knows which rows belong together then.
        """
        if len(batch.malformed):
            self._refuse(int(batch.malformed["line"][0]), "malformed", "")
        cut, frame = self._cut, batch.frame
        user = pl.lit(0) if cut.user is None else pl.col(cut.user)
        rows = frame.select(
            user.alias("_user"),
            self._over(batch).alias("_over"),
            *(pl.col(leads).alias(f"_leads{i}") for i, (leads, _) in enumerate(cut.chain)),
            *(pl.col(stands).alias(f"_stands{i}") for i, (_, stands) in enumerate(cut.chain)),
        ).with_columns(_number=pl.lit(None, dtype=pl.Int64), _step=pl.lit(None, dtype=pl.Int64))
        known = 0 if self._last is None else len(self._last)
        rows = pl.concat([self._last, rows]) if self._last is not None else rows
        rows = rows.with_columns(_new=_starts(len(cut.chain)))
        rows = rows.with_columns(
            pl.col("_number").first().over("_user").fill_null(-1) + pl.col("_new").cum_sum().over("_user"),
            _place=pl.int_range(pl.len(), dtype=pl.Int64).over("_user"),
        ).with_columns(pl.col("_place") - pl.col("_place").first().over("_user", "_number"))
        carried = pl.col("_step").first().over("_user", "_number").fill_null(0)
        rows = rows.with_columns(_step=pl.col("_place") + carried)
        self._last = rows.drop("_new", "_place").unique("_user", keep="last", maintain_order=True)
        made = rows[known:].select(
            mark_numbers(self._mark, pl.col("_number")).alias("episode"), pl.col("_step").alias("step")
        )
        return pl.concat([frame, made], how="horizontal")

    def _over(self, batch: Batch) -> pl.Series:
        over = pl.Series([False], dtype=pl.Boolean).new_from_index(0, len(batch.frame))
        for column in self._cut.flags:
            cell = batch.frame[column].alias("raw_flag")
            cell = cell if cell.dtype == pl.Boolean or cell.dtype == pl.Float64 else cell.cast(pl.String)
            value, unread = flag("flag", {"flag": cell.dtype})
            told = cell.to_frame().select(value.alias("value"), unread.alias("unread"))
            if told["unread"].any():
                self._refuse(int(batch.lines[told["unread"].arg_true()[0]]), "cannot be read", f"column {column!r}, ")
            over |= told["value"]
        return over

    def _refuse(self, line: int, what: str, where: str) -> None:
        raise LogError(
            f"{self._path.name}: {where}line {line}: {what}, and here the order of the rows tells the episodes; "
            "mend the line"
        )


def _starts(pairs: int) -> pl.Expr:
    """The row begins an episode: its user's first, or the one before it ended or led elsewhere."""
    before = pl.col("_over").shift().over("_user").fill_null(value=True)
    apart = [pl.col(f"_leads{i}").shift().over("_user").ne_missing(pl.col(f"_stands{i}")) for i in range(pairs)]
    # the carried last row of a user is no new one
    return pl.when(pl.col("_number").is_not_null()).then(False).otherwise(pl.any_horizontal(before, *apart))


_Types = Callable[[Path, Asked], dict[str, pl.DataType]]
_Read = Callable[[Path, Asked], Iterator[Batch]]


def transition_types(path: Path, asked: Asked, inner: _Types) -> dict[str, pl.DataType]:
    """The table's columns and the two that are made.

    Raises
    ------
    LogError
        If the table has an ``episode`` or ``step`` of its own.
    """
    types = inner(path, replace(asked, columns=asked.but(*NUMBERED)))
    if own := [name for name in NUMBERED if name in types]:
        raise LogError(f"{path.name}: has a column {own[0]!r} of its own; use source.format = 'table', or rename it")
    return types | {"episode": pl.String(), "step": pl.Int64()}


def read_transitions(path: Path, asked: Asked, inner: _Read, cut: Cut) -> Iterator[Batch]:
    """Yield the table's batches, rows numbered.

    Raises
    ------
    LogError
        If a line is malformed or a flag cannot be read.
    """
    cutter = Cutter(cut, path, asked.mark)
    for batch in inner(path, replace(asked, columns=asked.but(*NUMBERED))):
        yield Batch(cutter.number_rows(batch).select(asked.columns), batch.lines, NO_LINES)


_TIMEOUTS = "timeouts"


def d4rl_types(path: Path, asked: Asked, cut: Cut) -> dict[str, pl.DataType]:
    """Columns and their types.

    Raises
    ------
    LogError
        If the file is damaged, or its arrays have different lengths.
    CardError
        If the file tells of timeouts and the card does not: episodes would run into each other.
    """
    with hdf5.open_hdf5(path) as file:
        data = hdf5.arrays(file, path, "/")
        if _TIMEOUTS in data and _TIMEOUTS not in cut.flags:
            raise CardError(f"{path.name}: the file has {_TIMEOUTS!r}; map truncated = 'timeouts' in source.columns")
        types = field_types(asked.columns, {name: hdf5.type_of(x) for name, x in data.items()})
        _length(path, data, types, asked)
        return types | {"episode": pl.String(), "step": pl.Int64()}


def read_d4rl(path: Path, asked: Asked, cut: Cut) -> Iterator[Batch]:
    """Yield the rows, a bounded number at a time.

    Raises
    ------
    LogError
        If the file is damaged, or a flag cannot be read.
    """
    cutter = Cutter(cut, path, asked.mark)
    with hdf5.open_hdf5(path) as file:
        data = hdf5.arrays(file, path, "/")
        types = {name: hdf5.type_of(x) for name, x in data.items()}
        bases = dict.fromkeys(base for name in asked.but(*NUMBERED) if (base := column_of(name, types)) is not None)
        rows = _length(path, data, types, asked)
        for low in range(0, rows, BATCH_ROWS):
            high = min(rows, low + BATCH_ROWS)
            frame = pl.DataFrame({base: hdf5.column(data[base], low, high) for base in bases})
            frame = frame.select(take_fields(asked.but(*NUMBERED), frame.schema))
            batch = Batch(frame, lines_from(low + 1, high - low), NO_LINES)
            yield Batch(cutter.number_rows(batch).select(asked.columns), batch.lines, NO_LINES)


def _length(path: Path, data: dict[str, Any], types: dict[str, pl.DataType], asked: Asked) -> int:
    bases = sorted({base for name in asked.but(*NUMBERED) if (base := column_of(name, types)) in data})
    lengths = {base: len(data[base]) for base in bases}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{base} {length}" for base, length in lengths.items())
        raise LogError(f"{path.name}: arrays of different lengths ({told}); write the file again")
    return next(iter(lengths.values()), 0)
