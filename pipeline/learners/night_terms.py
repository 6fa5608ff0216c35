"""What a recipe says of nights that share one budget."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from pipeline.declaration.toml import Strict
from pipeline.privacy.epochs import counter_of
from pipeline.privacy.factorisation import Factorisation


class Nightly(Strict):
    """Every night is a leaf of one counter, and the budget is that of all its nights together.

    Parameters
    ----------
    nights, first
        How many, and the date of the first (UTC).
    counter
        ``tree``, or ``toeplitz``: the square-root factorisation.
    epoch
        Of an agent whose second question rests on a first answer: for so many nights that answer stands, and the sums
        that were asked with it are added up; all nights where it is left out.
    """

    later: ClassVar = {"epoch": None}
    nights: Annotated[int, Field(ge=1, le=10_000)] = 365
    first: Annotated[date, Field(strict=False)]
    counter: Literal["tree", "toeplitz"] = "tree"
    epoch: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _epoch_within(self) -> Self:
        if self.epoch is not None and self.epoch > self.nights:
            raise ValueError(f"epoch = {self.epoch} is longer than all {self.nights} nights")
        return self

    @property
    def last(self) -> date:
        """The date of the last."""
        return self.first + timedelta(days=self.nights - 1)

    @property
    def factorisation(self) -> Factorisation:
        """Which rows of noise are drawn on which night."""
        return counter_of(self.counter, self.nights, self.epoch)
