"""RLDS, exported to Parquet: a row an episode with a list ``steps``, or a row a step in order, split by ``is_first``.

Columns are those of a step (``observation``, ``action``, ``reward``, …; parts as ``observation/part`` and
``action[0]``), those of the episode, and ``next_observation``, ``terminated``, ``truncated``, ``episode`` and ``step``.
In the last step of an episode action and reward are undefined: it is no row, it is where the row before it led.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from pipeline.logs.decode import flag
from pipeline.logs.errors import LogError
from pipeline.logs.readers import parquet
from pipeline.logs.readers.batch import NO_LINES, Asked, Batch, marked
from pipeline.logs.readers.fields import Types, column_of, fields, taken

STEPS, SEEN, NEXT = "steps", "observation", "next_"
_FLAGS = ("is_first", "is_last", "is_terminal")
_MADE: dict[str, pl.DataType] = {
    "episode": pl.String(),
    "step": pl.Int64(),
    "terminated": pl.Boolean(),
    "truncated": pl.Boolean(),
}


def column_types(path: Path, asked: Asked) -> dict[str, pl.DataType]:
    """Columns of a step and their types.

    Raises
    ------
    LogError
        If the file is damaged, or lacks the flags that RLDS has.
    """
    types = _step_types(parquet.column_types(path))
    if missing := [name for name in _FLAGS if name not in types]:
        raise LogError(f"{path.name}: no {missing[0]!r}; RLDS steps have {', '.join(_FLAGS)}")
    following = {NEXT + SEEN: types[SEEN]} if SEEN in types else {}
    return fields(asked.columns, {**types, **following, **_MADE})


def read(path: Path, asked: Asked) -> Iterator[Batch]:
    """Yield transitions, each at the row its first half stands in.

    Raises
    ------
    LogError
        If the file is damaged, a flag cannot be read, or a step stands outside of any episode.
    """
    stored = parquet.column_types(path)
    types, nested = _step_types(stored), STEPS in stored
    names = [name.removeprefix(NEXT) if name.startswith(NEXT + SEEN) else name for name in asked.but(*_MADE)]
    bases = dict.fromkeys(base for name in [*names, *_FLAGS] if (base := column_of(name, types)) is not None)
    columns = [b for b in bases if not nested or b in stored] + ([STEPS] if nested else [])
    held, seen = pl.DataFrame(), 0
    for batch in parquet.read_parquet(path, columns):
        rows, lost = batch.frame.with_columns(pl.Series("_line", batch.lines)), NO_LINES
        if nested:
            empty = rows.filter(pl.col(STEPS).list.len().fill_null(0) == 0)
            lost = empty.select(pl.col("_line").alias("line"), pl.lit("an episode without steps").alias("text"))
            rows = _unnested(rows)
        rows = rows.with_columns(_flags(rows, path))
        rows, seen = _in_episodes(rows, held, seen, path, nested=nested)
        # the last step of a batch waits for the one after it
        held = rows.tail(1)
        yield _batch(_transitions(rows).head(max(0, len(rows) - 1)), asked, lost)
    if len(held):
        yield _batch(_transitions(held), asked, NO_LINES)


def _step_types(stored: Types) -> dict[str, pl.DataType]:
    steps = stored.get(STEPS)
    inner = steps.inner if isinstance(steps, pl.List) else None
    if not isinstance(inner, pl.Struct):
        return dict(stored)
    inside = pl.DataFrame(schema={STEPS: inner}).unnest(STEPS).schema
    return {name: t for name, t in stored.items() if name != STEPS} | dict(inside)


def _unnested(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a step; those of an episode stand together and begin with ``_first``."""
    steps = rows.with_columns(_at=pl.int_ranges(pl.col(STEPS).list.len())).explode(STEPS, "_at", keep_nulls=False)
    return steps.unnest(STEPS).with_columns(_first=pl.col("_at") == 0).drop("_at")


def _flags(rows: pl.DataFrame, path: Path) -> list[pl.Series]:
    found: list[pl.Series] = []
    for name in _FLAGS:
        cell = rows[name].alias("raw_flag")
        cell = cell if cell.dtype == pl.Boolean else cell.cast(pl.String)
        value, unread = flag("flag", {"flag": cell.dtype})
        told = cell.to_frame().select(value.alias(f"_{name}"), unread.alias("unread"))
        if told["unread"].any():
            row = rows["_line"][told["unread"].arg_true()[0]]
            raise LogError(
                f"{path.name}: column {name!r}, row {row}: cannot be read, and it tells the episodes; mend it"
            )
        found.append(told[f"_{name}"])
    return found


def _in_episodes(
    rows: pl.DataFrame, held: pl.DataFrame, seen: int, path: Path, *, nested: bool
) -> tuple[pl.DataFrame, int]:
    """Rows behind the one that waited, with ``_episode`` (1, 2, …), ``_step`` and ``_closing``; and episodes so far."""
    closing = pl.col("_is_last") | pl.col("_is_terminal")
    first = pl.col("_first") if nested else pl.col("_is_first")
    rows = rows.with_columns(_closing=closing, _new=first, _step=pl.lit(None, dtype=pl.Int64))
    rows = rows.with_columns(_episode=seen + pl.col("_new").cast(pl.Int64).cum_sum())
    rows = pl.concat([held, rows]) if len(held) else rows
    # a step behind the last one of its episode, or before any first one, would be taken for the next episode's
    lost = ~pl.col("_new") & (pl.col("_closing").shift().fill_null(value=True) | (pl.col("_episode") == 0))
    stray = rows.with_columns(_lost=lost)[len(held) :].filter(~pl.lit(nested) & pl.col("_lost"))
    if len(stray):
        raise LogError(
            f"{path.name}: row {stray['_line'][0]}: a step that is_first does not begin follows the end of an episode; "
            "export whole episodes, in order"
        )
    place = pl.int_range(pl.len(), dtype=pl.Int64).over("_episode") + pl.col("_step").first().over(
        "_episode"
    ).fill_null(0)
    rows = rows.with_columns(_step=place)
    return rows, int(rows["_episode"][-1]) if len(rows) else seen


def _transitions(rows: pl.DataFrame) -> pl.DataFrame:
    """Each step beside the one it led to, where that is of the same episode; ``_closing`` still marks the last ones."""
    follows = (pl.col("_episode") == pl.col("_episode").shift(-1)).fill_null(value=False)
    ended = follows & pl.col("_closing").shift(-1).fill_null(value=False)
    terminal = pl.col("_is_terminal").shift(-1).fill_null(value=False)
    seen = [pl.when(follows).then(pl.col(SEEN).shift(-1)).alias(NEXT + SEEN)] if SEEN in rows.columns else []
    return rows.with_columns(*seen, terminated=ended & terminal, truncated=ended & ~terminal)


def _batch(rows: pl.DataFrame, asked: Asked, lost: pl.DataFrame) -> Batch:
    rows = rows.filter(~pl.col("_closing")).with_columns(
        marked(asked.mark, pl.col("_episode")).alias("episode"), pl.col("_step").alias("step")
    )
    return Batch(rows.select(taken(asked.columns, rows.schema)), rows["_line"].to_numpy(), lost)
