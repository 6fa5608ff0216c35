"""Integers instead of reals: the declared lattice on which rewards are summed (privacy.md §8, §0.1-10 and -11).

Noise is added to integers only, so every real input is put on a declared lattice *before* it is summed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# a reward this close below a lattice point (in steps) is that point: binary floats cannot hold most decimals
_ROUNDING = 1e-9


@dataclass(frozen=True)
class RewardLattice:
    """``low + k * (high - low) / steps`` for ``k = 0..steps``.

    ``centred`` sums ``2k - steps`` (half steps around mid-range), which halves the squared sensitivity of a replaced
    person; otherwise ``k`` is summed, as a declared ``total`` needs (privacy.md §0.1-20).

    Parameters
    ----------
    low, high
        Declared range of one reward, reward units.
    steps
        Lattice steps from ``low`` to ``high``.

    Examples
    --------
    >>> RewardLattice(0.0, 1.0, 4, centred=True).index(np.array([-3.0, 0.49, 0.5, 9.0]))
    array([0, 1, 2, 4])
    """

    low: float
    high: float
    steps: int
    centred: bool

    @property
    def unit(self) -> float:
        """Reward units of one summed integer."""
        return (self.high - self.low) / (2 * self.steps if self.centred else self.steps)

    @property
    def offset(self) -> float:
        """Reward at which the summed integer is 0."""
        return (self.low + self.high) / 2 if self.centred else self.low

    def index(self, reward: NDArray[np.float64]) -> NDArray[np.int64]:
        """``k`` of each reward: clipped to the range, then floored (a lower value stays a lower value); 0 of NaN."""
        # one temporary, and no step that changes nothing: this is what counting rewards costs
        k = np.fmax(reward, self.low)
        np.fmin(k, self.high, out=k)
        if self.low != 0:
            k -= self.low
        if (width := self.high - self.low) != 1:
            k /= width
        k *= self.steps
        k += _ROUNDING
        # clipped at both ends already, so cutting off is flooring and no k is above ``steps``
        return k.astype(np.int64)

    def integer(self, k: NDArray[np.int64]) -> NDArray[np.int64]:
        """The integer that is summed for lattice index ``k``."""
        return 2 * k - self.steps if self.centred else k
