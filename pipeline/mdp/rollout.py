"""The protocol between an online agent and the world it plays in.

An agent is a generator: ``trajectory = yield Rollout(policy)``.  It never holds the world, and the world never holds
the agent; a sub-algorithm is ``yield from`` another generator.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Rollout:
    """Play one episode by a deterministic policy: ``policy (H, S)`` holds the action of each step and state.

    An agent that keeps its policy yields the same object again.
    """

    policy: Integers


@dataclass(frozen=True)
class BatchRollout:
    """Play a batch of users, one episode each, and answer with the private counts of their steps, never with episodes.

    Parameters
    ----------
    policies, episodes
        ``(M, H, S)`` deterministic policies and how many users ``(M,)`` follow each: public.
    steps
        First step whose counts are released, and the first that is not.
    rewards
        Whether rewards are released too.
    lean
        Whether visits are the sums of transitions instead of counts of their own.
    """

    policies: Integers
    episodes: Integers
    steps: tuple[int, int]
    rewards: bool = True
    lean: bool = False


@dataclass(frozen=True)
class Batch:
    """Play so many episodes by one policy: ``policy (H, S, A)`` holds action probabilities, drawn afresh each time."""

    policy: NDArray[np.float64]
    episodes: int


@dataclass(frozen=True)
class Trajectory:
    """One episode: ``states (H+1,)``, the last after the last step, and ``actions (H,)``."""

    states: Integers
    actions: Integers


# what an online agent is: asks for rollouts, gets trajectories, returns the policy it ends with
Agent = Generator[Rollout, Trajectory, Integers]
