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
class Trajectory:
    """One episode: ``states (H+1,)``, the last after the last step, and ``actions (H,)``."""

    states: Integers
    actions: Integers


# what an online agent is: asks for rollouts, gets trajectories, returns the policy it ends with
Agent = Generator[Rollout, Trajectory, Integers]
