"""Radii of optimistic bonuses in linear mixture MDPs: each function is one displayed formula, times a tuned ``c``.

Values are in reward units: the papers' H - h + 1 is ``tops``, what can still be won from step h on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.statistics.mixture_message import Bounds, Ridge

Array = NDArray[np.float64]
# alpha, failure probability of a confidence set
_FAILURE = 0.01


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
        ``(steps,)`` largest value to go after the step, or reward of it; reward units.
    reach
        ``(steps,)`` largest response of a regression row: ``tops``, or 1 where rows are unit ones.
    """

    episode: int
    episodes: int
    unknowns: int
    tops: Array
    reach: Array
    ridge: Ridge
    bounds: Bounds


# radii (steps,) of a moment
Radii = Callable[[Moment], Array]


def ucrl_vtr(c: float, *, printed: bool = False) -> Radii:
    """sqrt(d_1) + (H-h+1) sqrt(2 ln(1/alpha) + ln det M) (paper 001, section 6, with M in units of lambda).

    ``c`` multiplies both terms; ``printed``: the first alone, as on the page, where the second one explores for all of
    10^4 episodes.  The printed ln(1/K) is negative and not used.

    Parameters
    ----------
    c
        Multiplies both terms.
    printed
        Whether it multiplies the first alone.
    """

    def radii(m: Moment) -> Array:
        scaled = m.ridge.Lambda / m.bounds.lambda_min[:, None, None, None]
        volume = np.maximum(np.linalg.slogdet(scaled)[1].sum(-1), 0.0)
        second = m.tops * np.sqrt(2 * math.log(1 / _FAILURE) + volume)
        return c * math.sqrt(m.unknowns) + (1.0 if printed else c) * second

    return radii


def linopt(c: float) -> Radii:
    """beta_p of paper 000, Lemma 3.1: (H/2) sqrt(2 ln(H/alpha) + d_1 ln(1 + K H^2/l_min)) + sqrt(d_1 l_max) + nu.

    H bounds a response, and so a row: unit rows have 1 in its place.

    Parameters
    ----------
    c
        Multiplies the radius; 1 is the lemma's.
    """

    def radii(m: Moment) -> Array:
        b, steps = m.bounds, len(m.tops) + 1
        inside = 2 * math.log(steps / _FAILURE) + m.unknowns * np.log1p(m.episodes * m.reach**2 / b.lambda_min)
        return c * (m.reach / 2 * np.sqrt(inside) + np.sqrt(m.unknowns * b.lambda_max) + b.nu)

    return radii


def linopt_rewards(c: float) -> Radii:
    """beta_r of paper 000, Lemma 3.1, with r in reward units: the first two terms times its largest value.

    Parameters
    ----------
    c
        Multiplies the radius; 1 is the lemma's.
    """

    def radii(m: Moment) -> Array:
        b, steps = m.bounds, len(m.tops)
        inside = 2 * math.log(steps / _FAILURE) + m.unknowns * np.log1p(m.episodes / (m.unknowns * b.lambda_min))
        return c * (m.tops * (np.sqrt(inside) / 2 + np.sqrt(m.unknowns * b.lambda_max)) + b.nu)

    return radii


def ldp(c: float) -> Radii:
    """C d_1^(3/4) (H-h+1)^(3/2) k^(1/4): the form that paper 001 tunes in its section 6."""

    def radii(m: Moment) -> Array:
        return c * m.unknowns**0.75 * m.tops**1.5 * m.episode**0.25

    return radii


def ldp_theory(epsilon: float, delta: float, c: float = 1.0) -> Radii:
    """Paper 001's theorem: :func:`ldp` times ln(d T / alpha) (ln((H-h+1)/delta))^(1/4) / sqrt(eps).

    On unit rows 1 bounds a response in the place of H-h+1.  T = K H; the last logarithm counts steps, not rewards.

    Parameters
    ----------
    epsilon, delta
        Of one person's message.
    c
        Multiplies the radius; 1 is the theorem's.
    """

    def radii(m: Moment) -> Array:
        H = len(m.tops) + 1
        left = np.arange(H, 1, -1)
        extra = math.log(m.unknowns * m.episodes * H / _FAILURE) * np.log(left / delta) ** 0.25
        return c * m.unknowns**0.75 * m.reach**1.5 * m.episode**0.25 * extra / math.sqrt(epsilon)

    return radii
