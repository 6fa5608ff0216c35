"""Minari in HDF5: a group an episode, T actions between T + 1 observations.

Columns: ``episode``, ``step``, ``observations``, ``next_observations``, ``actions``, ``rewards``, ``terminations``,
``truncations``, ``infos/…``; the parts of a Dict space are ``observations/part``.  Episodes come in the order of their
numbers; row n of the file is its n-th transition.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.logs.errors import LogError
from pipeline.logs.readers import hdf5
from pipeline.logs.readers.arrow import BATCH_ROWS
from pipeline.logs.readers.batch import NO_LINES, Asked, Batch, lines_from, marked
from pipeline.logs.readers.fields import Types, fields, taken

MADE = ("episode", "step")
NEXT = "next_"
_NAME = re.compile(r"episode_(\d{1,18})")
_SEEN = "observations"
# episodes that are asked for the types of all
_ASKED = 16


def column_types(path: Path, asked: Asked) -> dict[str, pl.DataType]:
    """Columns and types that most of the first episodes have: one odd episode does not speak for the others.

    Raises
    ------
    LogError
        If the file is damaged, holds no episode, or fewer than ``metadata.json`` beside it tells.
    """
    with hdf5.opened(path) as file:
        whole = _episodes(file, path)
        _check_total(path, len(whole))
        each = [_columns(group, path, number) for number, group in whole[:_ASKED]]
        types = [{name: hdf5.type_of(data) for name, data in columns.items()} for columns in each]
    if not types:
        raise LogError(f"{path.name}: no episode_0, episode_1, …; is this a Minari file?")
    usual = Counter(str(one) for one in types).most_common(1)[0][0]
    chosen = next(one for one in types if str(one) == usual)
    return fields(asked.columns, {"episode": pl.String(), "step": pl.Int64(), **chosen})


def read(path: Path, asked: Asked) -> Iterator[Batch]:
    """Yield transitions; an episode whose arrays do not fit together is malformed.

    Raises
    ------
    LogError
        If the file is damaged.
    """
    types = column_types(path, asked)
    wanted, row = {name: types[name] for name in asked.columns}, 1
    with hdf5.opened(path) as file:
        held: list[pl.DataFrame] = []
        for number, group in _episodes(file, path):
            data = _columns(group, path, number)
            fault, steps = _fault(group, data, asked)
            lows = range(0, steps if fault is None else 0, BATCH_ROWS)
            found = [_rows(data, number, low, min(low + BATCH_ROWS, steps), asked, wanted) for low in lows]
            if any(frame is None for frame in found):
                fault = "an array is of another type than in other episodes"
            else:
                held += [frame for frame in found if frame is not None]
            if fault is not None:
                lost = pl.DataFrame({"line": [row + _height(held)], "text": [f"episode_{number}: {fault}"]})
                yield Batch(_joined(held, wanted), lines_from(row, _height(held)), lost)
                row, held = row + _height(held) + 1, []
            elif _height(held) >= BATCH_ROWS or len(held) >= 1024:
                yield Batch(_joined(held, wanted), lines_from(row, _height(held)), NO_LINES)
                row, held = row + _height(held), []
        if held:
            yield Batch(_joined(held, wanted), lines_from(row, _height(held)), NO_LINES)


def _episodes(file: Any, path: Path) -> list[tuple[int, Any]]:
    found = sorted((int(name[1]), name[0]) for key in file if (name := _NAME.fullmatch(key)) is not None)
    return [(number, hdf5.member(file, key, path, "/")) for number, key in found]


def _check_total(path: Path, found: int) -> None:
    beside = path.with_name("metadata.json")
    if (total := told(beside).get("total_episodes", found)) != found:
        raise LogError(f"{path.name}: {found} episodes, metadata.json tells of {total}; copy the data set again")


def told(path: Path) -> dict[str, Any]:
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


def _columns(group: Any, path: Path, number: int) -> dict[str, Any]:
    """Arrays of an episode; each observation a second time, as what the step before it led to."""
    found = hdf5.arrays(group, path, f"episode_{number}")
    return found | {NEXT + name: data for name, data in found.items() if name.split("/")[0] == _SEEN}


def _fault(group: Any, data: dict[str, Any], asked: Asked) -> tuple[str | None, int]:
    """What does not fit together, and the number T of steps."""
    if "rewards" not in data:
        return "no rewards", 0
    steps = len(data["rewards"])
    if str(group.attrs.get("total_steps", steps)) != str(steps):
        return f"rewards holds {steps} entries, total_steps is another number", steps
    types = {name: hdf5.type_of(x) for name, x in data.items()}
    for name in asked.but(*MADE):
        base = next((base for base in (name, name.split("[")[0]) if base in types), None)
        if base is None:
            return f"no {name}", steps
        outer = base.split("/")[0].removeprefix(NEXT)
        allowed = {_SEEN: (steps + 1,), "infos": (steps, steps + 1)}.get(outer, (steps,))
        if len(data[base]) not in allowed:
            return f"{base.removeprefix(NEXT)} holds {len(data[base])} entries, rewards {steps}", steps
    return None, steps


def _rows(data: dict[str, Any], number: int, low: int, high: int, asked: Asked, wanted: Types) -> pl.DataFrame | None:
    """Transitions ``low … high - 1``; None where a column is of another type than in other episodes."""
    bases = {name if name in data else name.split("[")[0] for name in asked.but(*MADE)}
    shifted = {base: int(base.startswith(NEXT)) for base in bases}
    made = {base: hdf5.column(data[base], low + by, high + by) for base, by in shifted.items()}
    frame = pl.DataFrame(made).with_columns(
        marked(asked.mark, pl.lit(number)).alias("episode"), pl.int_range(low, high, dtype=pl.Int64).alias("step")
    )
    out = frame.select(taken(asked.columns, frame.schema))
    try:
        return out.cast(pl.Schema(wanted)) if out.columns == asked.columns else None
    except pl.exceptions.PolarsError:
        return None


def _height(frames: list[pl.DataFrame]) -> int:
    return sum(len(frame) for frame in frames)


def _joined(frames: list[pl.DataFrame], wanted: Types) -> pl.DataFrame:
    return pl.concat(frames) if frames else pl.DataFrame(schema=dict(wanted))
