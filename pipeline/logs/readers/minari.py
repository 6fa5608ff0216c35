"""Minari: T actions between T + 1 observations, in HDF5 or in Arrow.

Columns: ``episode``, ``step``, ``observations``, ``next_observations``, ``actions``, ``rewards``, ``terminations``,
``truncations``, ``infos/…``; the parts of a Dict space are ``observations/part``.

HDF5: a group an episode.  Episodes come in the order of their numbers; row n of the file is its n-th transition.  What
an episode's numbers read as depends on that episode alone: one number an entry becomes the text that its own type
gives, several become 64-bit floats.

Arrow or Parquet: a folder an episode, whose name is its number, one file in it; the last row is padding around the last
observation.  A file is read whole, batch after batch: a record batch is no episode.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.toml import LogError
from pipeline.logs.readers import hdf5
from pipeline.logs.readers.arrow import ipc_types, parquet_types, read_ipc, read_parquet
from pipeline.logs.readers.batch import (
    NO_LINES,
    Asked,
    Batch,
    Types,
    column_of,
    field_types,
    lines_from,
    mark_numbers,
    take_fields,
)
from pipeline.logs.readers.rows import BATCH_ROWS

MADE = ("episode", "step")
NEXT = "next_"
_NAME = re.compile(r"episode_(\d{1,18})")
_SEEN = "observations"
# episodes that are asked for the types of all
_ASKED = 16


def minari_hdf5_types(path: Path, asked: Asked) -> dict[str, pl.DataType]:
    """Columns and types, of each the one that most of the first episodes have: one odd episode speaks for no other.

    Raises
    ------
    LogError
        If the file is damaged, holds no episode, or fewer than ``metadata.json`` beside it tells.
    """
    with hdf5.open_hdf5(path) as file:
        whole = _episodes(file)
        _check_total(path, len(whole))
        first = [_episode_arrays(hdf5.member(file, name, path, "/"), path, name) for _, name in whole[:_ASKED]]
        each = [{name: hdf5.type_of(data) for name, data in columns.items()} for columns in first]
    if not each:
        raise LogError(f"{path.name}: no episode_0, episode_1, …; is this a Minari file?")
    chosen = {name: _usual(name, each, asked) for name in dict.fromkeys(name for types in each for name in types)}
    return field_types(asked.columns, {"episode": pl.String(), "step": pl.Int64(), **chosen})


def _usual(name: str, each: list[dict[str, pl.DataType]], asked: Asked) -> pl.DataType:
    found = [_read_as(name, types[name], asked) for types in each if name in types]
    return Counter(found).most_common(1)[0][0]


def _read_as(name: str, dtype: pl.DataType, asked: Asked) -> pl.DataType:
    """The type of a column for an array of type ``dtype``: the same for numbers of every kind."""
    if isinstance(dtype, pl.Array):
        return pl.Array(pl.Float64(), dtype.size)
    if not (dtype.is_numeric() or dtype == pl.Boolean):
        return dtype
    return pl.Float64() if name in asked.lists else pl.String()


def read_minari_hdf5(path: Path, asked: Asked) -> Iterator[Batch]:
    """Yield transitions; an episode whose arrays do not fit together is malformed.

    Raises
    ------
    LogError
        If the file is damaged.
    """
    types, row = minari_hdf5_types(path, asked), 1
    with hdf5.open_hdf5(path) as file:
        held = _Held(asked, types)
        for number, name in _episodes(file):
            group = hdf5.member(file, name, path, "/")
            data = {base: hdf5.array(group, base, path, name) for base in held.bases}
            fault, steps = _fault(group, data, types, asked)
            for low in range(0, steps if fault is None else 0, BATCH_ROWS):
                held.add(data, number, low, min(low + BATCH_ROWS, steps))
                if held.rows >= BATCH_ROWS:
                    yield Batch(held.frame(), lines_from(row, held.rows), NO_LINES)
                    row, held = row + held.rows, _Held(asked, types)
            if fault is not None:
                lost = pl.DataFrame({"line": [row + held.rows], "text": [f"episode_{number}: {fault}"]})
                yield Batch(held.frame(), lines_from(row, held.rows), lost)
                row, held = row + held.rows + 1, _Held(asked, types)
        if held.rows:
            yield Batch(held.frame(), lines_from(row, held.rows), NO_LINES)


class _Held:
    """Rows of some episodes, to be made into one frame."""

    def __init__(self, asked: Asked, types: Types) -> None:
        self._asked, self._types, self.rows = asked, types, 0
        self._wanted = list(dict.fromkeys(_base(name, types) for name in asked.but(*MADE)))
        self._pieces: dict[str, list[pl.Series]] = {base: [] for base in self._wanted}
        self._numbers: list[NDArray[np.int64]] = []
        self._steps: list[NDArray[np.int64]] = []

    @property
    def bases(self) -> list[str]:
        """Arrays of an episode that are read."""
        return list(dict.fromkeys(["rewards", *(base.removeprefix(NEXT) for base in self._wanted)]))

    def add(self, data: dict[str, Any], number: int, low: int, high: int) -> None:
        """Transitions ``low … high - 1`` of an episode."""
        read_minari_hdf5 = {
            base: hdf5.values(x, low, high + 1) for base, x in data.items() if base != "rewards" or base in self._pieces
        }
        for base, pieces in self._pieces.items():
            by = int(base.startswith(NEXT))
            pieces.append(_cells(read_minari_hdf5[base.removeprefix(NEXT)][by : high - low + by], self._types[base]))
        self._numbers.append(np.full(high - low, number))
        self._steps.append(np.arange(low, high, dtype=np.int64))
        self.rows += high - low

    def frame(self) -> pl.DataFrame:
        """The columns that were asked for."""
        wanted = {name: self._types[name] for name in self._asked.columns}
        if not self.rows:
            return pl.DataFrame(schema=wanted)
        frame = pl.DataFrame({base: pl.concat(pieces) for base, pieces in self._pieces.items()})
        made = pl.DataFrame({"_n": np.concatenate(self._numbers), "step": np.concatenate(self._steps)})
        frame = pl.concat([frame, made], how="horizontal")
        frame = frame.with_columns(mark_numbers(self._asked.mark, pl.col("_n")).alias("episode"))
        return frame.select(take_fields(self._asked.columns, frame.schema))


def _cells(values: NDArray[Any], dtype: pl.DataType) -> pl.Series:
    """Entries of one episode as :func:`_read_as` says."""
    if dtype != pl.String and values.dtype != object:
        return hdf5.series([values.astype(np.float64)])
    cells = hdf5.series([values])
    return cells.cast(pl.Float64).fill_nan(None).cast(pl.String) if cells.dtype.is_float() else cells.cast(pl.String)


def _base(name: str, types: Types) -> str:
    """The array that a column or an entry of one is taken from."""
    return name.partition("[")[0] if name.partition("[")[0] in types else name


def _episodes(file: Any) -> list[tuple[int, str]]:
    """Numbers and names of the groups, in order."""
    return sorted((int(name[1]), name[0]) for key in file if (name := _NAME.fullmatch(key)) is not None)


def _check_total(path: Path, found: int) -> None:
    beside = path.with_name("metadata.json")
    if (total := read_facts(beside).get("total_episodes", found)) != found:
        raise LogError(f"{path.name}: {found} episodes, metadata.json tells of {total}; copy the data set again")


def read_facts(path: Path) -> dict[str, Any]:
    """What a JSON file beside the data says; nothing if there is none.

    Raises
    ------
    LogError
        If it is no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise LogError(f"{path.parent.name}/{path.name}: no JSON object; write or copy it again")
    return content


def _episode_arrays(group: Any, path: Path, name: str) -> dict[str, Any]:
    """Arrays of an episode; each observation a second time, as what the step before it led to."""
    found = hdf5.arrays(group, path, name)
    return found | {NEXT + name: data for name, data in found.items() if name.split("/")[0] == _SEEN}


def _fault(group: Any, data: dict[str, Any], types: Types, asked: Asked) -> tuple[str | None, int]:
    """What does not fit together, and the number T of steps."""
    if missing := [base for base, x in data.items() if x is None]:
        return f"no {missing[0]}", 0
    steps = len(data["rewards"])
    if str(group.attrs.get("total_steps", steps)) != str(steps):
        return f"rewards holds {steps} entries, total_steps is another number", steps
    for base, x in data.items():
        allowed = {_SEEN: (steps + 1,), "infos": (steps, steps + 1)}.get(base.split("/")[0], (steps,))
        if len(x) not in allowed:
            return f"{base} holds {len(x)} entries, rewards {steps}", steps
        if _read_as(base, hdf5.type_of(x), asked) != types.get(base):
            return f"{base} is of another type than in other episodes", steps
    return None, steps


# rows of a record batch that pyarrow's dataset writer cuts an episode into
_ONE_BATCH = 2**16


def minari_arrow_types(path: Path, asked: Asked) -> dict[str, pl.DataType]:
    """Columns and their types.

    Raises
    ------
    LogError
        If the file is damaged, its folder is no episode's, or the episode before or after it is missing.
    """
    number, data = _number(path), path.parent.parent
    total = read_facts(data / "metadata.json").get("total_episodes", number + 1)
    if not isinstance(total, int):
        raise LogError(f"{data.name}/metadata.json: total_episodes is no whole number; copy the data set again")
    beside = [n for n in (number - 1, number + 1) if 0 <= n < total and not (data / str(n)).is_dir()]
    if beside:
        raise LogError(f"{data.name}: episode {beside[0]} is missing; copy the data set again")
    types = _file_types(path)
    following = {NEXT + "observations": types["observations"]} if "observations" in types else {}
    return field_types(asked.columns, {"episode": pl.String(), "step": pl.Int64(), **types, **following})


def read_minari_arrow(path: Path, asked: Asked) -> Iterator[Batch]:
    """Yield the transitions of one episode.

    It is malformed if ``metadata.json`` beside tells of another number, or if it is longer than one record batch:
    pyarrow writes batches as they are done, and nothing in the file tells their order.

    Raises
    ------
    LogError
        If the file is damaged.
    """
    types = _file_types(path)
    names = [name.removeprefix(NEXT) for name in asked.but(*MADE)]
    bases = list(dict.fromkeys(base for name in names if (base := column_of(name, types)) is not None))
    bases = bases or list(types)[:1]
    batches = read_parquet(path, bases) if path.suffix == ".parquet" else read_ipc(path, bases)
    frames = [batch.frame for batch in batches]
    whole = pl.concat(frames) if frames else pl.DataFrame(schema={base: types[base] for base in bases})
    steps = max(0, len(whole) - 1)
    if len(whole) > _ONE_BATCH:
        yield _unreadable(path, asked, f"{len(whole)} rows: Minari's Arrow writer does not keep the order of so many")
        return
    if (total := read_facts(path.with_name("metadata.json")).get("total_steps", steps)) != steps:
        text = f"{len(whole)} rows, metadata.json tells of {total} steps and one more observation"
        yield _unreadable(path, asked, text)
        return
    here, there = whole.head(steps), whole.slice(1)
    if "observations" in bases:
        here = here.with_columns(there["observations"].alias(NEXT + "observations"))
    here = here.with_columns(
        mark_numbers(asked.mark, pl.lit(_number(path))).alias("episode"),
        pl.int_range(steps, dtype=pl.Int64).alias("step"),
    )
    yield Batch(here.select(take_fields(asked.columns, here.schema)), lines_from(1, steps), NO_LINES)


def _unreadable(path: Path, asked: Asked, why: str) -> Batch:
    lost = pl.DataFrame({"line": [1], "text": [f"{path.parent.name}: {why}"]})
    return Batch(
        pl.DataFrame(schema={c: minari_arrow_types(path, asked)[c] for c in asked.columns}), lines_from(1, 0), lost
    )


def _file_types(path: Path) -> dict[str, pl.DataType]:
    return parquet_types(path) if path.suffix == ".parquet" else ipc_types(path)


def _number(path: Path) -> int:
    name = path.parent.name
    if not (name.isascii() and name.isdecimal() and len(name) <= 18):
        raise LogError(f"{name}/{path.name}: not in a folder with an episode's number; Minari writes data/0, data/1, …")
    return int(name)
