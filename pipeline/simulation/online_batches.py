"""Agents that play by released counts in simulated worlds: the runner, count tables instead of episodes, exact regret.

What an agent asks for is public (how many users follow which policy), what it gets are released counts, and the tables
in between are seen by the interactive mechanism alone.  Within a batch the policy is fixed, so counts are drawn at
once, never episodes.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.environments.count_tables import sample_count_tables
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.mdp.rollout import Batch
from pipeline.statistics.online_counts import InteractiveCounts, OnlineCounts, Tally

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class PlayedBatches(Generic[Answer]):
    """Of each batch its last episode and V* - V^pi of its policy, exactly, reward units; and the agent's answer."""

    ends: list[int]
    losses: list[float]
    answer: Answer


def play_batches(
    mdp: TabularMDP, agent: Generator[Batch, OnlineCounts, Answer], counts: InteractiveCounts, rng: np.random.Generator
) -> PlayedBatches[Answer]:
    """Run an agent until it returns; ``rng`` belongs to the world alone, so that agents can share worlds."""
    best = float(mdp.start @ optimal_values(mdp)[1][0])
    highest = mdp.rewards.max((1, 2))
    ends, losses = list[int](), list[float]()
    ask = next(agent)
    while True:
        losses.append(best - policy_value(mdp, ask.policy))
        ends.append(ask.episodes + (ends[-1] if ends else 0))
        n_sas = sample_count_tables(mdp, ask.policy, ask.episodes, rng).n_sas
        bits = rounded_rewards(n_sas.sum(-1), mdp.rewards, highest, rng) if counts.layout.rewards else None
        counts.add(Tally(ask.episodes, n_sas, bits))
        try:
            ask = agent.send(counts.counts())
        except StopIteration as end:
            return PlayedBatches(ends, losses, end.value)


def rounded_rewards(visits: Integers, rewards: Array, highest: Array, rng: np.random.Generator) -> Integers:
    """Sum of -1 or +1 a visit ``(H, S, A)``: each reward in [0, highest] rounded at random to an end of its range."""
    top = np.where(highest > 0, highest, 1.0)[:, None, None]
    return 2 * rng.binomial(visits, np.clip(rewards / top, 0.0, 1.0)) - visits
