"""Which reader takes a file: by the card's ``source.format``, and by the suffix."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import polars as pl

from pipeline.declaration.card import AnyCard
from pipeline.declaration.code import plugin
from pipeline.declaration.source import Meds
from pipeline.declaration.toml import CardError, LogError
from pipeline.logs.readers.arrow import ipc_types, parquet_types, read_ipc, read_parquet
from pipeline.logs.readers.batch import Asked, Batch
from pipeline.logs.readers.in_order import Cut, d4rl_types, read_d4rl, read_transitions, transition_types
from pipeline.logs.readers.lines import csv_types, obp_types, read_csv, read_obp
from pipeline.logs.readers.meds import meds_types, read_meds
from pipeline.logs.readers.minari import minari_arrow_types, minari_hdf5_types, read_minari_arrow, read_minari_hdf5
from pipeline.logs.readers.ndjson import read_ndjson
from pipeline.logs.readers.rlds_lerobot import lerobot_root, lerobot_types, read_lerobot, read_rlds, rlds_types

T = TypeVar("T")


@dataclass(frozen=True)
class Reader:
    """How files of one suffix are read.

    Parameters
    ----------
    types
        Columns of a file and their types; None where any key may occur and every cell is text.
    read
        Its batches, in the order of the file.  What becomes of one person's rows depends on that person's rows alone:
        the guarantee rests on it (privacy.md §1.2).
    row_bytes
        Bytes of a short row, to guess the number of rows; None where the file is Parquet, which tells it.
    lines
        Whether its first line holds the column names.
    root
        What a reader's record numbers belong to: the file, or the folder of a data set.
    suffixes
        Of a reader of your own (docs/extend.md): the suffixes of its files, dots included.
    """

    types: Callable[[Path, Asked], dict[str, pl.DataType]] | None
    read: Callable[[Path, Asked], Iterator[Batch]]
    row_bytes: int | None = None
    lines: bool = False
    root: Callable[[Path], Path] = lambda path: path
    suffixes: tuple[str, ...] = ()


_CSV = Reader(lambda path, _: csv_types(path), lambda path, asked: read_csv(path, asked.columns), 20, lines=True)
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

    Parameters
    ----------
    readers
        Suffix -> reader, of :func:`readers_of` the card.
    name
        What messages call the file.

    Raises
    ------
    LogError
        For a suffix that the format does not come in; says which other format the file looks like.
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
            f"; its cells are separated by {found!r}: write it with commas and decimal points, or read it in Python, "
            f"store.ingest(card, polars.read_csv(FILE, separator={found!r}, decimal_comma=True))"
        )
    found = [form for form, telling in _TELLING.items() if any(one <= set(names) for one in telling)]
    return f"; it looks like source.format = {found[0]!r} (docs/formats.md)" if found else ""


def readers_of(card: AnyCard) -> dict[str, Reader]:
    """Suffix -> reader, for what the card calls its format.

    Raises
    ------
    CardError
        If a reader of your own cannot be found, or is none.
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
