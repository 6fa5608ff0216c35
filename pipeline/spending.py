"""What a card allows to be spent: a lifetime cap, and what of it in a month or a year."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from pipeline.toml import Strict


class Schedule(Strict):
    """What may be spent in one calendar month or year (UTC), beside the lifetime cap."""

    rho_month: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    rho_year: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _some_limit(self) -> Self:
        if self.rho_month is None and self.rho_year is None:
            raise ValueError("give 'rho_month', 'rho_year' or both")
        return self

    def limits(self) -> dict[str, float]:
        """``month`` and ``year``, where they are given."""
        given = {"month": self.rho_month, "year": self.rho_year}
        return {period: rho for period, rho in given.items() if rho is not None}


class Budget(Strict):
    """Lifetime cap of the lineage, and where it is spent over time."""

    rho: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-6
    ledger: str = "home"
    schedule: Schedule | None = None
