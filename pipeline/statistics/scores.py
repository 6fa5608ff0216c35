"""What is asked of people who evaluate a policy: how a model scores their rows, and where a score is cut.

| code | shape | meaning |
|---|---|---|
| ``psi`` | per person | what a person tells of the policy's value: an estimate without first-order bias |
| ``own`` | per person | the person's own return: its mean is what practice is worth, measured, not modelled |
| ``gain`` | per person | ``psi - own``, paired |
| ``placebo`` | per person | a sum that is 0 in the mean if the declared state holds all that matters |

Each score is cut to its clip around its centre; both are declared, so nothing about the people decides them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SCORES = ("psi", "own", "gain", "placebo")


@dataclass(frozen=True)
class Clips:
    """Centre and clip of each of :data:`SCORES`, reward units.

    Parameters
    ----------
    low, high
        Least and greatest value of an episode, declared.
    spread
        Clip of ``psi`` in ranges of values.
    placebo
        Clip of ``placebo`` in ranges of values.
    gain
        Clip of ``gain`` in ranges of values; None: that of ``psi``.
    """

    low: float
    high: float
    spread: float
    placebo: float = 2.0
    gain: float | None = None

    @property
    def centres(self) -> Array:
        """``(4,)``."""
        middle = (self.low + self.high) / 2
        return np.array([middle, middle, 0.0, 0.0])

    @property
    def widths(self) -> Array:
        """``(4,)``."""
        gain = self.spread if self.gain is None else self.gain
        return (self.high - self.low) * np.array([self.spread, 0.5, gain, self.placebo])

    def scaled(self, psi: Array, own: Array, placebo: Array) -> Array:
        """Scores ``(n, 4)`` in parts of their clips, for :class:`~pipeline.statistics.moment_layout.MomentLayout`.

        Parameters
        ----------
        psi, own, placebo
            ``(n,)`` of n people, reward units.
        """
        return (np.stack([psi, own, psi - own, placebo], axis=1) - self.centres) / self.widths


@dataclass(frozen=True)
class Question:
    """What a released model asks of each row of other people, in reward units; 0 at an end and after the horizon.

    Parameters
    ----------
    V, Q
        ``(H+1, S)`` value of the policy, and ``(H, L, A)`` of one action first.
    w
        ``(H, L, A)``: how much more often the policy is there and does that than practice.
    placebo
        ``(H, L, A)``: what is 0 in the mean over the actions of practice, whatever lies before.
    W
        ``(H+1, S)`` value of practice: what lies before a row is measured in it.
    spread
        Ranges of values, a power of two, that psi may be from the middle: about the largest weight.
    effective
        Effective sample size as a share: squared mean of w over its mean square, over rows of practice.
    """

    V: Array
    Q: Array
    w: Array
    placebo: Array
    W: Array
    spread: int
    effective: float
