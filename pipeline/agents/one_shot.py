"""Linear planning on one-shot statistics: pessimistic policy, bounds of a fixed policy, all free after the release.

The same backups as :mod:`pipeline.agents.vapvi` with σ² = 1, but the sums of φ·(r + V - offset) are *combinations of
released columns*: there is no further query, so any C, λ or penalty, and the optimistic recursion, cost nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from pipeline.agents.linear_backup import (
    Backup,
    LinearConstants,
    LinearResult,
    LinearTask,
    Ridge,
    backup_of,
    greedy_step,
    norm_of,
    ridge,
)
from pipeline.arrays import Array
from pipeline.mdp.policy import Policy
from pipeline.statistics.regression import OneShot, PrivateRegression


def regression_of(released: OneShot, h: int, V: Array) -> PrivateRegression:
    """Sums of φ·(r + V(s') - offset) at step ``h`` for any ``V (S',)``, offset at mid-range."""
    middle = (V.max() + V.min()) / 2
    around = released.onto @ (V - middle)
    target = released.rewards[h] + around @ released.successors[h]
    offset = released.middle + float(middle)
    return PrivateRegression(released.gram[h], target[None], offset, float("inf"), released.gram_sd)


def one_shot(
    released: OneShot, task: LinearTask, c: LinearConstants, rng: np.random.Generator, least: float = -math.inf
) -> LinearResult:
    """Pessimistic plan on one release; repeated calls are free."""
    H, (S, A, _) = task.horizon, task.reference.shape
    probabilities, V = np.zeros((H, S, A)), np.zeros((H + 1, S))
    tied, backups = np.zeros((H, S), bool), list[Backup]()
    for h in reversed(range(H)):
        s = regression_of(released, h, successor_values(V[h + 1], task))
        backups.insert(0, backup_of(s, h, task, c, c.C * math.sqrt(task.dimension)))
        probabilities[h], V[h], tied[h] = greedy_step(backups[0], task, rng, least)
    return LinearResult(Policy(probabilities, np.zeros((H, S), bool)), backups, V, tied, np.zeros(H, bool))


def policy_bound(released: OneShot, task: LinearTask, c: LinearConstants, policy: Policy, sign: int) -> Array:
    """Value ``(H+1, S)`` of a fixed policy with the width subtracted (``sign`` -1) or added (+1): free, a bound only
    where the width holds.

    ``policy`` ``(H, S, A)``: probabilities, fixed beforehand.
    """
    V = np.zeros((task.horizon + 1, task.reference.shape[0]))
    for h in reversed(range(task.horizon)):
        V[h] = (policy.probabilities[h] * _clipped(released, task, c, h, V[h + 1], sign)).sum(axis=1)
    return V


def optimal_upper(released: OneShot, task: LinearTask, c: LinearConstants) -> Array:
    """Upper value ``(H+1, S)`` of the best policy: the recursion with + Γ and a maximum."""
    V = np.zeros((task.horizon + 1, task.reference.shape[0]))
    for h in reversed(range(task.horizon)):
        Q = _clipped(released, task, c, h, V[h + 1], +1)
        V[h] = (Q if task.allowed is None else np.where(task.allowed, Q, -np.inf)).max(axis=1)
    return V


def _clipped(released: OneShot, task: LinearTask, c: LinearConstants, h: int, V: Array, sign: int) -> Array:
    s = regression_of(released, h, successor_values(V, task))
    Lambda, norm = _ridges(released, task, c)[h]
    b = backup_of(s, h, task, c, c.C * math.sqrt(task.dimension), Lambda)
    return replace(b, sign=sign).q(task.reference, norm)[1]


@lru_cache(maxsize=1)
def _ridges(released: OneShot, task: LinearTask, c: LinearConstants) -> list[tuple[Ridge, Array]]:
    """Ridge and norms ``(M, A)`` of each step: the same for every policy that is valued on one release."""
    ridges = [ridge(gram, released.gram_sd, task.horizon, c) for gram in released.gram]
    return [(Lambda, norm_of(task.reference * task.unit, Lambda.inverse())) for Lambda in ridges]


def successor_values(V: Array, task: LinearTask) -> Array:
    """Values ``(S',)`` of all successors: the END's 0 follows where an episode may end."""
    return np.append(V, 0.0) if task.can_end else V
