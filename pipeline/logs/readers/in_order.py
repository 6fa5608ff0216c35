"""Rows in logged order -> episodes and steps: a flag ends an episode, or a next state that is not the next row's.

A person's rows are cut by that person's rows alone, whatever rows lie between them.  The readers make the columns
``episode`` and ``step``.

``transitions``: flat (s, a, r, s') rows of any table format.  ``d4rl``, D4RL and its kin: one HDF5 file of long arrays;
columns are the arrays (``observations``, ``actions``, ``rewards``, ``terminals``, ``timeouts``, perhaps
``next_observations``, ``infos/…``).  Two terminals in a row are an episode of one step, not an empty one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.declaration.card import CardError
from pipeline.declaration.toml import LogError
from pipeline.logs.contribution_bounding import canonical, person_key
from pipeline.logs.decode import read_flag
from pipeline.logs.readers import batch as framing
from pipeline.logs.readers import hdf5
from pipeline.logs.readers.batch import BATCH_ROWS, NUMBERED, Batch, Request


@dataclass(frozen=True)
class Cut:
    """Columns that determine where an episode ends.

    ``user``: column of user ids; None if the episode is the unit.
    ``flags``: columns that are true at an end.  ``chain``: pairs of columns (next state, state).
    """

    user: str | None
    flags: tuple[str, ...]
    chain: tuple[tuple[str, str], ...]

    @property
    def columns(self) -> list[str]:
        """All these columns."""
        columns = [*self.flags, *(column for pair in self.chain for column in pair)]
        return list(dict.fromkeys(columns if self.user is None else [self.user, *columns]))


class Cutter:
    """Numbers the rows of one file, batch after batch; holds the last row of each user."""

    def __init__(self, cut: Cut, path: Path, mark: str) -> None:
        self._cut, self._path, self._mark = cut, path, mark
        self._last: pl.DataFrame | None = None

    def number_rows(self, batch: Batch) -> Batch:
        """Add ``episode`` (text) and ``step`` (0-based); a row whose flag cannot be read is set aside.

        Raises LogError if a row is set aside and there are no users: episodes are then unknown.
        """
        cut = self._cut
        over, unread = self._flags(batch.frame)
        batch = batch.set_aside(unread, f"{' or '.join(cut.flags)} cannot be read")
        if cut.user is None and len(batch.malformed):
            raise LogError(
                f"{self._path.name}: line {batch.malformed['line'][0]}: malformed, or a flag in it cannot be read, and "
                "here the order of the rows tells the episodes; mend the line"
            )
        user = pl.lit(0) if cut.user is None else person_key(pl.col(cut.user), batch.frame.schema[cut.user])
        chain = [_comparable(*(batch.frame[column] for column in pair)) for pair in cut.chain]
        rows = batch.frame.select(
            user.alias("_user"),
            over.filter(~unread).alias("_over"),
            *(leads.alias(f"_leads{i}") for i, (leads, _) in enumerate(chain)),
            *(stands.alias(f"_stands{i}") for i, (_, stands) in enumerate(chain)),
        ).with_columns(_number=pl.lit(None, dtype=pl.Int64), _step=pl.lit(None, dtype=pl.Int64))
        carried_rows = 0 if self._last is None else len(self._last)
        rows = pl.concat([self._last, rows]) if self._last is not None else rows
        rows = rows.with_columns(_new=_starts(len(cut.chain)))
        rows = rows.with_columns(
            pl.col("_number").first().over("_user").fill_null(-1) + pl.col("_new").cum_sum().over("_user"),
            _place=pl.int_range(pl.len(), dtype=pl.Int64).over("_user"),
        ).with_columns(pl.col("_place") - pl.col("_place").first().over("_user", "_number"))
        carried = pl.col("_step").first().over("_user", "_number").fill_null(0)
        rows = rows.with_columns(_step=pl.col("_place") + carried)
        self._last = rows.drop("_new", "_place").unique("_user", keep="last", maintain_order=True)
        numbers = rows[carried_rows:].select(
            framing.mark_numbers(self._mark, pl.col("_number")).alias("episode"), pl.col("_step").alias("step")
        )
        return replace(batch, frame=pl.concat([batch.frame, numbers], how="horizontal"))

    def _flags(self, frame: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
        """Whether each row ends its episode, and whether that cannot be read."""
        none = pl.Series([False], dtype=pl.Boolean).new_from_index(0, len(frame))
        over, unread = none, none
        for column in self._cut.flags:
            flag = read_flag(framing.readable_times(frame[column]))
            over, unread = over | flag["value"], unread | flag["unread"]
        return over, unread


def _comparable(leads: pl.Series, stands: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Both columns as text if one of them is: another person's cell may make text of a column of numbers."""
    if (leads.dtype == pl.String) == (stands.dtype == pl.String):
        return leads, stands
    texts = (
        framing.readable_times(column.fill_nan(None) if column.dtype.is_float() else column).cast(pl.String).to_frame()
        for column in (leads, stands)
    )
    one, other = (text.select(canonical(pl.first())).to_series() for text in texts)
    return one, other


def _starts(pairs: int) -> pl.Expr:
    """Mark of rows that begin an episode: the user's first, and those after a row that ended or led elsewhere."""
    before = pl.col("_over").shift().over("_user").fill_null(value=True)
    jumps = [pl.col(f"_leads{i}").shift().over("_user").ne_missing(pl.col(f"_stands{i}")) for i in range(pairs)]
    # the carried last row of a user begins no episode
    return pl.when(pl.col("_number").is_not_null()).then(False).otherwise(pl.any_horizontal(before, *jumps))


_Types = Callable[[Path, Request], dict[str, pl.DataType]]
_Read = Callable[[Path, Request], Iterator[Batch]]


def transition_types(path: Path, request: Request, inner: _Types) -> dict[str, pl.DataType]:
    """Columns of the table and the two that the reader makes.

    Raises LogError if the table itself has an ``episode`` or ``step``.
    """
    types = inner(path, replace(request, columns=request.without(*NUMBERED)))
    if present := [name for name in NUMBERED if name in types]:
        raise LogError(
            f"{path.name}: has a column {present[0]!r} of its own; use source.format = 'table', or rename it"
        )
    return types | NUMBERED


def read_transitions(path: Path, request: Request, inner: _Read, cut: Cut) -> Iterator[Batch]:
    """Yield the table's batches, rows numbered.

    Raises LogError if a line is malformed or a flag cannot be read, and there are no users.
    """
    cutter = Cutter(cut, path, request.mark)
    for batch in inner(path, replace(request, columns=request.without(*NUMBERED))):
        numbered = cutter.number_rows(batch)
        yield replace(numbered, frame=numbered.frame.select(request.columns))


_TIMEOUTS = "timeouts"


def d4rl_types(path: Path, request: Request, cut: Cut) -> dict[str, pl.DataType]:
    """Columns and their types.

    Raises LogError if the file is damaged, or its arrays have different lengths.
    Raises CardError if the file has timeouts and the card does not map them: episodes would run into each other.
    """
    with hdf5.open_hdf5(path) as file:
        data = hdf5.arrays(file, path, "/")
        if _TIMEOUTS in data and _TIMEOUTS not in cut.flags:
            raise CardError(f"{path.name}: the file has {_TIMEOUTS!r}; map truncated = 'timeouts' in source.columns")
        types = framing.field_types(request.columns, {name: hdf5.type_of(x) for name, x in data.items()})
        _length(path, data, types, request)
        return types | NUMBERED


def read_d4rl(path: Path, request: Request, cut: Cut) -> Iterator[Batch]:
    """Yield the rows, a bounded number at a time.

    Raises LogError if the file is damaged, or if a flag cannot be read and there are no users.
    """
    cutter = Cutter(cut, path, request.mark)
    with hdf5.open_hdf5(path) as file:
        data = hdf5.arrays(file, path, "/")
        types = {name: hdf5.type_of(x) for name, x in data.items()}
        names = request.without(*NUMBERED)
        bases = dict.fromkeys(base for name in names if (base := framing.column_of(name, types)) is not None)
        rows = _length(path, data, types, request)
        for low in range(0, rows, BATCH_ROWS):
            high = min(rows, low + BATCH_ROWS)
            entries = {base: hdf5.values(data[base], low, high) for base in bases}
            odd = np.any([hdf5.no_text(cells) for cells in entries.values()], axis=0)
            frame = pl.DataFrame({base: hdf5.series(cells) for base, cells in entries.items()})
            lines = framing.lines_from(low + 1, high - low)
            batch = Batch(frame.select(framing.take_fields(names, frame.schema)), lines, framing.NO_LINES)
            numbered = cutter.number_rows(batch.set_aside(pl.Series(odd), hdf5.NO_TEXT))
            yield replace(numbered, frame=numbered.frame.select(request.columns))


def _length(path: Path, data: dict[str, hdf5.Stored], types: dict[str, pl.DataType], request: Request) -> int:
    bases = sorted({base for name in request.without(*NUMBERED) if (base := framing.column_of(name, types)) in data})
    lengths = {base: len(data[base]) for base in bases}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{base} {length}" for base, length in lengths.items())
        raise LogError(f"{path.name}: arrays of different lengths ({listed}); write the file again")
    return next(iter(lengths.values()), 0)
