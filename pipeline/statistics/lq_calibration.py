"""Noise of the LQ counters: from what was asked to integer variances, what they cost, and how large the noise gets.

The printed scales of paper 004: ``sigma_i^2 = 8 m Delta_i^2 ln(2/delta) / epsilon^2`` with m = ceil(log2 K), Delta_1 =
H (1 + gamma)^2, Delta_2 = H (1 + gamma), a counter each at half the budget.  Tight: both counters are one release to
one rho, variances isotropic in svec coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline.statistics.lq_message import LqMessage
from pipeline.statistics.mixture_calibration import Ask

# (sd above the Gram matrix's diagonal, sd of a cross entry, error of the counter) -> bounds on both norms
Tails = Callable[[float, float, float], tuple[float, float]]

# of the two shares the one that makes sqrt(lambda_max) + nu least is between .6 and .8 for n + d = 3 .. 6
GRAM_SHARE = Fraction(2, 3)


@dataclass(frozen=True)
class LqVariances:
    """Integer variance on the Gram matrix's diagonal, above it, and of the cross sums, lattice steps to the 4th."""

    diagonal: int
    above: int
    cross: int

    def rho(self, message: LqMessage, cost: int) -> Fraction | None:
        """Cost in zCDP of one episode in a counter of this ``cost``, over both sums together; None without noise.

        A Gram matrix has squared length diagonal^2 + 2 above^2: attained by ``tight``, an upper bound for the paper's
        equal variances.
        """
        if 0 in (self.diagonal, self.above, self.cross):
            return None
        gram = Fraction(1, 2 * min(self.diagonal, 2 * self.above))
        return cost * message.cost(gram, Fraction(1, 2 * self.cross))

    def entries(self, message: LqMessage) -> NDArray[np.float64]:
        """Variance of every integer of a message ``(n,)``, lattice steps to the 4th.

        Parameters
        ----------
        message
            Whose sums are released.
        """
        return np.repeat(np.array([self.diagonal, self.above, self.cross], dtype=float), message.sizes)


def tight(message: LqMessage, ask: Ask, cost: int) -> LqVariances:
    """The least variances of these shares within the asked rho, integers rounded up; none for infinite epsilon."""
    if math.isinf(ask.epsilon):
        return LqVariances(0, 0, 0)
    each = ask.rho() / cost
    gram = message.cost(Fraction(1), Fraction(0)) / (2 * GRAM_SHARE)
    cross = message.cost(Fraction(0), Fraction(1)) / (2 * (1 - GRAM_SHARE))
    stretch = message.cost(1 / (2 * gram), 1 / (2 * cross)) / each
    half = math.ceil(stretch * gram / 2)
    return LqVariances(2 * half, half, math.ceil(stretch * cross))


def paper_004(message: LqMessage, ask: Ask, episodes: int) -> LqVariances:
    """The printed scales; the Gram matrix has the same one on and above its diagonal."""
    if math.isinf(ask.epsilon):
        return LqVariances(0, 0, 0)
    H, gamma = message.horizon, message.gamma  # noqa: N806
    factor = 8 * _printed_levels(episodes) * math.log(2 / ask.delta) / ask.epsilon**2 * message.steps**4
    gram, cross = (math.ceil(factor * (H * (1 + gamma) ** power) ** 2) for power in (2, 1))
    return LqVariances(gram, gram, cross)


def paper_tails(message: LqMessage, episodes: int, failure: float) -> Tails:
    """Λ and the bound on L_k of the proof of Theorem 3: the worst sum's noise at every episode."""
    D, n, m = message.dimension, message.state, _printed_levels(episodes)  # noqa: N806
    of_gram = 4 * math.sqrt(D) + math.sqrt(8 * math.log(4 * episodes / failure))
    of_cross = math.sqrt(2 * n * D) + math.sqrt(4 * math.log(2 * episodes / failure))

    def tails(above: float, cross: float, _: float) -> tuple[float, float]:
        # equal variances: the one handed over is that above the diagonal, which is the printed one
        return above * math.sqrt(m) * of_gram, cross * math.sqrt(m) * of_cross

    return tails


def tail_bounds(message: LqMessage, reads: int, failure: float) -> Tails:
    """Bounds that hold at all ``reads`` at once but for a probability of ``failure / 2``, at the error of each read.

    A symmetric Gaussian matrix of standard deviation s above and at most sqrt(2) s on the diagonal has an expected
    largest eigenvalue of at most 2 s sqrt(D), and moves by sqrt(2) s times its standard normal draws; a Gaussian D x n
    matrix has an expected Frobenius norm of at most s sqrt(n D), and moves by s times them.
    """
    D, n = message.dimension, message.state  # noqa: N806
    of_gram = 2 * math.sqrt(D) + 2 * math.sqrt(math.log(8 * reads / failure))
    of_cross = math.sqrt(n * D) + math.sqrt(2 * math.log(4 * reads / failure))

    def tails(above: float, cross: float, error: float) -> tuple[float, float]:
        return math.sqrt(error) * above * of_gram, math.sqrt(error) * cross * of_cross

    return tails


def _printed_levels(episodes: int) -> int:
    return max(1, (episodes - 1).bit_length())
