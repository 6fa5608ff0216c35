"""Radii of optimistic bonuses in linear mixture MDPs: each function is one displayed formula, times a tuned ``c``.

Values are in reward units: the papers' H - h + 1 is ``tops``, what can still be won from step h on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.statistics.regularizers import Bounds, Ridge

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Moment:
    """What a radius may depend on: all of it released or declared.

    Parameters
    ----------
    episode, episodes
        k, from 1 on, and K.
    unknowns
        d_1.
    tops
        ``(H-1,)`` largest value to go, reward units.
    """

    episode: int
    episodes: int
    unknowns: int
    tops: Array
    ridge: Ridge
    bounds: Bounds


# radii (H-1,) of a moment
Radii = Callable[[Moment], Array]


def ucrl_vtr(c: float, failure: float = 0.01) -> Radii:
    """sqrt(d_1) + (H-h+1) sqrt(2 ln(1/alpha) + ln det M) (paper 001, section 6, with M in units of lambda).

    Departure: ``c`` multiplies both terms; on the first alone, as printed, the second one explores for all of 10^4
    episodes.  The printed ln(1/K) is negative and not used.
    """

    def radii(m: Moment) -> Array:
        scaled = m.ridge.Lambda / m.bounds.lambda_min[:, None, None, None]
        volume = np.maximum(np.linalg.slogdet(scaled)[1].sum(-1), 0.0)
        return c * (math.sqrt(m.unknowns) + m.tops * np.sqrt(2 * math.log(1 / failure) + volume))

    return radii


def linopt(c: float, failure: float = 0.01) -> Radii:
    """beta_p of paper 000, Lemma 3.1: (H/2) sqrt(2 ln(H/alpha) + d_1 ln(1 + K H^2/l_min)) + sqrt(d_1 l_max) + nu."""

    def radii(m: Moment) -> Array:
        b, steps = m.bounds, len(m.tops) + 1
        inside = 2 * math.log(steps / failure) + m.unknowns * np.log1p(m.episodes * m.tops**2 / b.lambda_min)
        return c * (m.tops / 2 * np.sqrt(inside) + np.sqrt(m.unknowns * b.lambda_max) + b.nu)

    return radii


def ldp(c: float) -> Radii:
    """C d_1^(3/4) (H-h+1)^(3/2) k^(1/4): the form that paper 001 tunes in its section 6."""

    def radii(m: Moment) -> Array:
        return c * m.unknowns**0.75 * m.tops**1.5 * m.episode**0.25

    return radii
