"""A declared decision process with a finite horizon: what a planner may know of it without any row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Task:
    """What is declared about the decision process: horizon, per-step reward range, allowed actions.

    ``allowed (L, A)`` is False where an action is vetoed or is OTHER.  ``rewards``, ``(L, A)`` or one such table a step
    ``(H, L, A)``, is None where the release estimates them.  ``can_end``: whether an episode may end before H, worth 0
    from then on.

    Parameters
    ----------
    horizon
        H.
    bounds
        Least and largest reward of one step.
    """

    horizon: int
    bounds: tuple[float, float]
    allowed: NDArray[np.bool_]
    rewards: Array | None = None
    can_end: bool = True

    def value_range(self, h: int) -> tuple[float, float]:
        """Least and largest value to go at 0-based step ``h``: paper's [0, H-h+1] for rewards in [0, 1]."""
        low, high = self.bounds
        if self.can_end:
            low, high = min(low, 0.0), max(high, 0.0)
        return (self.horizon - h) * low, (self.horizon - h) * high
