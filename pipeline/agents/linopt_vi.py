"""LinOpt-VI: optimistic value iteration in a linear mixture MDP (paper 000, Algorithm 1; paper 001, Algorithm 1).

One function; its regularizer and its radii say which algorithm it is:

=====================  =================  =========================  ===========
algorithm              regularizer        radii                      trust
=====================  =================  =========================  ===========
UCRL-VTR, LinOpt-VI    ``fixed``          ``ucrl_vtr``, ``linopt``   none
Private-LinOpt-VI      ``tree``           ``linopt``                 joint
LDP-UCRL-VTR           ``local``          ``ldp``                    local
=====================  =================  =========================  ===========

| code | paper | shape | meaning |
|---|---|---|---|
| ``V`` | V_h | (H+1, S) | optimistic values, reward units |
| ``phi`` | φ_{V_{h+1}} | (blocks, SA/blocks, d) | regression features of every (s, a) |
| ``ridge.Lambda``, ``ridge.U`` | Λ_p, u_p | (H-1, blocks, d, d), (H-1, blocks, d) | regularized statistics |
| ``theta`` | θ̂_p | (blocks, d) | weights of one step |

0-based: the paper's H-h+1 steps to go are ``H - h``.

Departures from the printed page
    * rewards are known (as in paper 001): paper 000's two reward counters are not kept;
    * an episode's features are those of the V it was played with, frozen: a counter can hold nothing else (the paper
      prints sums over past episodes of features indexed by the current k);
    * nothing is regressed at the last step, where V_{H+1} = 0;
    * the policy changes at the episodes of a schedule fixed in advance, which costs no privacy;
    * ties of the clipped Q go to the unclipped one, then to chance; ties alone can fake a learning curve.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.optimism import Moment, Radii
from pipeline.mdp.mixture import MixtureFeatures
from pipeline.mdp.rollout import Agent, Rollout, Trajectory
from pipeline.statistics.mixture_message import Message
from pipeline.statistics.regularizers import Regularizer, Ridge

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class MixtureTask:
    """What is declared: known rewards, features, the number of episodes, and whether rows are ``unit``.

    Parameters
    ----------
    rewards
        ``(H, S, A)`` at least 0, reward units per step.
    """

    rewards: Array
    features: MixtureFeatures
    episodes: int
    unit: bool

    @property
    def tops(self) -> Array:
        """Most that can be won from step h on ``(H+1,)``, whatever the world does."""
        best = self.rewards.max((1, 2))
        return np.append(np.cumsum(best[::-1])[::-1], 0.0)

    @property
    def message(self) -> Message:
        """What one episode adds; steps 0 .. H-2."""
        f, tops = self.features, self.tops
        return Message(f.blocks, f.dimension, f.stretch, tuple(tops[1:-1].tolist()), float(tops[0]), self.unit)


@dataclass(frozen=True)
class OptimisticPlan:
    """``policy (H, S)``, ``V (H+1, S)``, and where clipping left several best actions ``tied (H, S)``."""

    policy: Integers
    V: Array
    tied: NDArray[np.bool_]


def linopt_vi(
    task: MixtureTask, regularizer: Regularizer, radii: Radii, schedule: Collection[int], rng: np.random.Generator
) -> Agent:
    """Play ``task.episodes`` episodes and return the policy planned after the last.

    Parameters
    ----------
    schedule
        Episodes, from 1 on, before which the policy is planned anew; see :func:`geometric`.
    rng
        Breaks the ties that remain after the unclipped Q.
    """
    plan = planned(task, regularizer, radii, rng)
    ask, rows = Rollout(plan.policy), Rows(task, plan.V)
    for k in range(1, task.episodes + 1):
        if k > 1 and k in schedule:
            plan = planned(task, regularizer, radii, rng)
            ask, rows = Rollout(plan.policy), Rows(task, plan.V)
        trajectory = yield ask
        regularizer.observe(*rows.statistics(trajectory))
    return planned(task, regularizer, radii, rng).policy


def geometric(episodes: int, growth: float) -> frozenset[int]:
    """Episodes 1 = k_1 < k_2 < .. <= K with k_{i+1} the first at least ``growth`` times k_i; 1.0: every episode."""
    if not growth >= 1:
        raise ValueError(f"growth must be at least 1; got {growth}")
    found, k = list[int](), 1
    while k <= episodes:
        found.append(k)
        k = max(k + 1, int(np.ceil(growth * k)))
    return frozenset(found)


def planned(task: MixtureTask, regularizer: Regularizer, radii: Radii, rng: np.random.Generator) -> OptimisticPlan:
    """Optimistic values from the statistics released so far, from the last step to the first."""
    H, S, _ = task.rewards.shape
    tops, ridge = task.tops, regularizer.ridge()
    k, d1 = regularizer.seen + 1, task.features.unknowns
    beta = radii(Moment(k, task.episodes, d1, tops[1:-1], ridge, regularizer.bounds))
    V, policy, tied = np.zeros((H + 1, S)), np.zeros((H, S), dtype=np.int64), np.zeros((H, S), dtype=bool)
    for h in reversed(range(H)):
        free = task.rewards[h] + (backup(task.features, ridge, h, V[h + 1], beta[h]) if h < H - 1 else 0.0)
        Q = np.clip(free, 0.0, tops[h])
        V[h] = Q.max(-1)
        policy[h], tied[h] = _greedy(Q, free, rng)
    return OptimisticPlan(policy, V, tied)


def backup(features: MixtureFeatures, ridge: Ridge, h: int, V: Array, beta: float) -> Array:
    """<phi, theta> + beta ||phi||_{Lambda^-1} ``(S, A)``, for V of the next step."""
    phi = features.phi(V)
    sides = np.concatenate([phi.swapaxes(-1, -2), ridge.U[h][..., None]], axis=-1)
    solved = np.linalg.solve(ridge.Lambda[h], sides)
    theta, spread = solved[..., -1], np.einsum("bnd,bdn->bn", phi, solved[..., :-1])
    free = np.einsum("bnd,bd->bn", phi, theta) + beta * np.sqrt(np.maximum(spread, 0.0))
    return free.reshape(features.states, features.actions)


def _greedy(Q: Array, free: Array, rng: np.random.Generator) -> tuple[Integers, NDArray[np.bool_]]:
    best = Q.max(-1, keepdims=True) == Q
    first = np.where(best, free, -np.inf)
    last = first == first.max(-1, keepdims=True)
    return np.where(last, rng.random(Q.shape), -1.0).argmax(-1), best.sum(-1) > 1


class Rows:
    """Regression rows of the episodes that are played with one V: computed once, read by (s, a)."""

    def __init__(self, task: MixtureTask, V: Array) -> None:
        self._message, self._features = task.message, task.features
        phi = np.stack([task.features.phi(v) for v in V[1:-1]])
        weight = np.ones(len(phi))
        if task.unit:
            # public: a function of V alone; 1 where V = 0, whose rows are 0
            weight = np.maximum(V[1:-1].max(-1), np.linalg.norm(phi, axis=-1).max((1, 2)))
            weight = np.where(weight > 0, weight, 1.0)
        self._phi, self._V = phi / weight[:, None, None, None], V[1:-1] / weight[:, None]

    def statistics(self, trajectory: Trajectory) -> tuple[Array, Array]:
        """The episode's phi phi^T ``(H-1, blocks, d, d)`` and phi V(s') ``(H-1, blocks, d)``."""
        steps, m = np.arange(len(self._V)), self._message
        block, row = self._features.place(trajectory.states[:-2], trajectory.actions[:-1])
        phi, target = self._phi[steps, block, row], self._V[steps, trajectory.states[1:-1]]
        gram, vector = (
            np.zeros((m.steps, m.blocks, m.dimension, m.dimension)),
            np.zeros(self._phi.shape[:2] + phi.shape[1:]),
        )
        gram[steps, block] = phi[:, :, None] * phi[:, None, :]
        vector[steps, block] = phi * target[:, None]
        return gram, vector
