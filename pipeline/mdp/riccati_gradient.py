"""The optimal cost of many linear-quadratic models at once, and its gradient in the parameters.

| code | paper 004 | shape | meaning |
|---|---|---|---|
| ``theta`` | Θ | (s, n+d, n) | models, each [A, B]' |
| ``P`` | P_h(Θ) | (s, n, n) | cost to go |
| ``C`` | A + B K_h(Θ) | (s, n, n) | closed loop |
| ``M`` | | (s, n, n) | E[x_h x_h'] in the model under its own optimal gains |

J*(Θ) is a minimum over gains, so its gradient is that of the cost at fixed gains (envelope theorem):
dJ/dA = 2 sum_h P_{h+1} C_h M_h and dJ/dB = 2 sum_h P_{h+1} C_h M_h K_h'.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.riccati import QuadraticCost

Array = NDArray[np.float64]


def optimal_costs(theta: Array, cost: QuadraticCost, start: Array, covariance: Array) -> tuple[Array, Array]:
    """J* ``(s,)`` and its gradient ``(s, n+d, n)`` in ``theta (s, n+d, n)``.

    Parameters
    ----------
    start
        ``(n, n)`` second moment of the first state.
    covariance
        ``(n, n)`` of the noise, declared.
    """
    H, s, n = cost.horizon, len(theta), theta.shape[2]
    at, bt = theta[:, :n], theta[:, n:]
    A, B = at.swapaxes(1, 2), bt.swapaxes(1, 2)
    P, K = np.zeros((H + 1, s, n, n)), np.zeros((H, s, theta.shape[1] - n, n))
    C, PC, M = np.zeros((H, s, n, n)), np.zeros((H, s, n, n)), np.zeros((H, s, n, n))
    for h in reversed(range(H)):
        BP = bt @ P[h + 1]
        K[h] = -np.linalg.solve(cost.R + BP @ B, BP @ A)
        C[h] = A + B @ K[h]
        PC[h] = P[h + 1] @ C[h]
        following = cost.Q + at @ PC[h]
        P[h] = (following + following.swapaxes(1, 2)) / 2
    M[0] = start
    for h in range(H - 1):
        M[h + 1] = C[h] @ M[h] @ C[h].swapaxes(1, 2) + covariance
    by_state = M @ PC.swapaxes(2, 3)
    gradient = 2 * np.concatenate([by_state.sum(0), (K @ by_state).sum(0)], axis=1)
    return np.einsum("sij,ij->s", P[0], start) + np.einsum("hsij,ij->s", P[1:], covariance), gradient
