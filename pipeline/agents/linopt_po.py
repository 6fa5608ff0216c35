"""LinOpt-PO: optimistic policy optimization in a linear mixture MDP (paper 000, Algorithm 2), private or not.

The regressions and the backup are those of :mod:`~pipeline.agents.linopt_vi`; the policy takes a step of mirror descent
along Q instead of the greedy action, and V is the value of that policy.

| code | paper | shape | meaning |
|---|---|---|---|
| ``policy`` | π^k | (H, S, A) | probabilities, uniform at first |
| ``Q`` | Q_h^k | (H, S, A) | optimistic values of π^k |
| ``eta`` | η | | step, per reward unit |

Departures from the printed page: those of ``linopt_vi``, ties excepted; and between two plans of the schedule Q is
fixed, so a batch of n episodes takes one step of length n eta.  With growth 1.0 that is the printed algorithm.
"""

from __future__ import annotations

import math

import numpy as np

from pipeline.agents.batch_pace import plan_lengths
from pipeline.agents.mixture_backup import MixtureTask, Optimistic, Problem, Rows, optimistic
from pipeline.arrays import Array
from pipeline.mdp.rollout import Agent, Rollout

# in the paper's steps; on RiverSwim, S = 3, private runs lose most on either side of it
TUNED_STEP = 10.0


def step_size(task: MixtureTask) -> float:
    """The printed eta = sqrt(2 ln A / K) / V_max.

    ``task``: gives A, K and the largest value V_max.
    """
    return math.sqrt(2 * math.log(task.shape[2]) / task.episodes) / float(task.tops[0])


def linopt_po(problem: Problem, growth: float, eta: float) -> Agent:
    """Play the task's episodes and return the last stochastic policy ``(H, S, A)``."""
    H, S, A = problem.task.shape
    ascent, policy = np.zeros((H, S, A)), np.full((H, S, A), 1 / A)
    for episodes in plan_lengths(problem.task.episodes, growth):
        values = _values(problem, policy)
        trajectory = yield Rollout(policy, episodes)
        problem.observe(Rows(problem.task, values.V), trajectory)
        ascent += episodes * eta * values.Q
        policy = softmax(ascent)
    return policy


def _values(problem: Problem, policy: Array) -> Optimistic:
    return optimistic(problem, lambda h, Q: (Q * policy[h]).sum(-1))


def softmax(x: Array) -> Array:
    """Probabilities proportional to exp x, over the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
