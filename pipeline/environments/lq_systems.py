"""Episodic linear-quadratic systems x' = A x + B u + w under Assumption 1 of paper 004.

The noise is truncated, so that states stay in the unit ball, and its covariance is known exactly: costs of linear
controllers are numbers, not averages.  Two laws, both isotropic: ``sphere``, uniform on |w| = C_w, and ``gaussian``, a
normal vector of standard deviation ``deviation`` a coordinate, conditioned on |w| <= C_w.

What is not exactly right
    * the paper prints no system: :data:`INSTANCES` holds sizes and norms, the matrices are normal draws scaled to these
      norms, and R = r I has the smallest r of :data:`CONTROL_COSTS` at which the optimal gains stay within gamma;
    * Assumption 1(e) needs ``||A|| < 1``, which no marginally stable plant meets in any coordinates: the double
      integrator is damped, which is a discount of the cost by the square of the factor.
"""

# ruff: noqa: N803, N806  (the letters of the paper)

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.riccati import QuadraticCost, expected_cost, riccati

Array = NDArray[np.float64]

# a sum of three norms computed in floats may pass 1 by this much
_ROUNDING = 1e-9


@dataclass(frozen=True)
class BoundedNoise:
    """Isotropic noise of mean 0 with ``|w| <= bound``; ``deviation`` is of one coordinate before truncation."""

    bound: float
    law: Literal["sphere", "gaussian"] = "sphere"
    deviation: float = math.inf

    def __post_init__(self) -> None:
        if self.bound < 0 or (self.law == "gaussian" and not 0 < self.deviation < math.inf):
            raise ValueError("noise needs a bound >= 0 and, where gaussian, a finite positive deviation")

    def variance(self, n: int) -> float:
        """Exact variance of one of ``n`` coordinates: the covariance is this times the identity."""
        if self.law == "sphere":
            return self.bound**2 / n
        from scipy.special import gammainc

        # |w|²/2s² is a gamma variable of shape n/2, cut at x; its mean moves the shape up by one
        x = self.bound**2 / (2 * self.deviation**2)
        return self.deviation**2 * float(gammainc(n / 2 + 1, x) / gammainc(n / 2, x))

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Draws ``shape``, one vector along the last axis."""
        direction = on_sphere(shape, 1.0, rng)
        if self.law == "sphere":
            return direction * self.bound
        from scipy.special import gammainc, gammaincinv

        half, x = shape[-1] / 2, self.bound**2 / (2 * self.deviation**2)
        radius = self.deviation * np.sqrt(2 * gammaincinv(half, rng.random((*shape[:-1], 1)) * gammainc(half, x)))
        return direction * np.minimum(radius, self.bound)


@dataclass(frozen=True)
class LqSystem:
    """A system with known parameters; ``start (n,)`` is the fixed first state, ``gamma`` bounds the control's length.

    Parameters
    ----------
    name
        What reports call it.
    A
        ``(n, n)``: x' = A x + B u + w.
    B
        ``(n, d)``.
    cost
        Q ``(n, n)``, R ``(d, d)`` and the horizon H.
    gamma
        Bound on |u|, positive.
    noise
        Law of w, which is bounded.
    start
        ``(n,)`` fixed first state.

    Raises
    ------
    ValueError
        If shapes disagree or Assumption 1 fails: ``|start| <= 1`` and ``||A|| + gamma ||B|| + C_w <= 1``.
    """

    name: str
    A: Array
    B: Array
    cost: QuadraticCost
    gamma: float
    noise: BoundedNoise
    start: Array

    def __post_init__(self) -> None:
        n, d = self.shape
        shapes = (self.A.shape, self.cost.Q.shape, self.cost.R.shape, self.start.shape)
        if shapes != ((n, n), (n, n), (d, d), (n,)):
            raise ValueError(f"A, Q, R, start must fit B {self.B.shape}; got {shapes}")
        reach = norm(self.A) + self.gamma * norm(self.B) + self.noise.bound
        if not reach <= 1 + _ROUNDING or not np.linalg.norm(self.start) <= 1 + _ROUNDING or not self.gamma > 0:
            raise ValueError(
                f"Assumption 1 fails: ||A|| + gamma ||B|| + C_w = {reach:.6g} and |start| = "
                f"{np.linalg.norm(self.start):.6g} must be at most 1, gamma positive"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        n, d = self.B.shape
        return n, d

    @property
    def horizon(self) -> int:
        """H."""
        return self.cost.horizon

    @property
    def covariance(self) -> Array:
        """``(n, n)`` of the noise, exact; declared to planners."""
        n = self.shape[0]
        return np.eye(n) * self.noise.variance(n)

    def expected_cost(self, gains: Array) -> float:
        """Exact J of a linear controller ``(H, d, n)`` with ``||K_h|| <= gamma``, which is therefore never cut."""
        return expected_cost(self.A, self.B, self.cost, gains, np.outer(self.start, self.start), self.covariance)

    def optimal_gains(self) -> Array:
        """``(H, d, n)``."""
        return riccati(self.A, self.B, self.cost)[0]

    def zero_gains(self) -> Array:
        """``(H, d, n)`` of the controller that does nothing."""
        n, d = self.shape
        return np.zeros((self.horizon, d, n))


@dataclass(frozen=True)
class Controller:
    """u = K_h x + xi, cut to ``|u| <= gamma``; xi is uniform on the sphere of radius ``explore``.

    Parameters
    ----------
    gains
        ``(H, d, n)``.
    explore
        Radius of xi.
    """

    gains: Array
    explore: float = 0.0


def simulate(system: LqSystem, controller: Controller, episodes: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """States ``(episodes, H+1, n)`` and controls ``(episodes, H, d)``, all episodes at once.

    Parameters
    ----------
    system
        A world with known parameters.
    controller
        Gains ``(H, d, n)`` and what it adds to explore.
    episodes
        How many at once.
    rng
        Simulation only; draws per step are those of the controls, then those of the noise.
    """
    H, (n, d) = system.horizon, system.shape
    states, controls = np.empty((episodes, H + 1, n)), np.empty((episodes, H, d))
    states[:, 0] = system.start
    for h in range(H):
        x = states[:, h]
        u = x @ controller.gains[h].T + on_sphere((episodes, d), controller.explore, rng)
        length = np.linalg.norm(u, axis=-1, keepdims=True)
        controls[:, h] = u * np.minimum(1.0, system.gamma / np.maximum(length, system.gamma))
        states[:, h + 1] = x @ system.A.T + controls[:, h] @ system.B.T + system.noise.draw((episodes, n), rng)
    return states, controls


def on_sphere(shape: tuple[int, ...], radius: float, rng: np.random.Generator) -> Array:
    """Uniform draws ``shape`` on the sphere of ``radius``, one vector along the last axis."""
    g = rng.normal(size=shape)
    return g * (radius / np.linalg.norm(g, axis=-1, keepdims=True))


def norm(M: Array) -> float:
    """Spectral norm."""
    return float(np.linalg.norm(M, 2))


@dataclass(frozen=True)
class Sizes:
    """Sizes and norms of one instance: n, d, H, ||A||, ||B||, gamma, C_w."""

    n: int
    d: int
    horizon: int
    C_A: float
    C_B: float
    gamma: float
    C_w: float


INSTANCES = {
    1: Sizes(2, 1, 10, 0.5, 0.3, 1.0, 0.2),
    2: Sizes(3, 1, 10, 0.5, 0.3, 1.0, 0.2),
    3: Sizes(4, 2, 20, 0.5, 0.3, 1.0, 0.2),
    4: Sizes(2, 2, 10, 0.3, 0.6, 0.5, 0.4),
    5: Sizes(2, 2, 10, 0.6, 0.35, 1.0, 0.05),
}
CONTROL_COSTS = tuple(m * 10.0**e for e in range(-3, 1) for m in (1.0, 2.0, 5.0))


def lq_instance(number: int, seed: int = 11) -> LqSystem:
    """One of :data:`INSTANCES`: normal A, B and first state, drawn in this order and scaled to their norms; Q = I.

    Parameters
    ----------
    number
        A key of :data:`INSTANCES`.
    seed
        Of the generator that draws A, B and the first state.

    Raises
    ------
    ValueError
        If there is no such instance, or no listed cost keeps the optimal gains within gamma.
    """
    if number not in INSTANCES:
        raise ValueError(f"no LQ instance {number}; there are: {', '.join(map(str, INSTANCES))}")
    s, rng = INSTANCES[number], np.random.default_rng(seed)
    shapes = ((s.n, s.n), s.C_A), ((s.n, s.d), s.C_B), ((s.n, 1), 1.0)
    A, B, start = (M * (size / norm(M)) for M, size in ((rng.normal(size=shape), size) for shape, size in shapes))
    cost = cheapest_within(A, B, s.horizon, s.gamma)
    return LqSystem(f"lq-{number}", A, B, cost, s.gamma, BoundedNoise(s.C_w), start[:, 0])


def cheapest_within(A: Array, B: Array, horizon: int, gamma: float) -> QuadraticCost:
    """Q = I and R = r I of the smallest r in :data:`CONTROL_COSTS` whose optimal gains have ``||K_h|| <= gamma``."""
    for r in CONTROL_COSTS:
        cost = QuadraticCost(np.eye(len(A)), r * np.eye(B.shape[1]), horizon)
        if np.linalg.norm(riccati(A, B, cost)[0], 2, axis=(1, 2)).max() <= gamma:
            return cost
    raise ValueError(f"no control cost up to {CONTROL_COSTS[-1]} keeps the optimal gains within {gamma}")


def double_integrator(
    period: float = 0.5, horizon: int = 20, C_w: float = 0.05, gamma: float = 1.0, deviation: float = 0.03
) -> LqSystem:
    """A mass pushed by a force, sampled every ``period`` seconds, damped into Assumption 1.

    State: position and velocity, as parts of their declared ranges; ``[A, B]`` of the zero-order hold is scaled by the
    one factor at which ``||A|| + gamma ||B|| + C_w = 1``: the same as a discount of the cost by its square.

    Parameters
    ----------
    period
        Seconds between two samples.
    horizon
        Steps H of an episode.
    C_w
        Bound on the length of the noise.
    gamma
        Bound on the force, as a part of its range.
    deviation
        Of one coordinate of the noise before truncation.
    """
    held, pushed = np.array([[1.0, period], [0.0, 1.0]]), np.array([[period**2 / 2], [period]])
    factor = (1 - C_w) / (norm(held) + gamma * norm(pushed))
    A, B = held * factor, pushed * factor
    noise = BoundedNoise(C_w, "gaussian", deviation)
    return LqSystem(
        "double-integrator", A, B, cheapest_within(A, B, horizon, gamma), gamma, noise, np.array([1.0, 0.0])
    )
