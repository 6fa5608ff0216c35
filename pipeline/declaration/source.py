"""The source of a log: its files and the roles of their columns; one row a step (long), or one an episode (wide).

Events of a health record (MEDS) become steps by a declaration, not by a user's function: it is hashed with the card, it
runs no foreign code behind the wall, and a reader of the card sees how states are made.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from pipeline.declaration.code import is_plugin
from pipeline.declaration.toml import Strict

_UNITS = {"m": 60, "h": 3600, "d": 86400}
_OWN = ("subject_id", "episode", "step", "end")


class EventColumn(Strict):
    """One column made of the events with some codes.

    ``take``: the summary of several values; ``count`` and ``any`` (0 or 1) need no numbers.
    ``edges``: bins ``(-inf, e0), [e0, e1), …``: the column is then the number of the bin, 0 first.
    """

    codes: Annotated[list[str], Field(min_length=1)]
    take: Literal["last", "first", "mean", "sum", "min", "max", "count", "any"] = "last"
    at: Literal["window", "start"] = "window"
    empty: Annotated[float, Field(allow_inf_nan=False)] | None = None
    edges: list[float] | None = None

    @model_validator(mode="after")
    def _sound(self) -> Self:
        e = self.edges or []
        if any(not math.isfinite(x) for x in e) or e != sorted(set(e)):
            raise ValueError(f"edges must be finite and strictly increasing; got {e}")
        if self.at == "start" and self.take != "last":
            raise ValueError("at = 'start' is the last value known when the step begins; take must be 'last'")
        return self


class Meds(Strict):
    """Windows of equal length from an opening event on.

    ``window``: length of a step: a number of minutes, hours or days (``"30m"``, ``"4h"``, ``"1d"``).
    """

    begin: Annotated[list[str], Field(min_length=1)]
    window: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}[mhd]$")]
    ends: dict[str, Annotated[list[str], Field(min_length=1)]]
    readings: Annotated[dict[str, EventColumn], Field(min_length=1)]

    @model_validator(mode="after")
    def _names(self) -> Self:
        if clash := sorted(set(self.readings) & set(_OWN)):
            raise ValueError(f"readings: {clash[0]!r} is a column that the reader makes; take another name")
        return self

    @property
    def seconds(self) -> int:
        """Length of a step."""
        return int(self.window[:-1]) * _UNITS[self.window[-1]]


StepColumn = str | list[str]
"""A column; where the layout is wide, a pattern with ``{step}`` or a list of H names and ``"=constants"``."""

STEP = "{step}"
CONSTANT = "="


class Columns(Strict):
    """Names of the canonical columns in the source files."""

    later: ClassVar = {"next_observation": None}
    user_id: str
    episode_id: str | None = None
    step: str | None = None
    reward: StepColumn | None = None
    next_state: StepColumn | None = None
    next_bin: StepColumn | None = None
    next_observation: str | list[str] | None = None
    terminated: StepColumn | None = None
    truncated: StepColumn | None = None
    behavior_prob: StepColumn | None = None


def check_below(files: list[str]) -> list[str]:
    """Return patterns that stay below the card's folder or a named root; ValueError for others."""
    for f in files:
        bare = f.partition(":")[2] if ":" in f else f
        if not Path(bare).parts or Path(bare).is_absolute() or ".." in Path(bare).parts:
            raise ValueError(f"{f!r} must stay below the card's folder, or be 'root:path' below a named root")
        if any("**" in part and part != "**" for part in Path(bare).parts):
            raise ValueError(f"{f!r}: '**' stands for all folders below, alone between slashes; '*' for any name")
    return files


Files = Annotated[list[str], Field(min_length=1), AfterValidator(check_below)]

FORMATS = ("table", "minari", "d4rl", "rlds", "lerobot", "obp", "meds", "transitions")


def _known_format(name: str) -> str:
    """Return the name of a shipped format or a plug-in, ``module:object``, which is imported when files are read."""
    if name not in FORMATS and not is_plugin(name):
        ours = ", ".join(map(repr, FORMATS))
        raise PydanticCustomError("unknown_format", "Input should be {known} or 'module:object'", {"known": ours})
    return name


MADE = {**dict.fromkeys(["minari", "d4rl", "rlds", "lerobot", "transitions"], "episode"), "obp": "impression"}
"""Format -> the column of record numbers that its reader makes; named as the user, it is the unit of privacy."""

CUT_BY_ORDER = ("d4rl", "transitions")
"""Formats whose episodes follow from the order of the rows alone."""


class SamePlace(Strict):
    """Rule for several rows at one place of ``order_by``: the first or the last by another column counts."""

    keep: Literal["first", "last"]
    by: str


NumbersForm = Literal["1234,5", "1.234,5", "1,234.5", "1 234,5"]
"""Form of a log's numbers, by an example."""
DatesForm = Literal["dd.mm.yyyy", "dd/mm/yyyy", "dd-mm-yyyy", "mm/dd/yyyy", "yyyy/mm/dd", "yyyy.mm.dd"]
"""Form of a log's dates that are not ISO's."""


class _Files(Strict):
    """Files of a log and their format; ``table``: by the suffix of each file, columns as they stand there.

    ``separator``: between the cells of a CSV; ``auto``: the most frequent one in the header of each file.
    ``rename``: name of a column in some file -> its name in the card and `inspect`.
    ``numbers``, ``dates``: their form in the log, by an example or a pattern, of dates also by several; None: 1234.5,
    2026-01-31.
    ``units``: column -> unit behind its numbers -> its factor in the card's unit.
    ``optional``: columns that a file may lack: their cells are empty there.
    """

    later: ClassVar = {
        "format": "table", "meds": None, "order_by": None, "gap": "drop", "gap_over": None, "last_row": "unknown",
        "same_place": None, "separator": ",", "rename": None, "numbers": None, "dates": None, "units": None,
        "optional": None,
    }  # fmt: skip
    format: Annotated[str, AfterValidator(_known_format)] = "table"
    meds: Meds | None = None
    files: Files
    separator: Literal[",", ";", "\t", "|", "auto"] = ","
    rename: dict[str, str] | None = None
    numbers: NumbersForm | None = None
    dates: DatesForm | Annotated[list[DatesForm], Field(min_length=1)] | None = None
    units: dict[str, dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]]] | None = None
    optional: Annotated[list[str], Field(min_length=1)] | None = None

    @field_validator("dates")
    @classmethod
    def _unambiguous(cls, value: DatesForm | list[DatesForm] | None) -> DatesForm | list[DatesForm] | None:
        if isinstance(value, list) and {"dd/mm/yyyy", "mm/dd/yyyy"} <= set(value):
            raise ValueError("source.dates: 03/04/2026 may be of dd/mm/yyyy or of mm/dd/yyyy; name one of them")
        return value

    @property
    def date_forms(self) -> Sequence[DatesForm]:
        """Forms of dates in the log, beside ISO's."""
        return () if self.dates is None else self.dates if isinstance(self.dates, list) else (self.dates,)


class Source(_Files):
    """Files of the log and the mapping of their columns.

    ``first_step``: the number with which steps begin; None: 0 in a column of steps, 1 where ``{step}`` stands in names
    of columns.
    ``order_by``: in place of a column of steps: the rows of an episode are numbered in the order of this one, dates or
    numbers.
    ``gap_over``: with ``order_by``: days of dates, else units of the column; None: no two rows are too far apart.
    """

    layout: Literal["long", "wide"] = "long"
    first_step: Annotated[int, Field(ge=0)] | None = None
    order_by: str | None = None
    gap: Literal["drop", "cut", "keep"] = "drop"
    gap_over: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    same_place: SamePlace | None = None
    last_row: Literal["unknown", "ends", "outcome"] = "unknown"
    columns: Columns

    @field_validator("first_step")
    @classmethod
    def _as_if_left_out(cls, value: int | None, info: ValidationInfo) -> int | None:
        """Leave out the default, so that the card's digest stays the same."""
        return None if value == _first_number(info.data.get("layout", "long")) else value

    @property
    def starts_at(self) -> int:
        """The number of the first step in the log."""
        return _first_number(self.layout) if self.first_step is None else self.first_step

    def check_layout(self, keys: Mapping[str, StepColumn], horizon: int) -> None:
        """Refuse columns that do not fit the layout; ``keys``: those that differ from step to step, by key of the card.

        Raises ValueError naming the key, and what to write.
        """
        if self.layout == "long":
            if listed := [key for key, column in keys.items() if isinstance(column, list)]:
                raise ValueError(f"{listed[0]}: a list, one a step, belongs to source.layout = 'wide'; name one column")
            self._check_order()
            if horizon > 1 and ((self.columns.step or self.order_by) is None or self.columns.episode_id is None):
                raise ValueError(
                    "source.columns needs 'step' and 'episode_id' when domain.horizon > 1; where no column counts the "
                    "steps, name one that orders the rows: source.order_by"
                )
            return
        if (self.order_by, self.gap, self.gap_over, self.last_row) != (None, "drop", None, "unknown"):
            raise ValueError(
                "source.order_by, gap, gap_over and last_row belong to source.layout = 'long'; take them out"
            )
        if self.columns.step is not None:
            raise ValueError("source.columns.step: in a wide source the columns tell the step; take the key out")
        for key, column in keys.items():
            _check_wide(key, column, horizon)

    def _check_order(self) -> None:
        """Refuse an order of rows that is declared twice or not at all; ValueError naming key and remedy."""
        step = self.columns.step
        if self.order_by is not None:
            if step is not None or self.first_step is not None:
                raise ValueError(
                    "source.order_by numbers the rows of an episode itself: take columns.step and first_step out"
                )
            if self.gap == "cut" and self.gap_over is None:
                raise ValueError(
                    "source.gap_over is missing: how far apart two rows of an episode may be, in days of dates or "
                    f"units of {self.order_by!r}"
                )
            return
        if self.same_place is not None:
            raise ValueError("source.same_place goes with source.order_by: rows at one step are the rule `repeat`")
        if self.gap_over is not None:
            raise ValueError("source.gap_over goes with source.order_by; steps that are counted lack a step, or do not")
        if self.gap == "keep":
            raise ValueError(
                "source.gap = 'keep' lets the rows follow each other in their order: write "
                f"order_by = {step or 'the column'!r} in place of columns.step"
            )


def _first_number(layout: str) -> int:
    return 1 if layout == "wide" else 0


def _check_wide(key: str, column: StepColumn, horizon: int) -> None:
    if isinstance(column, list):
        if len(column) != horizon:
            raise ValueError(f"{key}: names {len(column)} columns, the horizon is {horizon}; name one a step")
        if "" in column:
            raise ValueError(f"{key}: entry {column.index('') + 1} is empty; name a column, or write '=text'")
    elif column.startswith(CONSTANT):
        raise ValueError(f"{key}: a constant stands in a list of H entries; write ['{column}', …]")
    elif STEP not in column and horizon > 1:
        raise ValueError(
            f"{key}: {column!r} is one column, the wide layout needs one a step; "
            f"write a pattern such as '{column}_{STEP}', or a list of {horizon} names"
        )


class VectorColumns(Strict):
    """Names of the canonical columns of a log of vectors; ``next_observation``: one list column, or one each."""

    user_id: str
    episode_id: str | None = None
    step: str | None = None
    next_observation: str | list[str] | None = None
    terminated: str | None = None
    truncated: str | None = None
    behavior_prob: str | None = None


class VectorSource(_Files):
    """Files of a log of vectors, one row a step."""

    layout: Literal["long"] = "long"
    columns: VectorColumns


def check_format(source: Source | VectorSource, kind: str, horizon: int) -> None:
    """Refuse a format that does not fit the rest of the card.

    Raises ValueError naming the key, and what to write.
    """
    if source.layout == "wide" and source.format != "table":
        raise ValueError(f"source.layout = 'wide' belongs to source.format = 'table', not {source.format!r}")
    if (source.format == "meds") != (source.meds is not None):
        raise ValueError("source.meds (what makes a step of events) goes with source.format = 'meds', and only then")
    if source.format == "obp" and horizon > 1:
        raise ValueError("domain.horizon must be 1 with source.format = 'obp': an impression is a whole episode")
    cols = source.columns
    if source.format in CUT_BY_ORDER:
        if (cols.episode_id, cols.step) != ("episode", "step"):
            raise ValueError(
                f"source.columns: with format = {source.format!r} the reader numbers episodes and steps; "
                "write episode_id = 'episode', step = 'step'"
            )
        if kind == "real" and cols.user_id == MADE.get(source.format):
            raise ValueError(
                f"source.columns.user_id: with format = {source.format!r} an episode ends where its rows say so, and "
                "one that does not say so takes the next one's rows; of real people, name a column of user ids"
            )


def step_cells(column: StepColumn, horizon: int, first_step: int) -> list[str]:
    """The H cells of a wide source, one a step: a column name, or ``=text`` for a constant."""
    if isinstance(column, list):
        return column
    return [column.replace(STEP, str(first_step + h)) for h in range(horizon)]


def constant(cell: str) -> str | None:
    """Text of a constant cell; None if the cell is a column."""
    return cell[len(CONSTANT) :] if cell.startswith(CONSTANT) else None


def only_flags_part(source: Source | VectorSource) -> bool:
    """Whether the records that are protected stand one after the other, numbered by their order."""
    return source.format in (*CUT_BY_ORDER, "rlds") and source.columns.user_id == MADE[source.format]
