"""MEDS shards: events (``subject_id, time, code, numeric_value``) -> windows of equal length, as the card declares.

Columns: ``subject_id``, ``episode`` (the opening event's time in microseconds), ``step``, ``end`` (label of the end, at
the step that leads there), and one for each declared reading.  A window is ``[start, start + length)``; an event that
ends the episode belongs to the window it closes.  Nothing after it is read, nor anything before the opening event but
readings with ``at = "start"``.  Rows of a shard usually come subject by subject; otherwise a subject's rows wait for
its last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl

from pipeline.declaration.source import EventColumn, Meds
from pipeline.declaration.toml import LogError
from pipeline.logs.readers.arrow import parquet_types, read_parquet
from pipeline.logs.readers.batch import NO_LINES, Batch, Request, readable_times

_COLUMNS = ["subject_id", "time", "code", "numeric_value"]
_SECOND = 1_000_000
_BY = ["subject_id", "episode"]


def meds_types(path: Path, meds: Meds) -> dict[str, pl.DataType]:
    """Columns of the windows and their types.

    Raises LogError if the shard is damaged or not MEDS.
    """
    types = parquet_types(path)
    subject, time, code, number = (types.get(name, pl.Object()) for name in _COLUMNS)
    # a cast to signed 64 bits fails at the one row that does not fit, and the error would reveal that row
    signed = subject.is_integer() and subject.base_type() not in (pl.UInt64, pl.Int128, pl.UInt128)
    sound = (signed, isinstance(time, pl.Datetime), code == pl.String, number.is_numeric())
    if not all(sound):
        name = _COLUMNS[sound.index(False)]
        kind = str(types[name]) if name in types else "not there"
        raise LogError(
            f"{path.name}: column {name!r} is {kind}; MEDS has 64-bit signed integers subject_id, "
            "timestamps time, text code and numbers numeric_value"
        )
    readings = {name: _type(reading) for name, reading in meds.readings.items()}
    return {"subject_id": pl.Int64(), "episode": pl.Int64(), "step": pl.Int64(), "end": pl.String(), **readings}


def read_meds(path: Path, request: Request, meds: Meds, horizon: int) -> Iterator[Batch]:
    """Yield windows, at most one beyond the horizon; a window's row is that of the event that opened its episode.

    Raises LogError if the shard is damaged.
    """
    meds_types(path, meds)
    ends, waiting, seen = _last_rows(path), pl.DataFrame(), 0
    for batch in read_parquet(path, _COLUMNS):
        seen += len(batch.lines) + len(batch.malformed)
        batch = batch.set_aside(batch.frame["subject_id"].is_null(), "no subject")
        rows = batch.frame.with_columns(
            pl.col("subject_id").cast(pl.Int64),
            readable_times(batch.frame["time"]).dt.cast_time_unit("us").dt.replace_time_zone(None).cast(pl.Int64),
            pl.col("numeric_value").cast(pl.Float64),
            pl.Series("line", batch.lines),
        )
        rows = pl.concat([waiting, rows]) if len(waiting) else rows
        # a subject's windows are made of all its rows, wherever they stand
        over = rows.join(ends, on="subject_id", how="left", maintain_order="left")["last"] <= seen
        waiting = rows.filter(~over)
        windows = _batch(rows.filter(over), request, meds, horizon)
        yield replace(windows, malformed=batch.malformed)


def _last_rows(path: Path) -> pl.DataFrame:
    """Columns ``subject_id, last``: the last row of each subject in the shard."""
    last_rows = pl.DataFrame(schema={"subject_id": pl.Int64, "last": pl.Int64})
    for batch in read_parquet(path, ["subject_id"]):
        rows = batch.frame.select(pl.col("subject_id").cast(pl.Int64), pl.Series("last", batch.lines)).drop_nulls()
        last_rows = pl.concat([last_rows, rows]).group_by("subject_id").agg(pl.col("last").max())
    return last_rows


def _type(reading: EventColumn) -> pl.DataType:
    return pl.Int64() if reading.edges or reading.take in ("count", "any") else pl.Float64()


def _batch(events: pl.DataFrame, request: Request, meds: Meds, horizon: int) -> Batch:
    """Windows of whole subjects."""
    timed = events.filter(pl.col("time").is_not_null()).sort("subject_id", "time", maintain_order=True)
    rows = _grid(timed, meds, horizon)
    inside = _inside(timed, rows, meds)
    for name, reading in meds.readings.items():
        mask = _coded(reading.codes)
        values = _at_start(rows, timed.filter(mask)) if reading.at == "start" else _during(inside.filter(mask), reading)
        keys = [*_BY, "step"]
        rows = rows.join(values.rename({"value": name}), on=keys, how="left", maintain_order="left")
        rows = rows.with_columns(_finished(pl.col(name), reading).alias(name))
    return Batch(rows.select(request.columns), rows["line"].to_numpy(), NO_LINES)


def _coded(codes: list[str]) -> pl.Expr:
    exact = [code for code in codes if not code.endswith("*")]
    begins = [pl.col("code").str.starts_with(code[:-1]) for code in codes if code.endswith("*")]
    return pl.any_horizontal(pl.col("code").is_in(exact), *begins).fill_null(value=False)


def _grid(timed: pl.DataFrame, meds: Meds, horizon: int) -> pl.DataFrame:
    """Windows, a row each: ``subject_id, episode, step, end, line, start``; ``over``: the episode's end, or null."""
    width = meds.seconds * _SECOND
    opened = (
        timed.filter(_coded(meds.begin)).group_by("subject_id", "time", maintain_order=True).agg(pl.col("line").first())
    )
    opened = opened.select("subject_id", pl.col("time").alias("episode"), "line")
    placed = _placed(timed, opened)
    ended = [
        placed.filter(_coded(codes) & (pl.col("time") > pl.col("episode"))).select(
            *_BY, "time", pl.lit(end).alias("end"), pl.lit(i).alias("order")
        )
        for i, (end, codes) in enumerate(meds.ends.items())
    ]
    ends = pl.concat([pl.DataFrame(schema={"subject_id": pl.Int64, "episode": pl.Int64, "time": pl.Int64,
                                           "end": pl.String, "order": pl.Int32}), *ended])  # fmt: skip
    first = ends.sort("time", "order").unique(_BY, keep="first", maintain_order=True)
    lasts = placed.group_by(_BY).agg(pl.col("time").max().alias("latest"))
    episodes = opened.join(first, on=_BY, how="left", maintain_order="left").join(
        lasts, on=_BY, how="left", maintain_order="left"
    )
    # an end on the edge of two windows closes the earlier one
    closing = (pl.col("time") - pl.col("episode") - 1) // width
    last = pl.coalesce(closing, (pl.col("latest") - pl.col("episode")) // width)
    episodes = episodes.with_columns(
        last.alias("last"), pl.int_ranges(pl.min_horizontal(last, pl.lit(horizon)) + 1).alias("step")
    )
    rows = episodes.explode("step")
    ends_here = pl.when(pl.col("step") == pl.col("last")).then("end")
    return rows.select(
        *_BY, "step", ends_here.alias("end"), "line", pl.col("time").alias("over"),
        (pl.col("episode") + pl.col("step") * width).alias("start"),
    )  # fmt: skip


def _placed(timed: pl.DataFrame, opened: pl.DataFrame) -> pl.DataFrame:
    """Events with their ``episode``; those before the first are left out."""
    starts = opened.select("subject_id", pl.col("episode").alias("time"), "episode").sort("time")
    placed = timed.sort("time", maintain_order=True).join_asof(
        starts, on="time", by="subject_id", strategy="backward", check_sortedness=False
    )
    return placed.filter(pl.col("episode").is_not_null())


def _inside(timed: pl.DataFrame, rows: pl.DataFrame, meds: Meds) -> pl.DataFrame:
    """Events of the windows, with ``episode`` and ``step``; nothing after the end of an episode."""
    opened = rows.select(*_BY, "over").unique()
    placed = _placed(timed, opened).join(opened, on=_BY, how="left", maintain_order="left")
    over, width = pl.col("over"), meds.seconds * _SECOND
    at_end = (pl.col("time") == over).fill_null(value=False)
    step = (pl.col("time") - pl.col("episode") - at_end.cast(pl.Int64)) // width
    return placed.filter((pl.col("time") <= over).fill_null(value=True)).with_columns(step.alias("step"))


def _during(events: pl.DataFrame, reading: EventColumn) -> pl.DataFrame:
    number = pl.col("numeric_value").filter(pl.col("numeric_value").is_finite())
    aggregates = {
        "last": number.last(), "first": number.first(), "mean": number.mean(), "min": number.min(),
        "max": number.max(), "sum": pl.when(number.len() > 0).then(number.sum()),
        "count": pl.len().cast(pl.Int64), "any": pl.lit(1, dtype=pl.Int64),
    }  # fmt: skip
    return events.group_by(*_BY, "step", maintain_order=True).agg(aggregates[reading.take].alias("value"))


def _at_start(rows: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Last number before each window begins."""
    numbers = events.filter(pl.col("numeric_value").is_finite()).select("subject_id", "time", value="numeric_value")
    windows = rows.select(*_BY, "step", time="start").sort("time")
    numbers = numbers.sort("time", maintain_order=True)
    joined = windows.join_asof(numbers, on="time", by="subject_id", strategy="backward", check_sortedness=False)
    return joined.select(*_BY, "step", "value")


def _finished(value: pl.Expr, reading: EventColumn) -> pl.Expr:
    empty = reading.empty if reading.empty is not None else (0 if reading.take in ("count", "any") else None)
    value = value if empty is None else value.fill_null(empty)
    if not reading.edges:
        return value.cast(_type(reading))
    bins = pl.lit(pl.Series(reading.edges, dtype=pl.Float64)).search_sorted(value.cast(pl.Float64), side="right")
    return pl.when(value.is_not_null()).then(bins.cast(pl.Int64))
