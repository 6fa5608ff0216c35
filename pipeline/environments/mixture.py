"""Linear mixture MDPs: worlds whose kernel is a mixture of known ones, P_h = sum_i theta_{h,i} psi_i.

:func:`random_mixture` is a mixture of few kernels (:mod:`pipeline.environments.random_mixture`): an agent knows the
psi_i and the rewards, not theta: d unknowns a step instead of S^2 A.  V* is exact, by backward induction in the mixed
kernel.

:func:`tabular_mixture` writes any tabular world as a mixture of S^2 A one-hot psi = e_(s,a,s'): the degenerate case
that papers 000 and 001 simulate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.environments.random_mixture import drawn
from pipeline.environments.registry import load_world
from pipeline.environments.world import World
from pipeline.mdp.mixture import MixtureFeatures, dense, one_hot
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import optimal_values

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Mixture:
    """A world, what an agent knows of it, and what it has to learn.

    Parameters
    ----------
    mdp
        The world, cut at its horizon.
    features
        Known psi.
    theta
        ``(H, d_1)`` weights that reproduce the world's transitions; hidden from agents.
    """

    name: str
    mdp: TabularMDP
    features: MixtureFeatures
    theta: Array

    @property
    def optimum(self) -> float:
        """v*: expected summed reward of the best policy, from the start distribution."""
        return float(self.mdp.start @ optimal_values(self.mdp)[1][0])


def tabular_mixture(world: World, horizon: int | None = None) -> Mixture:
    """Any tabular world with one-hot features; ``theta`` are its transition probabilities.

    Raises
    ------
    CardError
        If the world is defined for another horizon.
    """
    mdp = world.mdp(world.steps(horizon))
    return Mixture(world.name, mdp, one_hot(*world.shape), mdp.transitions.reshape(mdp.horizon, -1))


def load_mixture(name: str, folder: Path, horizon: int | None = None, **params: Any) -> Mixture:
    """A world of the registry as a mixture: ``random_mixture`` by its own kernels, any other by one-hot features.

    Raises
    ------
    CardError
        If there is no such world or parameter.
    """
    if name == "random_mixture" and horizon is not None:
        params = {**params, "horizon": horizon}
    world = load_world(name, folder, **params)
    return random_mixture(**params) if name == "random_mixture" else tabular_mixture(world, horizon)


def random_mixture(
    states: int = 8,
    actions: int = 3,
    dimension: int = 3,
    horizon: int = 6,
    seed: int = 0,
    successors: int = 2,
    stationary: bool = False,
) -> Mixture:
    """The mixture behind the world of that name; one seed is one world."""
    kernels, theta, rewards = drawn(states, actions, dimension, horizon, seed, successors, stationary)
    mdp = TabularMDP(np.einsum("hi,isat->hsat", theta, kernels), rewards, np.eye(states)[0])
    return Mixture("random_mixture", mdp, dense(np.moveaxis(kernels, 0, -1)), theta)
