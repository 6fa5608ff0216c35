"""A distinguishing attack on a shipped mechanism, and what it proves (privacy.md §12.5).

Two datasets that differ in one person are pushed through the release path many times.  A score fixed beforehand, the
likelihood ratio of the claimed noise, guesses from the output alone which one it was.  How often the guess is right and
wrong is bounded by Clopper and Pearson, and the two bounds give a loss that is really there, with the stated
confidence.  A mechanism whose loss is larger than its claim is caught once there are enough draws; one that is as
private as it says comes close to its claim from below.

Which loss follows from the two error rates depends on the shape of the noise, and the shape is part of the claim:
Gaussian (``mu = z(TPR) - z(FPR)``, rho = mu^2 / 2), Laplace (the likelihood ratio of n coordinates), or any: the
black-box bound ``TPR <= e^epsilon FPR + delta``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from pipeline.privacy.noise import NoiseSource

Array = NDArray[np.float64]
Trust = Literal["central", "joint", "local", "shuffle"]
Side = Literal[0, 1]
DRAWS = 20_000
# one error rate each: the verdict holds with twice this much doubt
DOUBT = 1e-4
_GRID = np.linspace(0.02, 0.98, 49)


class ReleasePath(Protocol):
    """The shipped code from one of two neighbours to what it publishes."""

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        """Independent releases: each table ``(copies, *shape)``."""
        ...


@dataclass(frozen=True)
class Attack:
    """One mechanism under attack.

    Parameters
    ----------
    means
        What the path publishes of each side where no noise is drawn: one list of tables a side.
    variances
        Of the claimed noise, a table each, entry by entry (Laplace: ``2 scale^2``); where infinite nothing is read.
    scale
        Of claimed Laplace noise, a table each; None: Gaussian.
    claimed_rho, claimed_epsilon
        The claim under the relation "replace one person": zCDP, or pure epsilon.
    """

    mechanism: str
    trust: Trust
    path: ReleasePath
    means: tuple[list[Array], list[Array]]
    variances: list[Array]
    claimed_rho: Fraction
    claimed_epsilon: Fraction | None = None
    scale: tuple[float, ...] | None = None

    def scores(self, side: Side, noise: NoiseSource, copies: int) -> Array:
        """Log-likelihood ratio of side 0 to side 1 under the claimed noise ``(copies,)``; guess 0 where positive."""
        total = np.zeros(copies)
        for i, table in enumerate(self.path(side, noise, copies)):
            zero, one = self.means[0][i], self.means[1][i]
            axes = tuple(range(1, table.ndim))
            if self.scale is None:
                weight = (zero - one) / self.variances[i]
                total += (weight * (table - (zero + one) / 2)).sum(axes)
            else:
                total += ((np.abs(table - one) - np.abs(table - zero)) / self.scale[i]).sum(axes)
        return total


@dataclass(frozen=True)
class Verdict:
    """What an attack proves; rates are point estimates, ``curve`` their trade-off ``(FPR, TPR)`` over thresholds."""

    mechanism: str
    trust: Trust
    claimed_rho: float
    lower_bound_rho: float
    claimed_epsilon: float | None
    lower_bound_epsilon: float | None
    confidence: float
    draws: int
    true_positives: float
    false_positives: float
    curve: list[tuple[float, float]]

    @property
    def violates(self) -> bool:
        """Whether the mechanism provably loses more than it claims."""
        if self.claimed_epsilon is not None and self.lower_bound_epsilon is not None:
            return self.lower_bound_epsilon > self.claimed_epsilon
        return self.lower_bound_rho > self.claimed_rho

    @property
    def ratio(self) -> float:
        """Lower bound over claim."""
        if self.claimed_epsilon is not None and self.lower_bound_epsilon is not None:
            return self.lower_bound_epsilon / self.claimed_epsilon
        return self.lower_bound_rho / self.claimed_rho


def attacked(
    attack: Attack,
    noise: NoiseSource,
    draws: int = DRAWS,
    doubt: float = DOUBT,
    progress: Callable[[int, int | None], None] | None = None,
    batch: int = 1000,
) -> Verdict:
    """Draw ``draws`` releases of each side and bound the loss from below.

    Parameters
    ----------
    noise
        The source that a deployment draws from.
    doubt
        Error probability of each of the two rates.
    """
    found: tuple[list[Array], list[Array]] = ([], [])
    for first in range(0, draws, batch):
        copies = min(batch, draws - first)
        found[0].append(attack.scores(0, noise, copies))
        found[1].append(attack.scores(1, noise, copies))
        if progress is not None:
            progress(first + copies, draws)
    zero, one = np.concatenate(found[0]), np.concatenate(found[1])
    hit, slip = int((zero > 0).sum()), int((one > 0).sum())
    tpr, fpr = lower_rate(hit, draws, doubt), upper_rate(slip, draws, doubt)
    rho = gaussian_rho(tpr, fpr)
    epsilon = None
    if attack.claimed_epsilon is not None and attack.scale is not None:
        epsilon = laplace_epsilon(tpr, fpr, loss_steps(attack))
        rho = epsilon**2 / 2
    return Verdict(
        mechanism=attack.mechanism,
        trust=attack.trust,
        claimed_rho=float(attack.claimed_rho),
        lower_bound_rho=rho,
        claimed_epsilon=None if attack.claimed_epsilon is None else float(attack.claimed_epsilon),
        lower_bound_epsilon=epsilon,
        confidence=1 - 2 * doubt,
        draws=draws,
        true_positives=hit / draws,
        false_positives=slip / draws,
        curve=trade_off(zero, one),
    )


def lower_rate(hits: int, draws: int, doubt: float) -> float:
    """Clopper-Pearson lower end of a rate."""
    return float(stats.beta.ppf(doubt, hits, draws - hits + 1)) if hits else 0.0


def upper_rate(hits: int, draws: int, doubt: float) -> float:
    """Clopper-Pearson upper end of a rate."""
    return float(stats.beta.ppf(1 - doubt, hits + 1, draws - hits)) if hits < draws else 1.0


def gaussian_rho(tpr: float, fpr: float) -> float:
    """Loss of Gaussian noise that is told apart this well: mu^2 / 2, mu = z(TPR) - z(FPR); 0 where it is not."""
    if not 0 < fpr < tpr < 1:
        return 0.0
    return float(stats.norm.ppf(tpr) - stats.norm.ppf(fpr)) ** 2 / 2


def black_box_epsilon(tpr: float, fpr: float, delta: float = 0.0) -> float:
    """Loss of any mechanism: the least epsilon with TPR <= e^epsilon FPR + delta."""
    return math.log((tpr - delta) / fpr) if tpr - delta > fpr > 0 else 0.0


def loss_steps(attack: Attack) -> Array:
    """Largest loss of each coordinate of a Laplace path, ``|difference| / scale``; zeros left out."""
    parts = [
        np.abs(zero - one).ravel() / scale for zero, one, scale in zip(*attack.means, attack.scale or (), strict=True)
    ]
    steps = np.concatenate(parts)
    return steps[steps > 0]


def laplace_epsilon(tpr: float, fpr: float, steps: Array) -> float:
    """Pure loss of Laplace noise on coordinates of losses proportional to ``steps`` that is told apart this well.

    The chance of a right guess is inverted on the multiple t of ``steps``; the black-box bound where that is larger.
    """
    right, low, high = (tpr - fpr + 1) / 2, 0.0, 8.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if laplace_success(middle * steps) < right else (low, middle)
    return max(low * float(steps.sum()) if right > 0.5 else 0.0, black_box_epsilon(tpr, fpr))


def laplace_success(steps: Array) -> float:
    """P(log-likelihood ratio > 0) + half of P(= 0) under side 0, for independent coordinates of these losses.

    One coordinate of loss a: the ratio is a with probability 1/2, -a with e^-a / 2, and has density
    ``e^((x - a)/2) / 4`` between.  The sum's law is convolved on a grid of 2^12 cells over the largest coordinate.
    """
    if not steps.any():
        return 0.5
    cell = float(steps.max()) / 256
    law = np.ones(1)
    for a in steps:
        n = max(1, round(a / cell))
        edges = np.linspace(-a, a, 2 * n + 1)
        inside = np.diff(np.exp((edges - a) / 2)) / 2
        # each cell's mass goes to its two ends, half and half: the mean loss stays within a cell
        one = np.zeros(2 * n + 1)
        one[:-1] += inside / 2
        one[1:] += inside / 2
        one[0], one[-1] = one[0] + math.exp(-a) / 2, one[-1] + 0.5
        law = np.convolve(law, one)
    middle = len(law) // 2
    return float(law[middle + 1 :].sum() + law[middle] / 2)


def trade_off(zero: Array, one: Array) -> list[tuple[float, float]]:
    """(FPR, TPR) of thresholds at the quantiles of side 1, from strict to lenient."""
    thresholds = np.quantile(one, 1 - _GRID)
    return [(float((one > t).mean()), float((zero > t).mean())) for t in thresholds]
