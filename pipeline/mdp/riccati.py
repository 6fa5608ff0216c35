"""Finite-horizon linear-quadratic control with known parameters: the Riccati recursion, exact costs, their gradient.

| code | paper 004 | shape | meaning |
|---|---|---|---|
| ``A``, ``B`` | A, B | (n, n), (n, d) | x' = A x + B u + w |
| ``theta`` | Θ | (s, n+d, n) | s models, each [A, B]' |
| ``Q``, ``R`` | Q, R | (n, n), (d, d) | cost x'Qx + u'Ru of one step |
| ``gains`` | K_h | (H, d, n) | u = K_h x |
| ``P`` | P_h | (H+1, n, n) | cost to go x'P_h x, without the cost of noise; ``P[H] = 0`` |
| ``C`` | A + B K_h(Θ) | (s, n, n) | closed loop |
| ``M`` | | (s, n, n) | E[x_h x_h'] in the model under its own optimal gains |

Reading: K_h uses P_{h+1}; the paper's eq. (3) prints P_h, which is off by one.  So the last gain is 0: the
state after the last control costs nothing.

J*(Θ) is a minimum over gains, so its gradient is that of the cost at fixed gains (envelope theorem):
dJ/dA = 2 sum_h P_{h+1} C_h M_h and dJ/dB = 2 sum_h P_{h+1} C_h M_h K_h'.

Linear-quadratic control of plants that are known up to a normal error; many models at once.

| code | shape | meaning |
|---|---|---|
| ``theta`` | (s, n, D) | s models, each [A, B]; D = n + d |
| ``error`` | (s, D, D) | covariance of every row of ``theta``, rows independent |
| ``gains`` | (s, H, d, n), or (H, d, n) for all | u = K_h x |

With theta uncertain, E[theta' P theta] = mean' P mean + tr(P) error: the Riccati recursion with that in the place of
theta' P theta makes gains smaller where the effect of a control is not known (control under multiplicative noise).
"""

from dataclasses import dataclass

import numpy as np

from pipeline.arrays import Array


@dataclass(frozen=True)
class QuadraticCost:
    """Cost x'Qx + u'Ru of each of ``horizon`` steps.

    ``Q`` ``(n, n)``: symmetric positive semidefinite.
    ``R`` ``(d, d)``: symmetric positive definite.
    Raises ValueError if a matrix is not symmetric, ``Q`` has a negative eigenvalue, ``R`` one that is not positive, or
    there is no step.
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

    ``A``, ``B`` ``(n, n)``: and ``(n, d)`` of the system.
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

    ``A``, ``B`` ``(n, n)``: and ``(n, d)`` of the system.
    ``gains`` ``(H, d, n)``: u = K_h x.
    """
    n = len(A)
    P = np.zeros((cost.horizon + 1, n, n))
    for h in reversed(range(cost.horizon)):
        K, closed = gains[h], A + B @ gains[h]
        P[h] = cost.Q + K.T @ cost.R @ K + closed.T @ P[h + 1] @ closed
    return P


def expected_cost(A: Array, B: Array, cost: QuadraticCost, gains: Array, start: Array, covariance: Array) -> float:
    """Exact expected summed cost J of a linear controller.

    ``A``, ``B`` ``(n, n)``: and ``(n, d)`` of the system.
    ``gains`` ``(H, d, n)``: of a controller that is never cut: where controls are clipped the cost is no longer
    quadratic.
    ``start`` ``(n, n)``: second moment E[x x'] of the first state.
    ``covariance`` ``(n, n)``: of the noise, which has mean 0 and is independent of the past; truncation changes this
    matrix only.
    """
    P = gain_matrices(A, B, cost, gains)
    return float(np.sum(P[0] * start) + np.sum(P[1:] * covariance))


def clip_norm(gains: Array, bound: float) -> Array:
    """The nearest gains whose spectral norm is at most ``bound``, so that |u| <= bound |x|.

    ``gains``: ``(…, d, n)``.
    """
    left, size, right = np.linalg.svd(gains, full_matrices=False)
    return (left * np.minimum(size, bound)[..., None, :]) @ right


def optimal_costs(theta: Array, cost: QuadraticCost, start: Array, covariance: Array) -> tuple[Array, Array]:
    """J* ``(s,)`` and its gradient ``(s, n+d, n)`` in ``theta (s, n+d, n)``.

    ``theta`` ``(s, n+d, n)``: models [A, B]'.
    ``start`` ``(n, n)``: second moment of the first state.
    ``covariance`` ``(n, n)``: of the noise, declared.
    """
    H, s, n = cost.horizon, len(theta), theta.shape[2]
    a_transposed, b_transposed = theta[:, :n], theta[:, n:]
    A, B = a_transposed.swapaxes(1, 2), b_transposed.swapaxes(1, 2)
    P, K = np.zeros((H + 1, s, n, n)), np.zeros((H, s, theta.shape[1] - n, n))
    C, PC, M = np.zeros((H, s, n, n)), np.zeros((H, s, n, n)), np.zeros((H, s, n, n))
    for h in reversed(range(H)):
        BP = b_transposed @ P[h + 1]
        K[h] = -np.linalg.solve(cost.R + BP @ B, BP @ A)
        C[h] = A + B @ K[h]
        PC[h] = P[h + 1] @ C[h]
        following = cost.Q + a_transposed @ PC[h]
        P[h] = (following + following.swapaxes(1, 2)) / 2
    M[0] = start
    for h in range(H - 1):
        M[h + 1] = C[h] @ M[h] @ C[h].swapaxes(1, 2) + covariance
    by_state = M @ PC.swapaxes(2, 3)
    gradient = 2 * np.concatenate([by_state.sum(0), (K @ by_state).sum(0)], axis=1)
    return np.einsum("sij,ij->s", P[0], start) + np.einsum("hsij,ij->s", P[1:], covariance), gradient


def cautious_gains(theta: Array, error: Array, cost: QuadraticCost) -> Array:
    """Gains ``(s, H, d, n)`` of least expected cost, were the error drawn anew at each step.

    ``theta``, ``error``: means and covariances; without error these are the gains of
    :func:`~pipeline.mdp.riccati.riccati`.
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

    ``start``, ``covariance`` ``(n,)``: fixed first state, and ``(n, n)`` of the plant's noise.
    ``explore``: radius of the sphere on which the exploration of every control is uniform.
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
    theta: Array, gains: Array, horizon: int, start: Array, covariance: Array, explore: float | Array = 0.0
) -> Array:
    """Expected sums of z z' over an episode ``(s, D, D)``, with z = (x, u); ``explore`` of all, or ``(s, 1, 1)``."""
    s, n, D = theta.shape
    second, total = np.broadcast_to(np.outer(start, start), (s, n, n)), np.zeros((s, D, D))
    K, exploration, transposed = _of_each(gains, s), np.eye(D - n) * (explore**2 / (D - n)), theta.swapaxes(1, 2)
    lifts = np.concatenate([np.broadcast_to(np.eye(n), (s, horizon, n, n)), K[:, :horizon]], axis=2)
    for h in range(horizon):
        z = lifts[:, h] @ second @ lifts[:, h].swapaxes(1, 2)
        z[:, n:, n:] += exploration
        total += z
        second = theta @ z @ transposed + covariance
    return total


def simulated_episodes(
    theta: Array, gains: Array, explore: float, start: Array, covariance: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """One made-up episode of each model: z ``(s, H, D)``, and next states ``(s, H, n)``.

    ``gains``: ``(H, d, n)``.
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
