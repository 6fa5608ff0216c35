"""Linear mixture MDPs: worlds whose kernel is a mixture of known ones, P_h = sum_i theta_{h,i} psi_i.

Definition.  :func:`random_mixture` draws d kernels psi_i over S states and A actions, each row supported on a few
successors with flat Dirichlet weights, and at each step (or for all, ``stationary``) a flat Dirichlet mixture theta_h.
An agent knows the psi_i and the rewards, not theta: d unknowns a step instead of S^2 A.  Rewards are drawn from
{0, 0.01, .., 1} / H, so that an episode pays at most 1, and everybody starts in state 0.  V* is exact, by backward
induction in the mixed kernel.

:func:`tabular_mixture` writes any tabular world as a mixture of S^2 A one-hot psi = e_(s,a,s'): the degenerate case
that papers 000 and 001 simulate.

What is not exactly right: kernels drawn at random have no geometry, and a mixture of many of them is nearly uniform
over the states (keep ``dimension`` and ``successors`` small).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


def random_mixture(
    states: int = 8,
    actions: int = 3,
    dimension: int = 3,
    horizon: int = 6,
    seed: int = 0,
    successors: int = 2,
    stationary: bool = False,
) -> Mixture:
    """Draw a world; one seed is one world.

    Raises
    ------
    ValueError
        If a size is below 1, or ``successors`` is above ``states``.
    """
    if min(states, actions, dimension, horizon) < 1 or not 1 <= successors <= states:
        raise ValueError("sizes must be at least 1, and successors from 1 to states")
    rng = np.random.default_rng(seed)
    rows = (dimension, states, actions)
    reached = rng.random((*rows, states)).argpartition(successors - 1, axis=-1)[..., :successors]
    kernels = np.zeros((*rows, states))
    np.put_along_axis(kernels, reached, rng.dirichlet(np.ones(successors), size=rows), axis=-1)
    drawn = rng.dirichlet(np.ones(dimension), size=1 if stationary else horizon)
    theta = np.broadcast_to(drawn, (horizon, dimension))
    rewards = rng.integers(0, 101, size=(horizon, states, actions)) / 100 / horizon
    mdp = TabularMDP(np.einsum("hi,isat->hsat", theta, kernels), rewards, np.eye(states)[0])
    return Mixture("random_mixture", mdp, dense(np.moveaxis(kernels, 0, -1)), theta)
