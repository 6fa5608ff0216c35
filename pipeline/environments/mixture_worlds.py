"""Linear mixture MDPs: worlds whose kernel is a mixture of known ones, P_h = sum_i theta_{h,i} psi_i.

Definition of ``random_mixture``.  d kernels psi_i over S states and A actions are drawn, each row supported on a few
successors with flat Dirichlet weights, and at each step (or for all, ``stationary``) a flat Dirichlet mixture theta_h.
Rewards are drawn from {0, 0.01, .., 1} / H, so that an episode pays at most 1, and everybody starts in state 0.  An
agent knows the psi_i and the rewards, not theta: d unknowns a step instead of S^2 A.  V* is exact.

Any tabular world is a mixture of S^2 A one-hot psi = e_(s,a,s'): the degenerate case that papers 000 and 001 simulate.

What is not exactly right: kernels drawn at random have no geometry, and a mixture of many of them is nearly uniform
over the states (keep ``dimension`` and ``successors`` small).

Random tabular worlds: sparse kernels, rewards everywhere or at the last step only.

Definition.  Each (s, a) of each step (or of all steps, ``stationary``) leads to ``successors`` states drawn without
replacement, with probabilities from a flat Dirichlet.  Rewards are drawn from {0, 0.01, ..., 1}, in every cell or, with
``reward = "last"``, at the last step only.  Everybody starts in state 0.  One seed is one world.

``icu_like`` is the instance S = 50, A = 5, H = 10, 8 successors, reward at the last step: the size and the sparsity of
a small clinical problem.

What is not exactly right: successors of real processes are near each other, those of a random kernel are not; a dense
kernel mixes at once, so that the reward of the step is nearly all that an action decides (keep ``successors`` small).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pipeline.environments.world import Array, World, plain_world
from pipeline.mdp.features import MixtureFeatures, dense
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import optimal_values


def sparse_rows(cells: tuple[int, ...], states: int, successors: int, rng: np.random.Generator) -> Array:
    """``(*cells, states)`` distributions, each over so many states drawn at random.

    Parameters
    ----------
    cells, states
        Shape of the table, and over how many states.
    successors
        That a row reaches, at most ``states``.
    rng
        All randomness of the rows.
    """
    reached = rng.random((*cells, states)).argpartition(successors - 1, axis=-1)[..., :successors]
    rows = np.zeros((*cells, states))
    np.put_along_axis(rows, reached, rng.dirichlet(np.ones(successors), size=cells), axis=-1)
    return rows


def random_tabular(
    states: int = 10,
    actions: int = 3,
    horizon: int = 10,
    seed: int = 0,
    successors: int = 3,
    reward: Literal["anywhere", "last"] = "anywhere",
    stationary: bool = False,
    name: str = "random",
) -> World:
    """Draw a world; behaviours are ``uniform`` and ``preferred`` (one action of each state 6 times in 10).

    Raises
    ------
    ValueError
        If a size is below 1, ``successors`` is above ``states``, or ``reward`` is another word.
    """
    if min(states, actions, horizon) < 1 or not 1 <= successors <= states:
        raise ValueError("states, actions and horizon must be at least 1, and successors from 1 to states")
    if reward not in ("anywhere", "last"):
        raise ValueError(f"reward must be 'anywhere' or 'last'; got {reward!r}")
    rng = np.random.default_rng(seed)
    cells = (1 if stationary else horizon, states, actions)
    transition = sparse_rows(cells, states, successors, rng)
    pays = rng.integers(0, 101, size=cells) / 100
    if reward == "last":
        pays = np.concatenate([np.zeros((horizon - 1, states, actions)), pays[-1:]])
    preferred = np.full((states, actions), 0.4 / max(1, actions - 1))
    preferred[np.arange(states), rng.integers(0, actions, size=states)] = 0.6 if actions > 1 else 1.0
    policies = {"uniform": np.full((states, actions), 1 / actions), "preferred": preferred}
    lasts = None if stationary and reward == "anywhere" else horizon
    pays = pays[0] if len(pays) == 1 and stationary else pays
    return plain_world(name, transition[0] if stationary else transition, pays, policies, lasts)


def icu_like(seed: int = 0) -> World:
    """The instance of the size of a small clinical problem."""
    return random_tabular(50, 5, 10, seed, successors=8, reward="last", name="icu_like")


@dataclass(frozen=True)
class Mixture:
    """A world, what an agent knows of it, and what it has to learn.

    Parameters
    ----------
    name
        What reports call the world.
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


def random_mixture(
    states: int = 8,
    actions: int = 3,
    dimension: int = 3,
    horizon: int = 6,
    seed: int = 0,
    successors: int = 2,
    stationary: bool = False,
) -> Mixture:
    """Draw kernels, weights and rewards; one seed is one world.

    Raises
    ------
    ValueError
        If a size is below 1, or ``successors`` is above ``states``.
    """
    if min(states, actions, dimension, horizon) < 1 or not 1 <= successors <= states:
        raise ValueError("sizes must be at least 1, and successors from 1 to states")
    rng = np.random.default_rng(seed)
    kernels = sparse_rows((dimension, states, actions), states, successors, rng)
    weights = rng.dirichlet(np.ones(dimension), size=1 if stationary else horizon)
    theta = np.broadcast_to(weights, (horizon, dimension))
    rewards = rng.integers(0, 101, size=(horizon, states, actions)) / 100 / horizon
    mdp = TabularMDP(np.einsum("hi,isat->hsat", theta, kernels), rewards, np.eye(states)[0])
    return Mixture("random_mixture", mdp, dense(np.moveaxis(kernels, 0, -1)), theta)


def random_mixture_world(horizon: int = 6, **others: Any) -> World:
    """The world of :func:`random_mixture`, of the same parameters.  Its behaviour is ``uniform``."""
    mixture = random_mixture(horizon=horizon, **others)
    P, actions = mixture.mdp.transitions, mixture.mdp.shape[2]  # noqa: N806
    policies = {"uniform": np.full((P.shape[1], actions), 1 / actions)}
    return plain_world(mixture.name, P, mixture.mdp.rewards, policies, horizon)
