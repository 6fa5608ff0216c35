"""Finite decision processes: the declared part without any row, and a whole model with its rewards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def is_stationary(x: Array) -> bool:
    """True where the leading axis is a broadcast view, so that checks and sums need only its first slice."""
    return x.ndim > 0 and (x.shape[0] == 1 or x.strides[0] == 0)


@dataclass(frozen=True)
class TabularMDP:
    """A world with known parameters.

    ``transitions`` ``(H, S, A, S)``: rows sum to 1.
    ``rewards`` ``(H, S, A)``: expected reward, in reward units per step.
    ``start`` ``(S,)``: distribution of the first state.
    Raises ValueError if shapes disagree or a row is not a distribution (tolerance 1e-8).
    """

    transitions: Array
    rewards: Array
    start: Array

    def __post_init__(self) -> None:
        P, r, d = (np.asarray(x, dtype=np.float64) for x in (self.transitions, self.rewards, self.start))
        if P.ndim != 4 or P.shape[1] != P.shape[3]:
            raise ValueError(f"transitions must be (H, S, A, S); got {P.shape}")
        if r.shape != P.shape[:3]:
            raise ValueError(f"rewards must be {P.shape[:3]}; got {r.shape}")
        if d.shape != (P.shape[1],):
            raise ValueError(f"start must be ({P.shape[1]},); got {d.shape}")
        head = P[:1] if is_stationary(P) else P
        if not np.isfinite(head).all() or (head < -1e-12).any() or (np.abs(head.sum(-1) - 1) > 1e-8).any():
            raise ValueError("transitions must be non-negative rows that sum to 1")
        if (d < -1e-12).any() or abs(d.sum() - 1) > 1e-8 or not np.isfinite(r).all():
            raise ValueError("start must be a distribution and rewards finite")
        for name, value in (("transitions", P), ("rewards", r), ("start", d)):
            object.__setattr__(self, name, value)

    @property
    def horizon(self) -> int:
        """H."""
        return self.transitions.shape[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, S, A)."""
        h, s, a = self.rewards.shape
        return h, s, a


def stationary_mdp(transition: Array, reward: Array, start: Array, horizon: int) -> TabularMDP:
    """The same ``transition (S, A, S)`` and ``reward (S, A)`` at each of ``horizon`` steps, without copying them.

    ``transition`` ``(S, A, S)``: rows sum to 1.
    ``reward`` ``(S, A)``: reward units.
    ``start`` ``(S,)``: distribution of the first state.
    """
    shape = (horizon, *np.shape(transition))
    P = np.broadcast_to(np.asarray(transition, dtype=np.float64), shape)
    return TabularMDP(P, np.broadcast_to(np.asarray(reward, dtype=np.float64), shape[:3]), start)


Array = NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """Declarations of the decision process: horizon, per-step reward range, allowed actions.

    ``bounds``: least and largest reward of one step.
    ``allowed`` ``(L, A)``: false where an action is vetoed or is OTHER.
    ``rewards`` ``(L, A)``: or one such table a step ``(H, L, A)``; None where the release estimates them.
    ``can_end``: whether an episode may end before H, worth 0 from then on.
    ``entering`` ``(S,)``: further reward of a step for the state it leads to; None without any.
    ``total``: declared bound on the rewards of a whole episode, whose steps pay nothing negative; None where there is
    none.
    """

    horizon: int
    bounds: tuple[float, float]
    allowed: NDArray[np.bool_]
    rewards: Array | None = None
    can_end: bool = True
    entering: Array | None = None
    total: float | None = None

    def value_range(self, h: int) -> tuple[float, float]:
        """Least and largest value to go at 0-based step ``h``: paper's [0, H-h+1] for rewards in [0, 1]."""
        low, high = self.bounds
        if self.can_end:
            low, high = min(low, 0.0), max(high, 0.0)
        least, most = (self.horizon - h) * low, (self.horizon - h) * high
        return least, most if self.total is None else min(most, self.total)

    @property
    def reach(self) -> float:
        """Largest distance of two values of an episode: the paper's H for rewards in [0, 1]."""
        apart = self.horizon * (self.bounds[1] - self.bounds[0])
        return apart if self.total is None else min(apart, self.total)

    def expected(self, P: Array) -> Array | None:
        """Declared mean reward ``(1 or G or H, L, A)`` of a step; None where the release estimates rewards.

        ``P`` ``(G, L, A, S)``: transitions from the live states.
        """
        if self.rewards is None:
            return None
        here = self.rewards if self.rewards.ndim == 3 else self.rewards[None]
        return here if self.entering is None else here + P @ self.entering

    def onward(self, V: Array) -> Array:
        """Value of a step by its successor: ``V (S,)`` and the reward of entering.

        ``V``: value ``(S,)`` of the next step.
        """
        return V if self.entering is None else V + self.entering
