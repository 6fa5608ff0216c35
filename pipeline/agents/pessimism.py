"""Constants and confidence widths of pessimistic tabular planning: each function is one displayed formula.

Widths are *two-sided* estimates of |r~ + P~V - (r + PV)|: subtracted for lower values, added for upper ones.

Symbols: as in :mod:`pipeline.agents.apvi`; ``scale`` is the width of the per-step reward range (1 in paper 003).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.statistics.planning_counts import PrivateCounts

Array = NDArray[np.float64]
Preset = Literal["paper", "tail", "practical"]
Penalty = Literal["bernstein", "hoeffding"]
# of the empirical Bernstein bound: Maurer and Pontil 2009, Theorem 4
LOWER_ORDER = 7 / 3


@dataclass(frozen=True)
class Constants:
    """Constants of one preset (findings/offline.md §3.2).

    ``C1``, ``C2``, ``C``: paper 003, Algorithm 1: of the sampling term, of the privacy term, and of a cell that was not
    seen.
    ``preset``: ``paper``: as printed, the only one with the theorem.  ``tail``: the sampling term as printed, with the
    term of order 1/n of the empirical Bernstein bound (Maurer and Pontil 2009, Theorem 4) beside it, and the privacy
    term ``C2 * sd / n`` with ``C2 = sqrt(2 iota)``, the Gaussian tail of the noise actually drawn.  ``practical``: both
    some standard deviations wide whatever S, A and H (half of one for a policy, a few for bounds; tuned on seeds apart
    from reported ones), and a cell counts from two standard deviations of its noise on; no theorem.  A policy
    recommends only in :func:`pipeline.agents.support.supported` cells.
    ``delta``: failure probability of the widths.
    ``iota``: ι = log(HSA/δ) of the sampling term (Algorithm 1, line 2); 1 for ``practical``.
    """

    preset: Preset
    C1: float
    C2: float
    C: float
    iota: float
    delta: float

    def source(self) -> dict[str, str]:
        """Source of each constant."""
        ours = "chosen by us"
        return {
            "C1": ours if self.preset == "practical" else "paper",
            "C2": {"paper": "paper", "tail": "sqrt(2 iota): the exact Gaussian tail", "practical": ours}[self.preset],
            "C": "chosen by us (the paper asks for any C > 1)",
            "iota": ours if self.preset == "practical" else "paper",
        }


def constants(
    preset: Preset,
    cells: int,
    delta: float = 0.1,
    *,
    pooled: bool = False,
    policy: Literal["declared", "aggregated"] | None = None,
) -> Constants:
    """Constants of a preset.

    ``cells``: H·S·A, the union in iota = log(HSA/delta) (003 Algorithm 1, line 2).
    ``policy``: the card's ``markov`` for constants that choose a policy; None: they bound values.  Over states
    that are declared Markov, more pessimism than half a standard deviation costs more data than it saves.  Over
    aggregated ones it also covers the state that the bins hide, whose error exceeds sampling and noise
    (docs/lab/planning.md).
    ``delta``: failure probability of the widths.
    """
    iota = math.log(cells / delta)
    if preset == "paper":
        return Constants(preset, math.sqrt(2), 16.0, 2.0, iota, delta)
    if preset == "tail":
        return Constants(preset, math.sqrt(2), math.sqrt(2 * iota), 2.0, iota, delta)
    wide = (12.0 if policy else 8.0, 8.0 if policy else 5.0) if pooled else (5.0, 3.0)
    C1, C2 = (0.5, 0.5) if policy == "declared" else wide
    return Constants(preset, C1, C2, 2.0, 1.0, delta)


def evidence_threshold(counts: PrivateCounts, c: Constants) -> float:
    """Visits at or below which a cell counts as empty: E (003 eq. 5), or two standard deviations for ``practical``."""
    return 2 * counts.sd_sa if c.preset == "practical" else counts.error


def transition_estimate(counts: PrivateCounts, threshold: float) -> Array:
    """P~ ``(G, L, A, S)``: n~_sas / n~_sa where n~_sa > threshold, else uniform (003 eq. 5)."""
    seen = counts.n_sa > threshold
    P = counts.n_sas / np.where(seen, counts.n_sa, 1.0)[..., None]
    P[~seen] = 1.0 / P.shape[-1]
    return P


def reward_estimate(counts: PrivateCounts, threshold: float, low: float, high: float) -> Array:
    """r~ ``(G, L, A)``: offset + r~_sa / n~_sa, clipped to the declared range; mid-range where nothing was seen."""
    if counts.r_sa is None:
        raise ValueError("this release has no reward table: pass the declared rewards")
    seen = counts.n_sa > threshold
    mean = counts.reward_offset + counts.r_sa / np.where(seen, counts.n_sa, 1.0)
    return np.where(seen, np.clip(mean, low, high), (low + high) / 2)


def first_and_second(V: Array) -> Array:
    """``(S, 2)``: V and its square about its mean over S, so that where V hardly varies no digits cancel."""
    return np.stack([V, (V - V.mean()) ** 2], axis=1)


def privacy_deviation(counts: PrivateCounts, mean: Array, r: Array | None, V: Array) -> Array:
    """Standard deviation ``(n,)`` of n~ times the error that the noise alone puts into r~ + P~V of n cells.

    To first order n~ (r~ + P~V - r - PV) = xi_r + sum_s' xi_s' (V(s') - PV) - (r - offset) eta, where eta is the noise
    of n~_sa: sum_s' xi_s' when visits are summed from one table, a draw of its own otherwise.

    ``mean``, ``r`` ``(n,)``: P~V and estimated rewards; None where rewards are declared.
    ``V``: ``(S,)``.
    """
    S, centre = V.shape[0], V.mean()
    above = np.zeros_like(mean) if r is None else r - counts.reward_offset
    shift = mean + above if counts.visits_summed else mean
    # || V - shift ||^2 over all S successors, for each (s, a)
    spread = ((V - centre) ** 2).sum() + S * (shift - centre) ** 2
    own = 0.0 if counts.visits_summed else (counts.sd_sa * above) ** 2
    return np.sqrt(counts.sd_sas**2 * spread + own + (0.0 if r is None else counts.sd_r**2))


def width(
    counts: PrivateCounts,
    n: Array,
    moments: Array,
    V: Array,
    c: Constants,
    *,
    reward: Array | None,
    bounds: tuple[float, float],
    reach: float,
    penalty: Penalty = "bernstein",
) -> Array:
    """Gamma_h ``(n,)`` of n cells (003 Algorithm 1, line 5), with the reward's own uncertainty where it is estimated.

    ``n`` ``(n,)``: visits.
    ``moments``, ``V`` ``(n, 2)``: estimates of :func:`first_and_second` of the ``(S,)`` value of the next state.
    ``reward`` ``(n,)``: estimated reward, or None where rewards are declared, as the paper has it.
    """
    low, high = bounds
    scale, E, mean = high - low, counts.error, moments[:, 0]
    threshold = evidence_threshold(counts, c)
    seen = n > threshold
    safe = np.where(seen, n, 1.0)
    effective = np.where(seen, n - (0.0 if c.preset == "practical" else E), 1.0)
    if penalty == "hoeffding":
        deviation = np.full(n.shape, reach)
    else:
        deviation = np.sqrt(np.maximum(moments[:, 1] - (mean - V.mean()) ** 2, 0.0))
        if reward is not None:
            # a reward in [low, high] with mean r has variance at most (r - low)(high - r)
            deviation = deviation + np.sqrt(np.maximum((reward - low) * (high - reward), 0.0))
    sampling = c.C1 * deviation * np.sqrt(c.iota / effective)
    if c.preset == "tail":
        # what was never seen has no empirical variance: the lower-order term of the empirical Bernstein bound
        span = float(V.max() - V.min()) + (0.0 if reward is None else scale)
        sampling = sampling + LOWER_ORDER * span * c.iota / effective
    if c.preset == "paper":
        private = c.C2 * counts.n_sas.shape[-1] * reach * E * c.iota / safe
        if reward is not None:
            # beyond the paper, which takes r as known: the reward table's noise at the paper's own confidence
            private = private + 2 * math.sqrt(2 * c.iota) * (counts.sd_r + scale * counts.sd_sa) / safe
    else:
        private = c.C2 * privacy_deviation(counts, mean, reward, V) / safe
    return np.where(seen, sampling + private, c.C * reach)


def start_distribution(counts: PrivateCounts, declared: Array | None) -> Array:
    """First-state distribution ``(L,)``: declared, or the released counts normalised (uniform where all are 0).

    ``counts``: private counts; ``n_0 (L,)`` is read where nothing is declared.
    ``declared`` ``(L,)``: probabilities, or None.
    """
    if declared is not None:
        return declared
    total = counts.n_0.sum()
    return counts.n_0 / total if total > 0 else np.full(counts.n_0.shape, 1 / counts.n_0.size)


def start_width(counts: PrivateCounts, V: Array, c: Constants) -> float:
    """Width of ``sum_s p~(s) V(s)`` for a *released* start: sampling term plus the Gaussian tail of n_0's noise.

    No preset of the paper covers it, because the paper never estimates the start; ``V (L,)`` in reward units.

    ``counts``: private counts with first states ``n_0``.
    ``c``: ``C1`` and ``iota`` of the sampling term.
    """
    p, total = start_distribution(counts, None), float(counts.n_0.sum())
    if total <= 2 * counts.sd_0:
        return float(V.max() - V.min())
    mean = float(p @ V)
    sampling = c.C1 * math.sqrt(max(float(p @ (V - mean) ** 2), 0.0) * c.iota / total)
    tail = math.sqrt(2 * c.iota) * counts.sd_0 * float(np.linalg.norm(V - mean)) / total
    return min(sampling + tail, float(V.max() - V.min()))
