"""Random tabular worlds: sparse kernels, rewards everywhere or at the last step only.

Definition.  Each (s, a) of each step (or of all steps, ``stationary``) leads to ``successors`` states drawn without
replacement, with probabilities from a flat Dirichlet.  Rewards are drawn from {0, 0.01, ..., 1}, in every cell or, with
``reward = "last"``, at the last step only.  Everybody starts in state 0.  One seed is one world.

``icu_like`` is the instance S = 50, A = 5, H = 10, 8 successors, reward at the last step: the size and the sparsity of
a small clinical problem.

What is not exactly right: successors of real processes are near each other, those of a random kernel are not; a dense
kernel mixes at once, so that the reward of the step is nearly all that an action decides (keep ``successors`` small).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from pipeline.environments.world import World


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
    reached = rng.random((*cells, states)).argpartition(successors - 1, axis=-1)[..., :successors]
    transition = np.zeros((*cells, states))
    np.put_along_axis(transition, reached, rng.dirichlet(np.ones(successors), size=cells), axis=-1)
    pays = rng.integers(0, 101, size=cells) / 100
    if reward == "last":
        pays = np.concatenate([np.zeros((horizon - 1, states, actions)), pays[-1:]])
    preferred = np.full((states, actions), 0.4 / max(1, actions - 1))
    preferred[np.arange(states), rng.integers(0, actions, size=states)] = 0.6 if actions > 1 else 1.0
    return World(
        name=name,
        transition=transition[0] if stationary else transition,
        visit_reward=pays[0] if len(pays) == 1 and stationary else pays,
        entry_reward=np.zeros(states),
        start=np.eye(states)[0],
        raw_labels=[str(s) for s in range(states)],
        bin_values={},
        ends={},
        policies={"uniform": np.full((states, actions), 1 / actions), "preferred": preferred},
        horizon=None if stationary and reward == "anywhere" else horizon,
    )


def icu_like(seed: int = 0) -> World:
    """The instance of the size of a small clinical problem."""
    return random_tabular(50, 5, 10, seed, successors=8, reward="last", name="icu_like")
