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
      printed one where H_k is at least λ_min I): ln det(I + Z'Z / λ_min) of the raw data is no function of what was
      released and breaks the billboard argument;
    * episodes start in one declared x_1; the paper's varies from episode to episode;
    * the noise covariance that eq. (5) needs is declared; the paper only bounds the noise;
    * S is the closed ball ||Θ||_F <= 1: with "controllable" the minimum is not attained;
    * gains are cut to gamma, because nothing else ensures |u| <= gamma |x| of an optimistic model;
    * V_k is floored at λ_min, and where C_k and S do not meet the model of S nearest to Θ̂_k in V_k's norm is taken:
      both happen when the noise leaves its bounds, and both are logged;
    * the model changes at the episodes of a schedule fixed in advance: post-processing of the same releases;
    * the minimum is searched by gradient descent from several starts.
``constants = "paper"`` plans every episode with the option for beta_k; ``practical`` at growth 1.2 with the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.batch_pace import plan_lengths
from pipeline.agents.lq_optimism import ConfidenceSet, Search, least
from pipeline.mdp.riccati import QuadraticCost, clip_norm, optimal_costs, riccati
from pipeline.mdp.rollout import LinearRollout, LqAgent
from pipeline.statistics.lq_message import LqRegularizer, LqRidge

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LqControl:
    """What is declared.

    Parameters
    ----------
    gamma, C_w
        Bounds on ``||K_h||`` and on the noise, with ``C_A + gamma C_B + C_w <= 1``.
    start
        ``(n,)`` fixed first state.
    covariance
        ``(n, n)`` of the noise.
    cost
        The declared quadratic cost of a step.
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

    Parameters
    ----------
    alpha
        Failure probability of the confidence set.
    search
        Starts and steps of the gradient descent that looks for the optimistic model.
    """

    alpha: float = 0.05
    width: float = 1.0
    volume: Literal["declared", "released"] = "declared"
    search: Search = field(default_factory=Search)


@dataclass(frozen=True)
class OptimisticPlan:
    """One plan and what happened on the way.

    Parameters
    ----------
    episode
        The first that is played with it, from 1 on.
    theta, gains
        ``(D, n)`` and ``(H, d, n)``.
    cost
        Of the optimistic model: below the true optimum where the confidence set holds.
    raised
        Eigenvalues of V raised to λ_min.
    empty
        Whether C_k and S did not meet.
    cut
        Whether gains were cut to gamma.
    beta
        Radius of the confidence set, times ``width``.
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
    task: LqControl, regularizer: LqRegularizer, c: OfuConstants, ends: Sequence[int], rng: np.random.Generator
) -> LqAgent:
    """Play ``ends[-1]`` episodes and return every plan, in order.

    Parameters
    ----------
    ends
        Last episode of each plan, increasing, fixed in advance; see :func:`batch_ends`.
    rng
        Draws the random starts of the search.
    task
        What is declared.
    regularizer
        The growing least-squares problem, seen through its noise.
    c
        Confidence level and search.
    """
    plans = list[OptimisticPlan]()
    theta, first = np.zeros((len(task.start) + len(task.cost.R), len(task.start))), 1
    for last in ends:  # line 2
        plan = planned(task, regularizer.ridge(), c, first, theta, rng)  # lines 3-5
        batch = yield LinearRollout(plan.gains, last - first + 1)  # lines 6-8
        regularizer.observe(batch)  # line 9
        plans.append(plan)
        theta, first = plan.theta, last + 1
    return plans


def batch_ends(episodes: int, growth: float) -> tuple[int, ...]:
    """Last episodes of the plans of :func:`~pipeline.agents.batch_pace.plan_starts`.

    >>> batch_ends(10, 2.0)
    (1, 3, 7, 10)
    """
    return tuple(accumulate(plan_lengths(episodes, growth)))


def planned(
    task: LqControl, ridge: LqRidge, c: OfuConstants, episode: int, last: Array, rng: np.random.Generator
) -> OptimisticPlan:
    """The optimistic model of what was released before ``episode``; ``last`` is the one before, a start."""
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
    return OptimisticPlan(episode, theta, gains, cost, beta, ridge.raised, empty, cut)


def radius(task: LqControl, ridge: LqRidge, episode: int, c: OfuConstants) -> float:
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
