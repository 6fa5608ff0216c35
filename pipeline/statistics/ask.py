"""Budget of a private sum, its calibration, and its split over tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from pipeline.privacy.budget import fraction_of, rho_from_epsilon
from pipeline.privacy.continual import Factorisation

ReleasedTables = Literal["one_table", "two_tables"]
Calibration = Literal["tight", "paper"]


@dataclass(frozen=True)
class Ask:
    """Budget and tables that a recipe requests.

    ``rho``, ``epsilon``, ``delta``: ``rho`` alone, ``epsilon`` with ``delta`` (both Gaussian), or ``epsilon`` alone:
    pure, Laplace.  None of them: no noise (a baseline, simulation only).
    ``tables``: of counts.  ``one_table``: n[h,s,a,s'] alone, n[h,s,a] by summation; ``two_tables``: both, as paper 003
    has it.
    """

    rho: float | Fraction | None = None
    epsilon: float | Fraction | None = None
    delta: float | None = None
    tables: ReleasedTables = "one_table"
    calibration: Calibration = "tight"
    split: Mapping[str, float | Fraction] | None = None
    counter: Factorisation | None = None
    part: Fraction = Fraction(1)

    @property
    def pure(self) -> bool:
        """True where delta = 0 is requested."""
        return self.epsilon is not None and not self.delta

    @property
    def written(self) -> dict[str, float]:
        """The budget as it was written: ``rho``, ``epsilon`` and ``delta``, each where it is given."""
        budget = {"rho": self.rho, "epsilon": self.epsilon, "delta": self.delta}
        return {name: float(x) for name, x in budget.items() if x is not None}

    def zcdp(self) -> Fraction | None:
        """Requested budget as rho, the decimal that was written; None for pure and for no privacy."""
        if self.rho is not None:
            return self.rho if isinstance(self.rho, Fraction) else fraction_of(self.rho)
        if self.epsilon is None or not self.delta:
            return None
        return fraction_of(rho_from_epsilon(float(self.epsilon), self.delta))

    def less(self, spent: Fraction) -> "Ask":
        """The budget that remains after ``spent``."""
        if not spent:
            return self
        if self.pure:
            return replace(self, epsilon=fraction_of(self.epsilon or 0) - spent)
        rho = self.zcdp()
        return self if rho is None else replace(self, rho=rho - spent)

    def share(self, table: str, default: Fraction) -> Fraction:
        """Share of the budget on one table."""
        return default if self.split is None else Fraction(self.split.get(table, default))
