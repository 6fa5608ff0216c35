"""Queries to held-out people: a model's scores of their rows, and the clips of scores.

| code | shape | meaning |
|---|---|---|
| ``psi`` | per person | a person's estimate of the policy's value, without first-order bias |
| ``own`` | per person | the person's own return: its mean is the value of practice, measured, not modelled |
| ``gain`` | per person | ``psi - own``, paired |
| ``lost`` | per person | a placebo: sum of surprise times the loss on the way into the state |
| ``past`` | per person | a placebo: sum of surprise times the person's earlier excess over expectation |

*Surprise* is the action less its mean under practice in that state, 0 in the mean for any past if the state holds all
that practice acts on.  So both placebos are 0 in the mean then.  A trait that moves the course shows in
``lost``, one that moves rewards in ``past``; their sum would see neither where the two cancel.

Each score is cut to its clip around its centre; both are declared, so nothing about the people decides them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from pipeline.arrays import Array, Bools

SCORES = ("psi", "own", "gain", "lost", "past")
LOST, PAST = SCORES.index("lost"), SCORES.index("past")
# the scores with a shorter clip on the lattice: two of them cost what one other costs
PLACEBOS = LOST, PAST
# by how much less a row weighs in what came before than the one behind it
FADING = 0.7
# of the clip of ``past``, in ranges of values: least, most, and in ranges of a step's reward
_LEAST, _MOST, _STEPS = 0.25, 1.0, 1.5


def past_clip(step: float, values: float) -> float:
    """Clip of what lies before a row in ranges of values: of ``past``, and of ``lost`` where it is as wide."""
    return min(_MOST, max(_LEAST, _STEPS * step / values))


def fared(off: Array, begins: Bools) -> Array:
    """Mean excess over expectation before each row ``(n,)``, in which nearer rows weigh more.

    ``off`` ``(n,)``: of each row, reward and next value less their expectation.
    ``begins`` ``(n,)``: rows before which nothing counts; there it is 0.
    """
    at = np.arange(len(off))
    rank = at - np.maximum.accumulate(np.where(begins, at, 0))
    sums, weight = np.zeros(len(off)), 0.0
    # row by row of all people at once; no person's sum depends on the others
    ends = np.cumsum(np.bincount(rank))
    order = np.argsort(rank, kind="stable")
    found = np.zeros(len(off))
    for low, high in itertools.pairwise(ends):
        rows = order[low:high]
        weight = FADING * weight + 1.0
        sums[rows] = FADING * sums[rows - 1] + off[rows - 1]
        found[rows] = sums[rows] / weight
    return found


@dataclass(frozen=True)
class Clips:
    """Centre and clip of each of :data:`SCORES`, reward units.

    ``gain``: clip of ``gain`` in ranges of values; None: that of ``psi``.
    """

    low: float
    high: float
    spread: float
    past: float = 1.0
    lost: float = 1.0
    gain: float | None = None

    @property
    def centres(self) -> Array:
        """``(5,)``."""
        middle = (self.low + self.high) / 2
        return np.array([middle, middle, 0.0, 0.0, 0.0])

    @property
    def widths(self) -> Array:
        """``(5,)``."""
        gain = self.spread if self.gain is None else self.gain
        return (self.high - self.low) * np.array([self.spread, 0.5, gain, self.lost, self.past])

    def scaled(self, psi: Array, own: Array, lost: Array, past: Array) -> Array:
        """Scores ``(n, 5)`` in parts of their clips, for :class:`~pipeline.statistics.moment_layout.MomentLayout`.

        ``psi``, ``own``, ``lost``, ``past`` ``(n,)``: of n people, reward units.
        """
        return (np.stack([psi, own, psi - own, lost, past], axis=1) - self.centres) / self.widths


@dataclass(frozen=True)
class Question:
    """Query of a released model to each row of held-out people, in reward units; 0 at an end and after the horizon.

    ``V``, ``Q`` ``(H+1, S)``: value of the policy, and ``(H, L, A)`` of one action first.
    ``w`` ``(H, L, A)``: ratio of the policy's occupancy to practice's.
    ``surprise`` ``(H, L, A)``: 0 in the mean over the actions of practice, for any past.
    ``W`` ``(H+1, S)``: value of practice, the unit of the past of a row.
    ``lost``, ``past`` ``(H, L)``: the released model's expectation of the past of a state, as the placebos
    measure it. Where surprise is 0 in the mean nothing changes by it; where released counts are off, far less does.
    ``spread``: ranges of values, a power of two, that psi may be from the middle: about the largest weight.
    ``effective``: effective sample size as a share: squared mean of w over its mean square, over rows of practice.
    """

    V: Array
    Q: Array
    w: Array
    surprise: Array
    W: Array
    lost: Array
    past: Array
    spread: int
    effective: float
