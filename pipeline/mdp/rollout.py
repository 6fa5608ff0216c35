"""The protocol between an online agent and the world it plays in.

An agent is a generator: ``trajectory = yield Rollout(policy)``.  It never holds the world, and the world never holds
the agent; a sub-algorithm is ``yield from`` another generator.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rollout:
    """Play by a policy: ``(H, S)`` actions of each step and state, or ``(H, S, A)`` probabilities of them.

    Parameters
    ----------
    episodes
        None: one episode.  A number: so many by the same policy, in one trajectory with an axis of episodes in front.
        An agent that keeps its policy may also yield the same object again.
    """

    policy: NDArray[Any]
    episodes: int | None = None

    @property
    def probabilities(self) -> Array | None:
        """``(H, S, A)`` of a stochastic policy; None of a deterministic one."""
        return np.asarray(self.policy, dtype=np.float64) if self.policy.ndim == 3 else None


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
    """One episode: ``states (H+1,)``, the last after the last step, ``actions (H,)`` and ``rewards (H,)``.

    With ``Rollout.episodes`` each has that many rows.
    """

    states: Integers
    actions: Integers
    rewards: Array


# what an online agent is: asks for rollouts, gets trajectories, returns the policy it ends with
Agent = Generator[Rollout, Trajectory, NDArray[Any]]
