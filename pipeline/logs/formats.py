"""Which reader takes a file: by the card's ``source.format``, and by the suffix."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import polars as pl

from pipeline.declaration.card import AnyCard, Card
from pipeline.declaration.source import MADE
from pipeline.declaration.toml import LogError
from pipeline.declaration.windows import Meds
from pipeline.logs.columns import vector_columns
from pipeline.logs.readers.arrow import ipc_types, parquet_types, read_ipc, read_parquet
from pipeline.logs.readers.batch import Asked, Batch
from pipeline.logs.readers.csv import csv_types, obp_types, read_csv, read_obp
from pipeline.logs.readers.in_order import Cut, d4rl_types, read_d4rl, read_transitions, transition_types
from pipeline.logs.readers.meds import meds_types, read_meds
from pipeline.logs.readers.minari import minari_arrow_types, minari_hdf5_types, read_minari_arrow, read_minari_hdf5
from pipeline.logs.readers.ndjson import read_ndjson
from pipeline.logs.readers.rlds_lerobot import lerobot_root, lerobot_types, read_lerobot, read_rlds, rlds_types


@dataclass(frozen=True)
class Format:
    """How files of one suffix are read.

    Parameters
    ----------
    types
        Columns of a file and their types; None where any key may occur and every cell is text.
    read
        Its batches.
    row_bytes
        Bytes of a short row, to guess the number of rows; None where the file tells it.
    lines
        Whether its first line holds the column names.
    root
        What a reader's record numbers belong to: the file, or the folder of a data set.
    """

    types: Callable[[Path, Asked], dict[str, pl.DataType]] | None
    read: Callable[[Path, Asked], Iterator[Batch]]
    row_bytes: int | None = None
    lines: bool = False
    root: Callable[[Path], Path] = lambda path: path


_CSV = Format(lambda path, _: csv_types(path), lambda path, asked: read_csv(path, asked.columns), 20, lines=True)
_PARQUET = Format(lambda path, _: parquet_types(path), lambda path, asked: read_parquet(path, asked.columns))
_IPC = Format(lambda path, _: ipc_types(path), lambda path, asked: read_ipc(path, asked.columns), 20)
_NDJSON = Format(None, lambda path, asked: read_ndjson(path, asked.columns, asked.lists), 60)
_ARROW = (".arrow", ".arrows", ".feather", ".ipc")
_LINES = (".ndjson", ".jsonl")
TABLES: dict[str, Format] = {
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


def format_of(card: AnyCard, path: Path, name: str) -> Format:
    """The reader of a file.

    Raises
    ------
    LogError
        For a suffix that the format does not come in; says which other format the file looks like.
    """
    known = _formats(card)
    if (form := known.get(path.suffix)) is None:
        hint = "; an HDF5 file is read with source.format = 'minari' or 'd4rl'" if path.suffix in _HDF5 else ""
        which = "a supported format" if card.source.format == "table" else f"of format {card.source.format!r}"
        raise LogError(f"{name}: {path.suffix or 'no suffix'}: not {which}; give files of {', '.join(known)}{hint}")
    return form


def likely(names: Collection[str]) -> str:
    """A hint at the format that has these columns; empty if none does."""
    found = [form for form, telling in _TELLING.items() if any(one <= set(names) for one in telling)]
    return f"; it looks like source.format = {found[0]!r} (docs/formats.md)" if found else ""


def _formats(card: AnyCard) -> dict[str, Format]:
    """Suffix -> reader, for what the card calls its format."""
    source = card.source
    match source.format:
        case "minari":
            folder = Format(minari_arrow_types, read_minari_arrow, 20, root=lerobot_root)
            one = Format(minari_hdf5_types, read_minari_hdf5, 20)
            return dict.fromkeys(_HDF5, one) | {".arrow": folder, ".parquet": folder}
        case "d4rl":
            cut = cut_of(card)
            types = partial(d4rl_types, cut=cut)
            return dict.fromkeys(_HDF5, Format(types, partial(read_d4rl, cut=cut), 20))
        case "rlds":
            steps = partial(read_rlds, user=user_of(card), real=card.kind == "real")
            return {".parquet": Format(rlds_types, steps, 20)}
        case "lerobot":
            return {".parquet": Format(lerobot_types, read_lerobot, root=lerobot_root)}
        case "obp":
            return {".csv": Format(lambda path, _: obp_types(path), read_obp, 20, lines=True)}
        case "meds":
            return {".parquet": _windows(source.meds, card.domain.horizon)} if source.meds else {}
        case "transitions":
            return {suffix: _flat(inner, cut_of(card)) for suffix, inner in TABLES.items()}
        case _:
            return TABLES


def _windows(declared: Meds, horizon: int) -> Format:
    return Format(lambda path, _: meds_types(path, declared), partial(read_meds, meds=declared, horizon=horizon), 20)


def _flat(inner: Format, cut: Cut) -> Format:
    types = None if inner.types is None else partial(transition_types, inner=inner.types)
    return replace(inner, types=types, read=partial(read_transitions, inner=inner.read, cut=cut))


def cut_of(card: AnyCard) -> Cut:
    """What the card maps that tells where an episode ends."""
    cols = card.source.columns
    flags = [str(flag) for flag in (cols.terminated, cols.truncated) if flag is not None]
    return Cut(user_of(card), tuple(flags), tuple(_chain(card)))


def user_of(card: AnyCard) -> str | None:
    """The column of people's ids; None where a record that the reader makes stands for a person."""
    named = card.source.columns.user_id
    return None if named == MADE.get(card.source.format) else named


def _chain(card: AnyCard) -> list[tuple[str, str]]:
    if isinstance(card, Card):
        states, cols = card.domain.states, card.source.columns
        if states.bins is None:
            return [] if cols.next_state is None else [(str(cols.next_state), str(states.column))]
        return [] if cols.next_bin is None else [(str(cols.next_bin), str(states.bins.by))]
    vectors = vector_columns(card)
    here, there = vectors["observation"], vectors.get("next_observation")
    if there is None:
        return []
    pairs = [(there, here)] if isinstance(there, str) else list(zip(there, here, strict=True))
    return [(str(leads), str(stands)) for leads, stands in pairs]
