"""Formats whose rows must be cut into episodes and steps: rows in logged order, recorded steps, events.

*Rows in logged order*: a flag ends an episode, or a next state that is not the next row's.  A person's rows are cut by
that person's rows alone, whatever rows lie between them.  The readers make the columns ``episode`` and ``step``.

``transitions``: flat (s, a, r, s') rows of any table format.  ``d4rl``, D4RL and its kin: one HDF5 file of long arrays;
columns are the arrays (``observations``, ``actions``, ``rewards``, ``terminals``, ``timeouts``, perhaps
``next_observations``, ``infos/…``).  Two terminals in a row are an episode of one step, not an empty one.

*RLDS and LeRobot*: recorded steps in Parquet, with flags or indices that delimit the episodes.

RLDS, exported: a row for each episode with a list ``steps``, or a row for each step in order, split by ``is_first``.
Columns are those of a step (``observation``, ``action``, ``reward``, …; parts as ``observation/part`` and
``action[0]``), those of the episode, and ``next_observation``, ``terminated``, ``truncated``, ``episode`` and ``step``.
In the last step of an episode action and reward are undefined: it is only the next state of the row before it.

LeRobot v3 (and v2, with a file an episode): few files, ``meta/info.json`` beside ``data/``.  Columns are the files'
(``observation.state``, ``action``, ``next.reward``, ``next.done``, ``episode_index``, …), entries of lists as
``action[0]``, beside ``episode`` and ``step`` (``episode_index`` as an id, ``frame_index``).

*MEDS shards*: events (``subject_id, time, code, numeric_value``) -> windows of equal length, as the card declares.

Columns: ``subject_id``, ``episode`` (the opening event's time in microseconds), ``step``, ``end`` (label of the end, at
the step that leads there), and one for each declared reading.  A window is ``[start, start + length)``; an event that
ends the episode belongs to the window it closes.  Nothing after it is read, nor anything before the opening event but
readings with ``at = "start"``.  Rows of a shard usually come subject by subject; otherwise a subject's rows wait for
its last one.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.declaration.card import LogColumns
from pipeline.declaration.source import EventColumn, Meds
from pipeline.declaration.toml import CardError, LogError
from pipeline.logs.contribution_bounding import canonical, person_key
from pipeline.logs.decode import read_flag
from pipeline.logs.readers import batch as framing
from pipeline.logs.readers import hdf5
from pipeline.logs.readers.batch import BATCH_ROWS, NUMBERED, Batch, Request, parquet_types, read_parquet


class Cutter:
    """Numbers the rows of one file, batch after batch; holds the last row of each user.

    ``log``: its ``flags`` are true at an end of an episode, and its ``chain`` (next state, state) breaks there.
    """

    def __init__(self, log: LogColumns, path: Path, mark: str) -> None:
        self._log, self._path, self._mark = log, path, mark
        self._last: pl.DataFrame | None = None

    def number_rows(self, batch: Batch) -> Batch:
        """Add ``episode`` (text) and ``step`` (0-based); a row whose flag cannot be read is set aside.

        Raises LogError if a row is set aside and there are no users: episodes are then unknown.
        """
        log = self._log
        over, unread = self._flags(batch.frame)
        batch = batch.set_aside(unread, f"{' or '.join(log.flags)} cannot be read")
        if log.user is None and len(batch.malformed):
            raise LogError(
                f"{self._path.name}: line {batch.malformed['line'][0]}: malformed, or a flag in it cannot be read, and "
                "here the order of the rows tells the episodes; mend the line"
            )
        user = pl.lit(0) if log.user is None else person_key(pl.col(log.user), batch.frame.schema[log.user])
        chain = [_comparable(*(batch.frame[column] for column in pair)) for pair in log.chain]
        rows = batch.frame.select(
            user.alias("_user"),
            over.filter(~unread).alias("_over"),
            *(leads.alias(f"_leads{i}") for i, (leads, _) in enumerate(chain)),
            *(stands.alias(f"_stands{i}") for i, (_, stands) in enumerate(chain)),
        ).with_columns(_number=pl.lit(None, dtype=pl.Int64), _step=pl.lit(None, dtype=pl.Int64))
        carried_rows = 0 if self._last is None else len(self._last)
        rows = pl.concat([self._last, rows]) if self._last is not None else rows
        rows = rows.with_columns(_new=_starts(len(log.chain)))
        rows = rows.with_columns(
            pl.col("_number").first().over("_user").fill_null(-1) + pl.col("_new").cum_sum().over("_user"),
            _place=pl.int_range(pl.len(), dtype=pl.Int64).over("_user"),
        ).with_columns(pl.col("_place") - pl.col("_place").first().over("_user", "_number"))
        carried = pl.col("_step").first().over("_user", "_number").fill_null(0)
        rows = rows.with_columns(_step=pl.col("_place") + carried)
        self._last = rows.drop("_new", "_place").unique("_user", keep="last", maintain_order=True)
        episode = framing.mark_numbers(self._mark, pl.col("_number"))
        numbers = rows[carried_rows:].select(episode=episode, step="_step")
        return replace(batch, frame=pl.concat([batch.frame, numbers], how="horizontal"))

    def _flags(self, frame: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
        """Whether each row ends its episode, and whether that cannot be read."""
        none = pl.Series([False], dtype=pl.Boolean).new_from_index(0, len(frame))
        over, unread = none, none
        for column in self._log.flags:
            flag = read_flag(framing.readable_times(frame[column]))
            over, unread = over | flag["value"], unread | flag["unread"]
        return over, unread


def _comparable(leads: pl.Series, stands: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Both columns as text if one of them is: another person's cell may make text of a column of numbers."""
    if (leads.dtype == pl.String) == (stands.dtype == pl.String):
        return leads, stands
    texts = (
        framing.readable_times(column.fill_nan(None) if column.dtype.is_float() else column).cast(pl.String).to_frame()
        for column in (leads, stands)
    )
    one, other = (text.select(canonical(pl.first())).to_series() for text in texts)
    return one, other


def _starts(pairs: int) -> pl.Expr:
    """Mark of rows that begin an episode: the user's first, and those after a row that ended or led elsewhere."""
    before = pl.col("_over").shift().over("_user").fill_null(value=True)
    jumps = [pl.col(f"_leads{i}").shift().over("_user").ne_missing(pl.col(f"_stands{i}")) for i in range(pairs)]
    # the carried last row of a user begins no episode
    return pl.when(pl.col("_number").is_not_null()).then(False).otherwise(pl.any_horizontal(before, *jumps))


_Types = Callable[[Path, Request], dict[str, pl.DataType]]
_Read = Callable[[Path, Request], Iterator[Batch]]


def transition_types(path: Path, request: Request, inner: _Types) -> dict[str, pl.DataType]:
    """Columns of the table and the two that the reader makes.

    Raises LogError if the table itself has an ``episode`` or ``step``.
    """
    types = inner(path, replace(request, columns=request.without(*NUMBERED)))
    if present := [name for name in NUMBERED if name in types]:
        raise LogError(
            f"{path.name}: has a column {present[0]!r} of its own; use source.format = 'table', or rename it"
        )
    return types | NUMBERED


def read_transitions(path: Path, request: Request, inner: _Read, log: LogColumns) -> Iterator[Batch]:
    """Yield the table's batches, rows numbered.

    Raises LogError if a line is malformed or a flag cannot be read, and there are no users.
    """
    cutter = Cutter(log, path, request.mark)
    for batch in inner(path, replace(request, columns=request.without(*NUMBERED))):
        numbered = cutter.number_rows(batch)
        yield replace(numbered, frame=numbered.frame.select(request.columns))


_TIMEOUTS = "timeouts"


def d4rl_types(path: Path, request: Request, log: LogColumns) -> dict[str, pl.DataType]:
    """Columns and their types.

    Raises LogError if the file is damaged, or its arrays have different lengths.
    Raises CardError if the file has timeouts and the card does not map them: episodes would run into each other.
    """
    with hdf5.open_hdf5(path) as file:
        data = hdf5.arrays(file, path, "/")
        if _TIMEOUTS in data and _TIMEOUTS not in log.flags:
            raise CardError(f"{path.name}: the file has {_TIMEOUTS!r}; map truncated = 'timeouts' in source.columns")
        types = framing.field_types(request.columns, {name: hdf5.type_of(x) for name, x in data.items()})
        _length(path, data, types, request)
        return types | NUMBERED


def read_d4rl(path: Path, request: Request, log: LogColumns) -> Iterator[Batch]:
    """Yield the rows, a bounded number at a time.

    Raises LogError if the file is damaged, or if a flag cannot be read and there are no users.
    """
    cutter = Cutter(log, path, request.mark)
    with hdf5.open_hdf5(path) as file:
        data = hdf5.arrays(file, path, "/")
        types = {name: hdf5.type_of(x) for name, x in data.items()}
        names = request.without(*NUMBERED)
        rows = _length(path, data, types, request)
        for low in range(0, rows, BATCH_ROWS):
            high = min(rows, low + BATCH_ROWS)
            entries = {base: hdf5.values(data[base], low, high) for base in framing.columns_of(names, types)}
            odd = np.any([hdf5.no_text(cells) for cells in entries.values()], axis=0)
            frame = pl.DataFrame({base: hdf5.series(cells) for base, cells in entries.items()})
            lines = framing.lines_from(low + 1, high - low)
            batch = Batch(frame.select(framing.take_fields(names, frame.schema)), lines, framing.NO_LINES)
            numbered = cutter.number_rows(batch.set_aside(pl.Series(odd), hdf5.NO_TEXT))
            yield replace(numbered, frame=numbered.frame.select(request.columns))


def _length(path: Path, data: dict[str, hdf5.Stored], types: dict[str, pl.DataType], request: Request) -> int:
    bases = framing.columns_of(request.without(*NUMBERED), types)
    lengths = {base: len(data[base]) for base in sorted(bases) if base in data}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{base} {length}" for base, length in lengths.items())
        raise LogError(f"{path.name}: arrays of different lengths ({listed}); write the file again")
    return next(iter(lengths.values()), 0)


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
    bases = framing.columns_of([*names, *_FLAGS], types)
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
    begun = pl.col("_new").cast(pl.Int64).cum_sum().over("_user")
    number = pl.col("_episode").first().over("_user").fill_null(0) + begun
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
    episode = framing.mark_numbers(request.mark, pl.col("_episode"))
    rows = rows.filter(~pl.col("_closing")).with_columns(episode=episode, step="_step")
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
    files = sorted(path.parent.parent.glob("*/*.parquet"))
    if frames is not None and (counted := sum(map(framing.row_count, files))) != frames:
        raise LogError(
            f"{path.name}: {counted} frames in data/, meta/info.json tells of {frames}; copy the data set again"
        )
    return framing.field_types(request.columns, types) | {"episode": pl.String(), "step": types["frame_index"]}


def read_lerobot(path: Path, request: Request) -> Iterator[Batch]:
    """Yield the rows; errors as of :func:`~pipeline.logs.readers.batch.read_parquet`."""
    bases = framing.columns_of([INDICES.get(name, name) for name in request.columns], parquet_types(path))
    for batch in read_parquet(path, bases):
        frame = batch.frame
        if "episode" in request.columns:
            frame = frame.with_columns(framing.mark_numbers(request.mark, pl.col("episode_index")).alias("episode"))
        if "step" in request.columns:
            frame = frame.with_columns(pl.col("frame_index").alias("step"))
        yield Batch(frame.select(framing.take_fields(request.columns, frame.schema)), batch.lines, batch.malformed)


_COLUMNS = ["subject_id", "time", "code", "numeric_value"]
_SECOND = 1_000_000
_BY = ["subject_id", "episode"]


def meds_types(path: Path, _: Request, meds: Meds) -> dict[str, pl.DataType]:
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
    meds_types(path, request, meds)
    ends, waiting, seen = _last_rows(path), pl.DataFrame(), 0
    for batch in read_parquet(path, _COLUMNS):
        seen += len(batch.lines) + len(batch.malformed)
        batch = batch.set_aside(batch.frame["subject_id"].is_null(), "no subject")
        time = framing.readable_times(batch.frame["time"]).dt.cast_time_unit("us").dt.replace_time_zone(None)
        rows = batch.frame.with_columns(
            pl.col("subject_id").cast(pl.Int64),
            time.cast(pl.Int64),
            pl.col("numeric_value").cast(pl.Float64),
            pl.Series("line", batch.lines),
        )
        rows = pl.concat([waiting, rows]) if len(waiting) else rows
        # a subject's windows are made of all its rows, wherever they stand
        over = rows.join(ends, on="subject_id", how="left", maintain_order="left")["last"] <= seen
        waiting = rows.filter(~over)
        yield replace(_windows_batch(rows.filter(over), request, meds, horizon), malformed=batch.malformed)


def _last_rows(path: Path) -> pl.DataFrame:
    """Columns ``subject_id, last``: the last row of each subject in the shard."""
    last_rows = pl.DataFrame(schema={"subject_id": pl.Int64, "last": pl.Int64})
    for batch in read_parquet(path, ["subject_id"]):
        rows = batch.frame.select(pl.col("subject_id").cast(pl.Int64), pl.Series("last", batch.lines)).drop_nulls()
        last_rows = pl.concat([last_rows, rows]).group_by("subject_id").agg(pl.col("last").max())
    return last_rows


def _type(reading: EventColumn) -> pl.DataType:
    return pl.Int64() if reading.edges or reading.take in ("count", "any") else pl.Float64()


def _windows_batch(events: pl.DataFrame, request: Request, meds: Meds, horizon: int) -> Batch:
    """Windows of whole subjects."""
    timed = events.filter(pl.col("time").is_not_null()).sort("subject_id", "time", maintain_order=True)
    rows = _grid(timed, meds, horizon)
    inside = _inside(timed, rows, meds)
    for name, reading in meds.readings.items():
        mask = _coded(reading.codes)
        values = _at_start(rows, timed.filter(mask)) if reading.at == "start" else _during(inside.filter(mask), reading)
        rows = rows.join(values.rename({"value": name}), on=[*_BY, "step"], how="left", maintain_order="left")
        rows = rows.with_columns(_finished(pl.col(name), reading).alias(name))
    return Batch(rows.select(request.columns), rows["line"].to_numpy(), framing.NO_LINES)


def _coded(codes: list[str]) -> pl.Expr:
    exact = [code for code in codes if not code.endswith("*")]
    begins = [pl.col("code").str.starts_with(code[:-1]) for code in codes if code.endswith("*")]
    return pl.any_horizontal(pl.col("code").is_in(exact), *begins).fill_null(value=False)


def _grid(timed: pl.DataFrame, meds: Meds, horizon: int) -> pl.DataFrame:
    """Windows, a row each: ``subject_id, episode, step, end, line, start``; ``over``: the episode's end, or null."""
    width = meds.seconds * _SECOND
    begun = timed.filter(_coded(meds.begin)).group_by("subject_id", maintain_order=True, episode="time")
    opened = begun.agg(pl.col("line").first())
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
    episodes = opened.join(first, on=_BY, how="left", maintain_order="left")
    episodes = episodes.join(lasts, on=_BY, how="left", maintain_order="left")
    # an end on the edge of two windows closes the earlier one
    closing = (pl.col("time") - pl.col("episode") - 1) // width
    last = pl.coalesce(closing, (pl.col("latest") - pl.col("episode")) // width)
    steps = pl.int_ranges(pl.min_horizontal(last, pl.lit(horizon)) + 1)
    rows = episodes.with_columns(last=last, step=steps).explode("step")
    ends_here = pl.when(pl.col("step") == pl.col("last")).then("end")
    return rows.select(
        *_BY, "step", ends_here.alias("end"), "line", pl.col("time").alias("over"),
        (pl.col("episode") + pl.col("step") * width).alias("start"),
    )  # fmt: skip


def _placed(timed: pl.DataFrame, opened: pl.DataFrame) -> pl.DataFrame:
    """Events with their ``episode``; those before the first are left out."""
    starts = opened.select("subject_id", pl.col("episode").alias("time"), "episode").sort("time")
    timed = timed.sort("time", maintain_order=True)
    placed = timed.join_asof(starts, on="time", by="subject_id", strategy="backward", check_sortedness=False)
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
