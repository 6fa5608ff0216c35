"""Most visits to a cell by a policy that satisfies one linear constraint: a Lagrangian dynamic programme.

    maximise  d(h, s, a)   over occupancies d of P   subject to  <d, bonus> >= floor

The dual has one multiplier, the inner problem is backward induction, and the optimum is a mixture of two deterministic
policies.  The multiplier is the slope of the chord between the best policy that breaks the constraint and the best
known one that keeps it; a chord that no policy rises above is an edge of the convex hull, so the search ends, exactly.
All targets are solved together, as array algebra.

The linear programme behind :mod:`pipeline.mdp.lagrangian`, stated once in cvxpy: a certificate, not a workhorse.

maximise  d(h, s, a)   over d >= 0
subject to  sum_a d(0, s, a) = start(s),  sum_a d(h+1, s', a) = sum_(s,a) P_h(s'|s,a) d(h, s, a),  <d, bonus> >= floor
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


def most_visits_lp(P: Array, start: Array, bonus: Array, floor: float, targets: Integers) -> Array:
    """Optimal ``d(h, s, a)`` of each target, ``(T,)``; arguments as :func:`pipeline.mdp.lagrangian.most_visits`.

    Parameters
    ----------
    P
        ``(H, S, A, S)``.
    start
        ``(S,)`` distribution of the first state.
    bonus, floor
        ``(H, S, A)`` and what a policy must earn of it.
    targets
        ``(T, 3)`` step, state and action.

    Returns
    -------
    ``(T,)``, each the optimum of a programme of its own.

    Raises
    ------
    RuntimeError
        If the solver reports anything but an optimum.
    """
    import cvxpy as cp

    H, S, A = P.shape[:3]
    d = [cp.Variable(S * A, nonneg=True) for _ in range(H)]
    states = np.kron(np.eye(S), np.ones(A))
    constraints: list[Any] = [states @ d[0] == start]
    constraints += [states @ d[h + 1] == P[h].reshape(S * A, S).T @ d[h] for h in range(H - 1)]
    earned: Any = cp.sum([bonus[h].reshape(-1) @ d[h] for h in range(H)])
    constraints.append(earned >= floor)
    found = np.empty(len(targets))
    weight = cp.Parameter((H, S * A))
    problem = cp.Problem(cp.Maximize(cp.sum([weight[h] @ d[h] for h in range(H)])), constraints)
    for i, (h, s, a) in enumerate(targets):
        goal = np.zeros((H, S * A))
        goal[h, s * A + a] = 1.0
        weight.value = goal
        optimum: Any = problem.solve(solver="HIGHS")
        if problem.status != "optimal":
            raise RuntimeError(f"cvxpy ended {problem.status!r} on an occupancy programme")
        found[i] = float(optimum)
    return found


Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_TIE = 1e-12
# an edge of the hull is reached in fewer; each chord is steeper than the last
_MOST_CHORDS = 60


@dataclass(frozen=True)
class Mixtures:
    """For each of T targets two deterministic policies ``(T, 2, H, S)``, ``weights (T, 2)``, and ``visits (T,)``."""

    policies: Integers
    weights: Array
    visits: Array


@dataclass(frozen=True)
class _Points:
    """One policy a target, ``policies (T, H, S)``, with its visits ``(T,)`` and what it earns of the bonus ``(T,)``."""

    policies: Integers
    visits: Array
    bonus: Array

    def where(self, here: NDArray[np.bool_], other: _Points) -> _Points:
        """``other`` where ``here (T,)``, else this."""
        return _Points(
            np.where(here[:, None, None], other.policies, self.policies),
            np.where(here, other.visits, self.visits),
            np.where(here, other.bonus, self.bonus),
        )


def most_visits(
    P: Array, start: Array, bonus: Array, floor: float, targets: Integers, rng: np.random.Generator
) -> Mixtures:
    """Solve every target; ties are broken at random.

    Parameters
    ----------
    P
        ``(H, S, A, S)``, rows sum to at most 1.
    start
        ``(S,)`` distribution of the first state.
    bonus, floor
        ``(H, S, A)`` and a number that some policy reaches, up to rounding.
    targets
        ``(T, 3)`` step, state and action.
    rng
        Breaks ties: a policy that stays on one of them explores nothing.
    """
    T = len(targets)
    keeps = _best(P, start, bonus, targets, np.zeros(T), np.ones(T), rng)
    free = _best(P, start, bonus, targets, np.ones(T), np.zeros(T), rng)
    slack = _TIE * (1 + abs(floor))
    breaks = free.bonus < floor - slack
    keeps = keeps.where(~breaks, free)
    open_ = breaks & (keeps.bonus > free.bonus)
    for _ in range(_MOST_CHORDS):
        if not open_.any():
            break
        slope = np.where(open_, (free.visits - keeps.visits) / np.where(open_, keeps.bonus - free.bonus, 1.0), 0.0)
        found = _best(P, start, bonus, targets, np.ones(T), slope, rng)
        above = found.visits + slope * found.bonus > free.visits + slope * free.bonus + _TIE
        open_ = open_ & above
        below = found.bonus < floor - slack
        free = free.where(open_ & below, found)
        keeps = keeps.where(open_ & ~below, found)
    gap = np.where(breaks, keeps.bonus - free.bonus, 1.0)
    share = np.where(breaks & (gap > 0), np.clip((floor - free.bonus) / np.where(gap > 0, gap, 1.0), 0.0, 1.0), 1.0)
    return Mixtures(
        np.stack([keeps.policies, free.policies], axis=1),
        np.stack([share, 1 - share], axis=1),
        share * keeps.visits + (1 - share) * free.visits,
    )


def _best(
    P: Array, start: Array, bonus: Array, targets: Integers, visit: Array, weight: Array, rng: np.random.Generator
) -> _Points:
    """Backward induction for ``visit (T,) * 1_target + weight (T,) * bonus``; both parts are kept apart."""
    H, S, A = P.shape[:3]
    T, every = len(targets), np.arange(len(targets))
    step, state, action = targets.T
    policies = np.empty((T, H, S), dtype=np.int64)
    value = np.zeros((2, T, S))
    for h in reversed(range(H)):
        # 0: visits to the target; 1: bonus
        Q = (value.reshape(2 * T, S) @ P[h].reshape(S * A, S).T).reshape(2, T, S, A)
        now = step == h
        Q[0, every[now], state[now], action[now]] += 1.0
        Q[1] += bonus[h]
        total = visit[:, None, None] * Q[0] + weight[:, None, None] * Q[1]
        best = total >= total.max(-1, keepdims=True) - _TIE
        a = np.where(best, rng.random(total.shape), -1.0).argmax(-1)
        policies[:, h] = a
        value = np.take_along_axis(Q, a[None, ..., None], -1)[..., 0]
    return _Points(policies, value[0] @ start, value[1] @ start)
