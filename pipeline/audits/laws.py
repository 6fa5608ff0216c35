"""What two error rates prove of a mechanism whose noise has the claimed shape, and what the guesses of one run prove.

Which loss follows from how often an attacker is right depends on the shape of the noise, and the shape is part of the
claim; only the black-box bound ``TPR <= e^epsilon FPR + delta`` holds for any.

==================  ====================================  =========================================================
law                 score: log-likelihood ratio of        loss that two rates prove
==================  ====================================  =========================================================
:class:`Gaussian`   normal noise of these variances       rho = mu^2 / 2 with mu = z(TPR) - z(FPR)
:class:`Laplace`    Laplace noise of these scales         the multiple of the claim that is told apart this well
:class:`Binomial`   coins of a batch in its counters      epsilon at delta of as many coins as are told apart so well
==================  ====================================  =========================================================

One run (Steinke, Nasr and Jagielski 2023): many made-up people are each in or out by a coin, and the attacker guesses
those it is surest of; too many right guesses prove a loss.  It finds gross faults (no noise, raw counts in a file).
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pipeline.arrays import Array, Bools
from pipeline.privacy.shuffle import shuffle_delta, shuffle_epsilon

Means = tuple[list[Array], list[Array]]
# no fewer coins than this share of the claimed ones are looked for: noise that is a thousand times too small
_FEWEST = 1e-3
_MOST = 100.0


@dataclass(frozen=True)
class Bound:
    """What was proved: ``rho``, and ``epsilon`` where the claim is made in it; ``right`` and ``wrong`` are rates."""

    rho: float
    epsilon: float | None
    right: float
    wrong: float


@dataclass(frozen=True)
class Gaussian:
    """Variances of a table each, entry by entry; what is infinite is not read."""

    variances: list[Array]

    def score(self, tables: list[Array], means: Means) -> Array:
        """How much likelier side 0 is, ``(copies,)``, by ``tables`` that were released; a guess where positive."""
        total = np.zeros(len(tables[0]))
        for x, zero, one, variance in zip(tables, *means, self.variances, strict=True):
            weight = (zero - one) / variance
            total += (weight * (x - (zero + one) / 2)).sum(tuple(range(1, x.ndim)))
        return total

    def bound(self, zero: Array, one: Array, means: Means, doubt: float) -> Bound:
        """What the scores ``(draws,)`` of both sides prove; ``doubt`` is the error probability of each rate."""
        tpr, fpr, right, wrong = rates(zero > 0, one > 0, doubt)
        return Bound(gaussian_rho(tpr, fpr), None, right, wrong)

    def loss(self, means: Means) -> float:
        """Exact rho of the attacked pair."""
        return sum(float(((x - y) ** 2 / v).sum()) for x, y, v in zip(*means, self.variances, strict=True)) / 2


@dataclass(frozen=True)
class Laplace:
    """A scale each table."""

    scales: tuple[float, ...]

    def score(self, tables: list[Array], means: Means) -> Array:
        total = np.zeros(len(tables[0]))
        for x, zero, one, scale in zip(tables, *means, self.scales, strict=True):
            total += ((np.abs(x - one) - np.abs(x - zero)) / scale).sum(tuple(range(1, x.ndim)))
        return total

    def bound(self, zero: Array, one: Array, means: Means, doubt: float) -> Bound:
        tpr, fpr, right, wrong = rates(zero > 0, one > 0, doubt)
        epsilon = laplace_epsilon(tpr, fpr, self.steps(means))
        return Bound(epsilon**2 / 2, epsilon, right, wrong)

    def steps(self, means: Means) -> Array:
        """Largest loss of each coordinate, ``|difference| / scale``; zeros left out."""
        steps = np.concatenate([np.abs(x - y).ravel() / s for x, y, s in zip(*means, self.scales, strict=True)])
        return steps[steps > 0]

    def loss(self, means: Means) -> float:
        """Exact epsilon of the attacked pair."""
        return float(self.steps(means).sum())


@dataclass(frozen=True)
class Binomial:
    """``trials`` coins of chance ``q`` in each of ``changes`` counters, half of which a replaced user raises ``by``.

    The first table holds totals with their coins; a second one, where there is one, counts messages that are no bit.
    """

    trials: int
    q: float
    changes: int
    delta: float
    by: int = 1

    def score(self, tables: list[Array], means: Means) -> Array:
        """See :class:`Gaussian`; infinite where only one side can have sent what is seen."""
        x, (zero, one) = tables[0], (means[0][0], means[1][0])
        with np.errstate(divide="ignore", invalid="ignore"):
            # log of P(Q = x - by) / P(Q = x); a total out of reach of both sides says nothing
            up = sum(np.log(np.clip(x - i, 0, None) * (1 - self.q)) for i in range(self.by))
            down = sum(np.log(np.clip(self.trials - x + 1 + i, 0, None) * self.q) for i in range(self.by))
            says = (np.sign(zero - one) * (up - down)).sum(-1)
            total = np.nan_to_num(says, nan=0.0, posinf=math.inf, neginf=-math.inf)
        if len(tables) > 1:
            says = ((tables[1] > 0) * (zero - one)).sum(-1)
            total = np.where(says != 0, np.copysign(math.inf, says), total)
        return total

    def bound(self, zero: Array, one: Array, means: Means, doubt: float) -> Bound:
        """See :class:`Gaussian`; two guesses share the doubt: side 0 is likelier, and side 1 is impossible."""
        tpr, fpr, right, wrong = rates(zero > 0, one > 0, doubt / 2)
        sure, sure_wrong, *_ = rates(zero == math.inf, one == math.inf, doubt / 2)
        trials = self._as_well_told(tpr - fpr)
        found = 0.0 if trials is None else self.epsilon(trials)
        certain = black_box_epsilon(sure, sure_wrong, self.delta)
        rho = 0.0 if trials is None else self.loss(means) * self.trials / trials
        # where no epsilon will do at all
        return Bound(rho, min(max(found, certain), _MOST), right, wrong)

    def epsilon(self, trials: int) -> float:
        """Epsilon at ``delta`` of so many coins."""
        return shuffle_epsilon(trials, self.q, self.changes // 2, self.changes // 2, self.delta, self.by)

    def loss(self, means: Means) -> float:
        """Rho of normal noise of the same variance, on the attacked pair: no claim is made in it."""
        moved = float(((means[0][0] - means[1][0]) ** 2).sum())
        return moved / (2 * self.trials * self.q * (1 - self.q))

    def _as_well_told(self, variation: float) -> int | None:
        """Most coins whose two laws are this far apart in total variation; None: told apart by no more than chance.

        The best guess is right with probability (1 + variation) / 2, and delta at epsilon 0 is the total variation.
        """
        if variation <= 0:
            return None
        half = self.changes // 2
        low, high = max(1, int(self.trials * _FEWEST)), self.trials
        while shuffle_delta(high, self.q, half, half, 0.0, self.by) > variation:
            low, high = high, 2 * high
        while high - low > max(1, self.trials // 2000):
            middle = (low + high) // 2
            told = shuffle_delta(middle, self.q, half, half, 0.0, self.by) >= variation
            low, high = (middle, high) if told else (low, middle)
        return high


Law = Gaussian | Laplace | Binomial


def rates(right: Bools, wrong: Bools, doubt: float) -> tuple[float, float, float, float]:
    """Clopper-Pearson ends (lower of the first rate, upper of the second), and the rates themselves."""
    hit, slip, draws = int(right.sum()), int(wrong.sum()), len(right)
    return lower_rate(hit, draws, doubt), upper_rate(slip, draws, doubt), hit / draws, slip / draws


def lower_rate(hits: int, draws: int, doubt: float) -> float:
    """Clopper-Pearson lower end of a rate."""
    from scipy import stats

    return float(stats.beta.ppf(doubt, hits, draws - hits + 1)) if hits else 0.0


def upper_rate(hits: int, draws: int, doubt: float) -> float:
    """Clopper-Pearson upper end of a rate."""
    from scipy import stats

    return float(stats.beta.ppf(1 - doubt, hits + 1, draws - hits)) if hits < draws else 1.0


def gaussian_rho(tpr: float, fpr: float) -> float:
    """Loss of Gaussian noise that is told apart this well: mu^2 / 2, mu = z(TPR) - z(FPR); 0 where it is not."""
    from scipy import stats

    if not 0 < fpr < tpr < 1:
        return 0.0
    return float(stats.norm.ppf(tpr) - stats.norm.ppf(fpr)) ** 2 / 2


def black_box_epsilon(tpr: float, fpr: float, delta: float = 0.0) -> float:
    """Loss of any mechanism: the least epsilon with TPR <= e^epsilon FPR + delta."""
    return math.log((tpr - delta) / fpr) if tpr - delta > fpr > 0 else 0.0


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
    cell, law = float(steps.max()) / 256, np.ones(1)
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


@dataclass(frozen=True)
class OneRun:
    """What guesses prove of the loss between being in the data and being out of it (zero-out).

    ``lower_bound_epsilon``, ``claimed_epsilon``: at ``delta``: what is lost at least, with this ``confidence``, and
    what is claimed.
    """

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


def guess(scores: Array, coins: Bools, share: float) -> tuple[int, int]:
    """Number of guesses, and of right ones: the top ``share`` of scores is said to be in, as many at the bottom out.

    ``scores``, ``coins`` ``(n,)``: of each person: how present they look, and whether they are.
    """
    n, order = max(1, round(share * len(scores))), np.argsort(scores, kind="stable")
    return 2 * n, int(coins[order[-n:]].sum() + (~coins[order[:n]]).sum())


def lower_epsilon(canaries: int, guesses: int, right: int, delta: float, doubt: float) -> float:
    """Largest epsilon at ``delta`` that so many right guesses exclude, wrongly with probability ``doubt`` at most.

    Steinke, Nasr and Jagielski 2023, Theorem 5.2.
    """
    low, high = 0.0, 30.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _chance(canaries, guesses, right, middle, delta) < doubt else (low, middle)
    return low


def _chance(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Most that an (epsilon, delta) mechanism allows for at least ``right`` of ``guesses``."""
    from scipy import stats

    p = 1 / (1 + np.exp(-epsilon))
    tail = stats.binom.sf(right - 1 - np.arange(right + 1), guesses, p)
    slack = ((tail[1:] - tail[0]) / np.arange(1, right + 1)).max(initial=0.0)
    return float(tail[0] + 2 * canaries * delta * slack)
