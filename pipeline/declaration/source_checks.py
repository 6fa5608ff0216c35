"""Does a source fit the rest of its card?  Format, layout, order and constants, each refused in its own words."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pipeline.declaration.source import CONSTANT, CUT_BY_ORDER, MADE, STEP, Source, StepColumn, VectorSource


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


def check_layout(source: Source, keys: Mapping[str, StepColumn], horizon: int) -> None:
    """Refuse columns that do not fit the layout.

    Raises
    ------
    ValueError
        Naming the key, and what to write.
    """
    if source.layout == "long":
        if listed := [key for key, column in keys.items() if isinstance(column, list)]:
            raise ValueError(f"{listed[0]}: a list, one a step, belongs to source.layout = 'wide'; name one column")
        _check_order(source)
        if horizon > 1 and ((source.columns.step or source.order_by) is None or source.columns.episode_id is None):
            raise ValueError(
                "source.columns needs 'step' and 'episode_id' when domain.horizon > 1; where no column counts the "
                "steps, name one that orders the rows: source.order_by"
            )
        return
    if (source.order_by, source.gap, source.gap_over, source.last_row) != (None, "drop", None, "unknown"):
        raise ValueError("source.order_by, gap, gap_over and last_row belong to source.layout = 'long'; take them out")
    if source.columns.step is not None:
        raise ValueError("source.columns.step: in a wide source the columns tell the step; take the key out")
    for key, column in keys.items():
        _check_wide(key, column, horizon)


def _check_order(source: Source) -> None:
    """Refuse an order that says too much or too little."""
    step = source.columns.step
    if source.order_by is not None:
        if step is not None or source.first_step is not None:
            raise ValueError(
                "source.order_by numbers the rows of an episode itself: take columns.step and first_step out"
            )
        if source.gap == "cut" and source.gap_over is None:
            raise ValueError(
                "source.gap_over is missing: how far apart two rows of an episode may be, in days of dates or units of "
                f"{source.order_by!r}"
            )
        return
    if source.gap_over is not None:
        raise ValueError("source.gap_over goes with source.order_by; steps that are counted lack a step, or do not")
    if source.gap == "keep":
        raise ValueError(
            "source.gap = 'keep' lets the rows follow each other in their order: write "
            f"order_by = {step or 'the column'!r} in place of columns.step"
        )


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
        allowed, good = "'=' or a number above 0, 1 at most", text == "" or _number_in(text, math.ulp(0.0), 1)
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
