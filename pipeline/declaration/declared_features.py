"""The feature map that a card declares: integers over declared states and actions, the same for planner and noise."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from pipeline.declaration.toml import Strict
from pipeline.mdp.features import FeatureMap, balance

Row = Annotated[list[Annotated[int, Field(ge=-32_767, le=32_767)]], Field(min_length=1)]


class Features(Strict):
    """Features of every (live state, action), by position as the labels are declared, OTHER last.

    Attributes
    ----------
    kind
        ``one_hot``: one feature a pair; ``table``: as written, a row of integers a pair; ``product``: a state's row
        times an action's row, entry by entry.
    table, states, actions
        ``(L, A, d)`` for ``table``; ``(L, p)`` and ``(A, q)`` for ``product``, d = p q.
    square
        Declared bound on every squared norm; the largest of the map where it is left out.  Features in the unit ball
        are integers over its root.
    balanced
        Whether the map is put in John's position first: the same linear class, less noise.
    """

    kind: Literal["one_hot", "table", "product"]
    table: list[list[Row]] | None = None
    states: list[Row] | None = None
    actions: list[Row] | None = None
    square: Annotated[int, Field(ge=1, lt=2**30)] | None = None
    balanced: bool = False

    @model_validator(mode="after")
    def _fits_kind(self) -> Self:
        given = {key for key in ("table", "states", "actions") if getattr(self, key) is not None}
        wanted = {"one_hot": set[str](), "table": {"table"}, "product": {"states", "actions"}}[self.kind]
        if given != wanted:
            names = " and ".join(f"'{key}'" for key in sorted(wanted)) or "no rows of its own"
            raise ValueError(f"kind = '{self.kind}' goes with {names}; found {sorted(given) or 'none'}")
        rows = {"table": [r for s in self.table or [] for r in s], "states": self.states, "actions": self.actions}
        for key, found in rows.items():
            if len({len(r) for r in found or []}) > 1:
                raise ValueError(f"every row of '{key}' must have the same number of integers")
        return self

    def check(self, live: int, actions: int) -> None:
        """Refuse a map that does not fit the declared labels, or is longer than it declares.

        Raises
        ------
        ValueError
            Naming the key, and what it must be.
        """
        if self.table is not None and (len(self.table) != live or any(len(s) != actions for s in self.table)):
            raise ValueError(f"features.table must be {live} lists (live states) of {actions} rows (actions)")
        for key, rows, size in (("states", self.states, live), ("actions", self.actions, actions)):
            if rows is not None and len(rows) != size:
                raise ValueError(f"features.{key} must be {size} rows, one a label; got {len(rows)}")
        if self.kind != "one_hot":
            self._whole(live, actions)

    def feature_map(self, live: int, actions: int) -> FeatureMap:
        """The map ``(L, A, d)``, norms checked in integers, balanced where asked."""
        whole = self._whole(live, actions)
        return balance(whole) if self.balanced else whole

    def _whole(self, live: int, actions: int) -> FeatureMap:
        f = self._integers(live, actions)
        longest = int((f * f).sum(-1).max())
        if longest == 0:
            raise ValueError("features: every row is zero; at least one pair needs a feature")
        square = longest if self.square is None else self.square
        if longest > square:
            raise ValueError(f"features.square = {square}, but a row has squared norm {longest}; declare the largest")
        return FeatureMap(f, square, Fraction(1, square))

    def _integers(self, live: int, actions: int) -> NDArray[np.int64]:
        if self.kind == "one_hot":
            return np.eye(live * actions, dtype=np.int64).reshape(live, actions, -1)
        if self.kind == "table":
            return np.array(self.table, dtype=np.int64)
        states, acts = np.array(self.states, dtype=np.int64), np.array(self.actions, dtype=np.int64)
        return (states[:, None, :, None] * acts[None, :, None, :]).reshape(live, actions, -1)
