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

Paper 001 section 6 swims in two forms, both with H = 2 S and rewards 5 / (1000 H) and 1 / H:

- *homogeneous*: the chain above (:func:`riverswim_homogeneous`); optimal 0.2281, 0.0907, 0.0195 at S = 3, 5, 10;
- *inhomogeneous* (:func:`riverswim_inhomogeneous`): at step h *right* moves up with probability p_h drawn from
  U(0.8, 1), else down (at either end it stays instead of leaving); optimal 0.5911, 0.4944, 0.4014 with seed 1.

What is not exactly right: paper 001 prints neither S, nor the homogeneous probabilities (these are the ones in common
use), nor where its inhomogeneous chain goes when *right* fails.  Strehl and Littman start in one of two states and have
no horizon.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipeline.environments.world import Array, World, plain_world


def riverswim(states: int = 6, left_reward: float = 0.005, right_reward: float = 1.0) -> World:
    """Build the chain; behaviours are ``uniform`` and ``right-0.8`` (right with probability 0.8).

    Raises
    ------
    ValueError
        If there are fewer than 2 states.
    """
    down, up = _banks(states)
    right = 0.35 * up + 0.6 * np.eye(states) + 0.05 * down
    right[0, :2] = 0.4, 0.6
    right[-1, -2:] = 0.4, 0.6
    return _chain("riverswim", down, right, (left_reward, right_reward))


def riverswim_homogeneous(states: int = 3) -> World:
    """Build the chain in the units of paper 001 section 6, with H = 2 S; behaviours as :func:`riverswim`."""
    H = 2 * states  # noqa: N806
    return replace(riverswim(states, 5 / (1000 * H), 1 / H), name="riverswim_homogeneous", horizon=H)


def riverswim_inhomogeneous(states: int = 3, seed: int = 1) -> World:
    """Build the chain of paper 001 section 6 whose step h has its own p_h, H = 2 S; behaviours as :func:`riverswim`."""
    down, up = _banks(states)
    up[-1, -1] = 1.0
    H = 2 * states  # noqa: N806
    p = np.random.default_rng(seed).uniform(0.8, 1.0, H)[:, None, None]
    return _chain("riverswim_inhomogeneous", down, p * up + (1 - p) * down, (5 / (1000 * H), 1 / H), H)


def _banks(states: int) -> tuple[Array, Array]:
    """Moves ``(S, S)`` down (the lower end stays) and up (the upper end is open)."""
    if states < 2:
        raise ValueError(f"states must be at least 2; got {states}")
    down = np.eye(states, k=-1)
    down[0, 0] = 1.0
    return down, np.eye(states, k=1)


def _chain(name: str, left: Array, right: Array, pays: tuple[float, float], horizon: int | None = None) -> World:
    """The world of moves ``left (S, S)`` and ``right (S, S)`` or ``(H, S, S)``."""
    states = len(left)
    reward = np.zeros((states, 2))
    reward[0, 0], reward[-1, 1] = pays
    policies = {"uniform": np.full((states, 2), 0.5), "right-0.8": np.tile([0.2, 0.8], (states, 1))}
    return plain_world(name, np.stack(np.broadcast_arrays(left, right), axis=-2), reward, policies, horizon)
