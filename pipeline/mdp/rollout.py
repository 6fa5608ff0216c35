"""The protocols between an online agent and the world it plays in: ``trajectory = yield Rollout(policy)``.

An agent is a generator.  It never holds the world, and the world never holds the agent; a sub-algorithm is
``yield from`` another generator.  In a linear-quadratic world the query is ``yield LinearRollout(gains, episodes)``:
an agent that keeps its gains for many episodes requests them together, with the law of one after the other.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.arrays import Array, Integers


@dataclass(frozen=True)
class Rollout:
    """Play by a policy: ``(H, S)`` actions of each step and state, or ``(H, S, A)`` probabilities of them.

    ``policy`` ``(H, S)``: int or ``(H, S, A)`` float.
    ``episodes``: None: one episode.  A number: that many by the same policy, in one trajectory with an axis of
    episodes in front. An agent that keeps its policy may also yield the same object again.
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

    ``policies``, ``episodes`` ``(M, H, S)``: deterministic policies and the number of users ``(M,)`` of each: public.
    """

    policies: Integers
    episodes: Integers
    steps: tuple[int, int]
    rewards: bool = True
    lean: bool = False


@dataclass(frozen=True)
class Batch:
    """Play ``episodes`` episodes, at least 1, by one policy.

    ``policy`` ``(H, S, A)``: action probabilities, drawn afresh each time.
    """

    policy: Array
    episodes: int


@dataclass(frozen=True)
class Trajectory:
    """One episode: ``states (H+1,)``, the last after the last step, ``actions (H,)`` and ``rewards (H,)``.

    With ``Rollout.episodes`` each has that many rows.  Rewards are in reward units.
    """

    states: Integers
    actions: Integers
    rewards: Array


# an online agent: yields rollouts, gets trajectories, returns its last policy
Agent = Generator[Rollout, Trajectory, NDArray[Any]]


@dataclass(frozen=True)
class LinearRollout:
    """Play ``episodes`` episodes by u = K_h x + xi, with ``gains (H, d, n)`` and xi uniform on the sphere of radius
    ``explore``.
    """

    gains: Array
    episodes: int
    explore: float = 0.0


@dataclass(frozen=True)
class LqBatch:
    """Episodes of one rollout.

    ``states``, ``controls`` ``(B, H+1, n)``: and ``(B, H, d)``.
    ``episodes``: number of episodes that they represent, at least B.
    ``means``: where ``episodes`` is larger than B: exact means of one episode's sum of z z' ``(n+d, n+d)`` and of z
    x_next' ``(n+d, n)``, with z = (x, u).  The sums over all episodes are then their multiple, plus the deviation of
    the B episodes at sqrt(episodes / B) times its size: right in mean and covariance, and close to normal like the sum.
    """

    states: Array
    controls: Array
    episodes: int
    means: tuple[Array, Array] | None = None


# episodes that are requested at once where every one of them is played
_TOGETHER = 4096


def play_every(rollout: LinearRollout) -> Generator[LinearRollout, LqBatch, list[LqBatch]]:
    """Request a rollout in parts so small that every episode is played, and cut; ``yield from`` it."""
    batches = list[LqBatch]()
    for first in range(0, rollout.episodes, _TOGETHER):
        batches.append((yield replace(rollout, episodes=min(_TOGETHER, rollout.episodes - first))))
    return batches


# an online agent: yields rollouts, gets batches, returns its result
LqAgent = Generator[LinearRollout, LqBatch, Any]
