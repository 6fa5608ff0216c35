"""The calendar of a recipe: on which dates a fresh release is drawn and paid, whatever arrived."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Annotated, Literal

from pydantic import Field, field_validator

from pipeline.declaration.toml import Strict

Dates = (
    Literal["nightly", "weekly", "monthly"] | Annotated[list[Annotated[date, Field(strict=False)]], Field(min_length=1)]
)


class Schedule(Strict):
    """On these dates a scheduled night draws a fresh release; on all others the last one stands.

    Parameters
    ----------
    release
        ``nightly``, ``weekly`` (on Mondays), ``monthly`` (on the first), or the dates themselves (UTC).
    """

    release: Dates

    @field_validator("release")
    @classmethod
    def _ordered(cls, release: str | list[date]) -> str | list[date]:
        return release if isinstance(release, str) else sorted(set(release))

    def due(self, day: date) -> date | None:
        """The newest date of the calendar that is not after ``day``; None before the first."""
        if isinstance(self.release, list):
            return max((d for d in self.release if d <= day), default=None)
        back = {"nightly": 0, "weekly": day.weekday(), "monthly": day.day - 1}[self.release]
        return day - timedelta(days=back)

    def after(self, day: date) -> date | None:
        """The first date of the calendar after ``day``; None after the last."""
        if isinstance(self.release, list):
            return min((d for d in self.release if d > day), default=None)
        if self.release == "monthly":
            return (day.replace(day=1) + timedelta(days=32)).replace(day=1)
        return day + timedelta(days=1 if self.release == "nightly" else 7 - day.weekday())
