"""A distinguishing attack on a shipped mechanism, and the lower bound on its loss (privacy.md §12.5).

Two datasets that differ in one person are pushed through the release path many times.  A score fixed beforehand, the
likelihood ratio of the claimed noise, guesses from the output alone which one it was.  The rates of right and wrong
guesses have Clopper-Pearson bounds, and these give a lower bound on the true loss, with the stated confidence.  A
mechanism whose loss is larger than its claim is caught once there are enough draws; one that keeps its claim comes
close to it from below.

The noise of an audit is drawn in large batches, or left out, or compared with the variances that a release lists.

The loss that follows from two error rates depends on the shape of the noise, and the shape is part of the claim; only
the black-box bound ``TPR <= e^epsilon FPR + delta`` holds for any.

==================  ====================================  =========================================================
law                 score: log-likelihood ratio of        loss that two rates prove
==================  ====================================  =========================================================
:class:`Gaussian`   normal noise of these variances       rho = mu^2 / 2 with mu = z(TPR) - z(FPR)
:class:`Laplace`    Laplace noise of these scales         the multiple of the claim that gives these rates
:class:`Binomial`   coins of a batch in its counters      epsilon at delta of the number of coins that gives them
==================  ====================================  =========================================================

One run (Steinke, Nasr and Jagielski 2023): many made-up people are each in or out by a coin, and the attacker guesses
those it is surest of; too many right guesses prove a loss.  It finds gross faults (no noise, raw counts in a file).
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from pipeline.arrays import Array, Bools, Integers
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import DataHandle, NoiseSource, RelayedNoise, SeededNoise, SimulatedWorld
from pipeline.privacy.release import Release
from pipeline.privacy.shuffle import shuffle_delta, shuffle_epsilon

Means = tuple[list[Array], list[Array]]
# least share of the claimed coins in the search: noise that is a thousand times too small
_FEWEST = 1e-3
_MOST = 100.0


@dataclass(frozen=True)
class Bound:
    """Lower bound on a loss: ``rho``, and ``epsilon`` where the claim is in it; ``right`` and ``wrong`` are rates."""

    rho: float
    epsilon: float | None
    right: float
    wrong: float


@dataclass(frozen=True)
class Gaussian:
    """Variances of each table, entry by entry; entries of infinite variance are not read."""

    variances: list[Array]

    def score(self, tables: list[Array], means: Means) -> Array:
        """Log-likelihood ratio of side 0 to side 1, ``(copies,)``, of released tables: side 0 where positive."""
        total = np.zeros(len(tables[0]))
        for x, zero, one, variance in zip(tables, *means, self.variances, strict=True):
            weight = (zero - one) / variance
            total += (weight * (x - (zero + one) / 2)).sum(tuple(range(1, x.ndim)))
        return total

    def bound(self, zero: Array, one: Array, means: Means, doubt: float) -> Bound:
        """Lower bound from the scores ``(draws,)`` of both sides; ``doubt`` is the error probability of each rate."""
        tpr, fpr, right, wrong = rates(zero > 0, one > 0, doubt)
        return Bound(gaussian_rho(tpr, fpr), None, right, wrong)

    def loss(self, means: Means) -> float:
        """Exact rho of the attacked pair."""
        return sum(float(((x - y) ** 2 / v).sum()) for x, y, v in zip(*means, self.variances, strict=True)) / 2


@dataclass(frozen=True)
class Laplace:
    """Scales of the tables."""

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

    The first table holds totals with their coins; a second one, where there is one, counts messages that are not bits.
    """

    trials: int
    q: float
    changes: int
    delta: float
    by: int = 1

    def score(self, tables: list[Array], means: Means) -> Array:
        """See :class:`Gaussian`; infinite where only one side can have sent the messages."""
        x, (zero, one) = tables[0], (means[0][0], means[1][0])
        with np.errstate(divide="ignore", invalid="ignore"):
            # log of P(Q = x - by) / P(Q = x); a total out of reach of both sides is no evidence
            up = sum(np.log(np.clip(x - i, 0, None) * (1 - self.q)) for i in range(self.by))
            down = sum(np.log(np.clip(self.trials - x + 1 + i, 0, None) * self.q) for i in range(self.by))
            evidence = (np.sign(zero - one) * (up - down)).sum(-1)
            total = np.nan_to_num(evidence, nan=0.0, posinf=math.inf, neginf=-math.inf)
        if len(tables) > 1:
            evidence = ((tables[1] > 0) * (zero - one)).sum(-1)
            total = np.where(evidence != 0, np.copysign(math.inf, evidence), total)
        return total

    def bound(self, zero: Array, one: Array, means: Means, doubt: float) -> Bound:
        """See :class:`Gaussian`; two guesses share the doubt: side 0 is likelier, and side 1 is impossible."""
        tpr, fpr, right, wrong = rates(zero > 0, one > 0, doubt / 2)
        certain_right, certain_wrong, *_ = rates(zero == math.inf, one == math.inf, doubt / 2)
        trials = self._coins_of(tpr - fpr)
        by_rates = 0.0 if trials is None else self.epsilon(trials)
        by_certainty = black_box_epsilon(certain_right, certain_wrong, self.delta)
        rho = 0.0 if trials is None else self.loss(means) * self.trials / trials
        # infinite where no epsilon explains the rates
        return Bound(rho, min(max(by_rates, by_certainty), _MOST), right, wrong)

    def epsilon(self, trials: int) -> float:
        """Epsilon at ``delta`` of so many coins."""
        return shuffle_epsilon(trials, self.q, self.changes // 2, self.changes // 2, self.delta, self.by)

    def loss(self, means: Means) -> float:
        """Rho of normal noise of the same variance, on the attacked pair: no claim is made in it."""
        moved = float(((means[0][0] - means[1][0]) ** 2).sum())
        return moved / (2 * self.trials * self.q * (1 - self.q))

    def _coins_of(self, variation: float) -> int | None:
        """Largest number of coins whose two laws have this total variation; None where it is 0.

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
            as_far = shuffle_delta(middle, self.q, half, half, 0.0, self.by) >= variation
            low, high = (middle, high) if as_far else (low, middle)
        return high


Law = Gaussian | Laplace | Binomial


def rates(right: Bools, wrong: Bools, doubt: float) -> tuple[float, float, float, float]:
    """Clopper-Pearson ends (lower of the first rate, upper of the second), and the rates themselves."""
    hits, slips, draws = int(right.sum()), int(wrong.sum()), len(right)
    return lower_rate(hits, draws, doubt), upper_rate(slips, draws, doubt), hits / draws, slips / draws


def lower_rate(hits: int, draws: int, doubt: float) -> float:
    """Clopper-Pearson lower end of a rate."""
    from scipy import stats

    return float(stats.beta.ppf(doubt, hits, draws - hits + 1)) if hits else 0.0


def upper_rate(hits: int, draws: int, doubt: float) -> float:
    """Clopper-Pearson upper end of a rate."""
    from scipy import stats

    return float(stats.beta.ppf(1 - doubt, hits + 1, draws - hits)) if hits < draws else 1.0


def gaussian_rho(tpr: float, fpr: float) -> float:
    """Loss of Gaussian noise from two rates: mu^2 / 2, mu = z(TPR) - z(FPR); 0 where TPR <= FPR."""
    from scipy import stats

    if not 0 < fpr < tpr < 1:
        return 0.0
    return float(stats.norm.ppf(tpr) - stats.norm.ppf(fpr)) ** 2 / 2


def black_box_epsilon(tpr: float, fpr: float, delta: float = 0.0) -> float:
    """Loss of any mechanism: the least epsilon with TPR <= e^epsilon FPR + delta."""
    return math.log((tpr - delta) / fpr) if tpr - delta > fpr > 0 else 0.0


def laplace_epsilon(tpr: float, fpr: float, steps: Array) -> float:
    """Pure loss of Laplace noise from two rates, on coordinates of losses proportional to ``steps``.

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
    """Result of the guesses of one run: a bound on the loss between being in the data and being out of it (zero-out).

    ``lower_bound_epsilon``, ``claimed_epsilon``: at ``delta``; the bound holds with this ``confidence``.
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
        """Whether the loss is larger than the claim."""
        return self.lower_bound_epsilon > self.claimed_epsilon

    @property
    def words(self) -> str:
        """One sentence for a page."""
        verdict = "MORE than" if self.violates else "within"
        return (
            f"Whole pipeline, {self.canaries:,} people, {self.right} of {self.guesses} guesses right: "
            f"ε ≥ {self.lower_bound_epsilon:.3g} proved, {verdict} the {self.claimed_epsilon:.3g} claimed (in or out)."
        )


def guess(scores: Array, coins: Bools, share: float) -> tuple[int, int]:
    """Number of guesses, and of right ones: the top ``share`` of scores is guessed in, as many at the bottom out.

    ``scores``, ``coins`` ``(n,)``: score of each person's presence, and whether they are present.
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
    """Largest probability of at least ``right`` of ``guesses`` under an (epsilon, delta) mechanism."""
    from scipy import stats

    p = 1 / (1 + np.exp(-epsilon))
    tail = stats.binom.sf(right - 1 - np.arange(right + 1), guesses, p)
    slack = ((tail[1:] - tail[0]) / np.arange(1, right + 1)).max(initial=0.0)
    return float(tail[0] + 2 * canaries * delta * slack)


# the handle of simulated data
WORLD = SimulatedWorld("audit")
# whole releases of each side that are compared with their listed variances
RELEASES = 200
# probability of a false alarm for a release that draws what it lists
FALSE_ALARM = 1e-9
# number of entries whose noise is compared pair by pair; of more entries a random sample
_COMPARED = 256
_DRAWN_AT_ONCE = 1 << 12


def fresh() -> SeededNoise:
    """Noise of simulations, seeded by the operating system: no call repeats another."""
    return SeededNoise(np.random.SeedSequence())


@dataclass
class Pooled(RelayedNoise):
    """A noise source that hands out another one's draws, each once: a call costs more than a draw."""

    _left: dict[tuple[str, int | Fraction], Integers] = field(default_factory=dict, init=False)

    def gaussian(self, size: int, variance: int, data: DataHandle) -> Integers:
        return self._take(("gaussian", variance), size, lambda n: self.source.gaussian(n, variance, data))

    def laplace(self, size: int, scale: Fraction, data: DataHandle) -> Integers:
        return self._take(("laplace", scale), size, lambda n: self.source.laplace(n, scale, data))

    def _take(self, key: tuple[str, int | Fraction], size: int, draw: Callable[[int], Integers]) -> Integers:
        left = self._left.get(key, np.zeros(0, dtype=np.int64))
        if len(left) < size:
            left = np.concatenate([left, draw(max(size, _DRAWN_AT_ONCE))])
        self._left[key] = left[size:]
        return left[:size]


@dataclass(frozen=True)
class Silence:
    """A source of zeros, for the exact tables of a path; synthetic data only, and never published."""

    name: str = "none"
    sampler: str = "none: an audit's expectation"

    def admit(self, data_kind: str) -> None:
        """See :class:`~pipeline.privacy.noise.NoiseSource`; made-up neighbours only."""
        if data_kind != "synthetic":
            raise ValueError("an audit reads no rows: its neighbours are made up")

    def gaussian(self, size: int, variance: int, data: DataHandle) -> Integers:
        self.admit(data.data_kind)
        return np.zeros(size, dtype=np.int64)

    def laplace(self, size: int, scale: Fraction, data: DataHandle) -> Integers:
        return self.gaussian(size, 1, data)

    def tv_bound(self, variance: int) -> Fraction:
        return Fraction(0)


@dataclass(frozen=True)
class Drawn:
    """Differences between drawn and listed noise: too little, too much, or shared between entries."""

    less: bool
    more: bool
    shared: bool


class Covariance:
    """Covariances of noise that was drawn in batches, entry by entry of all tables of a release.

    Of independent normal noise sqrt(n - 2) r / sqrt(1 - r^2) is t-distributed with n - 2 degrees of freedom, where r is
    the correlation over n releases.

    ``read`` ``(*shape)``: masks of the entries of each table that are read.
    """

    def __init__(self, read: list[Bools]) -> None:
        self._read, entries = read, sum(int(mask.sum()) for mask in read)
        self._chosen = np.random.default_rng().permutation(entries)[:_COMPARED]
        self._squares, self._sum = np.zeros((len(self._chosen),) * 2), np.zeros(len(self._chosen))
        self._copies = 0

    def add(self, noise: list[Array]) -> None:
        """Add the noise of releases: tables ``(copies, *shape)``."""
        flat = np.hstack([x[:, read] for x, read in zip(noise, self._read, strict=True)])[:, self._chosen]
        self._squares += flat.T @ flat
        self._sum += flat.sum(0)
        self._copies += len(flat)

    @property
    def shared(self) -> bool:
        """Whether entries are correlated or two releases alike; wrong with probability :data:`FALSE_ALARM`."""
        from scipy import stats

        covariance, free = self._squares - np.outer(self._sum, self._sum) / self._copies, self._copies - 2
        moving = np.diag(covariance) > 1e-9 * np.diag(self._squares)
        # noise that is the same in every release, and not 0
        if (np.diag(self._squares)[~moving] > 1e-9 * np.diag(self._squares).max(initial=0.0)).any():
            return True
        covariance = covariance[np.ix_(moving, moving)]
        spread = np.sqrt(np.diag(covariance))
        r = np.abs(covariance / np.outer(spread, spread))[np.triu_indices(len(spread), 1)]
        if not r.size or free < 1:
            return False
        t = float(stats.t.isf(FALSE_ALARM / (2 * r.size), free))
        return bool(r.max() > t / np.sqrt(free + t**2))


def hold_noise(noise: list[Array], variances: list[Array]) -> Drawn:
    """Compare drawn noise with its listed variances, and with independent noise of each entry.

    Squares over their variance are chi-squared with ``copies`` degrees of freedom, entry by entry and summed over a
    table.  The chance of a false alarm is shared by all these tests; :class:`Covariance` has one of its own.

    ``noise``: tables ``(copies, *shape)``.
    ``variances`` ``(*shape)``: each; entries of infinite variance are not read.
    """
    from scipy import stats

    tests: list[tuple[Array, int]] = []
    covariance = Covariance([np.isfinite(v) for v in variances])
    covariance.add(noise)
    for x, v in zip(noise, variances, strict=True):
        read = np.isfinite(v)
        squares = (x[:, read] ** 2 / v[read]).sum(0)
        tests += [(squares, len(x)), (np.array([squares.sum()]), squares.size * len(x))]
    doubt = FALSE_ALARM / (2 * sum(squares.size for squares, _ in tests))
    return Drawn(
        less=any(bool((squares < stats.chi2.ppf(doubt, n)).any()) for squares, n in tests),
        more=any(bool((squares > stats.chi2.isf(doubt, n)).any()) for squares, n in tests),
        shared=covariance.shared,
    )


Side = Literal[0, 1]
DRAWS = 20_000
# error probability of each of the two rates: the verdict is wrong with at most twice this probability
DOUBT = 1e-4
# releases drawn at once
_AT_ONCE = 1000
_GRID = np.linspace(0.02, 0.98, 49)


# the shipped code from one of two neighbours to its publication: copies of each table, ``(copies, *shape)``
ReleasePath = Callable[[Side, NoiseSource, int], list[Array]]


@dataclass(frozen=True)
class Whole:
    """A release path that makes one whole release for each copy."""

    draw: Callable[[Any, NoiseSource], Release]
    pair: tuple[object, object]

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        releases = [self.draw(self.pair[side], noise) for _ in range(copies)]
        return [np.stack([r.tables[m.table] for r in releases]).astype(np.float64) for m in releases[0].mechanisms]


def silence(path: ReleasePath) -> Means:
    """Exact tables of a path for each side, without noise."""
    zero, one = ([table[0] for table in path(side, Silence(), 1)] for side in (0, 1))
    return zero, one


@dataclass(frozen=True)
class AuditTarget:
    """A mechanism that draws from the shipped code, two neighbouring inputs, the claimed loss, and the trust model.

    ``claimed_rho``: the claim under the relation "replace one person", in zCDP; of a binomial law: normal noise of its
    variance.
    """

    mechanism: str
    trust: Trust
    path: ReleasePath
    means: Means
    law: Law
    claimed_rho: Fraction | float
    claimed_epsilon: Fraction | float | None = None
    whole: ReleasePath | None = None

    def scores(self, side: Side, noise: NoiseSource, copies: int, covariance: Covariance) -> Array:
        """The law's score of fresh releases of a side ``(copies,)``; adds their noise to ``covariance``."""
        tables = self.path(side, Pooled(noise), copies)
        covariance.add([x - mean for x, mean in zip(tables, self.means[side], strict=True)])
        return self.law.score(tables, self.means)

    def drawn(self, noise: NoiseSource) -> Drawn:
        """Compare the noise of a few whole releases of both sides with the listed one; a whole path needs no check."""
        if self.whole is None or not isinstance(self.law, Gaussian):
            return Drawn(less=False, more=False, shared=False)
        noise_of: list[list[Array]] = []
        for side in (0, 1):
            tables = self.whole(side, Pooled(noise), RELEASES)
            noise_of.append([x - mean for x, mean in zip(tables, self.means[side], strict=True)])
        return hold_noise([np.concatenate(both) for both in zip(*noise_of, strict=True)], self.law.variances)

    @property
    def attained(self) -> float:
        """Share of the claim that the attacked pair spends, exactly and before any draw: in epsilon where pure."""
        claim = self.claimed_epsilon if isinstance(self.law, Laplace) else self.claimed_rho
        return self.law.loss(self.means) / float(claim or 0)


@dataclass(frozen=True)
class WholePlan:
    """Cost of all releases of a recipe, without a draw, where a smaller plan was attacked.

    ``rho``, ``claimed``: exact zCDP cost by the plan's own variances, and the claim.
    """

    stands_for: str
    rho: Fraction
    claimed: Fraction

    @property
    def over(self) -> bool:
        """Whether the plan costs more than it claims."""
        return self.rho > self.claimed

    @property
    def words(self) -> str:
        """One sentence for a page."""
        verdict = "MORE than" if self.over else "within"
        return (
            f"{self.stands_for} was attacked; the whole plan costs rho = {float(self.rho):.9g} by its own variances, "
            f"{verdict} the {float(self.claimed):.9g} that is claimed."
        )


@dataclass(frozen=True)
class AttackResult:
    """Result of an attack.

    ``lower_bound_rho``, ``lower_bound_epsilon``: of the loss, with this ``confidence``; epsilon where the claim is made
    in it.
    ``true_positives``, ``false_positives``: rates of right and wrong guesses; ``curve`` is their trade-off ``(FPR,
    TPR)`` over thresholds.
    ``ceiling_rho``, ``ceiling_epsilon``: bounds from so many draws of a mechanism without any noise: a claim above them
    is not tested.
    ``less_noise``, ``shared_noise``: whether whole releases draw less noise than they list, and whether entries share
    noise; each is wrong with probability 1e-9.
    """

    mechanism: str
    trust: Trust
    claimed_rho: float
    lower_bound_rho: float
    claimed_epsilon: float | None
    lower_bound_epsilon: float | None
    claimed_delta: float | None
    attained: float
    confidence: float
    draws: int
    true_positives: float
    false_positives: float
    curve: list[tuple[float, float]]
    ceiling_rho: float
    ceiling_epsilon: float | None
    less_noise: bool
    shared_noise: bool

    @property
    def violates(self) -> bool:
        """Whether the mechanism provably loses more than it claims, or draws other noise than it lists."""
        return self.less_noise or self.shared_noise or self.ratio > 1

    @property
    def testable(self) -> bool:
        """Whether so many draws could prove more than is claimed."""
        if self.claimed_epsilon is not None and self.ceiling_epsilon is not None:
            return self.ceiling_epsilon > self.claimed_epsilon
        return self.ceiling_rho > self.claimed_rho

    @property
    def ratio(self) -> float:
        """Lower bound over claim."""
        if self.claimed_epsilon is not None and self.lower_bound_epsilon is not None:
            return self.lower_bound_epsilon / self.claimed_epsilon
        return self.lower_bound_rho / self.claimed_rho


def attack(
    target: AuditTarget,
    noise: NoiseSource,
    draws: int = DRAWS,
    progress: Callable[[int, int | None], None] | None = None,
) -> AttackResult:
    """Draw ``draws`` releases of each side and bound the loss from below.

    Where whole releases do not draw what they list, they are attacked themselves, one at a time.
    """
    differences = target.drawn(noise)
    if target.whole is not None and (differences.less or differences.more):
        target = replace(target, path=target.whole)
    scores: tuple[list[Array], list[Array]] = ([], [])
    law, tables = target.law, target.means[0]
    variances = law.variances if isinstance(law, Gaussian) else [np.ones(table.shape) for table in tables]
    covariance = Covariance([np.isfinite(v) for v in variances])
    for first in range(0, draws, _AT_ONCE):
        copies = min(_AT_ONCE, draws - first)
        scores[0].append(target.scores(0, noise, copies, covariance))
        scores[1].append(target.scores(1, noise, copies, covariance))
        if progress is not None:
            progress(first + copies, draws)
    zero, one = np.concatenate(scores[0]), np.concatenate(scores[1])
    bound = target.law.bound(zero, one, target.means, DOUBT)
    certain = np.full(draws, np.inf)
    ceiling = target.law.bound(certain, -certain, target.means, DOUBT)
    return AttackResult(
        mechanism=target.mechanism,
        trust=target.trust,
        claimed_rho=float(target.claimed_rho),
        lower_bound_rho=bound.rho,
        claimed_epsilon=None if target.claimed_epsilon is None else float(target.claimed_epsilon),
        lower_bound_epsilon=bound.epsilon,
        claimed_delta=target.law.delta if isinstance(target.law, Binomial) else None,
        attained=target.attained,
        confidence=1 - 2 * DOUBT,
        draws=draws,
        true_positives=bound.right,
        false_positives=bound.wrong,
        curve=trade_off(zero, one),
        ceiling_rho=ceiling.rho,
        ceiling_epsilon=ceiling.epsilon,
        less_noise=differences.less,
        shared_noise=differences.shared or covariance.shared,
    )


def trade_off(zero: Array, one: Array) -> list[tuple[float, float]]:
    """(FPR, TPR) of thresholds at the quantiles of side 1, from strict to lenient.

    ``zero``, ``one``: scores ``(draws,)`` of each side.
    """
    thresholds = np.quantile(np.clip(one, -1e300, 1e300), 1 - _GRID)
    return [(float((one > t).mean()), float((zero > t).mean())) for t in thresholds]
