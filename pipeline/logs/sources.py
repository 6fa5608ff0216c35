"""The files of a log: which reader takes each, which columns they hold, and the one type of a column in all of them.

A log that is handed in as a table in memory is written for the readers, and gone when the ingest is over.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false
from __future__ import annotations

import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.declaration.card import AnyCard, Card
from pipeline.declaration.code import is_plugin, plugin, plugin_digest
from pipeline.declaration.source import Meds
from pipeline.declaration.toml import CardError, LogError
from pipeline.files import open_private, private_folder
from pipeline.logs.contribution_bounding import with_ids
from pipeline.logs.decode import NUMBERS, holds_numbers, list_text, plain_cell, plain_date
from pipeline.logs.readers.arrow import ipc_types, parquet_types, read_ipc, read_parquet, row_count
from pipeline.logs.readers.batch import Asked, Batch, cell_type, readable_times
from pipeline.logs.readers.hdf5 import minari_arrow_types, minari_hdf5_types, read_minari_arrow, read_minari_hdf5
from pipeline.logs.readers.in_order import Cut, d4rl_types, read_d4rl, read_transitions, transition_types
from pipeline.logs.readers.lines import csv_types, guess_separator, obp_types, read_csv, read_ndjson, read_obp
from pipeline.logs.readers.meds import meds_types, read_meds
from pipeline.logs.readers.rlds_lerobot import lerobot_root, lerobot_types, read_lerobot, read_rlds, rlds_types
from pipeline.logs.store import SCHEMA_VERSION

T = TypeVar("T")


@dataclass(frozen=True)
class Reader:
    """How files of one suffix are read.

    ``types``: columns of a file and their types; None where any key may occur and every cell is text.
    ``read``: its batches, in the order of the file.  What becomes of one person's rows depends on that person's rows
    alone: the guarantee rests on it (privacy.md §1.2).
    ``row_bytes``: bytes of a short row, to guess the number of rows; None where the file is Parquet, which tells it.
    """

    types: Callable[[Path, Asked], dict[str, pl.DataType]] | None
    read: Callable[[Path, Asked], Iterator[Batch]]
    row_bytes: int | None = None
    lines: bool = False
    root: Callable[[Path], Path] = lambda path: path
    suffixes: tuple[str, ...] = ()


def _separator(path: Path, asked: Asked) -> str:
    return guess_separator(path) if asked.separator == "auto" else asked.separator


_CSV = Reader(
    lambda path, asked: csv_types(path, _separator(path, asked)),
    lambda path, asked: read_csv(path, asked.columns, _separator(path, asked)),
    20,
    lines=True,
)
_PARQUET = Reader(lambda path, _: parquet_types(path), lambda path, asked: read_parquet(path, asked.columns))
_IPC = Reader(lambda path, _: ipc_types(path), lambda path, asked: read_ipc(path, asked.columns), 20)
_NDJSON = Reader(None, lambda path, asked: read_ndjson(path, asked.columns, asked.lists), 60)
_ARROW = (".arrow", ".arrows", ".feather", ".ipc")
_LINES = (".ndjson", ".jsonl")
TABLES: dict[str, Reader] = {
    ".csv": _CSV, ".parquet": _PARQUET, **dict.fromkeys(_ARROW, _IPC), **dict.fromkeys(_LINES, _NDJSON),
}  # fmt: skip
_HDF5 = (".hdf5", ".h5")
_TELLING: dict[str, list[set[str]]] = {
    "minari": [{"observations", "terminations", "truncations"}],
    "rlds": [{"is_first", "is_last", "is_terminal"}, {"steps"}],
    "lerobot": [{"episode_index", "frame_index"}],
    "obp": [{"item_id", "click", "propensity_score"}],
    "meds": [{"subject_id", "time", "code", "numeric_value"}],
}


def choose_reader(readers: Mapping[str, Reader], card: AnyCard, path: Path, name: str) -> Reader:
    """The reader of a file.

    Raises LogError for a suffix that the format does not come in; says which other format the file looks like.
    """
    if (found := readers.get(path.suffix)) is None:
        hint = "; an HDF5 file is read with source.format = 'minari' or 'd4rl'" if path.suffix in _HDF5 else ""
        which = "a supported format" if card.source.format == "table" else f"of format {card.source.format!r}"
        raise LogError(f"{name}: {path.suffix or 'no suffix'}: not {which}; give files of {', '.join(readers)}{hint}")
    return found


def likely(names: Collection[str]) -> str:
    """A hint at what such columns say of their file: other separators, another format; empty if nothing."""
    if len(names) == 1 and (found := next((c for c in ";\t|" if c in next(iter(names))), None)):
        return (
            f"; its cells are separated by {found!r}: write separator = {json.dumps(found)} under [source], and, of "
            "numbers such as 3,5, numbers = '1234,5'"
        )
    found = [form for form, telling in _TELLING.items() if any(one <= set(names) for one in telling)]
    return f"; it looks like source.format = {found[0]!r} (docs/card.md)" if found else ""


def readers_of(card: AnyCard) -> dict[str, Reader]:
    """Suffix -> reader, for what the card calls its format.

    Raises CardError if a reader of your own cannot be found, or is none.
    """
    source = card.source
    match source.format:
        case "minari":
            folder = Reader(minari_arrow_types, read_minari_arrow, 20, root=lerobot_root)
            one = Reader(minari_hdf5_types, read_minari_hdf5, 20)
            return dict.fromkeys(_HDF5, one) | {".arrow": folder, ".parquet": folder}
        case "d4rl":
            cut = _cut_of(card)
            types = partial(d4rl_types, cut=cut)
            return dict.fromkeys(_HDF5, Reader(types, partial(read_d4rl, cut=cut), 20))
        case "rlds":
            steps = partial(read_rlds, user=card.log.user, real=card.kind == "real")
            return {".parquet": Reader(rlds_types, steps, 20)}
        case "lerobot":
            return {".parquet": Reader(lerobot_types, read_lerobot, root=lerobot_root)}
        case "obp":
            return {".csv": Reader(lambda path, _: obp_types(path), read_obp, 20, lines=True)}
        case "meds":
            return {".parquet": _windows(source.meds, card.domain.horizon)} if source.meds else {}
        case "transitions":
            return {suffix: _flat(inner, _cut_of(card)) for suffix, inner in TABLES.items()}
        case "table":
            return TABLES
        case own:
            return _own(own)


def _windows(declared: Meds, horizon: int) -> Reader:
    return Reader(lambda path, _: meds_types(path, declared), partial(read_meds, meds=declared, horizon=horizon), 20)


def _flat(inner: Reader, cut: Cut) -> Reader:
    types = None if inner.types is None else partial(transition_types, inner=inner.types)
    return replace(inner, types=types, read=partial(read_transitions, inner=inner.read, cut=cut))


def _cut_of(card: AnyCard) -> Cut:
    """What the card maps that tells where an episode ends."""
    return Cut(card.log.user, card.log.flags, card.log.chain)


def _own(name: str) -> dict[str, Reader]:
    """The reader ``module:object``, watched."""
    found = plugin(name, Reader)
    if not found.suffixes or found.types is None:
        raise CardError(f"source.format {name}: a Reader of your own names its suffixes and the types of its columns")
    declared = found.types

    def types(path: Path, asked: Asked) -> dict[str, pl.DataType]:
        return _told(name, path, lambda: declared(path, asked))

    def read(path: Path, asked: Asked) -> Iterator[Batch]:
        return _watched(name, path, asked, found.read)

    # only of Parquet are the rows known beforehand
    own = replace(found, types=types, read=read, row_bytes=found.row_bytes or 1)
    return dict.fromkeys(found.suffixes, own)


def _watched(name: str, path: Path, asked: Asked, read: Callable[[Path, Asked], Iterator[Batch]]) -> Iterator[Batch]:
    """Batches of a reader of your own, each looked at."""
    batches = _told(name, path, lambda: iter(read(path, asked)))
    while (batch := _told(name, path, lambda: next(batches, None))) is not None:
        if not isinstance(batch, Batch):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LogError(f"{path.name}: reader {name} yields a {type(batch).__name__}, not a Batch")
        if batch.frame.columns != asked.columns or len(batch.frame) != len(batch.lines):
            raise LogError(
                f"{path.name}: reader {name} yields the columns {batch.frame.columns} with {len(batch.lines)} line "
                f"numbers for {len(batch.frame)} rows; asked was {asked.columns} and a number a row"
            )
        yield batch


def _told(name: str, path: Path, ask: Callable[[], T]) -> T:
    """What a reader of your own answers; its errors may quote rows, so that only their kind is told."""
    try:
        return ask()
    except (LogError, CardError):
        raise
    except Exception as e:
        raise LogError(f"{path.name}: reader {name} failed ({type(e).__name__}); try it by hand to see more") from None


# the folder of such a file begins with it: a purge looks for it
_FRAME_FOLDER = ".frame-"
# columns that a message names
_SHOWN = 60
# what is no value where a column is text, as an empty cell of a CSV is none
_MISSING: dict[pl.DataType, float | str] = {pl.Float64(): math.nan, pl.String(): ""}


@dataclass(frozen=True)
class LogFile:
    """One file of a log, and how it is read.

    ``own``: a column of the card -> what the file calls it, where that differs.
    """

    path: Path
    name: str
    asked: Asked
    own: Mapping[str, list[str]]

    def take(self, found: Mapping[str, pl.Series], column: str) -> pl.Series:
        """The cells of a column of the card, whatever the file calls it; empty where it has none."""
        names = self.own.get(column, [column])
        if names[0] not in found:
            return pl.Series(column, [None], dtype=pl.String).new_from_index(0, len(next(iter(found.values()))))
        if len(names) == 1:
            return found[names[0]]
        # of an object only the keys that it has are filled
        return pl.DataFrame([found[name] for name in names]).select(pl.coalesce(names).alias(column)).to_series()


@dataclass(frozen=True)
class Sources:
    """The files of one log, sorted by path; what the card declares of them is settled here, once.

    ``rows``: total number of rows, or None if a file is not Parquet.
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

    Raises LogError for a suffix that no reader takes, a missing column (rule ``missing_column``), or a type that is no
    cell.
    Raises CardError if a file that the card names is not there, or a reader of your own is none.
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
        asked = _asked(card, path, reader)
        own = _renamed(card, path, name, asked, reader)
        lacking = _lacking(card, path, asked, own, reader)
        named = {column: own.get(column, [column]) for column in asked.columns if column not in lacking}
        lists = frozenset(n for column in asked.lists for n in named.get(column, ()))
        asked = replace(asked, columns=[*dict.fromkeys(n for names in named.values() for n in names)], lists=lists)
        file = LogFile(path, name, asked, own)
        for role, dtype in _dtypes(file, card, reader).items():
            dtypes[role] = dtype if dtypes.get(role, dtype) == dtype else pl.String()
        if reader.row_bytes is None:
            likely += row_count(path)
        else:
            exact, likely = False, likely + path.stat().st_size // reader.row_bytes
        files.append(file)
    if nowhere := sorted({column for role, column in card.log.roles.items() if role not in dtypes}):
        raise LogError(
            f"{card.name}: missing_column: {', '.join(map(repr, nowhere))} in no file; mend the card's [source]"
        )
    return Sources(tuple(files), card.log.roles, dtypes, likely if exact else None, likely)


def read_batches(sources: Sources, card: AnyCard, index: int) -> Iterator[tuple[Batch, pl.DataFrame]]:
    """Batches of one file, each with its rows under the names of their roles (``raw_user``, …) in common types.

    User ids have their one form: see :func:`~pipeline.logs.contribution_bounding.with_ids`.

    Raises LogError if the file cannot be read to its end.
    """
    file = sources.files[index]
    reader = choose_reader(readers_of(card), card, file.path, file.name)
    for batch in reader.read(file.path, file.asked):
        found = batch.frame.to_dict()
        cells = (
            _written(file.take(found, column), sources.dtypes[role], role, column, card).alias(f"raw_{role}")
            for role, column in sources.roles.items()
        )
        yield batch, with_ids(pl.DataFrame(list(cells)), file.take(found, sources.roles["user"]))


# roles whose cells are texts, whatever they look like
_TEXTS = ("user", "episode", "state", "next_state", "terminated", "truncated")


def _written(stored: pl.Series, dtype: pl.DataType, role: str, column: str, card: AnyCard) -> pl.Series:
    """Cells in their common type; numbers and dates as everybody reads them, where the log writes them otherwise."""
    source, kind, cell = card.source, role.partition("@")[0], _cell(stored, dtype)
    texts = (*_TEXTS, "action") if isinstance(card, Card) else _TEXTS
    # a number that only another file made text of is written as everybody writes it
    as_text = stored.dtype.base_type() in (pl.String, pl.Categorical, pl.Enum)
    if not as_text or kind in texts or (source.numbers, source.dates, source.units) == (None, None, None):
        return cell
    text = plain_cell(pl.first(), source.numbers, (source.units or {}).get(column))
    for form in source.date_forms if kind in ("order", "entered") else ():
        text = plain_date(text, form)
    return cell.to_frame().select(text).to_series()


def digest(paths: Sequence[Path]) -> str:
    """Sha256 over the files' digests, in order."""
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
    types = {**types, **{column: types[names[0]] for column, names in file.own.items() if names[0] in types}}
    may_lack = set(card.source.optional or ())
    wanted = {role: column for role, column in wanted.items() if column in types or column not in may_lack}
    if missing := sorted({column for column in wanted.values() if column not in types}):
        where = "line 1: " if form.lines else ""
        raise LogError(
            f"{name}: {where}missing_column: {', '.join(map(repr, missing))} not there, or there twice; "
            f"mend it, or the card's [source] or [domain]{_there(missing, types, form)}"
            + (likely(types) if card.source.format == "table" else "")
        )
    lists = card.log.lists
    dtypes = {role: cell_type(types[column], lists=role in lists) for role, column in wanted.items()}
    for role, dtype in dtypes.items():
        if dtype is None or (role == "user" and not (dtype.is_numeric() or dtype.base_type() is pl.String)):
            others = "lists of numbers" if role in lists else "numbers, booleans or text"
            allowed = "integers or text" if role == "user" else others
            raise LogError(f"{name}: column {wanted[role]!r} is {types[wanted[role]]}; write it as {allowed}")
    # a number that is no integer is read as an id by its text
    told = {role: pl.String() if role == "user" and dtype == pl.Float64 else dtype for role, dtype in dtypes.items()}
    return {role: dtype for role, dtype in told.items() if dtype is not None}


def _there(missing: list[str], types: Mapping[str, pl.DataType], form: Reader) -> str:
    """Which columns the file has; of text only those near a missing one: its first line may be a person's row."""
    near = {name for column in missing for name in get_close_matches(column, types, n=1, cutoff=0.75)}
    if form.lines:
        return f" (did you mean {', '.join(map(repr, sorted(near)))}?)" if near else ""
    names = [name if name.isprintable() else repr(name) for name in types]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f" (it has: {', '.join(names[:_SHOWN])}{more})"


def _asked(card: AnyCard, path: Path, reader: Reader) -> Asked:
    wanted, root = card.log.roles, reader.root(path)
    # two files may both hold an episode 0: the file's place makes the numbers of a reader distinct
    mark = "" if root == card.folder else f"{_name(root, card) if root.is_relative_to(card.folder) else root}#"
    lists = frozenset(wanted[role] for role in card.log.lists)
    return Asked(list(dict.fromkeys(wanted.values())), lists, mark, card.source.separator)


def _renamed(card: AnyCard, path: Path, name: str, asked: Asked, reader: Reader) -> dict[str, list[str]]:
    """A column of the card -> what the file calls it; of objects, which may differ in their keys, all it may be called.

    Raises LogError if a file has two columns that the card takes for one.
    """
    found: dict[str, list[str]] = {}
    for theirs, column in (card.source.rename or {}).items():
        found.setdefault(column, [column]).append(theirs)
    if not found or reader.types is None:
        return found
    types = reader.types(path, asked)
    for column, names in found.items():
        there = [n for n in names if n in types]
        if len(there) > 1:
            raise LogError(f"{name}: holds {' and '.join(map(repr, there))}, which source.rename takes for one column")
        found[column] = there or [column]
    return found


def _lacking(card: AnyCard, path: Path, asked: Asked, own: Mapping[str, list[str]], reader: Reader) -> set[str]:
    """Optional columns that a file has not."""
    if card.source.optional is None or reader.types is None:
        return set()
    types = reader.types(path, asked)
    return {column for column in card.source.optional if own.get(column, [column])[0] not in types}


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
    if path.name == _FRAME_FILE and path.parent.name.startswith(_FRAME_FOLDER):
        return FRAME
    return str(path.relative_to(card.folder)) if path.is_relative_to(card.folder) else path.name


FRAME, _FRAME_FILE = "the data frame", "frame.parquet"
"""What messages and the quarantine call a log in memory; and its file while it is read."""


_ROW_NUMBERS = re.compile(r"__index_level_\d+__")


def table_of(frame: object) -> pa.Table:
    """The Arrow table of any table that speaks Arrow: polars, pandas from 2.2, pyarrow, DuckDB.

    Raises CardError if it is none.
    """
    if collect := getattr(frame, "collect", None):
        frame = collect()
    try:
        table = pa.table(frame)
    except (TypeError, ValueError, pa.ArrowException) as e:
        raise CardError(
            f"{_odd_cell(frame) or f'a {type(frame).__name__} is no table ({type(e).__name__})'}; give a data frame of "
            "polars, pandas (2.2 or later) or pyarrow, with columns of one type each"
        ) from None
    # pandas numbers the rows of a frame that was sorted or filtered: those are no cells of the log
    return table.select([name for name in table.column_names if not _ROW_NUMBERS.fullmatch(name)])


def _odd_cell(frame: Any) -> str:
    """Which column of a frame is no column of one type, and from which row on; empty where none is to blame."""
    for name in getattr(frame, "columns", ()):
        try:
            pa.array(frame[name])
        except (TypeError, ValueError, pa.ArrowException):
            kinds = [type(x).__name__ for x in frame[name]]
            at = next((i for i, kind in enumerate(kinds) if kind != kinds[0]), 0)
            return f"{FRAME}: column {str(name)!r}: row {at + 1} holds a {kinds[at]}, row 1 a {kinds[0]}"
    return ""


@contextmanager
def frame_file(frame: object, lineage: Path) -> Generator[Sequence[Path] | None]:
    """The file of a frame while it is read, or None where there is no frame."""
    if frame is None:
        yield None
        return
    table = table_of(frame)
    with tempfile.TemporaryDirectory(prefix=_FRAME_FOLDER, dir=private_folder(lineage)) as there:
        path = Path(there) / _FRAME_FILE
        with open_private(path) as file:
            pq.write_table(table, file, compression="zstd")
        yield [path]


def reader_digest(card: AnyCard) -> str:
    """Of the module of a reader of your own; empty for the others."""
    return plugin_digest(card.source.format) if is_plugin(card.source.format) else ""


def source_digest_of(files: str, card: AnyCard, apart: Mapping[str, Any] | None = None) -> str:
    """Of the files and of what the card says of them: two snapshots of one digest hold the same rows."""
    told = card.model_dump(mode="json", include={"source", "domain", "unit", "reward"})
    if isinstance(card, Card) and card.source.layout == "wide":
        told["source"]["first_step"] = card.source.starts_at
    elif isinstance(card, Card) and card.source.first_step is None:
        del told["source"]["first_step"]
    own = {"reader": reader_digest(card)} if is_plugin(card.source.format) else {}
    meaning = {"schema_version": SCHEMA_VERSION, **told, **own, **(apart or {})}
    return hashlib.sha256(json.dumps({"files": files, **meaning}, sort_keys=True).encode()).hexdigest()
