"""The linear programme behind :mod:`pipeline.mdp.lagrangian`, stated once in cvxpy: a certificate, not a workhorse.

maximise  d(h, s, a)   over d >= 0
subject to  sum_a d(0, s, a) = start(s),  sum_a d(h+1, s', a) = sum_(s,a) P_h(s'|s,a) d(h, s, a),  <d, bonus> >= floor
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


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
