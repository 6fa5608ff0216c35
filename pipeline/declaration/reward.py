"""The declared reward of a step: range, lattice, and whence it comes: the rows, a table, or the state entered."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat, model_validator

from pipeline.declaration.toml import Strict, table_in

Rows = list[list[float]]


class Reward(Strict):
    """Reward range and lattice, and where a step's reward comes from.

    Parameters
    ----------
    kind
        ``estimate``: read from the rows; ``table`` and ``on_entering``: declared there.  A card that gives
        ``on_entering`` need not say so.
    range, steps
        Lattice: least and largest reward of a step, and the steps between them.
    empty
        What a row pays whose cell is empty; None: such a row is no step (``bad_reward``).
    total
        Declared bound on what one person's rewards sum up to; an episode is worth no more either.
    table
        Mean reward ``(L, A)`` of each live state and action, or one such table a step, ``(H, L, A)``.
    on_entering
        State label -> what a step pays that leads there; 0 for a label that is not named.
    """

    later: ClassVar = {"on_entering": None, "empty": None}
    kind: Literal["estimate", "table", "on_entering"] = "estimate"
    range: Annotated[tuple[float, float], Field(strict=False)]
    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    empty: FiniteFloat | None = None
    total: Annotated[float, Field(gt=0)] | None = None
    table: Rows | list[Rows] | None = None
    on_entering: Annotated[dict[str, FiniteFloat], Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _kind_by_key(cls, values: Any) -> Any:
        given = table_in(values)
        return values if given is None or given.get("on_entering") is None else {"kind": "on_entering", **given}

    @model_validator(mode="after")
    def _sound(self) -> Self:
        low, high = self.range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"range must be [low, high] with low < high; got [{low}, {high}]")
        if self.empty is not None and (self.kind != "estimate" or not low <= self.empty <= high):
            raise ValueError(f"empty: what an empty cell pays lies in range, of kind = 'estimate'; got {self.empty}")
        if self.total is not None and low != 0:
            raise ValueError(f"total needs a range that starts at 0; got {low}")
        if self.total_steps == 0:
            raise ValueError(f"total must be at least one lattice step ({self.unit:g}); got {self.total:g}")
        if (self.kind == "table") != (self.table is not None):
            raise ValueError(
                "kind = 'table' goes with 'table' (one row a live state, one entry an action), and only then"
            )
        if (self.kind == "on_entering") != (self.on_entering is not None):
            raise ValueError("kind = 'on_entering' goes with 'on_entering' = { label = reward }, and only then")
        if any(not low <= r <= high for table in self.tables for row in table for r in row):
            raise ValueError(f"table entries must lie in [{low}, {high}]")
        if self.on_entering is not None and any(not low <= r <= high for r in (0.0, *self.on_entering.values())):
            raise ValueError(f"on_entering: 0 and every entry must lie in [{low}, {high}]; got {self.on_entering}")
        return self

    def check(self, horizon: int, live: Sequence[str], ends: Sequence[str], actions: int) -> None:
        """Refuse a table or labels that do not fit the declared domain.

        Raises
        ------
        ValueError
            Naming the key, and what it must be.
        """
        if any(len(table) != len(live) or any(len(row) != actions for row in table) for table in self.tables):
            raise ValueError(f"reward.table must be {len(live)} rows of {actions} numbers")
        if len(self.tables) not in (0, 1, horizon):
            raise ValueError(f"reward.table must be one table, or one a step ({horizon}); got {len(self.tables)}")
        if unknown := set(self.on_entering or ()) - {*live, *ends}:
            some = ", ".join([*live[:5], *(["…"] if len(live) > 5 else []), *ends])
            raise ValueError(f"reward.on_entering names unknown states {sorted(unknown)}; declared: {some}")

    @property
    def tables(self) -> list[Rows]:
        """The declared tables: none, one, or one a step."""
        if self.table is None:
            return []
        deep = [[row for row in table if isinstance(row, list)] for table in self.table]
        return deep if any(deep) else [[[x for x in row if not isinstance(x, list)] for row in self.table]]

    def paid_here(self, live: int, actions: int) -> NDArray[np.float64] | None:
        """What a step pays for what is done: ``(L, A)``, or ``(H, L, A)``; None where the rows tell."""
        if self.kind == "estimate":
            return None
        found = np.array(self.tables, dtype=np.float64) if self.tables else np.zeros((1, live, actions))
        return found[0] if len(found) == 1 else found

    def paid_there(self, states: Sequence[str]) -> NDArray[np.float64] | None:
        """What a step pays for where it leads, ``(S,)`` over all state labels; None where nothing depends on that."""
        entering = self.on_entering
        return None if entering is None else np.array([entering.get(label, 0.0) for label in states])

    def most(self, ends: Collection[str]) -> float | None:
        """Most that one episode can pay: the declared total, or what the best end pays where only ends pay.

        Parameters
        ----------
        ends
            Labels that end an episode.

        Returns
        -------
        None where neither is declared.
        """
        entering = self.on_entering
        if entering is None or any(paid > 0 for label, paid in entering.items() if label not in ends):
            return self.total
        best = max(0.0, *entering.values())
        return best if self.total is None else min(best, self.total)

    @property
    def unit(self) -> float:
        """Reward per lattice step."""
        return (self.range[1] - self.range[0]) / self.steps

    @property
    def total_steps(self) -> int | None:
        """The declared bound on one person's summed reward, in lattice steps."""
        return None if self.total is None else math.floor(self.total / self.unit + 1e-9)
