"""Where a log is found, and which of its columns holds what: one row a step (long), or one row an episode (wide)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from pipeline.toml import Strict

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
    terminated: StepColumn | None = None
    truncated: StepColumn | None = None
    behavior_prob: StepColumn | None = None


class Source(Strict):
    """Files of the log and the mapping of their columns."""

    layout: Literal["long", "wide"] = "long"
    first_step: Annotated[int, Field(ge=0)] = 1
    files: Annotated[list[str], Field(min_length=1)]
    columns: Columns

    @field_validator("files")
    @classmethod
    def _inside(cls, files: list[str]) -> list[str]:
        for f in files:
            bare = f.partition(":")[2] if ":" in f else f
            if not bare or Path(bare).is_absolute() or ".." in Path(bare).parts:
                raise ValueError(f"{f!r} must stay below the card's folder, or be 'root:path' below a named root")
        return files


def step_cells(column: StepColumn, horizon: int, first_step: int) -> list[str]:
    """The H cells of a wide source, one a step: a column name, or ``=text`` for a constant."""
    if isinstance(column, list):
        return column
    return [column.replace(STEP, str(first_step + h)) for h in range(horizon)]


def constant(cell: str) -> str | None:
    """Text of a constant cell; None if the cell is a column."""
    return cell[len(CONSTANT) :] if cell.startswith(CONSTANT) else None


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
