"""The files of a log: which columns they hold, and the one type each column takes in all of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipeline.card import Card
from pipeline.logs.errors import LogError
from pipeline.logs.readers import csv, parquet
from pipeline.logs.readers.batch import Batch
from pipeline.logs.schema import roles

_CSV_ROW_BYTES = 20


@dataclass(frozen=True)
class Sources:
    """The files of one log, sorted by path.

    Parameters
    ----------
    paths, names
        Files, and what messages and the quarantine call them.
    dtypes
        Role -> type in every batch: the type the files agree on, text where they do not.
    rows
        Total number of rows, or None if a file is CSV.
    likely_rows
        The same, estimated from the size of CSV files.
    """

    paths: tuple[Path, ...]
    names: tuple[str, ...]
    dtypes: dict[str, pl.DataType]
    rows: int | None
    likely_rows: int


def examine(card: Card) -> Sources:
    """Read headers only.

    Raises
    ------
    LogError
        For a suffix that no reader takes, a missing column (rule ``missing_column``), or a type that is no cell.
    """
    # two patterns may match one file: read twice, its every step would repeat
    paths = tuple(sorted(set(card.source_files())))
    names = tuple(_name(path, card) for path in paths)
    dtypes: dict[str, pl.DataType] = {}
    exact, likely = True, 0
    for path, name in zip(paths, names, strict=True):
        if not os.access(path, os.R_OK):
            raise LogError(f"{name}: not allowed to read it; give yourself the right to")
        for role, dtype in _dtypes(path, name, card).items():
            dtypes[role] = dtype if dtypes.get(role, dtype) == dtype else pl.String()
        if path.suffix == ".csv":
            exact, likely = False, likely + path.stat().st_size // _CSV_ROW_BYTES
        else:
            likely += parquet.row_count(path)
    return Sources(paths, names, dtypes, likely if exact else None, likely)


def batches(sources: Sources, index: int, card: Card) -> Iterator[tuple[Batch, pl.DataFrame]]:
    """Batches of one file, each with its rows under the names of their roles (``raw_user``, …) in common types."""
    path, wanted = sources.paths[index], roles(card)
    columns = list(dict.fromkeys(wanted.values()))
    read = csv.read_csv if path.suffix == ".csv" else parquet.read_parquet
    for batch in read(path, columns):
        cells = [
            _cell(batch.frame[column], sources.dtypes[role]).alias(f"raw_{role}") for role, column in wanted.items()
        ]
        yield batch, pl.DataFrame(cells)


def digest(sources: Sources) -> str:
    """Sha256 over the files' digests, in order."""
    whole = hashlib.sha256()
    for path in sources.paths:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def _dtypes(path: Path, name: str, card: Card) -> dict[str, pl.DataType]:
    if path.suffix == ".csv":
        found = csv.header(path)
        types: dict[str, pl.DataType] = {column: pl.String() for column in found if found.count(column) == 1}
    elif path.suffix == ".parquet":
        types = parquet.column_types(path)
    else:
        raise LogError(f"{name}: {path.suffix or 'no suffix'}: not a supported format; give .csv or .parquet files")
    wanted = roles(card)
    if missing := sorted({column for column in wanted.values() if column not in types}):
        where = "line 1: " if path.suffix == ".csv" else ""
        raise LogError(
            f"{name}: {where}missing_column: {', '.join(map(repr, missing))} not there, or there twice; "
            f"mend the file, or the card's [source] or [domain] (the file has: {', '.join(types)})"
        )
    dtypes = {role: _common(types[column]) for role, column in wanted.items()}
    for role, dtype in dtypes.items():
        if dtype is None or (role == "user" and not (dtype.is_integer() or dtype.base_type() is pl.String)):
            allowed = "integers or text" if role == "user" else "numbers, booleans or text"
            raise LogError(f"{name}: column {wanted[role]!r} is {types[wanted[role]]}; write it as {allowed}")
    return {role: dtype for role, dtype in dtypes.items() if dtype is not None}


def _common(dtype: pl.DataType) -> pl.DataType | None:
    if dtype.is_integer():
        return pl.String() if dtype.base_type() in (pl.UInt64, pl.Int128, pl.UInt128) else pl.Int64()
    if dtype.is_float() or dtype.is_decimal():
        return pl.Float64()
    if dtype == pl.Boolean:
        return pl.Boolean()
    text = dtype.is_temporal() or dtype.base_type() in (pl.String, pl.Categorical, pl.Enum, pl.Null)
    return pl.String() if text else None


def _cell(column: pl.Series, dtype: pl.DataType) -> pl.Series:
    own = _common(column.dtype)
    return column.cast(own or dtype).cast(dtype)


def _name(path: Path, card: Card) -> str:
    return str(path.relative_to(card.folder)) if path.is_relative_to(card.folder) else path.name
