"""Exact planning in a known tabular world: backward induction, values, occupancies; most visits under a constraint.

Most visits to a cell by a policy that satisfies one linear constraint, by a Lagrangian dynamic programme:

    maximise  d(h, s, a)   over occupancies d of P   subject to  <d, bonus> >= floor

The dual has one multiplier, the inner problem is backward induction, and the optimum is a mixture of two deterministic
policies.  The multiplier is the slope of the chord between the best policy that breaks the constraint and the best
known one that keeps it; a chord that no policy rises above is an edge of the convex hull, so the search ends, exactly.
All targets are solved together, as array algebra.  The linear programme behind it is stated once in cvxpy: a
certificate, not a workhorse.

maximise  d(h, s, a)   over d >= 0
subject to  sum_a d(0, s, a) = start(s),  sum_a d(h+1, s', a) = sum_(s,a) P_h(s'|s,a) d(h, s, a),  <d, bonus> >= floor
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.arrays import Array, Bools, Integers
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.policy import Policy


def _probabilities(policy: Policy | Array) -> Array:
    if not isinstance(policy, Policy):
        return np.asarray(policy, dtype=np.float64)
    if policy.abstains.any():
        raise ValueError("where a policy abstains its value is that of practice; give policy.beside(practice)")
    return policy.probabilities


def optimal_values(mdp: TabularMDP) -> tuple[Array, Array]:
    """Q* ``(H, S, A)`` and V* ``(H+1, S)``, in reward units; ``V[H] = 0``.

    Parameters
    ----------
    mdp
        Shapes ``(H, S, A)``.

    Examples
    --------
    One state, two actions, two steps; the second action pays.

    >>> one = TabularMDP(np.ones((2, 1, 2, 1)), np.array([[[0.0, 1.0]]] * 2), np.ones(1))
    >>> optimal_values(one)[1].ravel()
    array([2., 1., 0.])
    """
    H, S, A = mdp.shape
    Q, V = np.zeros((H, S, A)), np.zeros((H + 1, S))
    for h in reversed(range(H)):
        Q[h] = mdp.rewards[h] + mdp.transitions[h] @ V[h + 1]
        V[h] = Q[h].max(axis=1)
    return Q, V


def optimum(mdp: TabularMDP) -> float:
    """V* from the start distribution, reward units."""
    return float(mdp.start @ optimal_values(mdp)[1][0])


def policy_values(mdp: TabularMDP, policy: Policy | Array) -> Array:
    """V^π ``(H+1, S)`` of a policy given as a :class:`Policy` or as probabilities ``(H, S, A)``.

    ``mdp``: shapes ``(H, S, A)``.
    ``policy``: probabilities ``(H, S, A)``, bare or as a :class:`Policy`.
    Raises ValueError if its shape is another one, or it abstains somewhere.
    """
    H, S, A = mdp.shape
    p = _probabilities(policy)
    if p.shape != (H, S, A):
        raise ValueError(f"policy must be {(H, S, A)}; got {p.shape}")
    V = np.zeros((H + 1, S))
    for h in reversed(range(H)):
        V[h] = (p[h] * (mdp.rewards[h] + mdp.transitions[h] @ V[h + 1])).sum(axis=1)
    return V


def policy_value(mdp: TabularMDP, policy: Policy | Array) -> float:
    """Expected summed reward of a policy from the start distribution.

    Parameters
    ----------
    mdp
        Shapes ``(H, S, A)``.
    policy
        Probabilities ``(H, S, A)``, bare or as a :class:`Policy`.

    Examples
    --------
    >>> one = TabularMDP(np.ones((2, 1, 2, 1)), np.array([[[0.0, 1.0]]] * 2), np.ones(1))
    >>> policy_value(one, np.full((2, 1, 2), 0.5))
    1.0
    """
    return float(mdp.start @ policy_values(mdp, policy)[0])


def occupancies(mdp: TabularMDP, policy: Policy | Array) -> Array:
    """State-action occupancies ``(H, S, A)``: the chance of being in s and taking a at step h.

    ``mdp``: shapes ``(H, S, A)``.
    ``policy``: probabilities ``(H, S, A)``, bare or as a :class:`Policy`.
    """
    H, S, A = mdp.shape
    p, d = _probabilities(policy), np.zeros((H, S, A))
    state = mdp.start
    for h in range(H):
        d[h] = state[:, None] * p[h]
        state = d[h].reshape(-1) @ mdp.transitions[h].reshape(S * A, S)
    return d


def greedy(Q: Array) -> Array:
    """Deterministic policy ``(H, S, A)`` of the first maximiser of ``Q``; exact planning only, ties do no harm.

    ``Q`` ``(H, S, A)``: values of actions.
    """
    p = np.zeros_like(Q)
    np.put_along_axis(p, Q.argmax(axis=-1)[..., None], 1.0, axis=-1)
    return p


def most_visits_lp(P: Array, start: Array, bonus: Array, floor: float, targets: Integers) -> Array:
    """Optimal ``d(h, s, a)`` of each target, ``(T,)``; arguments as :func:`pipeline.mdp.planning.most_visits`.

    ``P``: ``(H, S, A, S)``.
    ``start`` ``(S,)``: distribution of the first state.
    ``bonus``, ``floor`` ``(H, S, A)``: and the least expected bonus of a policy.
    ``targets`` ``(T, 3)``: step, state and action.
    Returns ``(T,)``, each the optimum of a programme of its own.
    Raises RuntimeError if the solver reports anything but an optimum.
    """
    import cvxpy as cp

    H, S, A = P.shape[:3]
    d = [cp.Variable(S * A, nonneg=True) for _ in range(H)]
    states = np.kron(np.eye(S), np.ones(A))
    constraints: list[Any] = [states @ d[0] == start]
    constraints += [states @ d[h + 1] == P[h].reshape(S * A, S).T @ d[h] for h in range(H - 1)]
    earned: Any = cp.sum([bonus[h].reshape(-1) @ d[h] for h in range(H)])
    constraints.append(earned >= floor)
    visits = np.empty(len(targets))
    weight = cp.Parameter((H, S * A))
    problem = cp.Problem(cp.Maximize(cp.sum([weight[h] @ d[h] for h in range(H)])), constraints)
    for i, (h, s, a) in enumerate(targets):
        goal = np.zeros((H, S * A))
        goal[h, s * A + a] = 1.0
        weight.value = goal
        solved: Any = problem.solve(solver="HIGHS")
        if problem.status != "optimal":
            raise RuntimeError(f"cvxpy ended {problem.status!r} on an occupancy programme")
        visits[i] = float(solved)
    return visits


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
    """One policy a target, ``policies (T, H, S)``, with its visits ``(T,)`` and its expected bonus ``(T,)``."""

    policies: Integers
    visits: Array
    bonus: Array

    def where(self, mask: Bools, other: "_Points") -> "_Points":
        """``other`` where ``here (T,)``, else this."""
        return _Points(
            np.where(mask[:, None, None], other.policies, self.policies),
            np.where(mask, other.visits, self.visits),
            np.where(mask, other.bonus, self.bonus),
        )


def most_visits(
    P: Array, start: Array, bonus: Array, floor: float, targets: Integers, rng: np.random.Generator
) -> Mixtures:
    """Solve every target; ties are broken at random.

    ``P`` ``(H, S, A, S)``: rows sum to at most 1.
    ``start`` ``(S,)``: distribution of the first state.
    ``bonus``, ``floor`` ``(H, S, A)``: and a number that some policy reaches, up to rounding.
    ``targets`` ``(T, 3)``: step, state and action.
    """
    T = len(targets)
    inside = _best(P, start, bonus, targets, np.zeros(T), np.ones(T), rng)
    free = _best(P, start, bonus, targets, np.ones(T), np.zeros(T), rng)
    slack = _TIE * (1 + abs(floor))
    violates = free.bonus < floor - slack
    inside = inside.where(~violates, free)
    open_ = violates & (inside.bonus > free.bonus)
    for _ in range(_MOST_CHORDS):
        if not open_.any():
            break
        slope = np.where(open_, (free.visits - inside.visits) / np.where(open_, inside.bonus - free.bonus, 1.0), 0.0)
        points = _best(P, start, bonus, targets, np.ones(T), slope, rng)
        above = points.visits + slope * points.bonus > free.visits + slope * free.bonus + _TIE
        open_ = open_ & above
        below = points.bonus < floor - slack
        free = free.where(open_ & below, points)
        inside = inside.where(open_ & ~below, points)
    gap = np.where(violates, inside.bonus - free.bonus, 1.0)
    share = np.where(violates & (gap > 0), np.clip((floor - free.bonus) / np.where(gap > 0, gap, 1.0), 0.0, 1.0), 1.0)
    return Mixtures(
        np.stack([inside.policies, free.policies], axis=1),
        np.stack([share, 1 - share], axis=1),
        share * inside.visits + (1 - share) * free.visits,
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
