"""The files of a log: their readers, their columns, and the common type of each column.

A log that is a table in memory is written to a file for the readers, which is removed when the ingest is over.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false
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
from pipeline.declaration.toml import CardError, LogError
from pipeline.files import open_private, private_folder
from pipeline.logs.contribution_bounding import with_ids
from pipeline.logs.decode import NUMBERS, holds_numbers, list_text, plain_cell, plain_date
from pipeline.logs.readers import batch as framing
from pipeline.logs.readers import episodes, hdf5, lines
from pipeline.logs.readers.batch import Batch, Request, cell_type, ipc_types, parquet_types, read_ipc, read_parquet
from pipeline.logs.store import SCHEMA_VERSION

T = TypeVar("T")


@dataclass(frozen=True)
class Reader:
    """Reader of the files of one suffix.

    ``types``: columns of a file and their types; None if any key may occur and every cell is text.
    ``read``: its batches, in the order of the file.  How one person's rows are read depends on that person's rows
    alone: the guarantee rests on it (privacy.md §1.2).
    ``row_bytes``: bytes of a short row, to guess the number of rows; None for Parquet, which states it.
    """

    types: Callable[[Path, Request], dict[str, pl.DataType]] | None
    read: Callable[[Path, Request], Iterator[Batch]]
    row_bytes: int | None = None
    lines: bool = False
    root: Callable[[Path], Path] = lambda path: path
    suffixes: tuple[str, ...] = ()


_IPC = Reader(lambda path, _: ipc_types(path), lambda path, request: read_ipc(path, request.columns), 20)
TABLES: dict[str, Reader] = {
    ".csv": Reader(lines.csv_types, lines.read_csv, 20, lines=True),
    ".parquet": Reader(lambda path, _: parquet_types(path), lambda path, request: read_parquet(path, request.columns)),
    **dict.fromkeys((".arrow", ".arrows", ".feather", ".ipc"), _IPC),
    **dict.fromkeys((".ndjson", ".jsonl"), Reader(None, lines.read_ndjson, 60)),
}
_HDF5 = (".hdf5", ".h5")
_TELLING: dict[str, list[set[str]]] = {
    "minari": [{"observations", "terminations", "truncations"}],
    "rlds": [{"is_first", "is_last", "is_terminal"}, {"steps"}],
    "lerobot": [{"episode_index", "frame_index"}],
    "obp": [{"item_id", "click", "propensity_score"}],
    "meds": [{"subject_id", "time", "code", "numeric_value"}],
}


def choose_reader(readers: Mapping[str, Reader], card: AnyCard, path: Path, name: str) -> Reader:
    """Reader of a file.

    Raises LogError for a suffix that the format does not have.
    """
    if (reader := readers.get(path.suffix)) is None:
        hint = "; an HDF5 file is read with source.format = 'minari' or 'd4rl'" if path.suffix in _HDF5 else ""
        kind = "a supported format" if card.source.format == "table" else f"of format {card.source.format!r}"
        raise LogError(f"{name}: {path.suffix or 'no suffix'}: not {kind}; give files of {', '.join(readers)}{hint}")
    return reader


def likely(names: Collection[str]) -> str:
    """Hint at another separator or format that the names of columns suggest; empty if none."""
    if len(names) == 1 and (mark := next((c for c in ";\t|" if c in next(iter(names))), None)):
        return (
            f"; its cells are separated by {mark!r}: write separator = {json.dumps(mark)} under [source], and, of "
            "numbers such as 3,5, numbers = '1234,5'"
        )
    forms = [form for form, telling in _TELLING.items() if any(columns <= set(names) for columns in telling)]
    return f"; it looks like source.format = {forms[0]!r} (docs/card.md)" if forms else ""


def readers_of(card: AnyCard) -> dict[str, Reader]:
    """Suffix -> reader, for the card's format.

    Raises CardError if a plug-in cannot be found, or is no reader.
    """
    source = card.source
    match source.format:
        case "minari":
            arrow = Reader(hdf5.minari_arrow_types, hdf5.read_minari_arrow, 20, root=episodes.lerobot_root)
            grouped = Reader(hdf5.minari_hdf5_types, hdf5.read_minari_hdf5, 20)
            return dict.fromkeys(_HDF5, grouped) | {".arrow": arrow, ".parquet": arrow}
        case "d4rl":
            types, rows = partial(episodes.d4rl_types, log=card.log), partial(episodes.read_d4rl, log=card.log)
            return dict.fromkeys(_HDF5, Reader(types, rows, 20))
        case "rlds":
            steps = partial(episodes.read_rlds, user=card.log.user, real=card.kind == "real")
            return {".parquet": Reader(episodes.rlds_types, steps, 20)}
        case "lerobot":
            return {".parquet": Reader(episodes.lerobot_types, episodes.read_lerobot, root=episodes.lerobot_root)}
        case "obp":
            return {".csv": Reader(lines.obp_types, lines.read_obp, 20, lines=True)}
        case "meds":
            if (meds := source.meds) is None:
                return {}
            windows = partial(episodes.read_meds, meds=meds, horizon=card.domain.horizon)
            return {".parquet": Reader(partial(episodes.meds_types, meds=meds), windows, 20)}
        case "transitions":
            return {suffix: _flat(inner, card) for suffix, inner in TABLES.items()}
        case "table":
            return TABLES
        case name:
            return _plugin_readers(name)


def _flat(inner: Reader, card: AnyCard) -> Reader:
    types = None if inner.types is None else partial(episodes.transition_types, inner=inner.types)
    return replace(inner, types=types, read=partial(episodes.read_transitions, inner=inner.read, log=card.log))


def _plugin_readers(name: str) -> dict[str, Reader]:
    """Suffix -> the plug-in reader ``module:object``, with checks of its batches."""
    reader = plugin(name, Reader)
    if not reader.suffixes or reader.types is None:
        raise CardError(f"source.format {name}: a Reader of your own names its suffixes and the types of its columns")
    declared = reader.types

    def types(path: Path, request: Request) -> dict[str, pl.DataType]:
        return _guarded_call(name, path, lambda: declared(path, request))

    read = partial(_watched, name, reader.read)
    # only Parquet states the number of its rows
    return dict.fromkeys(reader.suffixes, replace(reader, types=types, read=read, row_bytes=reader.row_bytes or 1))


def _watched(
    name: str, read: Callable[[Path, Request], Iterator[Batch]], path: Path, request: Request
) -> Iterator[Batch]:
    """Yield the batches of a plug-in reader, each checked."""
    batches = _guarded_call(name, path, lambda: iter(read(path, request)))
    while (batch := _guarded_call(name, path, lambda: next(batches, None))) is not None:
        if not isinstance(batch, Batch):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise LogError(f"{path.name}: reader {name} yields a {type(batch).__name__}, not a Batch")
        if batch.frame.columns != request.columns or len(batch.frame) != len(batch.lines):
            raise LogError(
                f"{path.name}: reader {name} yields the columns {batch.frame.columns} with {len(batch.lines)} line "
                f"numbers for {len(batch.frame)} rows; asked was {request.columns} and a number a row"
            )
        yield batch


def _guarded_call(name: str, path: Path, call: Callable[[], T]) -> T:
    """Call a plug-in reader; only the type of its error is reported, because the text may quote rows."""
    try:
        return call()
    except (LogError, CardError):
        raise
    except Exception as e:
        raise LogError(f"{path.name}: reader {name} failed ({type(e).__name__}); try it by hand to see more") from None


# prefix of the folder of a frame's file, by which a purge finds it
_FRAME_FOLDER = ".frame-"
# most columns that a message names
_SHOWN = 60
# cells that are null if the column is text, as an empty cell of a CSV is
_MISSING: dict[pl.DataType, float | str] = {pl.Float64(): math.nan, pl.String(): ""}


@dataclass(frozen=True)
class LogFile:
    """One file of a log, and the request to its reader.

    ``aliases``: a column of the card -> its possible names in the file, if they differ.
    """

    path: Path
    name: str
    request: Request
    aliases: Mapping[str, list[str]]

    def take(self, columns: Mapping[str, pl.Series], column: str) -> pl.Series:
        """Take the cells of a column of the card, by its name in the file; null if the file does not have it."""
        names = self.aliases.get(column, [column])
        if names[0] not in columns:
            return pl.Series(column, [None], dtype=pl.String).new_from_index(0, len(next(iter(columns.values()))))
        if len(names) == 1:
            return columns[names[0]]
        # an NDJSON object fills one of the keys
        return pl.DataFrame([columns[name] for name in names]).select(pl.coalesce(names).alias(column)).to_series()


@dataclass(frozen=True)
class Sources:
    """The files of one log, sorted by path, with the columns and types of the card's roles.

    ``rows``: total number of rows, or None if a file is not Parquet.
    ``likely_rows``: of steps, about.
    """

    files: tuple[LogFile, ...]
    roles: Mapping[str, str]
    dtypes: dict[str, pl.DataType]
    rows: int | None
    likely_rows: int

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the files."""
        return tuple(file.path for file in self.files)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files in messages and in the quarantine."""
        return tuple(file.name for file in self.files)


def examine(card: AnyCard, files_given: Sequence[Path] | None = None) -> Sources:
    """Read headers only.  A file of no bytes is a delivery without rows, whatever its suffix.

    Raises LogError for a suffix that no reader takes, a missing column (rule ``missing_column``), or a type that is no
    cell.
    Raises CardError if a file that the card names is missing, or a plug-in is no reader.
    """
    # two patterns may match one file: read twice, all its steps would repeat
    matched = set(card.source_files() if files_given is None else files_given)
    paths = tuple(p for p in sorted(matched) if p.stat().st_size)
    dtypes: dict[str, pl.DataType] = {} if paths else dict.fromkeys(card.log.roles, pl.String())
    files, readers, exact, likely = list[LogFile](), readers_of(card), True, 0
    for path in paths:
        name = _name(path, card)
        if not os.access(path, os.R_OK):
            raise LogError(f"{name}: not allowed to read it; give yourself the right to")
        reader = choose_reader(readers, card, path, name)
        request, optional = _request_for(card, path, reader), card.source.optional or ()
        types = reader.types(path, request) if reader.types and (card.source.rename or optional) else None
        aliases = _aliases(card, name, types)
        lacking = {c for c in optional if types is not None and aliases.get(c, [c])[0] not in types}
        named = {column: aliases.get(column, [column]) for column in request.columns if column not in lacking}
        lists = frozenset(n for column in request.lists for n in named.get(column, ()))
        request = replace(request, columns=[*dict.fromkeys(n for names in named.values() for n in names)], lists=lists)
        file = LogFile(path, name, request, aliases)
        for role, dtype in _dtypes(file, card, reader).items():
            dtypes[role] = dtype if dtypes.get(role, dtype) == dtype else pl.String()
        if reader.row_bytes is None:
            likely += framing.row_count(path)
        else:
            exact, likely = False, likely + path.stat().st_size // reader.row_bytes
        files.append(file)
    if missing := sorted({column for role, column in card.log.roles.items() if role not in dtypes}):
        raise LogError(
            f"{card.name}: missing_column: {', '.join(map(repr, missing))} in no file; mend the card's [source]"
        )
    steps = card.domain.horizon if card.source.layout == "wide" else 1
    return Sources(tuple(files), card.log.roles, dtypes, likely if exact else None, likely * steps)


def read_batches(sources: Sources, card: AnyCard, index: int) -> Iterator[tuple[Batch, pl.DataFrame]]:
    """Yield batches of one file, each with its rows under the names of their roles (``raw_user``, …) in common types.

    User ids have their canonical form: see :func:`~pipeline.logs.contribution_bounding.with_ids`.

    Raises LogError if the file cannot be read to its end.
    """
    file = sources.files[index]
    reader = choose_reader(readers_of(card), card, file.path, file.name)
    for batch in reader.read(file.path, file.request):
        columns = batch.frame.to_dict()
        cells = (
            _plain(file.take(columns, column), sources.dtypes[role], role, column, card).alias(f"raw_{role}")
            for role, column in sources.roles.items()
        )
        yield batch, with_ids(pl.DataFrame(list(cells)), file.take(columns, sources.roles["user"]))


# roles whose cells are texts, even if they look like numbers
_TEXTS = ("user", "episode", "state", "next_state", "terminated", "truncated")


def _plain(stored: pl.Series, dtype: pl.DataType, role: str, column: str, card: AnyCard) -> pl.Series:
    """Cells in their common type, with numbers and dates in the usual notation if the card declares another one."""
    source, kind, cell = card.source, role.partition("@")[0], _cell(stored, dtype)
    texts = (*_TEXTS, "action") if isinstance(card, Card) else _TEXTS
    # a number that only another file made text of is written as everybody writes it
    as_text = dtype == pl.String and stored.dtype.base_type() in (pl.String, pl.Categorical, pl.Enum)
    if not as_text or kind in texts or (source.numbers, source.dates, source.units) == (None, None, None):
        return cell
    text = plain_cell(pl.first(), source.numbers, (source.units or {}).get(column))
    for form in source.date_forms if kind in ("order", "entered") else ():
        text = plain_date(text, form)
    return cell.to_frame().select(text).to_series()


def digest(paths: Sequence[Path]) -> str:
    """Compute the sha256 over the files' digests, in order."""
    total = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def _dtypes(file: LogFile, card: AnyCard, reader: Reader) -> dict[str, pl.DataType]:
    name, wanted = file.name, card.log.roles
    if reader.types is None:
        return dict.fromkeys(wanted, pl.String())
    types = reader.types(file.path, file.request)
    types = {**types, **{column: types[names[0]] for column, names in file.aliases.items() if names[0] in types}}
    may_lack = set(card.source.optional or ())
    wanted = {role: column for role, column in wanted.items() if column in types or column not in may_lack}
    if missing := sorted({column for column in wanted.values() if column not in types}):
        place = "line 1: " if reader.lines else ""
        raise LogError(
            f"{name}: {place}missing_column: {', '.join(map(repr, missing))} not there, or there twice; "
            f"mend it, or the card's [source] or [domain]{_column_hint(missing, types, reader)}"
            + (likely(types) if card.source.format == "table" else "")
        )
    lists = card.log.lists
    dtypes = {role: cell_type(types[column], lists=role in lists) for role, column in wanted.items()}
    for role, dtype in dtypes.items():
        if dtype is None or (role == "user" and not (dtype.is_numeric() or dtype.base_type() is pl.String)):
            cells = "lists of numbers" if role in lists else "numbers, booleans or text"
            allowed = "integers or text" if role == "user" else cells
            raise LogError(f"{name}: column {wanted[role]!r} is {types[wanted[role]]}; write it as {allowed}")
    # a floating-point id is read as its text
    if dtypes.get("user") == pl.Float64:
        dtypes["user"] = pl.String()
    return {role: dtype for role, dtype in dtypes.items() if dtype is not None}


def _column_hint(missing: list[str], types: Mapping[str, pl.DataType], reader: Reader) -> str:
    """Hint at columns of the file; of a text file only those like a missing one: line 1 may be a person's row."""
    near = {name for column in missing for name in get_close_matches(column, types, n=1, cutoff=0.75)}
    if reader.lines:
        return f" (did you mean {', '.join(map(repr, sorted(near)))}?)" if near else ""
    names = [name if name.isprintable() else repr(name) for name in types]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f" (it has: {', '.join(names[:_SHOWN])}{more})"


def _request_for(card: AnyCard, path: Path, reader: Reader) -> Request:
    wanted, root = card.log.roles, reader.root(path)
    # two files may both hold an episode 0: the file's path makes the ids distinct
    mark = "" if root == card.folder else f"{_name(root, card) if root.is_relative_to(card.folder) else root}#"
    lists = frozenset(wanted[role] for role in card.log.lists)
    return Request(list(dict.fromkeys(wanted.values())), lists, mark, card.source.separator)


def _aliases(card: AnyCard, name: str, types: Mapping[str, pl.DataType] | None) -> dict[str, list[str]]:
    """Renamed column of the card -> its name in the file, or for NDJSON, whose objects may differ, all its names.

    ``types``: of the file's columns; None of NDJSON.
    Raises LogError if a file has two columns that the card takes for one.
    """
    aliases: dict[str, list[str]] = {}
    for theirs, column in (card.source.rename or {}).items():
        aliases.setdefault(column, [column]).append(theirs)
    if types is None:
        return aliases
    for column, names in aliases.items():
        present = [n for n in names if n in types]
        if len(present) > 1:
            raise LogError(
                f"{name}: holds {' and '.join(map(repr, present))}, which source.rename takes for one column"
            )
        aliases[column] = present or [column]
    return aliases


def _cell(cell: pl.Series, dtype: pl.DataType) -> pl.Series:
    for step in _steps(cell.dtype, dtype):
        cell = step(cell)
    return cell


@lru_cache
def _steps(stored: pl.DataType, wanted: pl.DataType) -> list[Callable[[pl.Series], pl.Series]]:
    """Conversions of the cells of a file to those of a role, the same for every batch of these types."""
    steps: list[Callable[[pl.Series], pl.Series]] = [framing.readable_times] if stored.is_temporal() else []
    if holds_numbers(stored):
        steps.append(lambda cell: cell.cast(NUMBERS))
        if wanted != NUMBERS:
            steps.append(lambda cell: cell.to_frame().select(list_text(pl.first())).to_series())
        return steps
    kind = cell_type(stored) or wanted
    if kind != stored:
        steps.append(lambda cell: cell.cast(kind))
    if isinstance(stored, pl.Datetime):
        steps.append(lambda cell: cell.to_frame().select(_short_time(pl.first())).to_series())
    if wanted == pl.String and kind in _MISSING:
        steps.append(partial(_without, _MISSING[kind]))
    if wanted != kind:
        steps.append(lambda cell: cell.cast(wanted))
    return steps


def _short_time(text: pl.Expr) -> pl.Expr:
    """Dates and times without zeros at their end: one more digit of another person's would give them to everybody."""
    text = text.str.replace(r"(\.\d*?)0+($|[+-])", "$1$2").str.replace(r"\.($|[+-])", "$1")
    return text.str.strip_suffix(" 00:00:00")


def _without(missing: float | str, cell: pl.Series) -> pl.Series:
    odd = cell == missing
    return cell.set(odd, None) if odd.any() else cell


def _name(path: Path, card: AnyCard) -> str:
    if path.name == _FRAME_FILE and path.parent.name.startswith(_FRAME_FOLDER):
        return FRAME
    return str(path.relative_to(card.folder)) if path.is_relative_to(card.folder) else path.name


FRAME, _FRAME_FILE = "the data frame", "frame.parquet"
"""Name of a log in memory in messages and in the quarantine; and of its file while it is read."""


_ROW_NUMBERS = re.compile(r"__index_level_\d+__")


def table_of(frame: object) -> pa.Table:
    """Convert a table of any library with Arrow's interface: polars, pandas from 2.2, pyarrow, DuckDB.

    Raises CardError if it is no table.
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
    # pandas adds row numbers to a frame that was sorted or filtered: they are no cells of the log
    return table.select([name for name in table.column_names if not _ROW_NUMBERS.fullmatch(name)])


def _odd_cell(frame: Any) -> str:
    """Name a column of a frame with several types, and the first row that differs; empty if there is none."""
    for name in getattr(frame, "columns", ()):
        try:
            pa.array(frame[name])
        except (TypeError, ValueError, pa.ArrowException):
            kinds = [type(x).__name__ for x in frame[name]]
            row = next((i for i, kind in enumerate(kinds) if kind != kinds[0]), 0)
            return f"{FRAME}: column {str(name)!r}: row {row + 1} holds a {kinds[row]}, row 1 a {kinds[0]}"
    return ""


@contextmanager
def frame_file(frame: object, lineage: Path) -> Generator[Sequence[Path] | None]:
    """Write a frame to a file that lasts as long as the context; None without a frame."""
    if frame is None:
        yield None
        return
    table = table_of(frame)
    with tempfile.TemporaryDirectory(prefix=_FRAME_FOLDER, dir=private_folder(lineage)) as folder:
        path = Path(folder) / _FRAME_FILE
        with open_private(path) as file:
            pq.write_table(table, file, compression="zstd")
        yield [path]


def reader_digest(card: AnyCard) -> str:
    """Digest of the module of a plug-in reader; empty for other readers."""
    return plugin_digest(card.source.format) if is_plugin(card.source.format) else ""


def source_digest_of(files: str, card: AnyCard, apart: Mapping[str, Any] | None = None) -> str:
    """Digest of the files and of the card's declarations of them: snapshots of equal digests hold the same rows."""
    contents = card.model_dump(mode="json", include={"source", "domain", "unit", "reward"})
    if isinstance(card, Card) and card.source.layout == "wide":
        contents["source"]["first_step"] = card.source.starts_at
    elif isinstance(card, Card) and card.source.first_step is None:
        del contents["source"]["first_step"]
    reader = {"reader": reader_digest(card)} if is_plugin(card.source.format) else {}
    meaning = {"schema_version": SCHEMA_VERSION, **contents, **reader, **(apart or {})}
    return hashlib.sha256(json.dumps({"files": files, **meaning}, sort_keys=True).encode()).hexdigest()
