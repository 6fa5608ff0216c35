"""The files of a log: which columns they hold, and the one type each column takes in all of them.

A log that is handed in as a table in memory is written for the readers, and gone when the ingest is over.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false
from __future__ import annotations

import hashlib
import math
import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.declaration.card import AnyCard
from pipeline.declaration.toml import CardError, LogError
from pipeline.files import open_private, private_folder
from pipeline.logs.decode import NUMBERS, holds_numbers, list_text
from pipeline.logs.formats import Reader, choose_reader, likely, readers_of
from pipeline.logs.readers.arrow import row_count
from pipeline.logs.readers.batch import Asked, Batch, cell_type, readable_times

# columns that a message names
_SHOWN = 60
# what is no value where a column is text, as an empty cell of a CSV is none
_MISSING: dict[pl.DataType, float | str] = {pl.Float64(): math.nan, pl.String(): ""}


@dataclass(frozen=True)
class LogFile:
    """One file of a log, and how it is read.

    Parameters
    ----------
    path, name
        Where it lies, and what messages and the quarantine call it.
    asked
        What is wanted of it: source columns, and the mark of its record numbers.
    """

    path: Path
    name: str
    asked: Asked


@dataclass(frozen=True)
class Sources:
    """The files of one log, sorted by path; what the card declares of them is settled here, once.

    Parameters
    ----------
    files
        Each with its reader.
    roles
        Role -> source column, of all that is read.
    dtypes
        Role -> type in every batch: the type the files agree on, text where they do not.
    rows
        Total number of rows, or None if a file is not Parquet.
    likely_rows
        The same, estimated from the sizes of the other files.
    """

    files: tuple[LogFile, ...]
    roles: Mapping[str, str]
    dtypes: dict[str, pl.DataType]
    rows: int | None
    likely_rows: int

    @property
    def paths(self) -> tuple[Path, ...]:
        """Where the files lie."""
        return tuple(file.path for file in self.files)

    @property
    def names(self) -> tuple[str, ...]:
        """What messages and the quarantine call them."""
        return tuple(file.name for file in self.files)


def examine(card: AnyCard, given: Sequence[Path] | None = None) -> Sources:
    """Read headers only.  A file of no bytes is a delivery without rows, whatever its suffix.

    Parameters
    ----------
    card
        Names the files, their format and columns.
    given
        In place of those that the card names.

    Raises
    ------
    LogError
        For a suffix that no reader takes, a missing column (rule ``missing_column``), or a type that is no cell.
    CardError
        If a file that the card names is not there, or a reader of your own is none.
    """
    # two patterns may match one file: read twice, its every step would repeat
    there = set(card.source_files() if given is None else given)
    paths = tuple(p for p in sorted(there) if p.stat().st_size)
    dtypes: dict[str, pl.DataType] = {} if paths else dict.fromkeys(card.log.roles, pl.String())
    files, readers, exact, likely = list[LogFile](), readers_of(card), True, 0
    for path in paths:
        name = _name(path, card)
        if not os.access(path, os.R_OK):
            raise LogError(f"{name}: not allowed to read it; give yourself the right to")
        reader = choose_reader(readers, card, path, name)
        file = LogFile(path, name, _asked(card, path, reader))
        for role, dtype in _dtypes(file, card, reader).items():
            dtypes[role] = dtype if dtypes.get(role, dtype) == dtype else pl.String()
        if reader.row_bytes is None:
            likely += row_count(path)
        else:
            exact, likely = False, likely + path.stat().st_size // reader.row_bytes
        files.append(file)
    return Sources(tuple(files), card.log.roles, dtypes, likely if exact else None, likely)


def read_batches(sources: Sources, card: AnyCard, index: int) -> Iterator[tuple[Batch, pl.DataFrame]]:
    """Batches of one file, each with its rows under the names of their roles (``raw_user``, …) in common types.

    Parameters
    ----------
    sources
        Of :func:`examine` the card.
    index
        Of the file among ``sources.files``.

    Raises
    ------
    LogError
        If the file cannot be read to its end.
    """
    file = sources.files[index]
    reader = choose_reader(readers_of(card), card, file.path, file.name)
    for batch in reader.read(file.path, file.asked):
        found = batch.frame.to_dict()
        cells = (
            _cell(found[column], sources.dtypes[role]).alias(f"raw_{role}") for role, column in sources.roles.items()
        )
        yield batch, pl.DataFrame(list(cells))


def digest(paths: Sequence[Path]) -> str:
    """Sha256 over the files' digests, in order.

    Parameters
    ----------
    paths
        Of a log's files, as an ingest reads them.
    """
    whole = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def _dtypes(file: LogFile, card: AnyCard, form: Reader) -> dict[str, pl.DataType]:
    name, wanted = file.name, card.log.roles
    if form.types is None:
        return dict.fromkeys(wanted, pl.String())
    types = form.types(file.path, file.asked)
    if missing := sorted({column for column in wanted.values() if column not in types}):
        where = "line 1: " if form.lines else ""
        raise LogError(
            f"{name}: {where}missing_column: {', '.join(map(repr, missing))} not there, or there twice; "
            f"mend the file, or the card's [source] or [domain]{_there(missing, types, form)}"
            + (likely(types) if card.source.format == "table" else "")
        )
    lists = card.log.lists
    dtypes = {role: cell_type(types[column], lists=role in lists) for role, column in wanted.items()}
    for role, dtype in dtypes.items():
        if dtype is None or (role == "user" and not (dtype.is_integer() or dtype.base_type() is pl.String)):
            others = "lists of numbers" if role in lists else "numbers, booleans or text"
            allowed = "integers or text" if role == "user" else others
            raise LogError(f"{name}: column {wanted[role]!r} is {types[wanted[role]]}; write it as {allowed}")
    return {role: dtype for role, dtype in dtypes.items() if dtype is not None}


def _there(missing: list[str], types: Mapping[str, pl.DataType], form: Reader) -> str:
    """Which columns the file has; of text only those near a missing one: its first line may be a person's row."""
    near = {name for column in missing for name in get_close_matches(column, types, n=1, cutoff=0.75)}
    if form.lines:
        return f" (did you mean {', '.join(map(repr, sorted(near)))}?)" if near else ""
    names = [name if name.isprintable() else repr(name) for name in types]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f" (the file has: {', '.join(names[:_SHOWN])}{more})"


def _asked(card: AnyCard, path: Path, reader: Reader) -> Asked:
    wanted, root = card.log.roles, reader.root(path)
    # two files may both hold an episode 0: the file's place makes the numbers of a reader distinct
    mark = "" if root == card.folder else f"{_name(root, card) if root.is_relative_to(card.folder) else root}#"
    lists = frozenset(wanted[role] for role in card.log.lists)
    return Asked(list(dict.fromkeys(wanted.values())), lists, mark)


def _cell(cell: pl.Series, dtype: pl.DataType) -> pl.Series:
    for step in _steps(cell.dtype, dtype):
        cell = step(cell)
    return cell


@lru_cache
def _steps(stored: pl.DataType, wanted: pl.DataType) -> list[Callable[[pl.Series], pl.Series]]:
    """How cells of a file become those of a role: alike in every batch of these types."""
    steps: list[Callable[[pl.Series], pl.Series]] = [readable_times] if stored.is_temporal() else []
    if holds_numbers(stored):
        steps.append(lambda cell: cell.cast(NUMBERS))
        if wanted != NUMBERS:
            steps.append(lambda cell: cell.to_frame().select(list_text(pl.first())).to_series())
        return steps
    kind = cell_type(stored) or wanted
    if kind != stored:
        steps.append(lambda cell: cell.cast(kind))
    if wanted == pl.String and kind in _MISSING:
        steps.append(partial(_without, _MISSING[kind]))
    if wanted != kind:
        steps.append(lambda cell: cell.cast(wanted))
    return steps


def _without(missing: float | str, cell: pl.Series) -> pl.Series:
    odd = cell == missing
    return cell.set(odd, None) if odd.any() else cell


def _name(path: Path, card: AnyCard) -> str:
    return str(path.relative_to(card.folder)) if path.is_relative_to(card.folder) else path.name


FRAME = "frame.parquet"
"""What messages and the quarantine call such a log."""


def table_of(frame: object) -> pa.Table:
    """The Arrow table of any table that speaks Arrow: polars, pandas from 2.2, pyarrow, DuckDB.

    Parameters
    ----------
    frame
        Of any library with Arrow's PyCapsule interface; a lazy frame is collected.

    Raises
    ------
    CardError
        If it is none.
    """
    if collect := getattr(frame, "collect", None):
        frame = collect()
    try:
        return pa.table(frame)
    except (TypeError, ValueError, pa.ArrowException) as e:
        raise CardError(
            f"a {type(frame).__name__} is no table ({type(e).__name__}); give a data frame of polars, pandas (2.2 or "
            "later) or pyarrow, with columns of one type each"
        ) from None


@contextmanager
def frame_file(frame: object, lineage: Path) -> Generator[Sequence[Path] | None]:
    """The file of a frame while it is read, or None where there is no frame.

    Parameters
    ----------
    frame
        See :func:`table_of`.
    lineage
        The lineage's folder in the operator's store, where the file is as safe as the snapshot will be.
    """
    if frame is None:
        yield None
        return
    table = table_of(frame)
    with tempfile.TemporaryDirectory(prefix=".frame-", dir=private_folder(lineage)) as there:
        path = Path(there) / FRAME
        with open_private(path) as file:
            pq.write_table(table, file, compression="zstd")
        yield [path]
