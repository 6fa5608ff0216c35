"""Explore, release once, commit: our extra beside paper 004, dp-lqr online.

K_0 episodes are played with controls drawn from a sphere; one release of their moments; from then on the gains that are
optimal for the estimate.  No person is in two sums, so no budget is divided over a tree.  K_0 and the sphere are
fixed in advance.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.agents.dp_lqr import LqConstants, LqTask, certainty_equivalence
from pipeline.mdp.rollout import LinearRollout, LqAgent, LqBatch, play_every
from pipeline.statistics.regression import LqMoments

# privatizes the moments of the exploring episodes; called once
Release = Callable[[Sequence[LqBatch]], LqMoments]


@dataclass(frozen=True)
class Exploration:
    """``episodes`` K_0, at least 1, with controls on the sphere of ``radius``, at most gamma.

    ``episodes``: k_0, episodes of exploration.
    ``radius``: length of every exploring control.
    """

    episodes: int
    radius: float


def explore_then_commit(
    task: LqTask, episodes: int, exploration: Exploration, release: Release, c: LqConstants
) -> LqAgent:
    """Play ``episodes`` episodes and return the :class:`~pipeline.agents.dp_lqr.LqResult` of the one release."""
    result = certainty_equivalence(release((yield from explore(task, exploration))), task, c)
    yield LinearRollout(result.gains, episodes - exploration.episodes)
    return result


def explore(task: LqTask, exploration: Exploration) -> Generator[LinearRollout, LqBatch, list[LqBatch]]:
    """The exploring episodes, in batches."""
    none = np.zeros((task.cost.horizon, len(task.cost.R), len(task.cost.Q)))
    return (yield from play_every(LinearRollout(none, exploration.episodes, exploration.radius)))
