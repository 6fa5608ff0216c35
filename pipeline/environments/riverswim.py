"""RiverSwim: a swimmer between a small sure reward and a large one upstream.

Definition (Strehl and Littman 2008, the chain of paper 001 section 6).  States 0 .. S-1 lie along a river; every
episode starts in state 0.  Action 0 (*left*, with the current) moves one state down for sure.  Action 1 (*right*):

===============  =====  =====  =====
state            up     stay   down
===============  =====  =====  =====
0                0.6    0.4
1 .. S-2         0.35   0.6    0.05
S-1                     0.6    0.4
===============  =====  =====  =====

Rewards are fixed: 0.005 for *left* in state 0, 1 for *right* in state S-1, 0 elsewhere.  With S = 6 and H = 20 the
optimal value is 3.397264.

What is not exactly right: paper 001 prints neither S nor these probabilities (they are the ones in common use), and it
divides both rewards by H; pass ``left_reward=5 / (1000 * H), right_reward=1 / H`` for its units.  Its inhomogeneous
variant is another world.  Strehl and Littman start in one of two states and have no horizon.
"""

from __future__ import annotations

import numpy as np

from pipeline.environments.world import World


def riverswim(states: int = 6, left_reward: float = 0.005, right_reward: float = 1.0) -> World:
    """Build the chain; behaviours are ``uniform`` and ``right-0.8`` (right with probability 0.8).

    Raises
    ------
    ValueError
        If there are fewer than 2 states.
    """
    if states < 2:
        raise ValueError(f"states must be at least 2; got {states}")
    down, up = np.eye(states, k=-1), np.eye(states, k=1)
    right = 0.35 * up + 0.6 * np.eye(states) + 0.05 * down
    right[0, :2] = 0.4, 0.6
    right[-1, -2:] = 0.4, 0.6
    down[0, 0] = 1.0
    reward = np.zeros((states, 2))
    reward[0, 0], reward[-1, 1] = left_reward, right_reward
    return World(
        name="riverswim",
        transition=np.stack([down, right], axis=1),
        visit_reward=reward,
        entry_reward=np.zeros(states),
        start=np.eye(states)[0],
        raw_labels=[str(s) for s in range(states)],
        bin_values={},
        ends={},
        policies={"uniform": np.full((states, 2), 0.5), "right-0.8": np.tile([0.2, 0.8], (states, 1))},
    )
