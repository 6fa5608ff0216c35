"""An audit from one run (Steinke, Nasr and Jagielski 2023): many made-up people, each in or out by a coin.

The attacker sees the one release, scores every person, and guesses the coins of those it is surest of.  The number of
right guesses is bounded by a binomial law whatever the mechanism, so too many of them prove a loss.  One run is cheap
and sees the whole pipeline; it finds gross faults (no noise, repeated noise, raw counts in a file), not factors of two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]


@dataclass(frozen=True)
class OneRun:
    """What the guesses prove of the loss between being in the data and being out of it (zero-out), at ``delta``."""

    canaries: int
    guesses: int
    right: int
    lower_bound_epsilon: float
    claimed_epsilon: float
    delta: float
    confidence: float

    @property
    def violates(self) -> bool:
        """Whether more is lost than claimed."""
        return self.lower_bound_epsilon > self.claimed_epsilon


def guessed(scores: Array, coins: NDArray[np.bool_], share: float) -> tuple[int, int]:
    """(guesses, right ones): the top ``share`` of scores are said to be in, as many at the bottom out."""
    n = max(1, round(share * len(scores)))
    order = np.argsort(scores, kind="stable")
    return 2 * n, int(coins[order[-n:]].sum() + (~coins[order[:n]]).sum())


def lower_epsilon(canaries: int, guesses: int, right: int, delta: float, doubt: float) -> float:
    """Largest epsilon that so many right guesses exclude with probability ``1 - doubt`` (their Theorem 5.2)."""
    low, high = 0.0, 30.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _chance(canaries, guesses, right, middle, delta) < doubt else (low, middle)
    return low


def _chance(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Most that an (epsilon, delta) mechanism allows for at least ``right`` of ``guesses``."""
    p = 1 / (1 + np.exp(-epsilon))
    tail = stats.binom.sf(right - 1 - np.arange(right + 1), guesses, p)
    slack = ((tail[1:] - tail[0]) / np.arange(1, right + 1)).max(initial=0.0)
    return float(tail[0] + 2 * canaries * delta * slack)
