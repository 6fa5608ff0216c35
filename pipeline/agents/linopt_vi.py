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
| ``ridge.V``, ``ridge.U`` | Λ_p, u_p | (H-1, blocks, d, d), (H-1, blocks, d) | regularized statistics |
| ``theta`` | θ̂_p | (blocks, d) | weights of one step |

0-based: the paper's H-h+1 steps to go are ``H - h``.

Departures from the printed page
    * rewards are known (as in paper 001) unless the task says they are learnt, from paper 000's two further counters;
    * an episode's features are those of the V it was played with, frozen: a counter can hold nothing else (the paper
      prints sums over past episodes of features indexed by the current k);
    * nothing is regressed at the last step, where V_{H+1} = 0;
    * the policy changes at the episodes of a schedule fixed in advance, which costs no privacy;
    * ties of the clipped Q, up to rounding, go to the unclipped one, then to chance; ties alone can fake a learning
      curve;
    * d_1 of one-hot features is S^2 A, the unknowns that are regressed; paper 001 counts S A in UCRL-VTR's radius;
    * lambda = 1 where values are at most H stays beside a private regularizer's shift.
Further departures with ``constants = "practical"``
    * rows are divided by a public bound on their length (``unit``), Gram matrices are block diagonal;
    * all episodes of one policy are one leaf of the counter, averaged from below;
    * eigenvalues below twice the noise's edge are raised to it (``floor``) instead of a shift of all of them, and the
      shift of Lambda predicts the mean response of its features (``prior``) instead of 0;
    * the bonus is tuned: c = 0 under noise, and both terms of UCRL-VTR's scaled; lambda, schedule, budget shares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.agents.batch_pace import plan_lengths
from pipeline.agents.mixture_backup import Problem, Rows, optimistic
from pipeline.arrays import Array, Bools, Integers
from pipeline.mdp.rollout import Agent, Rollout

_ROUNDING = 1e-12


@dataclass(frozen=True)
class GreedyPlan:
    """``policy (H, S)``, ``V (H+1, S)``, and where clipping left several best actions ``tied (H, S)``."""

    policy: Integers
    V: Array
    tied: Bools


def linopt_vi(problem: Problem, growth: float, rng: np.random.Generator) -> Agent:
    """Play the task's episodes and return the policy planned after the last."""
    for episodes in plan_lengths(problem.task.episodes, growth):
        plan = planned(problem, rng)
        trajectory = yield Rollout(plan.policy, episodes)
        problem.observe(Rows(problem.task, plan.V), trajectory)
    return planned(problem, rng).policy


def planned(problem: Problem, rng: np.random.Generator) -> GreedyPlan:
    """Greedy in the optimistic values of the statistics released so far."""
    values = optimistic(problem, lambda _, Q: Q.max(-1))
    policy, tied = _greedy(values.Q, values.free, rng)
    return GreedyPlan(policy, values.V, tied)


def _greedy(Q: Array, free: Array, rng: np.random.Generator) -> tuple[Integers, Bools]:
    best = _largest(Q)
    last = best & _largest(np.where(best, free, -np.inf))
    return np.where(last, rng.random(Q.shape), -1.0).argmax(-1), best.sum(-1) > 1


def _largest(x: Array) -> Bools:
    """Mask of the largest entries of each row, whatever the order of its sums."""
    most = x.max(-1, keepdims=True)
    return x >= most - _ROUNDING * np.maximum(np.abs(most), 1.0)
