"""Where a log is found, and which of its columns holds what: one row a step (long), or one row an episode (wide)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from pipeline.declaration.plugins import is_plugin
from pipeline.declaration.toml import Strict
from pipeline.declaration.windows import Meds

StepColumn = str | list[str]
"""A column; where the layout is wide, a pattern with ``{step}`` or a list of H names and ``"=constants"``."""

STEP = "{step}"
CONSTANT = "="


class Columns(Strict):
    """Where each canonical column is found in the source files."""

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
    """Patterns that stay below the card's folder or a named root; ValueError for others."""
    for f in files:
        bare = f.partition(":")[2] if ":" in f else f
        if not bare or Path(bare).is_absolute() or ".." in Path(bare).parts:
            raise ValueError(f"{f!r} must stay below the card's folder, or be 'root:path' below a named root")
    return files


Files = Annotated[list[str], Field(min_length=1), AfterValidator(check_below)]

FORMATS = ("table", "minari", "d4rl", "rlds", "lerobot", "obp", "meds", "transitions")


def _known_format(name: str) -> str:
    """One of ours, or a reader of your own by ``module:object``, which is looked for when files are read."""
    if name not in FORMATS and not is_plugin(name):
        ours = ", ".join(map(repr, FORMATS))
        raise PydanticCustomError("unknown_format", "Input should be {known} or 'module:object'", {"known": ours})
    return name


FormatName = Annotated[str, AfterValidator(_known_format)]

MADE: dict[str, str] = {
    "minari": "episode",
    "d4rl": "episode",
    "rlds": "episode",
    "lerobot": "episode",
    "obp": "impression",
    "transitions": "episode",
}
"""Format -> the column of record numbers that its reader makes; named as the user, it is the unit of privacy."""

CUT_BY_ORDER = ("d4rl", "transitions")
"""Formats in which only the order of the rows tells the episodes."""


class _Placed(Strict):
    """What kind of files they are; ``table``: the suffix tells the format, and each column is as it stands there."""

    later: ClassVar = {"format": "table", "meds": None, "order_by": None, "gap": "drop", "gap_over": None}
    format: FormatName = "table"
    meds: Meds | None = None
    files: Files


class Source(_Placed):
    """Files of the log and the mapping of their columns.

    Parameters
    ----------
    layout
        One row a step, or one row an episode.
    first_step
        The number with which steps begin; None: 0 in a column of steps, 1 where ``{step}`` stands in names of columns.
    order_by
        In place of a column of steps: the rows of an episode are numbered in the order of this one, dates or numbers.
    gap
        What becomes of an episode that lacks a step, or whose rows are more than ``gap_over`` apart: it is dropped, cut
        there, or kept as it is.
    gap_over
        With ``order_by``: days of dates, else units of the column; None: no two rows are too far apart.
    """

    layout: Literal["long", "wide"] = "long"
    first_step: Annotated[int, Field(ge=0)] | None = None
    order_by: str | None = None
    gap: Literal["drop", "cut", "keep"] = "drop"
    gap_over: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    columns: Columns

    @field_validator("first_step")
    @classmethod
    def _as_if_left_out(cls, value: int | None, info: ValidationInfo) -> int | None:
        """What is the default anyway leaves the card's digest as it was."""
        return None if value == _first_of(info.data.get("layout", "long")) else value

    @property
    def starts_at(self) -> int:
        """The number of the first step in the log."""
        return _first_of(self.layout) if self.first_step is None else self.first_step


def _first_of(layout: str) -> int:
    return 1 if layout == "wide" else 0


class VectorColumns(Strict):
    """Where each canonical column of a log of vectors is found; ``next_observation``: one list column, or one each."""

    user_id: str
    episode_id: str | None = None
    step: str | None = None
    next_observation: str | list[str] | None = None
    terminated: str | None = None
    truncated: str | None = None
    behavior_prob: str | None = None


class VectorSource(_Placed):
    """Files of a log of vectors, one row a step."""

    layout: Literal["long"] = "long"
    columns: VectorColumns


def step_cells(column: StepColumn, horizon: int, first_step: int) -> list[str]:
    """The H cells of a wide source, one a step: a column name, or ``=text`` for a constant."""
    if isinstance(column, list):
        return column
    return [column.replace(STEP, str(first_step + h)) for h in range(horizon)]


def constant(cell: str) -> str | None:
    """Text of a constant cell; None if the cell is a column.

    Parameters
    ----------
    cell
        Of a wide source: a column's name, or ``=text``.
    """
    return cell[len(CONSTANT) :] if cell.startswith(CONSTANT) else None


def only_flags_part(source: Source | VectorSource) -> bool:
    """Whether the records that are protected stand one after the other, numbered by their order.

    Parameters
    ----------
    source
        Of a card; its format and whose column of ids it names decide.
    """
    return source.format in (*CUT_BY_ORDER, "rlds") and source.columns.user_id == MADE[source.format]
