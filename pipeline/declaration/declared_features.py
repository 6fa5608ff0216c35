"""The feature map that a card declares: integers over declared states and actions, the same for planner and noise."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from pipeline.declaration.linear_quadratic import Positive, Vector
from pipeline.declaration.toml import Strict
from pipeline.mdp.features import FeatureMap, balance
from pipeline.mdp.observed_features import KINDS, ObservedMap

# kinds that are functions of domain.observation
OBSERVED = KINDS

Row = Annotated[list[Annotated[int, Field(ge=-32_767, le=32_767)]], Field(min_length=1)]


class Features(Strict):
    """Features of every (live state, action), by position as the labels are declared, OTHER last.

    Attributes
    ----------
    kind
        ``one_hot``: one feature a pair; ``table``: as written, a row of integers a pair; ``product``: a state's row
        times an action's row, entry by entry; ``affine``, ``quadratic``, ``fourier``: of ``domain.observation``, a
        block of features a live state (:mod:`pipeline.mdp.observed_features`).
    table, states, actions
        ``(L, A, d)`` for ``table``; ``(L, p)`` and ``(A, q)`` for ``product``, d = p q.  ``actions`` may be given for
        those of an observation, else actions are one-hot.
    waves, bandwidth, seed
        Of ``fourier``: number of waves, the scaled length over which they turn by a radian, and the declared seed.
    square
        Declared bound on every squared norm; the largest of the map where it is left out.  Features in the unit ball
        are integers over its root.
    balanced
        Whether the map is put in John's position first: the same linear class, less noise.
    """

    later: ClassVar = dict.fromkeys(("waves", "bandwidth", "seed"))
    kind: Literal["one_hot", "table", "product", "affine", "quadratic", "fourier"]
    table: list[list[Row]] | None = None
    states: list[Row] | None = None
    actions: list[Row] | None = None
    square: Annotated[int, Field(ge=1, lt=2**30)] | None = None
    balanced: bool = False
    waves: Annotated[int, Field(ge=1, le=500)] | None = None
    bandwidth: Positive | None = None
    seed: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _fits_kind(self) -> Self:
        waves = {self.waves, self.bandwidth, self.seed}
        if (self.kind == "fourier" and None in waves) or (self.kind != "fourier" and waves != {None}):
            raise ValueError("'waves', 'bandwidth' and 'seed' belong to kind = 'fourier', which needs all three")
        if self.kind in OBSERVED and (self.balanced or self.square is not None):
            raise ValueError(f"kind = '{self.kind}' lies in the unit ball: leave 'balanced' and 'square' out")
        given = {key for key in ("table", "states", "actions") if getattr(self, key) is not None}
        wanted = {"table": {"table"}, "product": {"states", "actions"}}.get(self.kind, set[str]())
        if given != wanted and not (self.kind in OBSERVED and given == {"actions"}):
            names = " and ".join(f"'{key}'" for key in sorted(wanted)) or "no rows of its own"
            raise ValueError(f"kind = '{self.kind}' goes with {names}; found {sorted(given) or 'none'}")
        rows = {"table": [r for s in self.table or [] for r in s], "states": self.states, "actions": self.actions}
        for key, found in rows.items():
            if len({len(r) for r in found or []}) > 1:
                raise ValueError(f"every row of '{key}' must have the same number of integers")
        return self

    def check(self, live: int, actions: int, observation: Vector | None = None) -> None:
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
        if (self.kind in OBSERVED) != (observation is not None):
            raise ValueError(
                f"kind = '{self.kind}' and domain.observation: {', '.join(OBSERVED)} are features of an observation"
            )
        if self.kind in OBSERVED and self.actions is not None and not any(any(row) for row in self.actions):
            raise ValueError("features.actions: every row is zero; at least one action needs a feature")
        if self.kind not in ("one_hot", *OBSERVED):
            self._whole(live, actions)

    def observed(self, live: int, actions: int, observation: Vector) -> ObservedMap:
        """The map of observations.

        Parameters
        ----------
        live, actions
            Numbers of live states and of actions.
        observation
            As declared.

        Raises
        ------
        ValueError
            If the features are not of an observation.
        """
        kind = next((k for k in OBSERVED if k == self.kind), None)
        if kind is None:
            raise ValueError(f"features.kind = '{self.kind}' is of declared states, not of an observation")
        rows = self.actions or np.eye(actions, dtype=np.int64).tolist()
        waves = {"waves": self.waves or 0, "bandwidth": self.bandwidth or 1.0, "seed": self.seed or 0}
        return ObservedMap(kind, observation.size, observation.radius, live, tuple(map(tuple, rows)), **waves)

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
