"""Linear-quadratic control of plants that are known up to a normal error; many models at once.

| code | shape | meaning |
|---|---|---|
| ``theta`` | (s, n, D) | s models, each [A, B]; D = n + d |
| ``error`` | (s, D, D) | covariance of every row of ``theta``, rows independent |
| ``gains`` | (s, H, d, n), or (H, d, n) for all | u = K_h x |

With theta uncertain, E[theta' P theta] = mean' P mean + tr(P) error: the Riccati recursion with that in the place of
theta' P theta makes gains smaller where the effect of a control is not known (control under multiplicative noise).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.riccati import QuadraticCost

Array = NDArray[np.float64]


def cautious_gains(theta: Array, error: Array, cost: QuadraticCost) -> Array:
    """Gains ``(s, H, d, n)`` of least expected cost, were the error drawn anew at each step.

    Parameters
    ----------
    theta, error
        Means and covariances; without error these are the gains of :func:`~pipeline.mdp.riccati.riccati`.
    cost
        Q, R and the horizon H.
    """
    s, n, D = theta.shape
    to_go, gains = np.zeros((s, n, n)), np.zeros((s, cost.horizon, D - n, n))
    for h in reversed(range(cost.horizon)):
        F = theta.swapaxes(1, 2) @ to_go @ theta + np.trace(to_go, axis1=1, axis2=2)[:, None, None] * error
        gains[:, h] = -np.linalg.solve(cost.R + F[:, n:, n:], F[:, n:, :n])
        to_go = cost.Q + F[:, :n, :n] + F[:, :n, n:] @ gains[:, h]
        to_go = (to_go + to_go.swapaxes(1, 2)) / 2
    return gains


def expected_costs(
    theta: Array, gains: Array, cost: QuadraticCost, start: Array, covariance: Array, explore: float = 0.0
) -> Array:
    """Exact expected summed cost ``(s,)`` of one episode in each model.

    Parameters
    ----------
    theta, gains
        See the module.
    cost
        Q, R and the horizon H.
    start, covariance
        ``(n,)`` fixed first state, and ``(n, n)`` of the plant's noise.
    explore
        Radius of the sphere on which what is added to every control is uniform.
    """
    s, n, D = theta.shape
    A, B, K = theta[..., :n], theta[..., n:], _of_each(gains, s)
    to_go, total, spread = np.zeros((s, n, n)), np.zeros(s), explore**2 / (D - n)
    for h in reversed(range(cost.horizon)):
        pushed = np.trace(cost.R) + np.einsum("sji,sjk,ski->s", B, to_go, B)
        total += np.einsum("sij,ij->s", to_go, covariance) + spread * pushed
        closed = A + B @ K[:, h]
        to_go = cost.Q + K[:, h].swapaxes(1, 2) @ cost.R @ K[:, h] + closed.swapaxes(1, 2) @ to_go @ closed
    return total + np.einsum("sij,i,j->s", to_go, start, start)


def occupancies(
    theta: Array, gains: Array, horizon: int, start: Array, covariance: Array, explore: float = 0.0
) -> Array:
    """Expected sums of z z' over an episode ``(s, D, D)``, with z = (x, u).

    Parameters
    ----------
    theta, gains, start, covariance, explore
        As of :func:`expected_costs`.
    horizon
        H.
    """
    s, n, D = theta.shape
    K, second, found = _of_each(gains, s), np.broadcast_to(np.outer(start, start), (s, n, n)), np.zeros((s, D, D))
    for h in range(horizon):
        lift = np.concatenate([np.broadcast_to(np.eye(n), (s, n, n)), K[:, h]], axis=1)
        z = lift @ second @ lift.swapaxes(1, 2)
        z[:, n:, n:] += np.eye(D - n) * (explore**2 / (D - n))
        found += z
        second = theta @ z @ theta.swapaxes(1, 2) + covariance
    return found


def simulated_episodes(
    theta: Array, gains: Array, explore: float, start: Array, covariance: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """One made-up episode of each model: z ``(s, H, D)``, and where each step led ``(s, H, n)``.

    Parameters
    ----------
    theta, explore, start, covariance
        As of :func:`expected_costs`; the noise is drawn normal.
    gains
        ``(H, d, n)``.
    rng
        Public randomness.
    """
    s, n, D = theta.shape
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    x, rows, following = np.broadcast_to(start, (s, n)), list[Array](), list[Array]()
    for K in gains:
        push = rng.normal(size=(s, D - n))
        push *= explore / np.linalg.norm(push, axis=1, keepdims=True)
        rows.append(np.concatenate([x, x @ K.T + push], axis=1))
        x = np.einsum("sij,sj->si", theta, rows[-1]) + rng.normal(size=(s, n)) @ root.T
        following.append(x)
    return np.stack(rows, axis=1), np.stack(following, axis=1)


def _of_each(gains: Array, models: int) -> Array:
    return gains if gains.ndim == 4 else np.broadcast_to(gains, (models, *gains.shape))
