"""The protocols between an online agent and the world it plays in: ``trajectory = yield Rollout(policy)``.

An agent is a generator.  It never holds the world, and the world never holds the agent; a sub-algorithm is
``yield from`` another generator.  In a linear-quadratic world the query is ``yield LinearRollout(gains, episodes)``:
an agent that keeps its gains for many episodes requests them together, with the law of one after the other.

For how many episodes a policy is played is declared, or shorter at no cost in privacy (:class:`Pace`).
"""

import math
from bisect import bisect_right
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, takewhile
from typing import Any

import numpy as np

from pipeline.arrays import AnyArray, Array, Integers


@dataclass(frozen=True)
class Rollout:
    """Play by a policy: ``(H, S)`` actions of each step and state, or ``(H, S, A)`` probabilities of them.

    ``policy`` ``(H, S)``: int or ``(H, S, A)`` float.
    ``episodes``: None: one episode.  A number: that many by the same policy, in one trajectory with an axis of
    episodes in front. An agent that keeps its policy may also yield the same object again.
    """

    policy: AnyArray
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
Agent = Generator[Rollout, Trajectory, AnyArray]


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


@dataclass(frozen=True)
class Pace:
    """Rule for the length of the next batch: a function of declared and released values.

    A batch ends when ``growth`` times the episodes before it are played, as declared; or sooner, before the policy is
    expected to visit a cell more than ``visits`` times as often as it was ever visited.  So a cell that looks good for
    lack of data costs about as much as its data.  Without this rule a doubling batch is spent on a cell that the last
    noise recommended, and the regret of private agents grows in proportion to K.

    ``most``: declared largest number of batches.
    ``growth``: ratio of the episodes by the end of the next batch to those so far; at least 1.
    """

    episodes: int
    growth: float
    first: int = 1
    most: int = 2**62
    visits: float = 1.0

    @cached_property
    def ends(self) -> list[int]:
        """Declared last episodes of batches."""
        return batch_ends(self.episodes, self.growth, self.first)

    def length(self, played: int, batches: int, room: float) -> int:
        """Episodes of the next batch, after ``played`` in so many ``batches``, with at most ``room`` worth playing."""
        i = bisect_right(self.ends, played)
        grown = _grow(played, self.growth) if i else self.ends[0]
        remaining = min(self.episodes, grown) - played
        # as many batches as the declared ends would still take are kept for them
        return remaining if self.most - batches <= len(self.ends) - i else max(1, int(min(float(remaining), room)))


def batch_ends(episodes: int, growth: float, first: int = 1) -> list[int]:
    """Last episodes ``first = e_1 < e_2 < .. = episodes``, each the first at least ``growth`` times the one before.

    ``episodes``: K, episodes in all, at least 1.
    ``growth``: at least 1; 1 means a batch an episode.
    ``first``: episodes of the first batch, at least 1.
    """
    if not growth >= 1 or min(first, episodes) < 1:
        raise ValueError(f"growth, first and episodes must be at least 1; got {growth}, {first} and {episodes}")
    return [*takewhile(lambda k: k < episodes, _schedule(first, growth)), episodes]


def plan_starts(episodes: int, growth: float) -> list[int]:
    """Episodes 1 = k_1 < k_2 < .. <= K before which a policy is planned, each the first at least ``growth`` times the
    one before: fixed in advance, so that it costs no privacy.

    ``growth``: at least 1; 1 means a plan an episode.
    """
    if not growth >= 1:
        raise ValueError(f"growth must be at least 1; got {growth}")
    return list(takewhile(lambda k: k <= episodes, _schedule(1, growth)))


def plan_lengths(episodes: int, growth: float) -> list[int]:
    """Episodes that each plan of :func:`plan_starts` is played.

    >>> plan_lengths(20, 2.0)
    [1, 2, 4, 8, 5]
    """
    return [later - first for first, later in pairwise([*plan_starts(episodes, growth), episodes + 1])]


def _schedule(k: int, growth: float) -> Iterator[int]:
    while True:
        yield k
        k = _grow(k, growth)


def _grow(k: int, growth: float) -> int:
    return max(k + 1, math.ceil(growth * k))
