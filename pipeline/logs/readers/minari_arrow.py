"""Minari in Arrow or Parquet: a folder an episode, one file in it; the last row is padding around the last observation.

Columns as in :mod:`~pipeline.logs.readers.minari_hdf5`.  The number of an episode is the name of its folder.  A file is
read whole, batch after batch: a record batch is no episode.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from pipeline.logs.errors import LogError
from pipeline.logs.readers import ipc, parquet
from pipeline.logs.readers.batch import NO_LINES, Asked, Batch, lines_from, marked
from pipeline.logs.readers.fields import column_of, fields, taken
from pipeline.logs.readers.minari_hdf5 import MADE, NEXT, told

# rows of a record batch that pyarrow's dataset writer cuts an episode into
_ONE_BATCH = 2**16


def column_types(path: Path, asked: Asked) -> dict[str, pl.DataType]:
    """Columns and their types.

    Raises
    ------
    LogError
        If the file is damaged, its folder is no episode's, or the episode before or after it is missing.
    """
    number, data = _number(path), path.parent.parent
    total = told(data / "metadata.json").get("total_episodes", number + 1)
    if not isinstance(total, int):
        raise LogError(f"{data.name}/metadata.json: total_episodes is no whole number; copy the data set again")
    beside = [n for n in (number - 1, number + 1) if 0 <= n < total and not (data / str(n)).is_dir()]
    if beside:
        raise LogError(f"{data.name}: episode {beside[0]} is missing; copy the data set again")
    types = _types(path)
    following = {NEXT + "observations": types["observations"]} if "observations" in types else {}
    return fields(asked.columns, {"episode": pl.String(), "step": pl.Int64(), **types, **following})


def read(path: Path, asked: Asked) -> Iterator[Batch]:
    """Yield the transitions of one episode.

    It is malformed if ``metadata.json`` beside tells of another number, or if it is longer than one record batch:
    pyarrow writes batches as they are done, and nothing in the file tells their order.

    Raises
    ------
    LogError
        If the file is damaged.
    """
    types = _types(path)
    names = [name.removeprefix(NEXT) for name in asked.but(*MADE)]
    bases = list(dict.fromkeys(base for name in names if (base := column_of(name, types)) is not None))
    bases = bases or list(types)[:1]
    batches = parquet.read_parquet(path, bases) if path.suffix == ".parquet" else ipc.read_ipc(path, bases)
    frames = [batch.frame for batch in batches]
    whole = pl.concat(frames) if frames else pl.DataFrame(schema={base: types[base] for base in bases})
    steps = max(0, len(whole) - 1)
    if len(whole) > _ONE_BATCH:
        yield _unreadable(path, asked, f"{len(whole)} rows: Minari's Arrow writer does not keep the order of so many")
        return
    if (total := told(path.with_name("metadata.json")).get("total_steps", steps)) != steps:
        text = f"{len(whole)} rows, metadata.json tells of {total} steps and one more observation"
        yield _unreadable(path, asked, text)
        return
    here, there = whole.head(steps), whole.slice(1)
    if "observations" in bases:
        here = here.with_columns(there["observations"].alias(NEXT + "observations"))
    here = here.with_columns(
        marked(asked.mark, pl.lit(_number(path))).alias("episode"), pl.int_range(steps, dtype=pl.Int64).alias("step")
    )
    yield Batch(here.select(taken(asked.columns, here.schema)), lines_from(1, steps), NO_LINES)


def _unreadable(path: Path, asked: Asked, why: str) -> Batch:
    lost = pl.DataFrame({"line": [1], "text": [f"{path.parent.name}: {why}"]})
    return Batch(pl.DataFrame(schema={c: column_types(path, asked)[c] for c in asked.columns}), lines_from(1, 0), lost)


def _types(path: Path) -> dict[str, pl.DataType]:
    return parquet.column_types(path) if path.suffix == ".parquet" else ipc.column_types(path)


def _number(path: Path) -> int:
    name = path.parent.name
    if not (name.isascii() and name.isdecimal() and len(name) <= 18):
        raise LogError(f"{name}/{path.name}: not in a folder with an episode's number; Minari writes data/0, data/1, …")
    return int(name)
