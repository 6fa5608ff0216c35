"""Online agents in simulated worlds: the runner, and exact regret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.mdp.rollout import Agent, Rollout, Trajectory

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Played:
    """``regret (K,)``: V* - V^pi of each episode's policy, exactly, reward units; ``policy`` at the end, as agents
    return it: actions ``(H, S)`` or probabilities ``(H, S, A)``.
    """

    regret: Array
    policy: NDArray[Any]


def play(mdp: TabularMDP, agent: Agent, rng: np.random.Generator) -> Played:
    """Run an agent until it returns; ``rng`` belongs to the world alone, so that agents can share worlds.

    The world draws H + 1 numbers an episode, whatever the agent and however it asks; the choices of a stochastic policy
    come from a stream spawned off ``rng``.
    """
    world = Sampler(mdp, rng)
    best = float(mdp.start @ optimal_values(mdp)[1][0])
    regret, last, lost = list[Array](), None, 0.0
    ask = next(agent)
    while True:
        # one policy serves many episodes: it is valued once
        if ask is not last:
            p = ask.probabilities
            lost = best - policy_value(mdp, np.eye(mdp.shape[2])[ask.policy] if p is None else p)
        regret.append(np.full(ask.episodes or 1, lost))
        try:
            last, ask = ask, agent.send(world.episodes(ask))
        except StopIteration as end:
            return Played(np.concatenate(regret), end.value)


class Sampler:
    """Draws episodes by inverting the cumulated start ``(S,)`` and transitions ``(H, S, A, S)``."""

    def __init__(self, mdp: TabularMDP, rng: np.random.Generator) -> None:
        self._rng, self._choices = rng, rng.spawn(1)[0]
        self._start, self._moves, self._rewards = mdp.start.cumsum(), mdp.transitions.cumsum(-1), mdp.rewards

    def episodes(self, ask: Rollout) -> Trajectory:
        """What was asked for, one episode or several at once."""
        H, S, _ = self._rewards.shape  # noqa: N806
        n = ask.episodes or 1
        u = self._rng.random((n, H + 1))
        chosen = self._chosen(ask, n)
        states, actions = np.empty((n, H + 1), dtype=np.int64), np.empty((n, H), dtype=np.int64)
        # a cumulated row may end a rounding below 1
        states[:, 0] = np.minimum(self._start.searchsorted(u[:, 0], side="right"), S - 1)
        for h in range(H):
            s = states[:, h]
            actions[:, h] = a = chosen[h, s] if chosen.ndim == 2 else chosen[h, np.arange(n), s]
            if n == 1:
                states[0, h + 1] = min(int(self._moves[h, s[0], a[0]].searchsorted(u[0, h + 1], side="right")), S - 1)
            else:
                states[:, h + 1] = np.minimum((self._moves[h, s, a] <= u[:, h + 1, None]).sum(-1), S - 1)
        rewards = self._rewards[np.arange(H), states[:, :-1], actions]
        one = ask.episodes is None
        return Trajectory(states[0], actions[0], rewards[0]) if one else Trajectory(states, actions, rewards)

    def _chosen(self, ask: Rollout, n: int) -> Integers:
        """Actions ``(H, S)``, or ``(H, n, S)`` of a stochastic policy: what each episode would do in each state."""
        p = ask.probabilities
        if p is None:
            return ask.policy.astype(np.int64)
        u = self._choices.random((p.shape[0], n, 1, 1))
        return np.minimum((p.cumsum(-1)[:, None] <= u).sum(-1), p.shape[-1] - 1)
