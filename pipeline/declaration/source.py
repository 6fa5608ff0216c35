"""Where a log is found, and which of its columns holds what: one row a step (long), or one row an episode (wide)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer
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

    @model_serializer(mode="wrap")
    def _without_defaults(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A card without observations has the digest it had before there were any."""
        told: dict[str, Any] = plain(self)
        return {k: v for k, v in told.items() if (k, v) != ("next_observation", None)}


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

    format: FormatName = "table"
    meds: Meds | None = None
    files: Files

    @model_serializer(mode="wrap")
    def _without_defaults(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A card that names no format has the digest it had before there were any."""
        told: dict[str, Any] = plain(self)
        return {k: v for k, v in told.items() if (k, v) not in (("format", "table"), ("meds", None))}


class Source(_Placed):
    """Files of the log and the mapping of their columns."""

    layout: Literal["long", "wide"] = "long"
    first_step: Annotated[int, Field(ge=0)] = 1
    columns: Columns


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


def check_format(source: Source | VectorSource, kind: str, horizon: int) -> None:
    """Refuse a format that does not fit the rest of the card.

    Raises
    ------
    ValueError
        Naming the key, and what to write.
    """
    made = MADE.get(source.format)
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
        if kind == "real" and cols.user_id == made:
            raise ValueError(
                f"source.columns.user_id: with format = {source.format!r} an episode ends where its rows say so, and "
                "one that does not say so takes the next one's rows; of real people, name a column of user ids"
            )


def only_flags_part(source: Source | VectorSource) -> bool:
    """Whether the records that are protected stand one after the other, numbered by their order.

    Parameters
    ----------
    source
        Of a card; its format and whose column of ids it names decide.
    """
    return source.format in (*CUT_BY_ORDER, "rlds") and source.columns.user_id == MADE[source.format]


def check_layout(source: Source, keys: Mapping[str, StepColumn], horizon: int) -> None:
    """Refuse columns that do not fit the layout.

    Parameters
    ----------
    keys
        Per-step column keys of the card, by the name they have there.

    Raises
    ------
    ValueError
        Naming the key, and what to write.
    """
    if source.layout == "long":
        if listed := [key for key, column in keys.items() if isinstance(column, list)]:
            raise ValueError(f"{listed[0]}: a list, one a step, belongs to source.layout = 'wide'; name one column")
        if source.first_step != Source.model_fields["first_step"].default:
            raise ValueError("source.first_step belongs to source.layout = 'wide'; take it out")
        if horizon > 1 and (source.columns.step is None or source.columns.episode_id is None):
            raise ValueError("source.columns needs 'step' and 'episode_id' when domain.horizon > 1")
        return
    if source.columns.step is not None:
        raise ValueError("source.columns.step: in a wide source the columns tell the step; take the key out")
    for key, column in keys.items():
        _check_wide(key, column, horizon)


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


def check_constant(key: str, text: str, labels: set[str] | None, rewards: tuple[float, float]) -> None:
    """Refuse a constant of a wide source that means nothing; ValueError naming the key and what is allowed."""
    if labels is not None:
        if text not in labels:
            raise ValueError(f"{key}: the constant '={text}' is no declared label; declared: {sorted(labels - {''})}")
        return
    if key in ("source.columns.terminated", "source.columns.truncated"):
        allowed, good = "'=true', '=false' or '='", text in ("", "true", "false")
    elif key == "source.columns.reward":
        low, high = rewards
        allowed, good = f"a number in [{low:g}, {high:g}]", _number_in(text, low, high)
    elif key == "source.columns.behavior_prob":
        allowed, good = "'=' or a number in [0, 1]", text == "" or _number_in(text, 0, 1)
    else:
        good = _number_in(text, -math.inf, math.inf) or (key == "source.columns.next_bin" and text == "")
        allowed = "a number"
    if not good:
        raise ValueError(f"{key}: the constant '={text}' must be {allowed}")


def _number_in(text: str, low: float, high: float) -> bool:
    try:
        return low <= float(text) <= high
    except ValueError:
        return False
