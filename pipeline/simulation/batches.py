"""Batched agents in simulated worlds: the runner, count tables instead of episodes, and exact regret.

What an agent asks for is public (how many users follow which policy); what it gets are private counts.  A batch of 10^9
users costs what one of ten does: their tables are drawn from the exact law (a chain of multinomials).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.environments.count_tables import multinomials
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import optimal_values
from pipeline.mdp.policy_set import set_values
from pipeline.mdp.rollout import BatchRollout
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.batch_counts import BatchLayout, BatchTables, PrivateBatch
from pipeline.statistics.batch_privatizers import BatchPrivatizer

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Batch:
    """One batch that was played: its users, what was kept of them, and their mean loss V* - V^pi, reward units."""

    users: int
    layout: BatchLayout
    loss: float


@dataclass(frozen=True)
class PlayedRollouts(Generic[Answer]):
    """All batches in order, and what the agent answered in the end."""

    batches: list[Batch]
    answer: Answer


def play_batch_rollouts(
    mdp: TabularMDP,
    agent: Generator[BatchRollout, PrivateBatch, Answer],
    privatizer: BatchPrivatizer,
    rng: np.random.Generator,
    noise: SeededNoise,
) -> PlayedRollouts[Answer]:
    """Run a batched agent until it returns; ``rng`` belongs to the world alone.

    Raises
    ------
    ValueError
        If rewards are not in [0, 1]: they travel as bits.
    """
    if mdp.rewards.min() < 0 or mdp.rewards.max() > 1:
        raise ValueError("rewards must be in [0, 1]: a user sends each as one bit, rounded at random")
    best = float(mdp.start @ optimal_values(mdp)[1][0])
    batches, ask = list[Batch](), next(agent)
    while True:
        played, (first, stop) = ask.episodes > 0, ask.steps
        policies, episodes = ask.policies[played], ask.episodes[played]
        layout = BatchLayout((stop - first, *mdp.shape[1:]), ask.lean, ask.rewards, ends=stop == mdp.horizon)
        earned = set_values(mdp.transitions, mdp.rewards, mdp.start, policies)
        users = int(episodes.sum())
        batches.append(Batch(users, layout, best - float(episodes @ earned) / users))
        whole = sample_batch(mdp, policies, episodes, rng)
        kept = BatchTables(users, whole.n_sas[first:stop], whole.r_sa[first:stop])
        try:
            ask = agent.send(privatizer.release(kept, layout, noise))
        except StopIteration as end:
            return PlayedRollouts(batches, end.value)


def sample_batch(mdp: TabularMDP, policies: Integers, episodes: Integers, rng: np.random.Generator) -> BatchTables:
    """Tables of all steps when ``episodes (M,)`` users follow each of ``policies (M, H, S)``; rewards as bits."""
    H, S, A = mdp.shape  # noqa: N806
    n_sas, states = np.zeros((H, S, A, S), dtype=np.int64), np.arange(S)
    people = multinomials(episodes, np.broadcast_to(mdp.start, (len(episodes), S)), rng)
    for h in range(H):
        a = policies[:, h]
        moved = multinomials(people, mdp.transitions[h][states, a], rng)
        np.add.at(n_sas[h], (np.broadcast_to(states, a.shape), a), moved)
        people = moved.sum(1)
    return BatchTables(int(episodes.sum()), n_sas, rng.binomial(n_sas.sum(-1), mdp.rewards))
