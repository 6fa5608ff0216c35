"""OFU-RL and Private-OFU-RL: optimistic control of an unknown linear-quadratic system (paper 004, Algorithm 1).

One function; its regularizer says which algorithm it is: ``fixed`` OFU-RL, ``tree`` Private-OFU-RL.

| code | paper 004 | shape | meaning |
|---|---|---|---|
| ``ridge.V``, ``ridge.U`` | V_k, U_k | (D, D), (D, n) | released sums, regularized; D = n + d |
| ``centre`` | Θ̂_k = V_k⁻¹U_k | (D, n) | the estimate of [A, B]' |
| ``beta`` | β_k(α) | | radius of C_k |
| ``theta`` | Θ~_k | (D, n) | the optimistic model |
| ``gains`` | K_h(Θ~_k) | (H, d, n) | u = K_h x, cut to ``||K_h|| <= gamma`` |

Departures from the printed page
    * K_h uses P_{h+1}; eq. (3) prints P_h, which is off by one;
    * β_k is the deterministic bound of the proof (or, as an option, ln det(V_k / λ_min), which is no smaller than the
      printed one where H_k is at least λ_min I): ln det(I + Z'Z / λ_min) of the raw data is no function of the
      release and breaks the billboard argument;
    * episodes start in one declared x_1; the paper's varies from episode to episode;
    * the noise covariance that eq. (5) needs is declared; the paper only bounds the noise;
    * S is the closed ball ||Θ||_F <= 1: with "controllable" the minimum is not attained;
    * gains are cut to gamma, because nothing else ensures |u| <= gamma |x| of an optimistic model;
    * V_k is floored at λ_min, and where C_k and S do not meet the model of S nearest to Θ̂_k in V_k's norm is taken:
      both happen when the noise leaves its bounds, and both are logged;
    * the model changes at the episodes of a schedule fixed in advance: post-processing of the same releases;
    * the minimum is searched by gradient descent from several starts.
``constants = "paper"`` plans every episode with the option for beta_k; ``practical`` at growth 1.2 with the bound.

The optimistic model of OFU-RL: least optimal cost over an ellipsoid and a ball (paper 004, eqs. 8 and 9).

| code | paper 004 | shape | meaning |
|---|---|---|---|
| ``V`` | V_k | (D, D) | regularized Gram matrix, D = n + d |
| ``centre`` | Θ̂_k | (D, n) | V⁻¹U |
| ``beta`` | β_k | | radius of C_k = {||Θ - Θ̂||_V <= β} |
| ``theta`` | Θ | (s, D, n) | candidates, each [A, B]' |

Reading: S is the closed ball ||Θ||_F <= 1; with the paper's "controllable" the minimum would not be attained (A = 0 is
optimal wherever it is possible, and is not controllable for d < n).

The search is projected gradient descent from several starts: no proof of a global minimum.  One case is settled
exactly: a model with A = 0 has the least cost of all models, so where C_k and S hold one, it is returned.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Literal

import numpy as np

from pipeline.arrays import Array, Bools
from pipeline.mdp.riccati import QuadraticCost, clip_norm, optimal_costs, riccati
from pipeline.mdp.rollout import LinearRollout, LqAgent, LqBatch, plan_lengths
from pipeline.statistics.regression import Regularizer, RidgeSums

Objective = Callable[[Array], tuple[Array, Array]]

# relative accuracy of a root
_EXACT = 1e-13
_IDLE = 4


@dataclass(frozen=True)
class ConfidenceSet:
    """C_k and S: ``||theta - centre||_V <= beta`` and ``||theta||_F <= 1``."""

    V: Array
    centre: Array
    beta: float

    @cached_property
    def _eigen(self) -> tuple[Array, Array, Array]:
        values, vectors = np.linalg.eigh(self.V)
        return values, vectors, vectors.T @ self.centre

    def distance(self, theta: Array) -> Array:
        """``||theta - centre||_V`` ``(s,)``."""
        r = theta - self.centre
        return np.sqrt(np.einsum("sij,ik,skj->s", r, self.V, r))

    def holds(self, theta: Array) -> Bools:
        """True where ``theta (s, D, n)`` lies in both, to a part in 10^9."""
        slack = 1 + 1e-9
        return (self.distance(theta) <= self.beta * slack) & (_norm(theta) <= slack)

    @cached_property
    def nearest_in_ball(self) -> Array:
        """The model of S nearest to the centre in the norm of V ``(D, n)``; outside C_k, the two do not meet."""
        v, E, c = self._eigen
        if np.linalg.norm(c) <= 1:
            return self.centre
        # minimise over the ball: (V + mu I) theta = V centre, with the mu at which the norm is 1
        w = (v**2 * (c**2).sum(1))[None]
        mu = _root(w, v, np.ones_like(v), 1.0)
        return E @ (v[:, None] * c / (v + mu)[:, None])

    def still(self) -> Array | None:
        """A model with A = 0 in both sets ``(D, n)``, or None where there is none: the one nearest to the centre."""
        V, n = self.V, self.centre.shape[1]
        # stationary in B: V_BB (B - B^) = V_BA A^; then the nearest to it in the ball, in the norm of V_BB
        free = self.centre[n:] + np.linalg.solve(V[n:, n:], V[n:, :n] @ self.centre[:n])
        model = np.zeros_like(self.centre)
        model[n:] = ConfidenceSet(V[n:, n:], free, self.beta).nearest_in_ball
        return model if self.holds(model[None])[0] else None

    def project(self, theta: Array) -> Array:
        """The nearest models ``(s, D, n)`` in both sets, exactly (Frobenius norm); the sets must meet."""
        _, E, _ = self._eigen
        y = E.T @ theta
        onto_ball = y / np.maximum(_norm(y), 1.0)[:, None, None]
        nearest = self._on_ellipsoid(y)
        # one constraint alone decides where its projection satisfies the other; else both are active
        ball_decides = self._inside(onto_ball)
        nearest[ball_decides] = onto_ball[ball_decides]
        on_both = ~ball_decides & (_norm(nearest) > 1 + 1e-12)
        if on_both.any():
            nearest[on_both] = self._on_both(y[on_both])
        return E @ nearest

    def _inside(self, y: Array) -> Bools:
        v, _, c = self._eigen
        return ((v[:, None] * (y - c) ** 2).sum((1, 2))) <= self.beta**2

    def _on_ellipsoid(self, y: Array) -> Array:
        """Nearest points of the ellipsoid, in V's eigenvectors: (I + lambda V) r = y - c."""
        v, _, c = self._eigen
        r = y - c
        w = v * (r * r).sum(2)
        lam = _root(w, np.ones_like(v), v, self.beta)
        return c + r / (1 + lam[:, None] * v)[:, :, None]

    def _on_both(self, y: Array) -> Array:
        """Both active: the ellipsoid's projection of t y, at the t in [0, 1] whose norm is 1 (Illinois method)."""
        low, high = np.zeros(len(y)), np.ones(len(y))
        f_low, f_high = (_norm(self._on_ellipsoid(y * t[:, None, None])) - 1 for t in (low, high))
        side, point = np.zeros(len(y)), y
        for _ in range(60):
            t = (low * f_high - high * f_low) / np.where(f_high > f_low, f_high - f_low, 1.0)
            point = self._on_ellipsoid(y * t[:, None, None])
            f = _norm(point) - 1
            if (np.abs(f) <= 1e-12).all():
                break
            above = f > 0
            # the value of an end that stays twice is halved, so that both ends close in
            f_low = np.where(above, np.where(side > 0, f_low / 2, f_low), f)
            f_high = np.where(above, f, np.where(side < 0, f_high / 2, f_high))
            low, high, side = np.where(above, low, t), np.where(above, t, high), np.where(above, 1.0, -1.0)
        return point


def _norm(theta: Array) -> Array:
    return np.sqrt((theta * theta).sum((1, 2)))


def _root(w: Array, a: Array, b: Array, radius: float) -> Array:
    """The least x >= 0 ``(s,)`` with sum_i w_i / (a_i + x b_i)^2 <= radius^2, for ``w (s, D)``.

    Newton on one over the root of the sum, which is increasing and concave in x: from 0 it never overshoots.
    """
    x = np.zeros(len(w))
    for _ in range(60):
        inverse = 1 / (a + x[:, None] * b)
        terms = w * inverse**2
        total = terms.sum(1)
        beyond = np.sqrt(total) / radius - 1
        if (beyond <= _EXACT).all():
            break
        fall = (terms * inverse * b).sum(1)
        x = np.where(beyond > _EXACT, x + total * beyond / np.maximum(fall, 1e-300), x)
    return x


@dataclass(frozen=True)
class Search:
    """Length and tolerance of the search; post-processing.

    ``starts``: first candidates, at least 2: the nearest model to the estimate, a random one, the last one, random
    ones.
    """

    starts: int = 4
    steps: int = 200
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
        if self.starts < 2 or self.steps < 1 or not self.tolerance >= 0:
            raise ValueError(f"a search needs at least 2 starts, one step and a tolerance of 0 or more; got {self}")


def least(objective: Objective, among: ConfidenceSet, starts: Array, search: Search) -> tuple[Array, float]:
    """The best model ``(D, n)`` found from ``starts (s, D, n)``, and its cost.

    Projected gradient with Barzilai-Borwein steps, each start with its own; a step that does not descend is a quarter
    as long the next time.
    """
    x = among.project(starts)
    f, g = objective(x)
    step, idle = 1 / np.maximum(_norm(g), 1e-12), np.zeros(len(x), dtype=int)
    for _ in range(search.steps):
        y = among.project(x - step[:, None, None] * g)
        f_y, g_y = objective(y)
        better = f_y < f
        move, gradient_change = y - x, g_y - g
        curve = (move * gradient_change).sum((1, 2))
        long = np.where(curve > 0, (move * move).sum((1, 2)) / np.maximum(curve, 1e-300), 4 * step)
        idle = np.where(better & (f - f_y > search.tolerance * np.abs(f)), 0, idle + 1)
        step = np.where(better, np.minimum(long, 1e12), step / 4)
        keep = better[:, None, None]
        x, g, f = np.where(keep, y, x), np.where(keep, g_y, g), np.where(better, f_y, f)
        if (idle >= _IDLE).all():
            break
    best = int(f.argmin())
    return x[best], float(f[best])


@dataclass(frozen=True)
class LqControl:
    """Declared bounds and laws of the system.

    ``gamma``, ``C_w``: bounds on ``||K_h||`` and on the noise, with ``C_A + gamma C_B + C_w <= 1``.
    ``start`` ``(n,)``: fixed first state.
    ``covariance`` ``(n, n)``: of the noise.
    """

    cost: QuadraticCost
    gamma: float
    C_w: float
    start: Array
    covariance: Array


@dataclass(frozen=True)
class OfuConstants:
    """Confidence level alpha of the paper, and the search.

    Only ``width`` 1 has the theorem; 0 is certainty equivalence: the model of S nearest to the estimate.  ``volume``:
    see :func:`radius`; both have it.

    ``alpha``: failure probability of the confidence set.
    """

    alpha: float = 0.05
    width: float = 1.0
    volume: Literal["declared", "released"] = "declared"
    search: Search = field(default_factory=Search)


@dataclass(frozen=True)
class OfuPlan:
    """One plan and the events of its search.

    ``episode``: the first that is played with it, from 1 on.
    ``theta``, ``gains`` ``(D, n)``: and ``(H, d, n)``.
    ``beta``: radius of the confidence set, times ``width``.
    """

    episode: int
    theta: Array
    gains: Array
    cost: float
    beta: float
    raised: int
    empty: bool
    cut: bool


def ofu_rl(
    task: LqControl,
    regularizer: Regularizer[LqBatch, float],
    c: OfuConstants,
    ends: Sequence[int],
    rng: np.random.Generator,
) -> LqAgent:
    """Play ``ends[-1]`` episodes and return every plan, in order.

    ``ends``: last episode of each plan, increasing, fixed in advance; see :func:`batch_ends`.
    """
    plans = list[OfuPlan]()
    theta, first = np.zeros((len(task.start) + len(task.cost.R), len(task.start))), 1
    for last in ends:  # line 2
        plan = planned(task, regularizer.ridge(), c, first, theta, rng)  # lines 3-5
        batch = yield LinearRollout(plan.gains, last - first + 1)  # lines 6-8
        regularizer.observe(batch)  # line 9
        plans.append(plan)
        theta, first = plan.theta, last + 1
    return plans


def batch_ends(episodes: int, growth: float) -> tuple[int, ...]:
    """Last episodes of the plans of :func:`~pipeline.mdp.rollout.plan_starts`.

    >>> batch_ends(10, 2.0)
    (1, 3, 7, 10)
    """
    return tuple(accumulate(plan_lengths(episodes, growth)))


def planned(
    task: LqControl, ridge: RidgeSums[float], c: OfuConstants, episode: int, last: Array, rng: np.random.Generator
) -> OfuPlan:
    """The optimistic model of the sums released before ``episode``; ``last`` is the model before, a start."""
    n = len(task.start)
    centre = np.linalg.solve(ridge.V, ridge.U).astype(np.float64)  # eq. (7)
    beta = c.width * radius(task, ridge, episode, c)
    among = ConfidenceSet(ridge.V, centre, beta)
    nearest = among.nearest_in_ball
    empty = not bool(among.holds(nearest[None])[0])
    theta = nearest if empty or beta == 0 else optimistic(task, among, nearest, last, c.search, rng)
    A, B = theta[:n].T, theta[n:].T
    gains = riccati(A, B, task.cost)[0]
    cut = bool(np.linalg.norm(gains, 2, axis=(1, 2)).max() > task.gamma)
    gains = clip_norm(gains, task.gamma) if cut else gains
    cost = float(_objective(task, theta[None])[0][0])
    return OfuPlan(episode, theta, gains, cost, beta, ridge.raised, empty, cut)


def radius(task: LqControl, ridge: RidgeSums[float], episode: int, c: OfuConstants) -> float:
    """β_k: C_w sqrt(2 ln(2/α) + n volume) + sqrt(λ_max) + ν, where volume bounds ln det(I + Z'Z / λ_min).

    ``declared``: (n+d) ln(1 + H (k-1) (1 + γ²) / ((n+d) λ_min)); ``released``: ln det(V_k / λ_min) where it is smaller.
    """
    D, n = ridge.U.shape
    rows = task.cost.horizon * (episode - 1) * (1 + task.gamma**2)
    volume = D * math.log1p(rows / (D * ridge.lambda_min))
    if c.volume == "released":
        volume = max(0.0, min(volume, float(np.linalg.slogdet(ridge.V / ridge.lambda_min)[1])))
    return task.C_w * math.sqrt(2 * math.log(2 / c.alpha) + n * volume) + math.sqrt(ridge.lambda_max) + ridge.nu


def optimistic(
    task: LqControl, among: ConfidenceSet, nearest: Array, last: Array, search: Search, rng: np.random.Generator
) -> Array:
    """Θ~_k of eq. (9): the model of least optimal cost that was found ``(D, n)``."""
    still = among.still()
    if still is not None:
        return still
    drawn = rng.normal(size=(search.starts - 1, *nearest.shape))
    drawn /= np.linalg.norm(drawn, axis=(1, 2), keepdims=True)
    # at B = 0 the gradient in B is 0 as well: until a control was tried, only a random start can leave that saddle
    starts = np.stack([nearest, drawn[0], last, *drawn[1:]])[: search.starts]
    return least(lambda theta: _objective(task, theta), among, starts, search)[0]


def _objective(task: LqControl, theta: Array) -> tuple[Array, Array]:
    return optimal_costs(theta, task.cost, np.outer(task.start, task.start), task.covariance)
