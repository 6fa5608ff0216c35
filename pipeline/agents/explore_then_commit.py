"""Explore, release once, commit: our extra beside paper 004, and dp-lqr online.

K_0 episodes are played with controls drawn from a sphere; one release of their moments; from then on the gains that are
optimal for the estimate.  Nobody is in more than one sum, so no budget is divided over a tree.  K_0 and the sphere are
fixed in advance, whatever the data say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.agents.dp_lqr import LqConstants, LqResult, LqTask, certainty_equivalence
from pipeline.mdp.lq_rollout import LinearRollout, LqAgent, LqBatch
from pipeline.statistics.lq_plan import LqMoments

# privatizes the moments of the exploring episodes; called once
Release = Callable[[LqBatch], LqMoments]


@dataclass(frozen=True)
class Exploration:
    """``episodes`` K_0, at least 1, with controls on the sphere of ``radius``, at most gamma."""

    episodes: int
    radius: float


def explore_then_commit(
    task: LqTask, episodes: int, exploration: Exploration, release: Release, c: LqConstants
) -> LqAgent:
    """Play ``episodes`` episodes and return the :class:`~pipeline.agents.dp_lqr.LqResult` of the one release."""
    if not 1 <= exploration.episodes < episodes:
        raise ValueError(f"exploration must end before episode {episodes}; got {exploration.episodes} episodes of it")
    n, d = len(task.cost.Q), len(task.cost.R)
    none = np.zeros((task.cost.horizon, d, n))
    moments = release((yield LinearRollout(none, exploration.episodes, exploration.radius)))
    result: LqResult = certainty_equivalence(moments, task, c)
    yield LinearRollout(result.gains, episodes - exploration.episodes)
    return result
