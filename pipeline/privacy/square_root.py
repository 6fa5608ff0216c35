"""The square-root counter: running sums through a Toeplitz factorisation (Fichtenberger, Henzinger, Upadhyay 2023).

The matrix A of running sums is L L, with L lower triangular, Toeplitz, first column f_0 = 1, f_k = f_{k-1} (2k-1)/(2k).
L x + z is released, and L (L x + z), the sums plus L z, is read off it: at T = 10^4 less than a tenth of the tree's
variance.

To stay on integers L is replaced by G with first column g_k = round(2^14 f_k): G x + z are integers, ``cost`` = sum of
g_k^2 is exact, and the sums are A G^-1 (G x + z).  Their noise is p * z, where p are the coefficients of the power
series 1 / ((1 - q) g(q)): about f_k / 2^14, exactly unbiased.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.counters import Lanes, room
from pipeline.privacy.noise import Integers, RealDataError

Array = NDArray[np.float64]

_SCALE = 2**14


def coefficients(leaves: int) -> Integers:
    """g_0 .. g_{T-1} ``(T,)``, rounded from exact binomials binom(2k, k) / 4^k.

    >>> coefficients(3) / 2**14
    array([1.   , 0.5  , 0.375])
    """
    g, f = np.empty(leaves, dtype=np.int64), Fraction(_SCALE)
    for k in range(leaves):
        # 80 bits keep the recurrence exact to far below a rounding
        f = f if k == 0 else Fraction(round(f * Fraction(2 * k - 1, 2 * k) * 2**80), 2**80)
        g[k] = round(f)
    return g


def squared_column(leaves: int) -> int:
    """``cost`` of a counter over so many leaves: sum of g_k^2, exactly."""
    g = coefficients(leaves)
    return int(g @ g)


def decoder(g: Integers) -> Array:
    """p_0 .. p_{T-1} ``(T,)``: weight of the noise that is k leaves old in a running sum."""
    inverse = np.zeros(len(g))
    inverse[0] = 1 / g[0]
    for k in range(1, len(g)):
        inverse[k] = -(g[k:0:-1] @ inverse[:k]) / g[0]
    return np.cumsum(inverse)


class SquareRoot:
    """See :class:`~pipeline.privacy.counters.Counter`; simulations only.

    It keeps the sum and all noise ``(T, n)`` and reads sums as sum + p * z: the same numbers as A G^-1 (G x + z), but
    not computed from G x + z alone, so the claim is that of the protocol it simulates.
    """

    def __init__(self, leaves: int, lanes: Lanes) -> None:
        if lanes.data.data_kind != "synthetic":
            raise RealDataError("the square-root counter is for simulations; this dataset is registered as real")
        self.leaves, self.lanes, self.seen = leaves, lanes, 0
        self.cost, self._p = squared_column(leaves), decoder(coefficients(leaves))
        self._sum = np.zeros(lanes.length, dtype=np.int64)
        self._noise = np.zeros((leaves, lanes.length))

    def error(self, t: int) -> float:
        """Sum of p_k^2 over k < ``t``."""
        return float(self._p[:t] @ self._p[:t])

    def add(self, leaf: Integers, leaves: int = 1) -> None:
        """See :class:`~pipeline.privacy.counters.Counter`."""
        room(self.seen, self.leaves, leaves)
        self._noise[self.seen : self.seen + leaves] = self.lanes.draw(leaves)
        self._sum += leaf
        self.seen += leaves

    def total(self) -> Array:
        """See :class:`~pipeline.privacy.counters.Counter`; one product over the noise so far."""
        return self._sum + self._p[: self.seen][::-1] @ self._noise[: self.seen]
