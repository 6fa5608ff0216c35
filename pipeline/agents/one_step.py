"""One step of improvement on current practice, from released sums (Brandfonbrener, Whitney, Ranganath, Bruna 2021).

Practice is the policy mu of the log.  Stage 1 releases, of every state, how many rows it has and the sum of the returns
G from there on; stage 2, of every state and action, the rows and the sum of temporal differences r + V(s') - V(s).

1.  V(s)   <- posterior of E[G | s], shrunk towards a prediction from public features of states    [stage 1]
2.  x(s,a) <- sum of temporal differences / rows: A(s,a) = Q_mu(s,a) - V_mu(s), with noise          [stage 2]
3.  A(s,a) <- posterior of x, shrunk towards the action's value elsewhere, given features
4.  pi(s)  <- argmax over supported a of  E[A] - kappa sd[A];  practice wherever that does not beat practice itself

One backward step, no model of transitions, no bootstrapping: errors do not compound over steps.  Where practice has to
be left for many steps before anything is gained (RiverSwim), one step is worth nothing: use counts there.

Departures from the paper: values are regressed on returns, not fitted by iteration; targets are centred on V(s), which
costs less noise; the argmax is pessimistic, and abstains.  :mod:`pipeline.agents.one_step` has steps 1 and 3.

Empirical Bayes for many noisy means.

Model of measurement i of group g, with public features f_i (measured or not):

    x_i = a_g + f_i . b_g + u_i + e_i,   a_g ~ N(0, A),  b_g ~ N(0, B I),  u_i ~ sum_k p_k N(0, t_k²),  e_i ~ N(0, v_i)

v_i = c s_i + n_i: of privacy's noise the variance n_i is known, of sampling a bound s_i.  A, B and c <= 1 are the most
likely ones (type-II maximum likelihood, u taken as one normal); the expectation of a measurement depends on all
others but itself.  The weights p_k of the residual's scales follow by EM (Stephens 2017, *False
discovery rates: a new deal*): many small effects and a few large ones are each shrunk as such.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.arrays import Array, Bools, Integers
from pipeline.mdp.policy import Policy

# each variance is sought on powers of 4 below this multiple of the mean square
_MOST, _POWERS = 4.0, 10
# c is 1 or one of the next powers of 1/4
_SHARES = 4
_SWEEPS = 3
# where the search begins, and numbers of features that are weighed at once
_FIRST, _NUMBERS = (2, 4, 2, 0), 1 << 20
_SCALES, _ROUNDS = 10, 200


@dataclass(frozen=True)
class Posterior:
    """Posterior of each mean.

    ``mean``, ``sd`` ``(n,)``: posterior mean and standard deviation, in the units of the measurements.
    """

    mean: Array
    sd: Array


def shrink(
    x: Array, sampling: Array, noise: Array, group: Integers, features: Array, *, own: bool = False
) -> Posterior:
    """Posterior of each mean.

    ``x`` ``(n,)``: measurements.
    ``sampling``, ``noise`` ``(n,)``: bound on their sampling variance, infinite where nothing was
    measured; variance of the added noise.
    ``group`` ``(n,)``: from 0: whose intercept and slopes a measurement has.
    ``features`` ``(n, d)``: public numbers, of about unit size; d may be 0.
    ``own``: whether a measurement also enters its group's intercept, which matters where groups are small.
    """
    seen, most = np.isfinite(sampling), sampling + noise
    if not seen.any():
        return Posterior(np.zeros(len(x)), np.full(len(x), np.inf))
    F = np.column_stack([np.ones(len(x)), features])
    square = float(np.average(x[seen] ** 2, weights=1 / most[seen]))
    groups = _grouped(x, F, group)
    model = _Normal(sampling, noise, groups, F.shape[1], square or 1.0)
    levels = np.array([_most_likely(model)])
    expected, doubt = model.expected(levels)
    found = _mixture(x[seen] - expected[seen], model.variance(levels)[0, seen], doubt[seen], own=own)
    mean, sd = expected.copy(), np.sqrt(doubt + found.typical)
    mean[seen] += found.mean
    sd[seen] = found.sd
    return Posterior(mean, sd)


@dataclass(frozen=True)
class _Groups:
    """G groups of at most m measurements: places ``(G, m)``, whether one is there, features (1, f_i), values."""

    rows: Integers
    there: Bools
    F: Array
    x: Array


def _grouped(x: Array, F: Array, group: Integers) -> _Groups:
    """Measurements put together by group; zeros where a group has fewer than the largest."""
    size = np.bincount(group)
    there = np.arange(size.max()) < size[size > 0, None]
    rows = np.zeros(there.shape, dtype=np.int64)
    rows[there] = np.argsort(group, kind="stable")
    return _Groups(rows, there, np.where(there[..., None], F[rows], 0.0), np.where(there, x[rows], 0.0))


@dataclass(frozen=True)
class _Normal:
    """The model with one scale of residuals; ``levels (K, 4)`` are powers of 4 by which A, B, t² and c are smaller."""

    sampling: Array
    noise: Array
    groups: _Groups
    size: int
    square: float

    def scales(self, levels: Integers) -> Array:
        """A, B and t²: ``(3, K)``."""
        d = max(1, self.size - 1)
        return (_MOST * self.square * 0.25 ** levels[:, :3] / np.array([1, d, 1])).T

    def variance(self, levels: Integers) -> Array:
        """V ``(K, n)``."""
        return self.sampling * 0.25 ** levels[:, 3:] + self.noise

    def _fitted(self, levels: Integers) -> tuple[Array, Array, Array]:
        """Of each group: weights ``(K, G, m)``, Cholesky factors R of the precision of (a, b), and R⁻¹ F^T (w x)."""
        A, B, t2 = self.scales(levels)[..., None]
        g, each = self.groups, np.concatenate([1 / A, np.repeat(1 / B, self.size - 1, axis=1)], axis=1)
        w = np.where(g.there, (1 / (self.variance(levels) + t2))[:, g.rows], 0.0)
        weighed = (g.F * w[..., None]).swapaxes(-1, -2)
        precision = weighed @ g.F + (each[:, None] * np.eye(self.size))[:, None]
        roots = np.asarray(np.linalg.cholesky(precision), dtype=np.float64)
        return w, roots, np.asarray(np.linalg.solve(roots, weighed @ g.x[..., None])[..., 0], dtype=np.float64)

    def likelihood(self, levels: Integers) -> Array:
        """Log-likelihood ``(K,)`` of A, B and t², up to a constant."""
        A, B, t2 = self.scales(levels)
        seen, d = np.isfinite(self.sampling), self.size - 1
        w, roots, y = self._fitted(levels)
        total = -0.5 * np.log(self.variance(levels)[:, seen] + t2[:, None]).sum(1)
        total -= np.log(np.diagonal(roots, axis1=-2, axis2=-1)).sum((1, 2))
        total -= 0.5 * w.shape[1] * (np.log(A) + d * np.log(B))
        return total - 0.5 * ((w * self.groups.x**2).sum((1, 2)) - (y**2).sum((1, 2)))

    def expected(self, levels: Integers) -> tuple[Array, Array]:
        """Expectation ``(n,)`` of each mean from all others, and its variance; K is 1."""
        g, (w, roots, y) = self.groups, (found[0] for found in self._fitted(levels))
        half = np.linalg.solve(roots, g.F.swapaxes(1, 2))
        spread = (half**2).sum(1)
        own = np.minimum(spread * w, 1 - 1e-9)
        mean, doubt = np.zeros(len(self.noise)), np.zeros(len(self.noise))
        mean[g.rows[g.there]] = (((y[:, None] @ half)[:, 0] - own * g.x) / (1 - own))[g.there]
        doubt[g.rows[g.there]] = (spread / (1 - own))[g.there]
        return mean, doubt


def _most_likely(model: _Normal) -> tuple[int, ...]:
    """The most likely levels, one after the other, a few times round."""
    best, known = _FIRST, dict[tuple[int, ...], float]()
    # those of one sweep at once, where features are few
    at_once = max(1, _NUMBERS // model.groups.F.size)
    for _ in range(_SWEEPS):
        before = best
        for i, powers in enumerate((_POWERS, _POWERS, _POWERS, _SHARES)):
            if i == 1 and model.size == 1:
                continue
            tried = [(*best[:i], level, *best[i + 1 :]) for level in range(powers)]
            new = [levels for levels in tried if levels not in known]
            for k in range(0, len(new), at_once):
                some = new[k : k + at_once]
                known |= zip(some, model.likelihood(np.array(some)).tolist(), strict=True)
            # where several are alike, the one that stood, then the first
            best = max((best, *tried), key=known.__getitem__)
        if best == before:
            break
    return best


@dataclass(frozen=True)
class _Residuals:
    """Posterior of the residuals ``(n,)``, and the mean square of one that was not measured."""

    mean: Array
    sd: Array
    typical: float


def _mixture(e: Array, measured: Array, doubt: Array, *, own: bool) -> _Residuals:
    """Residuals ``e``, whose own scales are a mixture with the most likely weights.

    ``measured``, ``doubt`` ``(n,)``: variance of the measurement, and of its expectation; with ``own`` this belongs
    to the target.
    """
    variance, extra = measured + doubt, doubt if own else np.zeros(len(e))
    small = float(np.sqrt(np.median(variance))) / _SCALES
    large = max(float(np.sqrt(np.quantile(e**2, 0.999))), 2 * small)
    squares = np.append(0.0, np.geomspace(small, large, _SCALES) ** 2)
    spread = variance[:, None] + squares
    likely = -0.5 * (np.log(spread) + e[:, None] ** 2 / spread)
    likely = np.exp(likely - likely.max(1, keepdims=True))
    p = np.full(len(squares), 1 / len(squares))
    for _ in range(_ROUNDS):
        p = p * ((1 / (likely @ p)) @ likely) / len(e)
    of = likely * p / (likely @ p)[:, None]
    share = (squares + extra[:, None]) / spread
    mean = (of * share).sum(1) * e
    second = (of * share * ((variance - extra)[:, None] + share * e[:, None] ** 2)).sum(1)
    return _Residuals(mean, np.sqrt(np.maximum(second - mean**2, 0)), float(p @ squares))


# version of the arithmetic from the first answer to the second query: another version makes another query
VERSION = 1
# how many standard deviations of the values over rows a temporal difference may reach: two states apart, twice each way
SPREAD = 4
# standard deviations of noise that the rows of a state must exceed to tell its value, and rows of any key
_SURE, FEW = 2.0, 10.0
# scores so close, in parts of the width, are alike: two machines choose the same
ALIKE = 2.0**-30


def least_rows(sure: float, sd: float) -> float:
    """Rows that a key must exceed to count: ``sure`` standard deviations of their noise, and a handful."""
    return max(sure * sd, FEW)


@dataclass(frozen=True)
class Answer:
    """One stage as it was released, in units of rows and of the largest target.

    ``rows``, ``targets``: by key: noisy rows N, and noisy sums of targets in [-1, 1].
    ``sd``: of the noise of both; 0 without noise.
    """

    rows: Array
    targets: Array
    sd: float

    def supported(self, sure: float) -> Bools:
        """Keys whose rows exceed ``sure`` standard deviations of their noise, and a handful."""
        return self.rows > least_rows(sure, self.sd)


@dataclass(frozen=True)
class Constants:
    """Constants that a recipe may set; they enter after the release and are free.

    ``support``: standard deviations of noise that the rows of an action must exceed: at 3, noise alone does it once in
    740.
    ``floor``: least share of a state's rows that an action must have to be recommended.
    """

    pessimism: float = 0.5
    support: float = 3.0
    floor: float = 0.05


@dataclass(frozen=True)
class Plan:
    """The recommended policy and its grounds.

    ``policy`` ``(H, L, A)``: one action where something is recommended.
    ``advantage``, ``sd`` ``(G, L, A)``: posterior of the gain of an action over practice, reward units; NaN where it is
    not supported.
    """

    policy: Policy
    advantage: Array
    sd: Array


def practice_values(answer: Answer, returns: Array, features: Array | None) -> Array:
    """Step 1: value of current practice from each state on.

    ``answer``: of stage 1, keys ``(G, L)``: targets -1 and 1 are the ends of the declared returns.
    ``returns`` ``(G, 2)``: least and largest return of each step, reward units.
    ``features`` ``(L, d)``: public numbers of states; None: states are independent.
    Returns ``(G, L)``, within the declared returns.
    """
    G, L = answer.rows.shape
    N, seen, noise = answer.rows.ravel(), answer.supported(_SURE).ravel(), answer.sd**2
    n = np.where(seen, N, 1.0)
    y = np.where(seen, (answer.targets.ravel() / n + 1) / 2, 0.5)
    # a variable in [0, 1] of mean m varies by m (1 - m) at most
    m = np.clip((n * y + 0.5) / (n + 1), 0.5 / (n + 1), 1 - 0.5 / (n + 1))
    sampling = np.where(seen, m * (1 - m) / n, np.inf)
    added = (0.25 + (m - 0.5) ** 2) * noise / n**2
    middle = float(np.average(y, weights=1 / (sampling + added))) if seen.any() else 0.5
    step = np.repeat(np.arange(G), L)
    found = shrink(y - middle, sampling, added, step, np.tile(unit_features(features, L), (G, 1))).mean + middle
    low, high = returns.T
    return low[:, None] + (high - low)[:, None] * np.clip(found, 0, 1).reshape(G, L)


def one_step(
    answer: Answer, width: float, horizon: int, allowed: Bools, features: Array | None, constants: Constants
) -> Plan:
    """Steps 2 to 4: the policy.

    ``answer``: of stage 2, keys ``(G, L, A)``: targets -1 and 1 are temporal differences of ``width``, reward units.
    ``horizon``: H; G is H, or 1 where all steps share.
    ``allowed`` ``(L, A)``: actions that a policy may recommend.
    ``features`` ``(L, d)``: public numbers of states, or None.
    """
    G, L, A = answer.rows.shape
    supported = answer.supported(constants.support)
    N = np.where(supported, answer.rows, 0.0)
    share = N / np.maximum(N.sum(-1, keepdims=True), 1.0)
    usual = supported & (share >= constants.floor)
    n = np.where(usual, answer.rows, 1.0)
    x = np.where(usual, answer.targets / n, 0.0)
    # two states drawn alike differ by twice the variance of their values, in parts of the width
    row = 2 / SPREAD**2
    cell, action = np.flatnonzero(usual), np.broadcast_to(np.arange(A), (G, L, A))[usual]
    f = np.tile(unit_features(features, L), (G, 1))[cell // A]
    found = shrink(x[usual], row / n[usual], (answer.sd / n[usual]) ** 2, action, f)
    mean, sd = np.full((G, L, A), np.nan), np.full((G, L, A), np.nan)
    mean[usual], sd[usual] = found.mean, found.sd
    # what practice does there has the same posterior means
    weight = np.where(usual, share, 0.0)
    practice = np.where(usual, mean * weight, 0).sum(-1) / np.maximum(weight.sum(-1), 1e-300)
    gain = mean - practice[..., None]
    score = np.where(usual & allowed, np.rint((gain - constants.pessimism * sd) / ALIKE), -np.inf)
    best = np.eye(A)[score.argmax(-1)]
    recommended = np.where((best > 0) & np.isfinite(score), gain, 0.0).sum(-1) > ALIKE
    chosen = np.where(recommended[..., None], best, 0.0)
    policy = Policy(np.broadcast_to(chosen, (horizon, L, A)).copy(), np.broadcast_to(~recommended, (horizon, L)).copy())
    return Plan(policy, gain * width, sd * width)


def unit_features(features: Array | None, states: int) -> Array:
    """Public numbers ``(L, d)`` with mean 0 and standard deviation 1 over states; ``(L, 0)`` where there are none."""
    if features is None:
        return np.zeros((states, 0))
    centred = features - features.mean(0)
    return centred / np.maximum(centred.std(0), 1e-12)
