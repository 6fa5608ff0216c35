"""Counts that a planner without the paper's constants plans on: projected, and shared by all steps that agree.

Post-processing of a release, with no theorem of its own.  Two ideas, each measured:

* the *nearest* tables with entries >= 0 and plausible totals (:func:`pipeline.statistics.consistency.project`) in the
  place of paper 003's programme, which keeps most of the noise in empty cells;
* *one* table for all steps where the released counts show no drift: H times the visits for sqrt(H) times the noise.

Whether steps agree is decided on released counts by an estimate of tau^2, the mean squared distance
``||P_h(.|s,a) - P(.|s,a)||^2`` of a step's kernel from that of all steps, weighted by squared visits.  Steps are shared
where tau^2 is within three standard errors of 0, and its upper end (two) would cost less than the noise that sharing
takes away.  The estimate is right to second order in the noise; where visits hardly exceed it, it is low by some 0.001.

Private counts for a planner, made consistent; post-processing of a release.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.privacy.release import Release
from pipeline.statistics.consistency import (
    ConsistencyCertificate,
    certify,
    certify_projection,
    consistent_counts,
    project,
)
from pipeline.statistics.count_layout import reward_lattice

Array = NDArray[np.float64]
Slack = Literal["zero", "paper"]


@dataclass(frozen=True)
class PrivateCounts:
    """Consistent noisy counts for a planner.

    ``n_sa``, ``n_sas`` ``(G, L, A)``: and ``(G, L, A, S)``, with ``n_sa = sum n_sas`` exactly.
    ``r_sa`` ``(G, L, A)``: summed reward above ``reward_offset`` a visit, in reward units; None where rewards are
    declared.
    ``reward_offset``: reward at which a summed integer is 0, reward units.
    ``n_0`` ``(L,)``: first states, >= 0, and the standard deviation of its noise an entry.
    ``error``: E, a bound on twice the noise of every count together (003 Lemma C.2); 0 without noise.
    ``release``: the noisy integers that all this was made of.
    """

    n_sa: Array
    n_sas: Array
    r_sa: Array | None
    reward_offset: float
    n_0: Array
    error: float
    slack: float
    sd_sas: float
    sd_sa: float
    sd_r: float
    sd_0: float
    visits_summed: bool
    release: Release


def noisy_tables(release: Release) -> tuple[Array, Array]:
    """n'_sa ``(G, L, A)`` and n'_sas ``(G, L, A, S)``, clipped at 0: the data of the consistency programme (003 eq. 2).

    With one table, n'_sa is the clipped *sum* of the unclipped noisy entries, which is unbiased before the clip.
    """
    n_sas = release.tables["n_sas"].astype(np.float64)
    n_sa = release.tables["n_sa"].astype(np.float64) if "n_sa" in release.tables else n_sas.sum(-1)
    return np.maximum(n_sa, 0.0), np.maximum(n_sas, 0.0, out=n_sas)


def count_error(release: Release, failure: float) -> float:
    """E: twice a bound on the noise of every visit and transition count together, with probability 1 - ``failure``.

    Source: 003 Lemma C.2 with the scales actually drawn; the union is over the released cells (design §5.4).
    """
    by_table = {m.table: m for m in release.mechanisms}
    cells, ends = 2 * by_table["n_sas"].cells, by_table["n_sas"].shape[-1]
    halves: list[float] = []
    for name in ("n_sas", "n_sa"):
        m = by_table.get(name, by_table["n_sas"])
        # a visit count made by summation carries the noise of all its successors
        summed = name == "n_sa" and "n_sa" not in by_table
        if m.variance is not None:
            halves.append(noise_bound(m.standard_deviation * (ends**0.5 if summed else 1), cells, failure))
        elif m.scale is not None:
            halves.append(laplace_bound(m.scale, cells, failure) * (ends if summed else 1))
    return 2 * max(halves, default=0.0)


def noise_bound(sigma: float, cells: int, failure: float) -> float:
    """Half of E: a bound on ``cells`` Gaussian draws, ``sigma sqrt(2 log(2 cells / failure))`` (003 Lemma C.2).

    With ``cells = 2 H S^2 A`` and ``sigma^2 = 2H/rho``, twice this is E_rho = 4 sqrt(H log(4HS^2A/delta)/rho).
    """
    return sigma * math.sqrt(2 * math.log(2 * cells / failure))


def laplace_bound(scale: Fraction, cells: int, failure: float) -> float:
    """Half of E for ``cells`` Laplace draws together: ``scale log(cells / failure)``."""
    return float(scale) * math.log(cells / failure)


def private_counts(release: Release, card: Card, *, slack: Slack = "zero", failure: float = 0.1) -> PrivateCounts:
    """Post-process a release into consistent counts: free, because it reads nothing but noisy integers.

    ``card``: declares the lattice of rewards.
    ``slack``: ``paper``: |sum - n'_sa| <= E/2 as 003 (3); ``zero``: the sum is exactly n'_sa (findings/offline.md
    §5.2).
    """
    sd = {m.table: m.standard_deviation for m in release.mechanisms}
    lattice = reward_lattice(card)
    error = count_error(release, failure)
    n_sa, n_sas = noisy_tables(release)
    width = error / 2 if slack == "paper" and "n_sa" in release.tables else 0.0
    x = consistent_counts(n_sa, n_sas, width)
    summed = "n_sa" not in release.tables
    sd_sa = sd["n_sas"] * n_sas.shape[-1] ** 0.5 if summed else sd["n_sa"]
    if "n_0" in release.tables:
        n_0, sd_0 = np.maximum(release.tables["n_0"].astype(np.float64), 0.0), sd["n_0"]
    else:
        raw = release.tables["n_sas" if summed else "n_sa"][0].astype(np.float64)
        n_0 = np.maximum(raw.reshape(raw.shape[0], -1).sum(-1), 0.0)
        sd_0 = sd_sa * raw.shape[1] ** 0.5
    return PrivateCounts(
        n_sa=x.sum(-1),
        n_sas=x,
        r_sa=release.tables["r_sa"].astype(np.float64) * lattice.unit if "r_sa" in release.tables else None,
        reward_offset=lattice.offset,
        n_0=n_0,
        error=error,
        slack=width,
        sd_sas=sd["n_sas"],
        sd_sa=sd_sa,
        sd_r=sd.get("r_sa", 0.0) * lattice.unit,
        sd_0=sd_0,
        visits_summed=summed,
        release=release,
    )


@dataclass(frozen=True)
class StepDifference:
    """Estimated squared distance between a step's law and that of all steps, and its standard error.

    ``square``: tau^2, in squared probabilities; centred on the truth, so it may be negative.
    ``error``: its standard error without drift; infinite where the visits are lost in noise.
    """

    square: float
    error: float

    @property
    def unseen(self) -> bool:
        """True where no drift between steps was found."""
        return self.square <= 3 * self.error

    @property
    def upper(self) -> float:
        """Upper end, two standard errors up."""
        return max(self.square, 0.0) + 2 * self.error


@dataclass(frozen=True)
class Prepared:
    """Counts to plan on, with the steps of their preparation.

    ``drift``: None where it was not estimated: ``paper`` and ``tail``, one table already, or a single step.
    """

    counts: PrivateCounts
    certify: Callable[[], ConsistencyCertificate]
    drift: StepDifference | None = None
    shared: bool = False


def slack_of(preset: str) -> Slack:
    """The paper's theorem needs the slack E/2 of (3); every other preset makes the sum exact."""
    return "paper" if preset == "paper" else "zero"


def prepare(counts: PrivateCounts, card: Card, preset: str, *, share: bool = True) -> Prepared:
    """Consistent counts for a planner with the constants of a preset.

    ``preset``: ``paper`` and ``tail``: paper 003's programme, cell by cell; ``practical``: see the head of this module.
    """
    if preset != "practical":
        return Prepared(counts, partial(certify, *noisy_tables(counts.release), counts.slack, counts.n_sas))
    raw = fit_visits(counts)
    drift = None if len(raw) == 1 or not share else step_drift(raw, counts.sd_sas**2)
    shared = (
        drift is not None
        and _sharing_pays(raw, counts.sd_sas**2, drift)
        and _rewards_agree(raw, counts, *card.reward.range)
    )
    return _projected(counts, raw, drift, shared=shared)


def _projected(counts: PrivateCounts, raw: Array, drift: StepDifference | None, *, shared: bool) -> Prepared:
    totals, rewards, steps = step_totals(raw), counts.r_sa, 1
    if shared:
        steps = len(raw)
        raw, totals = raw.sum(0, keepdims=True), totals.sum(keepdims=True)
        rewards = None if rewards is None else rewards.sum(0, keepdims=True)
    x = project(raw, totals)
    sd = counts.sd_sas * math.sqrt(steps)
    # a visit count carries the noise of those successors that were not set to 0
    left = max(float((x > 0).sum(-1).mean()), 1.0)
    made = replace(
        counts,
        n_sas=x,
        n_sa=x.sum(-1),
        r_sa=rewards,
        sd_sas=sd,
        sd_sa=sd * math.sqrt(left),
        sd_r=counts.sd_r * math.sqrt(steps),
        visits_summed=True,
    )
    return Prepared(made, partial(certify_projection, raw, totals, x), drift, shared)


def fit_visits(counts: PrivateCounts) -> Array:
    """Unclipped transitions ``(G, L, A, S)``; a second table of visits is fitted into them by least squares."""
    release = counts.release
    raw = release.tables["n_sas"].astype(np.float64)
    if counts.visits_summed or counts.sd_sas == 0:
        return raw
    S = raw.shape[-1]
    summed, own = S * counts.sd_sas**2, counts.sd_sa**2
    apart = release.tables["n_sa"].astype(np.float64) - raw.sum(-1)
    return raw + (apart * summed / (summed + own) / S)[..., None]


def step_totals(raw: Array) -> Array:
    """Visits of each step ``(G,)``: the noisy totals, made non-increasing by least squares, and at least 1.

    Episodes end and do not begin again, so that later steps have no more visits.

    ``raw`` ``(G, ...)``: noisy counts.
    """
    return np.maximum(non_increasing(raw.reshape(len(raw), -1).sum(1)), 1.0)


def non_increasing(x: Array) -> Array:
    """The nearest non-increasing sequence by least squares: neighbours that rise are pooled (PAVA).

    To the last bit that of ``scipy.optimize.isotonic_regression``, whose import takes longer than a plan.

    ``x`` ``(n,)``: n >= 1.
    """
    # from the end, where the sequence must rise: sum, length and mean of each block
    blocks: list[tuple[float, int, float]] = []
    waiting = [float(v) for v in x]
    while waiting:
        total, length = waiting.pop(), 1
        mean = total
        if blocks and blocks[-1][2] >= mean:
            _, of, before = blocks.pop()
            total, length = of * before + total, of + length
            mean = total / length
            while waiting and mean >= waiting[-1]:
                total, length = total + waiting.pop(), length + 1
                mean = total / length
            while blocks and blocks[-1][2] >= mean:
                _, of, before = blocks.pop()
                total, length = total + of * before, length + of
                mean = total / length
        blocks.append((total, length, mean))
    return np.array([mean for _, length, mean in reversed(blocks) for _ in range(length)])


def step_drift(raw: Array, variance: float) -> StepDifference:
    """Distance of the kernels of single steps from that of all steps.

    Over cells (s, a) whose visits of all steps exceed four standard deviations: the excess of
    ``sum_h ||n_h - N_h P||^2`` over sampling and noise, divided by the squared visits.

    ``raw`` ``(H, L, A, S)``: unclipped noisy transitions.
    """
    H, S = raw.shape[0], raw.shape[-1]
    N = raw.sum(-1)
    T = N.sum(0)
    use = 4 * math.sqrt(variance * S * H) < T
    safe = np.where(use, np.maximum(T, 1.0), 1.0)
    P = raw.sum(0) / safe[..., None]
    noisy_square = (P * P).sum(-1)
    square = np.clip(noisy_square - H * variance * (S - 1) / safe**2, 0.0, 1.0)
    residual = ((raw - N[..., None] * P) ** 2).sum(-1)
    share = N / safe
    noise = variance * (S + S * noisy_square - 2) * (1 - 2 * share + H * share * share)
    excess = np.where(use, residual - N * (1 - square) * (1 - share) - noise, 0.0).sum()
    sampling = np.maximum(N, 0.0) * (1 - square)
    spread = np.where(use, 2 * S * (variance + sampling / S) ** 2 + 2 * sampling**2 * square, 0.0).sum()
    weight = float(np.where(use, (1 - share) * (N * N - variance * S), 0.0).sum())
    if weight <= 0:
        return StepDifference(0.0, math.inf)
    return StepDifference(float(excess) / weight, math.sqrt(float(spread)) / weight)


def _sharing_pays(raw: Array, variance: float, drift: StepDifference) -> bool:
    """True where all steps' estimate, at the upper end of the drift, is nearer the truth than each step's own."""
    if not (drift.unseen and math.isfinite(drift.upper)):
        return False
    H, S = raw.shape[0], raw.shape[-1]
    own = np.maximum(raw.sum(-1), 0.0)
    total = np.maximum(raw.sum((0, -1)), 1.0)
    P = raw.sum(0) / total[..., None]
    square = np.clip((P * P).sum(-1) - H * variance * (S - 1) / total**2, 1 / S, 1.0)

    def squared_error(visits: Array, noise: float) -> Array:
        # noise counts in as many successors as there seem to be
        return np.minimum((visits * (1 - square) + noise / square) / np.maximum(visits, 1.0) ** 2, 1.0)

    together = np.minimum(squared_error(total, H * variance) + drift.upper, 1.0)
    return float((own * together).sum()) < float((own * squared_error(own, variance)).sum())


def _rewards_agree(raw: Array, counts: PrivateCounts, low: float, high: float) -> bool:
    """True where estimated rewards show no drift either; declared ones need not be shared."""
    if counts.r_sa is None:
        return True
    H, N = raw.shape[0], raw.sum(-1)
    T, sums = N.sum(0), counts.r_sa.sum(0)
    use = 4 * math.sqrt(H) * counts.sd_sa < T
    safe = np.where(use, np.maximum(T, 1.0), 1.0)
    mean = sums / safe
    residual = counts.r_sa - N * mean
    share = N / safe
    # a reward in [low, high] with mean r varies by at most (r - low)(high - r) a visit
    at = np.clip(mean + counts.reward_offset, low, high)
    most = (at - low) * (high - at)
    noise = (counts.sd_r**2 + (counts.sd_sa * mean) ** 2) * (1 - 2 * share + H * share * share)
    expected = np.maximum(N, 0.0) * most * (1 - share) + noise
    excess = np.where(use, residual**2 - expected, 0.0)
    spread = np.where(use, 2 * expected**2, 0.0).sum()
    return float(excess.sum()) <= 3 * math.sqrt(float(spread))
