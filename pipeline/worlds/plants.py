"""Episodic linear-quadratic systems x' = A x + B u + w whose states stay in the unit ball for an episode.

Assumption 1 of paper 004, ``||A|| + gamma ||B|| + C_w <= 1``, keeps them there for ever; a plant that grows by itself
stays there for H steps, in units of its own reach.  The noise is truncated, and its covariance is known exactly: costs
of linear controllers are numbers, not averages.  Two laws, both isotropic: ``sphere``, uniform on |w| = C_w, and
``gaussian``, a normal vector of standard deviation ``deviation`` a coordinate, conditioned on |w| <= C_w.

What is not exactly right
    * the paper prints no system: :data:`INSTANCES` holds sizes and norms, the matrices are normal draws scaled to these
      norms, and R = r I has the smallest r of :data:`CONTROL_COSTS` at which the optimal gains stay within gamma;
    * Assumption 1(e) needs ``||A|| < 1``, which no marginally stable plant meets in any coordinates: the double
      integrator is damped, which is a discount of the cost by the square of the factor.

LQ systems by name, how they are explored, and exact values of simple controllers in them.

Values are rewards, that is minus expected costs, so that more is better as everywhere else.
"""

# ruff: noqa: N803, N806  (the letters of the paper)
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline.arrays import Array
from pipeline.declaration.card import CardError, LqCard
from pipeline.mdp.riccati import QuadraticCost, clip_norm, expected_cost, riccati
from pipeline.mdp.rollout import LinearRollout

# a sum of norms computed in floats may pass 1 by this much
_ROUNDING = 1e-9
# beyond it a plant is not one that a controller could be tried on
_FURTHEST = 1e6


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

    ``A`` ``(n, n)``: x' = A x + B u + w.
    ``B``: ``(n, d)``.
    ``cost``: Q ``(n, n)``, R ``(d, d)`` and the horizon H.
    ``start`` ``(n,)``: fixed first state.
    Raises ValueError if shapes disagree, or a state can leave the unit ball within H steps.
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
        longest = reach(self.A, self.B, self.gamma, self.noise.bound, self.start, self.horizon)
        if not longest <= 1 + _ROUNDING or not self.gamma > 0:
            raise ValueError(f"states must stay in the unit ball, gamma positive; a state can reach {longest:.6g}")

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


def simulate(system: LqSystem, rollout: LinearRollout, rng: np.random.Generator) -> tuple[Array, Array]:
    """States ``(episodes, H+1, n)`` and controls ``(episodes, H, d)``, all episodes at once; ``|u|`` is cut to gamma.

    ``rng``: simulation only; draws per step are those of the controls, then those of the noise.
    """
    H, (n, d), episodes = system.horizon, system.shape, rollout.episodes
    states, controls = np.empty((episodes, H + 1, n)), np.empty((episodes, H, d))
    states[:, 0] = system.start
    for h in range(H):
        x = states[:, h]
        u = x @ rollout.gains[h].T + on_sphere((episodes, d), rollout.explore, rng)
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


def reach(A: Array, B: Array, gamma: float, bound: float, start: Array, horizon: int) -> float:
    """Largest norm of a state within ``horizon`` steps, over all controls of length gamma and all noise."""
    power, pushed, longest = np.eye(len(A)), 0.0, float(np.linalg.norm(start))
    for _ in range(horizon):
        pushed += gamma * norm(power @ B) + bound * norm(power)
        power = A @ power
        longest = max(longest, float(np.linalg.norm(power @ start)) + pushed)
    return longest


# sizes and norms of an instance: n, d, H, ||A||, ||B||, gamma, C_w
INSTANCES = {
    1: (2, 1, 10, 0.5, 0.3, 1.0, 0.2),
    2: (3, 1, 10, 0.5, 0.3, 1.0, 0.2),
    3: (4, 2, 20, 0.5, 0.3, 1.0, 0.2),
    4: (2, 2, 10, 0.3, 0.6, 0.5, 0.4),
    5: (2, 2, 10, 0.6, 0.35, 1.0, 0.05),
}
CONTROL_COSTS = tuple(m * 10.0**e for e in range(-3, 1) for m in (1.0, 2.0, 5.0))


def lq_instance(number: int, seed: int = 11) -> LqSystem:
    """One of :data:`INSTANCES`: normal A, B and first state, drawn in this order and scaled to their norms; Q = I.

    Raises ValueError if there is no such instance, or no listed cost keeps the optimal gains within gamma.
    """
    if number not in INSTANCES:
        raise ValueError(f"no LQ instance {number}; there are: {', '.join(map(str, INSTANCES))}")
    (n, d, horizon, C_A, C_B, gamma, C_w), rng = INSTANCES[number], np.random.default_rng(seed)
    shapes = ((n, n), C_A), ((n, d), C_B), ((n, 1), 1.0)
    A, B, start = (M * (size / norm(M)) for M, size in ((rng.normal(size=shape), size) for shape, size in shapes))
    cost = cheapest_within(A, B, horizon, gamma)
    return LqSystem(f"lq-{number}", A, B, cost, gamma, BoundedNoise(C_w), start[:, 0])


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

    ``C_w``: bound on the length of the noise.
    """
    held, pushed = np.array([[1.0, period], [0.0, 1.0]]), np.array([[period**2 / 2], [period]])
    factor = (1 - C_w) / (norm(held) + gamma * norm(pushed))
    A, B = held * factor, pushed * factor
    noise = BoundedNoise(C_w, "gaussian", deviation)
    return LqSystem(
        "double-integrator", A, B, cheapest_within(A, B, horizon, gamma), gamma, noise, np.array([1.0, 0.0])
    )


Rows = Sequence[Sequence[float]]
Diagonal = Sequence[float] | Rows

# error of the wrong model's A and B as a share of their norm, number of random directions, and their seed
WRONG, DRAWS, _SEED = 0.3, 200, 7
# a card's decimals against a world's floats
_CLOSE = 1e-6

LQ_WORLDS: Mapping[str, Callable[[], LqSystem]] = {
    "double-integrator": double_integrator,
    **{f"lq-{number}": lambda number=number: lq_instance(number) for number in INSTANCES},
}
BEHAVIOURS = ("sphere", "zero")


def load_lq_world(name: str) -> LqSystem:
    """One of :data:`LQ_WORLDS`.

    ``name``: ``double-integrator`` or ``lq-1`` … ``lq-5``.
    Raises CardError if there is no such world.
    """
    if name not in LQ_WORLDS:
        raise CardError(f"no linear-quadratic world {name!r}; there are: {', '.join(LQ_WORLDS)}")
    return LQ_WORLDS[name]()


def written_plant(
    A: Rows,
    B: Rows,
    horizon: int,
    Q: Diagonal = (),
    R: Diagonal = (),
    noise: float = 0.05,
    gamma: float = 1.0,
    start: Sequence[float] = (),
) -> LqSystem:
    """A plant that a recipe writes out.

    ``A``, ``B``: rows ``(n, n)`` and ``(n, d)``: x' = A x + B u + w.
    ``Q``, ``R``: cost of a step, a diagonal or rows; 1 where left out.
    ``noise``: length of w, whose direction is uniform.
    ``gamma``: bound on the length of the control.
    A plant whose states can be longer than 1 within the horizon, such as one that grows by itself, is the same plant
    in units of that reach: B, noise and start are divided by it, Q is multiplied by its square, costs are the same.
    Raises ValueError if sizes disagree, or a state can be longer than 1e6.
    """
    a, b = np.array(A, dtype=np.float64), np.array(B, dtype=np.float64)
    if a.ndim != 2 or b.ndim != 2 or len(a) != len(b):
        raise ValueError("A and B must be lists of rows, as many in each as the state has coordinates")
    n, d = b.shape
    first = np.array(start, dtype=np.float64) if len(start) else np.eye(n)[0]
    if a.shape != (n, n) or first.shape != (n,):
        raise ValueError(f"A, Q, R, start must fit B {b.shape}; got A {a.shape}, start {first.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        unit = max(1.0, reach(a, b, gamma, noise, first, horizon))
    if not unit <= _FURTHEST:
        raise ValueError(f"a state can be {unit:.3g} long after {horizon} steps; shorten the horizon")
    unit = 1.0 if unit <= 1 + _ROUNDING else unit
    cost = QuadraticCost(_square(Q, n) * unit**2, _square(R, d), horizon)
    return LqSystem("plant", a, b / unit, cost, gamma, BoundedNoise(noise / unit), first / unit)


def _square(given: Diagonal, n: int) -> Array:
    M = np.array(given, dtype=np.float64) if len(given) else np.ones(n)
    return np.diag(M) if M.ndim == 1 else M


def estimated_plant(
    name: str, estimate: tuple[Array, Array], cost: QuadraticCost, gamma: float, covariance: Array, start: Array
) -> LqSystem:
    """An estimated plant as a world, shrunk into Assumption 1 where it is not in it.

    The noise has the declared total variance, and a uniform direction.

    ``estimate``: A ``(n, n)`` and B ``(n, d)``.
    ``covariance``, ``start``: of the noise ``(n, n)``, and the mean of the first state ``(n,)``.
    """
    (A, B), noise = estimate, math.sqrt(float(np.trace(covariance)))
    reach = norm(A) + gamma * norm(B)
    shrink = min(1.0, (1 - noise) / reach) if reach else 1.0
    first = start / max(1.0, float(np.linalg.norm(start)))
    return LqSystem(name, shrink * A, shrink * B, cost, gamma, BoundedNoise(noise), first)


def explorer(system: LqSystem, behaviour: str, episodes: int = 1) -> LinearRollout:
    """Episodes of a behaviour: ``sphere``, controls uniform on the sphere of radius gamma; ``zero``, none at all.

    Raises CardError if there is no such behaviour.
    """
    if behaviour not in BEHAVIOURS:
        raise CardError(f"world {system.name}: no behaviour {behaviour!r}; there are: {', '.join(BEHAVIOURS)}")
    return LinearRollout(system.zero_gains(), episodes, system.gamma if behaviour == "sphere" else 0.0)


def explorer_value(system: LqSystem, behaviour: str) -> float:
    """Exact value of a behaviour: isotropic controls are noise of covariance gamma^2/d B B', and cost their own.

    Returns minus the expected cost of one episode.
    """
    d, radius = system.shape[1], explorer(system, behaviour).explore
    spread = radius**2 / d
    start, covariance = np.outer(system.start, system.start), system.covariance + spread * system.B @ system.B.T
    drift = expected_cost(system.A, system.B, system.cost, system.zero_gains(), start, covariance)
    return -(drift + system.horizon * spread * float(np.trace(system.cost.R)))


def wrong_models(system: LqSystem, draws: int = DRAWS) -> Iterator[Array]:
    """Optimal gains of models whose A and B are each 30 % off in norm, in a random direction.

    Returns gains ``(H, d, n)`` of each, cut to ``|K_h| <= gamma``.
    """
    rng = np.random.default_rng(_SEED)
    return (wrong_model(system, rng) for _ in range(draws))


def wrong_model(system: LqSystem, rng: np.random.Generator) -> Array:
    """Optimal gains ``(H, d, n)`` of one such model, whose direction ``rng`` draws."""
    A, B = (M + WRONG * norm(M) * E / norm(E) for M in (system.A, system.B) for E in [rng.normal(size=M.shape)])
    return clip_norm(riccati(A, B, system.cost)[0], system.gamma)


def check_world(system: LqSystem, card: LqCard) -> None:
    """Refuse a plant other than the one that the card declares.

    ``card``: what the log declares; compared to 1e-6.
    Raises CardError naming what differs.
    """
    d, cost = card.domain, card.quadratic
    pairs = {
        "domain.observation": (np.array([d.observation.size, *d.observation.scales]), [system.shape[0], 1.0]),
        "domain.action": (np.array([d.action.size, *d.action.scales]), [system.shape[1], 1.0]),
        "domain.action.radius": (np.array(d.action.radius), system.gamma),
        "domain.horizon": (np.array(d.horizon), system.horizon),
        "domain.start": (d.first_moment(), np.outer(system.start, system.start)),
        "domain.noise_covariance": (d.noise(), system.covariance),
        "cost.Q": (cost.Q, system.cost.Q),
        "cost.R": (cost.R, system.cost.R),
    }
    for key, (declared, true) in pairs.items():
        of_world = np.array(true, dtype=np.float64)
        if key in ("domain.observation", "domain.action"):
            of_world = np.concatenate([of_world, np.ones(declared.size - of_world.size)])
        if declared.shape != of_world.shape or not np.allclose(declared, of_world, rtol=_CLOSE, atol=_CLOSE):
            raise CardError(f"{card.name}: {key} is not that of the world {system.name}; mend it, or drop [evaluate]")
