"""RLDS and LeRobot: recorded steps in Parquet, with flags or indices that delimit the episodes.

RLDS, exported: a row for each episode with a list ``steps``, or a row for each step in order, split by ``is_first``.
Columns are those of a step (``observation``, ``action``, ``reward``, …; parts as ``observation/part`` and
``action[0]``), those of the episode, and ``next_observation``, ``terminated``, ``truncated``, ``episode`` and ``step``.
In the last step of an episode action and reward are undefined: it is only the next state of the row before it.

LeRobot v3 (and v2, with a file an episode): few files, ``meta/info.json`` beside ``data/``.  Columns are the files'
(``observation.state``, ``action``, ``next.reward``, ``next.done``, ``episode_index``, …), entries of lists as
``action[0]``, beside ``episode`` and ``step`` (``episode_index`` as an id, ``frame_index``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from pipeline.declaration.toml import LogError
from pipeline.logs.contribution_bounding import person_key
from pipeline.logs.decode import read_flag
from pipeline.logs.readers import batch as framing
from pipeline.logs.readers.arrow import parquet_types, read_parquet, row_count
from pipeline.logs.readers.batch import NUMBERED, Batch, Request

# most bytes of an episode in one row, images included
EPISODE_BYTES = 1 << 28
STEPS, SEEN, NEXT = "steps", "observation", "next_"
_FLAGS = ("is_first", "is_last", "is_terminal")
_MADE: dict[str, pl.DataType] = {**NUMBERED, "terminated": pl.Boolean(), "truncated": pl.Boolean()}


def rlds_types(path: Path, request: Request) -> dict[str, pl.DataType]:
    """Columns of a step and their types.

    Raises LogError if the file is damaged, or lacks the flags that RLDS has.
    """
    types = _step_types(parquet_types(path))
    if missing := [name for name in _FLAGS if name not in types]:
        raise LogError(f"{path.name}: no {missing[0]!r}; RLDS steps have {', '.join(_FLAGS)}")
    following = {NEXT + SEEN: types[SEEN]} if SEEN in types else {}
    return framing.field_types(request.columns, {**types, **following, **_MADE})


def read_rlds(path: Path, request: Request, user: str | None = None, *, real: bool = False) -> Iterator[Batch]:
    """Yield transitions, each at the row of its first step.

    ``user``: column of user ids, so that a person's steps are joined by that person's steps alone; None without ids.
    ``real``: whether the people are real.
    Raises LogError if the file is damaged; if every row is a step and there are no user ids, also if people are real,
    because a row would then change other people's episodes, or if a row is set aside.
    """
    stored = parquet_types(path)
    types, nested = _step_types(stored), STEPS in stored
    if real and user is None and not nested:
        raise LogError(
            f"{path.name}: steps of real people, told apart by order alone; name a column of user ids, or write a row "
            "an episode"
        )
    names = [name.removeprefix(NEXT) if name.startswith(NEXT + SEEN) else name for name in request.without(*_MADE)]
    bases = dict.fromkeys(base for name in [*names, *_FLAGS] if (base := framing.column_of(name, types)) is not None)
    columns = [b for b in bases if not nested or b in stored] + ([STEPS] if nested else [])
    waiting = pl.DataFrame()
    for batch in read_parquet(path, columns, EPISODE_BYTES if nested else framing.RECORD_BYTES):
        rows, lost = batch.frame.with_columns(pl.Series("_line", batch.lines)), [batch.malformed]
        if nested:
            lost.append(_lost(rows.filter(pl.col(STEPS).list.len().fill_null(0) == 0), "an episode without steps"))
            # the steps of an episode stand together and share their ``_line``
            rows = rows.explode(STEPS, keep_nulls=False, empty_as_null=False).unnest(STEPS)
        parsed = {name: read_flag(framing.readable_times(rows[name])) for name in _FLAGS}
        rows = rows.with_columns(
            *(flags["value"].alias(f"_{name}") for name, flags in parsed.items()),
            _user_key(user, rows.schema).alias("_user"),
            pl.any_horizontal(flags["unread"] for flags in parsed.values()).alias("_odd"),
        )
        # a recorded episode is one record
        odd = rows.filter(pl.col("_odd").any().over("_line"))
        lost.append(_lost(odd.unique("_line", maintain_order=True), "is_first, is_last or is_terminal cannot be read"))
        rows = _opened(rows.filter(~pl.col("_odd").any().over("_line")).drop("_odd"), waiting, nested=nested,
                       alone=user is None)  # fmt: skip
        stray = pl.col("_stray")
        lost.append(_lost(rows.filter(stray), "a step that is_first does not begin follows the end of an episode"))
        malformed = pl.concat(lost).sort("line")
        if user is None and not nested and len(malformed):
            raise LogError(
                f"{path.name}: row {malformed['line'][0]}: {malformed['text'][0]}, and here the order of the rows "
                "tells the episodes; export whole episodes, in order"
            )
        rows = _in_episodes(rows.filter(~stray).drop("_stray"), nested=nested, alone=user is None)
        # the last step of each user waits for the one after it
        last = pl.col("_user").is_last_distinct()
        waiting = rows.filter(last)
        yield _batch(_transitions(rows).filter(~last), request, malformed)
    if len(waiting):
        yield _batch(_transitions(waiting), request, framing.NO_LINES)


def _lost(rows: pl.DataFrame, why: str) -> pl.DataFrame:
    return rows.select(pl.col("_line").alias("line"), pl.lit(why).alias("text"))


def _user_key(user: str | None, types: framing.Types) -> pl.Expr:
    located = None if user is None else framing.field(user, types)
    return pl.lit(0) if located is None else person_key(located[1], located[0])


def _step_types(stored: framing.Types) -> dict[str, pl.DataType]:
    steps = stored.get(STEPS)
    inner = steps.inner if isinstance(steps, pl.List) else None
    if not isinstance(inner, pl.Struct):
        return dict(stored)
    inside = pl.DataFrame(schema={STEPS: inner}).unnest(STEPS).schema
    return {name: t for name, t in stored.items() if name != STEPS} | dict(inside)


def _opened(rows: pl.DataFrame, waiting: pl.DataFrame, *, nested: bool, alone: bool) -> pl.DataFrame:
    """Append rows to the waiting ones; add ``_closing``, ``_new`` (begins an episode) and ``_stray`` (is in none)."""
    counters = ("_episode", "_step")
    rows = rows.with_columns(
        (pl.col("_is_last") | pl.col("_is_terminal")).alias("_closing"),
        *(pl.lit(None, dtype=pl.Int64).alias(name) for name in counters),
    )
    rows = pl.concat([waiting, rows]) if len(waiting) else rows
    before = pl.col("_closing").shift().over("_user")
    opens = pl.col("_line").ne_missing(pl.col("_line").shift().over("_user")) if nested else pl.col("_is_first")
    # a person's first step begins an episode, whatever rows of others stand before it
    opens = opens if alone else opens | before.is_null()
    numbered = pl.col("_episode").is_not_null()
    place = pl.int_range(pl.len(), dtype=pl.Int64)
    opened = pl.when(numbered | opens).then(place).otherwise(-2).cum_max().over("_user")
    closed = pl.when("_closing").then(place).otherwise(-1).cum_max().shift(fill_value=-1).over("_user")
    # a step behind the last one of its episode, or before any first one, would be taken for the next episode's
    stray = pl.lit(value=False) if nested else opened <= closed
    return rows.with_columns((opens & ~numbered).alias("_new"), stray.alias("_stray"))


def _in_episodes(rows: pl.DataFrame, *, nested: bool, alone: bool) -> pl.DataFrame:
    """Add ``_episode`` (1, 2, … of each user) and ``_step``."""
    number = pl.col("_episode").first().over("_user").fill_null(0) + pl.col("_new").cast(pl.Int64).cum_sum().over(
        "_user"
    )
    # numbered by rows, so that a row without steps does not change the others' numbers
    number = pl.col("_line") if nested and alone else number
    rows = rows.with_columns(_episode=number)
    keys = ("_user", "_episode")
    carried = pl.col("_step").first().over(keys).fill_null(0)
    return rows.with_columns(_step=pl.int_range(pl.len(), dtype=pl.Int64).over(keys) + carried).drop("_new")


def _transitions(rows: pl.DataFrame) -> pl.DataFrame:
    """Add next observations and ends, from the next step of the same episode; ``_closing`` marks the last steps."""
    follows = _next("_episode").eq(pl.col("_episode")).fill_null(value=False)
    ended = follows & _next("_closing").fill_null(value=False)
    terminal = _next("_is_terminal").fill_null(value=False)
    seen = [pl.when(follows).then(_next(SEEN)).alias(NEXT + SEEN)] if SEEN in rows.columns else []
    return rows.with_columns(*seen, terminated=ended & terminal, truncated=ended & ~terminal)


def _next(name: str) -> pl.Expr:
    return pl.col(name).shift(-1).over("_user")


def _batch(rows: pl.DataFrame, request: Request, lost: pl.DataFrame) -> Batch:
    rows = rows.filter(~pl.col("_closing")).with_columns(
        framing.mark_numbers(request.mark, pl.col("_episode")).alias("episode"), pl.col("_step").alias("step")
    )
    return Batch(rows.select(framing.take_fields(request.columns, rows.schema)), rows["_line"].to_numpy(), lost)


INDICES = {"episode": "episode_index", "step": "frame_index"}


def lerobot_root(path: Path) -> Path:
    """Folder of the data set that holds ``data/chunk-XXX/file-XXX.parquet``."""
    return path.parents[2]


def lerobot_types(path: Path, request: Request) -> dict[str, pl.DataType]:
    """Columns and their types.

    Raises LogError if the file is damaged, has no episode or frame index, or ``meta/info.json`` states another number
    of frames.
    """
    types = parquet_types(path)
    if missing := [column for column in INDICES.values() if not types.get(column, pl.Object()).is_integer()]:
        raise LogError(f"{path.name}: no integers {missing[0]!r}; is this a LeRobot data file?")
    frames = framing.read_facts(lerobot_root(path) / "meta" / "info.json").get("total_frames")
    counted = sum(map(row_count, sorted(path.parent.parent.glob("*/*.parquet")))) if frames is not None else None
    if counted != frames:
        raise LogError(
            f"{path.name}: {counted} frames in data/, meta/info.json tells of {frames}; copy the data set again"
        )
    return framing.field_types(request.columns, types) | {"episode": pl.String(), "step": types["frame_index"]}


def read_lerobot(path: Path, request: Request) -> Iterator[Batch]:
    """Yield the rows; errors as of :func:`~pipeline.logs.readers.arrow.read_parquet`."""
    types = parquet_types(path)
    bases = dict.fromkeys(framing.column_of(INDICES.get(name, name), types) for name in request.columns)
    for batch in read_parquet(path, [base for base in bases if base is not None]):
        frame = batch.frame
        if "episode" in request.columns:
            frame = frame.with_columns(framing.mark_numbers(request.mark, pl.col("episode_index")).alias("episode"))
        if "step" in request.columns:
            frame = frame.with_columns(pl.col("frame_index").alias("step"))
        yield Batch(frame.select(framing.take_fields(request.columns, frame.schema)), batch.lines, batch.malformed)
