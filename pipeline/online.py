"""Online agents in simulated worlds: the runner, and exact regret."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.mdp.rollout import Agent, Trajectory

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Played:
    """``regret (K,)``: V* - V^pi of each episode's policy, exactly, reward units; ``policy (H, S)`` at the end."""

    regret: Array
    policy: Integers


def play(mdp: TabularMDP, agent: Agent, rng: np.random.Generator) -> Played:
    """Run an agent until it returns; ``rng`` belongs to the world alone, so that agents can share worlds."""
    best = float(mdp.start @ optimal_values(mdp)[1][0])
    start, moves = mdp.start.cumsum(), mdp.transitions.cumsum(-1)
    regret, last = list[float](), None
    ask = next(agent)
    while True:
        # one policy serves many episodes: it is valued once
        lost = regret[-1] if ask is last else best - policy_value(mdp, np.eye(mdp.shape[2])[ask.policy])
        regret.append(lost)
        try:
            last, ask = ask, agent.send(_episode(start, moves, ask.policy, rng))
        except StopIteration as end:
            return Played(np.array(regret), end.value)


def _episode(start: Array, moves: Array, policy: Integers, rng: np.random.Generator) -> Trajectory:
    """One episode by inverting the cumulated ``start (S,)`` and ``moves (H, S, A, S)``."""
    H, S = policy.shape  # noqa: N806
    u = rng.random(H + 1)
    states, actions = np.empty(H + 1, dtype=np.int64), np.empty(H, dtype=np.int64)
    # a cumulated row may end a rounding below 1
    states[0] = min(int(start.searchsorted(u[0], side="right")), S - 1)
    for h in range(H):
        s = states[h]
        actions[h] = policy[h, s]
        states[h + 1] = min(int(moves[h, s, actions[h]].searchsorted(u[h + 1], side="right")), S - 1)
    return Trajectory(states, actions)
