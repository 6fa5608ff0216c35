"""LQ systems by name, how they are explored, and exact values of simple controllers in them.

Values are rewards, that is minus expected costs, so that more is better as everywhere else.
"""

# ruff: noqa: N803, N806  (the letters of the paper)

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.card import CardError, LqCard
from pipeline.environments.lq_systems import (
    INSTANCES,
    BoundedNoise,
    Controller,
    LqSystem,
    double_integrator,
    lq_instance,
    norm,
)
from pipeline.mdp.riccati import QuadraticCost, clip_norm, expected_cost, riccati

Array = NDArray[np.float64]
Rows = Sequence[Sequence[float]]
Diagonal = Sequence[float] | Rows

# A and B of the wrong model are each off by this part of their norm, in a random direction; mean over so many
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

    Parameters
    ----------
    name
        ``double-integrator`` or ``lq-1`` … ``lq-5``.

    Raises
    ------
    CardError
        If there is no such world.
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

    Parameters
    ----------
    A, B
        Rows ``(n, n)`` and ``(n, d)``: x' = A x + B u + w.
    horizon
        Steps H of an episode.
    Q, R
        Cost of a step, a diagonal or rows; 1 where left out.
    noise
        Length of w, whose direction is uniform.
    gamma
        Bound on the length of the control.
    start
        First state; the first unit vector where left out.

    Raises
    ------
    ValueError
        If sizes disagree, or ``||A|| + gamma ||B|| + noise <= 1`` fails.
    """
    a, b = np.array(A, dtype=np.float64), np.array(B, dtype=np.float64)
    if a.ndim != 2 or b.ndim != 2 or len(a) != len(b):
        raise ValueError("A and B must be lists of rows, as many in each as the state has coordinates")
    n, d = b.shape
    cost = QuadraticCost(_square(Q, n), _square(R, d), horizon)
    first = np.array(start, dtype=np.float64) if len(start) else np.eye(n)[0]
    return LqSystem("plant", a, b, cost, gamma, BoundedNoise(noise), first)


def _square(given: Diagonal, n: int) -> Array:
    M = np.array(given, dtype=np.float64) if len(given) else np.ones(n)
    return np.diag(M) if M.ndim == 1 else M


def estimated_plant(
    name: str, estimate: tuple[Array, Array], cost: QuadraticCost, gamma: float, covariance: Array, start: Array
) -> LqSystem:
    """An estimated plant as a world, shrunk into Assumption 1 where it is not in it.

    The noise has the declared total variance, and a uniform direction.

    Parameters
    ----------
    name
        What reports call it.
    estimate
        A ``(n, n)`` and B ``(n, d)``.
    cost, gamma
        As declared.
    covariance, start
        Of the noise ``(n, n)``, and the mean of the first state ``(n,)``.
    """
    (A, B), noise = estimate, math.sqrt(float(np.trace(covariance)))
    reach = norm(A) + gamma * norm(B)
    shrink = min(1.0, (1 - noise) / reach) if reach else 1.0
    first = start / max(1.0, float(np.linalg.norm(start)))
    return LqSystem(name, shrink * A, shrink * B, cost, gamma, BoundedNoise(noise), first)


def explorer(system: LqSystem, behaviour: str) -> Controller:
    """How a log is made: ``sphere``, controls uniform on the sphere of radius gamma; ``zero``, none at all.

    Raises
    ------
    CardError
        If there is no such behaviour.
    """
    if behaviour not in BEHAVIOURS:
        raise CardError(f"world {system.name}: no behaviour {behaviour!r}; there are: {', '.join(BEHAVIOURS)}")
    return Controller(system.zero_gains(), system.gamma if behaviour == "sphere" else 0.0)


def explorer_value(system: LqSystem, behaviour: str) -> float:
    """Exact value of a behaviour: isotropic controls are noise of covariance gamma^2/d B B', and cost their own.

    Returns
    -------
    Minus the expected cost of one episode.
    """
    d, radius = system.shape[1], explorer(system, behaviour).explore
    spread = radius**2 / d
    start, covariance = np.outer(system.start, system.start), system.covariance + spread * system.B @ system.B.T
    drift = expected_cost(system.A, system.B, system.cost, system.zero_gains(), start, covariance)
    return -(drift + system.horizon * spread * float(np.trace(system.cost.R)))


def wrong_models(system: LqSystem, draws: int = DRAWS) -> Iterator[Array]:
    """Optimal gains of models whose A and B are each 30 % off in norm, in a random direction.

    Parameters
    ----------
    system
        The true one.
    draws
        Number of models; the seed is fixed, so that a page shows the same number each time.

    Returns
    -------
    Gains ``(H, d, n)`` of each, cut to ``|K_h| <= gamma``.
    """
    r = np.random.default_rng(_SEED)
    for _ in range(draws):
        A, B = (M + WRONG * norm(M) * E / norm(E) for M in (system.A, system.B) for E in [r.normal(size=M.shape)])
        yield clip_norm(riccati(A, B, system.cost)[0], system.gamma)


def check_world(system: LqSystem, card: LqCard) -> None:
    """Refuse to call true what holds for another plant than the card declares.

    Parameters
    ----------
    system
        The world that the recipe's [evaluate] names.
    card
        What the log declares; compared to 1e-6.

    Raises
    ------
    CardError
        Naming what differs.
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
