"""Finite-horizon linear-quadratic control with known parameters: the Riccati recursion, exact costs, their gradient.

| code | paper 004 | shape | meaning |
|---|---|---|---|
| ``A``, ``B`` | A, B | (n, n), (n, d) | x' = A x + B u + w |
| ``theta`` | Θ | (s, n+d, n) | s models, each [A, B]' |
| ``Q``, ``R`` | Q, R | (n, n), (d, d) | cost x'Qx + u'Ru of one step |
| ``gains`` | K_h | (H, d, n) | u = K_h x |
| ``P`` | P_h | (H+1, n, n) | cost to go x'P_h x, without what the noise adds; ``P[H] = 0`` |
| ``C`` | A + B K_h(Θ) | (s, n, n) | closed loop |
| ``M`` | | (s, n, n) | E[x_h x_h'] in the model under its own optimal gains |

Reading: K_h uses P_{h+1}; the paper's eq. (3) prints P_h, which is off by one.  So the last gain is 0: nothing that the
last control does is paid for.

J*(Θ) is a minimum over gains, so its gradient is that of the cost at fixed gains (envelope theorem):
dJ/dA = 2 sum_h P_{h+1} C_h M_h and dJ/dB = 2 sum_h P_{h+1} C_h M_h K_h'.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class QuadraticCost:
    """Cost x'Qx + u'Ru of each of ``horizon`` steps.

    Parameters
    ----------
    Q
        ``(n, n)`` symmetric positive semidefinite.
    R
        ``(d, d)`` symmetric positive definite.

    Raises
    ------
    ValueError
        If a matrix is not symmetric, ``Q`` has a negative eigenvalue, ``R`` one that is not positive, or there is no
        step.
    """

    Q: Array
    R: Array
    horizon: int

    def __post_init__(self) -> None:
        for name, M in (("Q", self.Q), ("R", self.R)):
            if M.ndim != 2 or M.shape[0] != M.shape[1] or not np.array_equal(M, M.T) or not np.isfinite(M).all():
                raise ValueError(f"{name} must be a finite symmetric matrix; got shape {M.shape}")
        if np.linalg.eigvalsh(self.Q)[0] < -1e-12 or np.linalg.eigvalsh(self.R)[0] <= 0:
            raise ValueError("Q must be positive semidefinite and R positive definite")
        if self.horizon < 1:
            raise ValueError(f"horizon must be at least 1; got {self.horizon}")


def riccati(A: Array, B: Array, cost: QuadraticCost) -> tuple[Array, Array]:
    """Optimal gains ``(H, d, n)`` and matrices ``P (H+1, n, n)`` of a known system, from the last step to the first.

    Parameters
    ----------
    A, B
        ``(n, n)`` and ``(n, d)`` of the system.
    cost
        Q, R and the horizon H.
    """
    H, (n, d) = cost.horizon, B.shape
    K, P = np.zeros((H, d, n)), np.zeros((H + 1, n, n))
    for h in reversed(range(H)):
        PB = P[h + 1] @ B
        K[h] = -np.linalg.solve(cost.R + B.T @ PB, PB.T @ A)
        P[h] = cost.Q + A.T @ P[h + 1] @ A + (PB.T @ A).T @ K[h]
        P[h] = (P[h] + P[h].T) / 2
    return K, P


def gain_matrices(A: Array, B: Array, cost: QuadraticCost, gains: Array) -> Array:
    """``P (H+1, n, n)`` of any linear controller ``gains (H, d, n)``: cost to go x'P_h x where no noise is added.

    Parameters
    ----------
    A, B
        ``(n, n)`` and ``(n, d)`` of the system.
    cost
        Q, R and the horizon H.
    gains
        ``(H, d, n)``, u = K_h x.
    """
    n = len(A)
    P = np.zeros((cost.horizon + 1, n, n))
    for h in reversed(range(cost.horizon)):
        K, closed = gains[h], A + B @ gains[h]
        P[h] = cost.Q + K.T @ cost.R @ K + closed.T @ P[h + 1] @ closed
    return P


def expected_cost(A: Array, B: Array, cost: QuadraticCost, gains: Array, start: Array, covariance: Array) -> float:
    """Exact expected summed cost J of a linear controller.

    Parameters
    ----------
    A, B
        ``(n, n)`` and ``(n, d)`` of the system.
    cost
        Q, R and the horizon H.
    gains
        ``(H, d, n)``; of a controller that is never cut: where controls are clipped the cost is no longer quadratic.
    start
        ``(n, n)`` second moment E[x x'] of the first state.
    covariance
        ``(n, n)`` of the noise, which has mean 0 and is independent of the past; truncation changes this matrix only.
    """
    P = gain_matrices(A, B, cost, gains)
    return float(np.sum(P[0] * start) + np.sum(P[1:] * covariance))


def clip_norm(gains: Array, bound: float) -> Array:
    """The nearest gains whose spectral norm is at most ``bound``, so that |u| <= bound |x|.

    Parameters
    ----------
    gains
        ``(…, d, n)``.
    bound
        Largest singular value that stays.
    """
    left, size, right = np.linalg.svd(gains, full_matrices=False)
    return (left * np.minimum(size, bound)[..., None, :]) @ right


def optimal_costs(theta: Array, cost: QuadraticCost, start: Array, covariance: Array) -> tuple[Array, Array]:
    """J* ``(s,)`` and its gradient ``(s, n+d, n)`` in ``theta (s, n+d, n)``.

    Parameters
    ----------
    theta
        ``(s, n+d, n)``, models [A, B]'.
    cost
        Q, R and the horizon H.
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
