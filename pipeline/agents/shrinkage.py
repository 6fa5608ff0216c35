"""Empirical Bayes for many noisy means: what each is, given how the others vary.

Model of measurement i of group g, with public features f_i (measured or not):

    x_i = a_g + f_i . b_g + u_i + e_i,   a_g ~ N(0, A),  b_g ~ N(0, B I),  u_i ~ sum_k p_k N(0, t_k²),  e_i ~ N(0, v_i)

v_i = c s_i + n_i: of privacy's noise the variance n_i is known, of sampling a bound s_i.  A, B and c <= 1 are the most
likely ones (type-II maximum likelihood, u taken as one normal); what a measurement is expected to be rests on all
others but itself.  The weights p_k of the residual's scales follow by EM (Stephens 2017, *False
discovery rates: a new deal*): many small effects and a few large ones are each shrunk as such.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# each variance is sought on powers of 4 below this multiple of the mean square
_MOST, _POWERS = 4.0, 10
# c is 1 or one of the next powers of 1/4
_SHARES = 4
_SWEEPS = 3
_SCALES, _ROUNDS = 10, 200


@dataclass(frozen=True)
class Posterior:
    """What is known of each mean.

    Parameters
    ----------
    mean, sd
        ``(n,)`` posterior mean and standard deviation, in the units of what was measured.
    """

    mean: Array
    sd: Array


def shrink(x: Array, sampling: Array, noise: Array, group: Integers, features: Array) -> Posterior:
    """Posterior of each mean.

    Parameters
    ----------
    x
        ``(n,)`` measurements.
    sampling, noise
        ``(n,)``: bound on the variance that sampling gives them, infinite where nothing was measured; variance of the
        noise that was added.
    group
        ``(n,)``, from 0: whose intercept and slopes a measurement has.
    features
        ``(n, d)`` public numbers, of about unit size; d may be 0.
    """
    seen, most = np.isfinite(sampling), sampling + noise
    if not seen.any():
        return Posterior(np.zeros(len(x)), np.full(len(x), np.inf))
    F = np.column_stack([np.ones(len(x)), features])
    square = float(np.average(x[seen] ** 2, weights=1 / most[seen]))
    groups = tuple(_Group(rows, F[rows], x[rows]) for g in np.unique(group) for rows in (np.flatnonzero(group == g),))
    prior = _most_likely(_Normal(x, sampling, noise, groups, F.shape[1], square or 1.0))
    expected, doubt = prior.expected()
    found = _mixture(x[seen] - expected[seen], prior.variance[seen] + doubt[seen])
    mean, sd = expected.copy(), np.sqrt(doubt + found.typical)
    mean[seen] += found.mean
    sd[seen] = found.sd
    return Posterior(mean, sd)


@dataclass(frozen=True)
class _Group:
    """Which measurements are of a group, their features (1, f_i), and they."""

    rows: Integers
    F: Array
    x: Array


@dataclass(frozen=True)
class _Normal:
    """The model with one scale of residuals; ``levels`` are powers of 4 by which A, B, t² and c are smaller."""

    x: Array
    sampling: Array
    noise: Array
    groups: tuple[_Group, ...]
    size: int
    square: float
    levels: tuple[int, int, int, int] = (2, 4, 2, 0)

    @property
    def scales(self) -> Array:
        """A, B and t²."""
        d = max(1, self.size - 1)
        return _MOST * self.square * 0.25 ** np.array(self.levels[:3]) / np.array([1, d, 1])

    @property
    def variance(self) -> Array:
        """V ``(n,)``."""
        return self.sampling * 0.25 ** self.levels[3] + self.noise

    def _fitted(self) -> tuple[list[Array], Array, Array]:
        """Of each group: its rows' weights, Cholesky factor R of the precision of (a, b), and R⁻¹ F^T (w x)."""
        A, B, t2 = self.scales
        precision = np.diag(np.append(1 / A, np.full(self.size - 1, 1 / B)))
        weight = 1 / (self.variance + t2)
        weights = [weight[g.rows] for g in self.groups]
        each = list(zip(self.groups, weights, strict=True))
        roots = np.linalg.cholesky(np.stack([(g.F * w[:, None]).T @ g.F + precision for g, w in each]))
        summed = np.stack([g.F.T @ (w * g.x) for g, w in each])
        return weights, roots, np.asarray(np.linalg.solve(roots, summed[..., None])[..., 0], dtype=np.float64)

    def likelihood(self) -> float:
        """Log-likelihood of A, B and t², up to a constant."""
        A, B, t2 = self.scales
        seen, d = np.isfinite(self.variance), self.size - 1
        total = -0.5 * float(np.log(self.variance[seen] + t2).sum())
        for g, w, root, y in zip(self.groups, *self._fitted(), strict=True):
            total -= float(np.log(np.diag(root)).sum()) + 0.5 * (np.log(A) + d * np.log(B))
            total -= 0.5 * float((w * g.x**2).sum() - y @ y)
        return total

    def expected(self) -> tuple[Array, Array]:
        """Of each mean without its residual: what all others make of it ``(n,)``, and its variance ``(n,)``."""
        mean, doubt = np.zeros(len(self.x)), np.zeros(len(self.x))
        for g, w, root, y in zip(self.groups, *self._fitted(), strict=True):
            half = np.linalg.solve(root, g.F.T)
            spread = (half**2).sum(0)
            own = np.minimum(spread * w, 1 - 1e-9)
            mean[g.rows], doubt[g.rows] = (half.T @ y - own * g.x) / (1 - own), spread / (1 - own)
        return mean, doubt


def _most_likely(start: _Normal) -> _Normal:
    """The most likely levels, one after the other, a few times round."""
    best, known = start, {start.levels: start.likelihood()}
    for _ in range(_SWEEPS):
        before = best.levels
        for i, powers in enumerate((_POWERS, _POWERS, _POWERS, _SHARES)):
            if i == 1 and start.size == 1:
                continue
            for level in range(powers):
                levels = (*best.levels[:i], level, *best.levels[i + 1 :])
                other = replace(best, levels=(levels[0], levels[1], levels[2], levels[3]))
                if other.levels not in known:
                    known[other.levels] = other.likelihood()
                if known[other.levels] > known[best.levels]:
                    best = other
        if best.levels == before:
            break
    return best


@dataclass(frozen=True)
class _Residuals:
    """Posterior of the residuals ``(n,)``, and the mean square of one that was not measured."""

    mean: Array
    sd: Array
    typical: float


def _mixture(e: Array, variance: Array) -> _Residuals:
    """Residuals ``e`` of known variance, whose own scales are a mixture with the most likely weights."""
    small = float(np.sqrt(np.median(variance))) / _SCALES
    large = max(float(np.sqrt(np.quantile(e**2, 0.999))), 2 * small)
    squares = np.append(0.0, np.geomspace(small, large, _SCALES) ** 2)
    spread = variance[:, None] + squares
    likely = -0.5 * (np.log(spread) + e[:, None] ** 2 / spread)
    likely = np.exp(likely - likely.max(1, keepdims=True))
    p = np.full(len(squares), 1 / len(squares))
    for _ in range(_ROUNDS):
        p = (likely * p / (likely @ p)[:, None]).mean(0)
    of = likely * p / (likely @ p)[:, None]
    share = squares / spread
    mean = (of * share).sum(1) * e
    second = (of * share * (variance[:, None] + share * e[:, None] ** 2)).sum(1)
    return _Residuals(mean, np.sqrt(np.maximum(second - mean**2, 0)), float(p @ squares))
