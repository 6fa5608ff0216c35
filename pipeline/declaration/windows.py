"""How events of a health record (MEDS) become steps: declared in the card, read before any row.

A declaration and not a user's function: it is hashed with the card, it runs no foreign code behind the wall, and
whoever reads the card sees what a state is.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from pipeline.declaration.toml import Strict

_UNITS = {"m": 60, "h": 3600, "d": 86400}
_OWN = ("subject_id", "episode", "step", "end")


class Reading(Strict):
    """One column made of the events with some codes.

    Attributes
    ----------
    codes
        Codes; ``LAB//lactate*`` stands for all that begin so.
    take
        What is told of several values; ``count`` and ``any`` (0 or 1) need no numbers.
    at
        ``window``: of the events during the step; ``start``: of those up to its start, known when the step begins.
    empty
        The number where there is no such event; none: missing.
    edges
        Bins ``(-inf, e0), [e0, e1), …``: the column is then the number of the bin, 0 first.
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

    Attributes
    ----------
    begin
        Codes that open an episode.
    window
        Length of a step: a number of minutes, hours or days (``"30m"``, ``"4h"``, ``"1d"``).
    ends
        Label of an end -> codes that bring it; column ``end`` holds the label at the step that leads there.
    readings
        Column -> how it is made.
    """

    begin: Annotated[list[str], Field(min_length=1)]
    window: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}[mhd]$")]
    ends: dict[str, Annotated[list[str], Field(min_length=1)]]
    readings: Annotated[dict[str, Reading], Field(min_length=1)]

    @model_validator(mode="after")
    def _names(self) -> Self:
        if clash := sorted(set(self.readings) & set(_OWN)):
            raise ValueError(f"readings: {clash[0]!r} is a column that the reader makes; take another name")
        return self

    @property
    def seconds(self) -> int:
        """Length of a step."""
        return int(self.window[:-1]) * _UNITS[self.window[-1]]
