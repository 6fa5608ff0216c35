"""DP-APVI: adaptive pessimistic value iteration on private counts (paper 003, Algorithm 1).

APVI is the same function on exact counts (E = 0, no noise); nothing is implemented twice.

| code | paper | shape | meaning |
|---|---|---|---|
| ``counts.n_sa``, ``n_sas`` | ñ_{s,a}, ñ_{s,a,s'} | (G, L, A[, S]) | consistent counts (3); G = H, or 1 if stationary |
| ``E`` (``counts.error``) | E_ρ | scalar | bound on the noise |
| ``P``, ``r`` | P̃_h, r_h | (G, L, A, S), (G, L, A) | transition estimate (5); reward, declared or estimated |
| ``Q``, ``Gamma``, ``Q_bar``, ``V`` | Q̃_h, Γ_h, Q̄_h, Ṽ_h | (H, L, A), …, (H+1, S) | reward units |
| ``iota`` | ι | scalar | log(HSA/δ) |

0-based: the paper's H-h+1 steps to go are ``H - h``.  L live states come first among the S states; the declared ends
are absorbing and worth 0.

Departures from the printed page
    * rewards may be estimated: r̃ is a third private table, its error is part of Γ (algorithms.md §1.1);
    * one table for all steps where the card declares stationary dynamics: the planner broadcasts it;
    * ``tail`` and ``practical`` constants, printed as such; only ``paper`` has the theorem;
    * ties of the clipped Q̄ are broken by the unclipped Q̂, then at random, and their share is reported; scores within
      2^-30 of the greatest value are tied, so that two machines choose alike;
    * where no allowed action has evidence the policy abstains, and is worth the least that the step can be worth; with
      ``practical`` constants evidence is that of :mod:`pipeline.agents.support`;
    * the clip [0, H-h+1] is [(H-h) min(low, 0), (H-h) max(high, 0)] for rewards in [low, high], within the total;
    * rewards may be declared by the state entered: then V stands for what the next state pays and is worth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.pessimism import (
    Constants,
    Penalty,
    evidence_threshold,
    first_and_second,
    reward_estimate,
    transition_estimate,
    width,
)
from pipeline.agents.support import least_visits, supported
from pipeline.mdp.model import Task
from pipeline.mdp.policy import Policy, best_actions
from pipeline.statistics.planning_counts import PrivateCounts

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Plan:
    """A policy and facts of its planning.

    ``V (H+1, S)`` is the pessimistic value; ``tied (H, L)`` marks states in which clipping left several best actions.

    ``policy``: the emitted policy, ``(H, L, A)`` probabilities, with the states in which it abstains.
    ``threshold``: visits at or below which a cell counts as empty (003 eq. 5).
    """

    policy: Policy
    V: Array
    tied: NDArray[np.bool_]
    threshold: float


# how APVI is called, and whatever plans on released counts in its place
CountsPlanner = Callable[[PrivateCounts, Task, Constants, np.random.Generator, Penalty], Plan]


class PolicyBounds(NamedTuple):
    """Of a *fixed* policy, ``(H+1, S)`` each: ends of an interval, free after the release, and an estimate.

    Of one step's actions, ``(L, A)`` each.

    ``middle``: without any width: of the noisy model, not a bound; where the policy abstains, practice is taken for a
    uniform choice among allowed actions.
    """

    lower: Array
    upper: Array
    middle: Array


@dataclass(frozen=True)
class Model:
    """Estimates of one release under one preset: P~ ``(G, L, A, S)`` and r~ ``(G, L, A)``, with their width Γ.

    ``r`` ``(1 or G or H, L, A)``: reward a step, in reward units, without that of the entered state.
    """

    counts: PrivateCounts
    task: Task
    constants: Constants
    penalty: Penalty
    r: Array

    @cached_property
    def P(self) -> Array:  # noqa: N802
        """Transition estimate ``(G, L, A, S)`` (5), as large as the counts; backups divide their products."""
        return transition_estimate(self.counts, self.threshold)

    @property
    def threshold(self) -> float:
        """Visits at or below which a cell counts as empty."""
        return evidence_threshold(self.counts, self.constants)

    def expected(self, h: int, rows: NDArray[np.intp], values: Array) -> tuple[Array, Array]:
        """Visits ``(n,)`` and P~ values ``(n, k)`` at step ``h`` of the cells ``rows (n,)`` among L·A.

        ``h``, ``rows``: 0-based step and cells, rising; cells evenly apart are read where they lie.
        ``values`` ``(S, k)``: all are read with one pass over the counts.
        """
        g, size = min(h, self.counts.n_sa.shape[0] - 1), self.task.allowed.size
        n, n_sas = self.counts.n_sa[g].reshape(size)[rows], self.counts.n_sas[g].reshape(size, -1)
        apart = np.unique(np.diff(rows))
        pick: NDArray[np.intp] | slice = rows
        if len(rows) and len(apart) <= 1:
            pick = slice(int(rows[0]), int(rows[-1]) + 1, int(apart[0]) if len(apart) else 1)
        # to gather most of them would cost more than to multiply all
        some, pick = (n_sas, pick) if 2 * len(rows) > size else (n_sas[pick], slice(None))
        # two vectors take one pass each faster than a matrix of them takes one
        one_by_one = values.shape[1] < 3
        sums = np.stack([some @ v for v in values.T], axis=1) if one_by_one else some @ values
        sums = sums[pick]
        seen = (n > self.threshold)[:, None]
        return n, np.where(seen, sums / np.where(seen, n[:, None], 1.0), values.mean(axis=0))

    def reward(self, h: int, rows: NDArray[np.intp]) -> Array:
        """r~ ``(n,)`` of the cells ``rows``."""
        return self.r[min(h, self.r.shape[0] - 1)].reshape(-1)[rows]

    def backup(self, h: int, V: Array, sign: int) -> tuple[Array, Array]:
        """Unclipped and clipped ``r + P V + sign Γ`` ``(L, A)`` at step ``h``; unseen cells take the extreme value."""
        rows, to = np.arange(self.task.allowed.size), self.task.onward(V)
        n, moments = self.expected(h, rows, first_and_second(to))
        Q_hat, Q_bar = self.widened(h, rows, n, moments, to, sign)
        return Q_hat.reshape(self.task.allowed.shape), Q_bar.reshape(self.task.allowed.shape)

    def widened(
        self, h: int, rows: NDArray[np.intp], n: Array, moments: Array, to: Array, sign: int
    ) -> tuple[Array, Array]:
        """Unclipped and clipped ``r + P V + sign Γ`` ``(n,)`` of cells with ``moments (n, 2)`` of ``to (S,)``."""
        r = self.reward(h, rows)
        Q = r + moments[:, 0]  # line 4
        Gamma = width(
            self.counts,
            n,
            moments,
            to,
            self.constants,
            reward=None if self.task.rewards is not None else r,
            bounds=self.task.bounds,
            reach=self.task.reach,
            penalty=self.penalty,
        )  # line 5
        Q_hat = Q + sign * Gamma  # line 6
        low, high = self.task.value_range(h)
        limited = np.clip(Q_hat, low, high)  # line 7
        return Q_hat, np.where(n > self.threshold, limited, low if sign < 0 else high)

    def action_values(self, h: int, after: PolicyBounds, asked: NDArray[np.bool_]) -> PolicyBounds:
        """Value of each action ``asked (L, A)`` at step ``h`` with a policy ``after`` it; 0 of the others."""
        rows = np.flatnonzero(asked)
        low, high, mid = (self.task.onward(V[h + 1]) for V in after)
        n, found = self.expected(h, rows, np.column_stack([first_and_second(low), first_and_second(high), mid]))
        made = PolicyBounds(*(np.zeros(asked.shape) for _ in range(3)))
        made.lower.flat[rows] = self.widened(h, rows, n, found[:, :2], low, -1)[1]
        made.upper.flat[rows] = self.widened(h, rows, n, found[:, 2:4], high, +1)[1]
        made.middle.flat[rows] = self.reward(h, rows) + found[:, 4]
        return made

    def ahead(self, h: int, V: Array) -> Array:
        """Reward and value to come ``(L, A)`` at step ``h``, without any width."""
        rows = np.arange(self.task.allowed.size)
        _, mean = self.expected(h, rows, self.task.onward(V)[:, None])
        return (self.reward(h, rows) + mean[:, 0]).reshape(self.task.allowed.shape)


def model(counts: PrivateCounts, task: Task, constants: Constants, penalty: Penalty = "bernstein") -> Model:
    """Transition and reward estimates of a release (003 eq. 5)."""
    threshold = evidence_threshold(counts, constants)
    if task.rewards is not None:
        r = task.rewards if task.rewards.ndim == 3 else task.rewards[None]
    else:
        r = reward_estimate(counts, threshold, *task.bounds)
    return Model(counts, task, constants, penalty, r)


def apvi(
    counts: PrivateCounts,
    task: Task,
    constants: Constants,
    rng: np.random.Generator,
    penalty: Penalty = "bernstein",
) -> Plan:
    """Pessimistic value iteration on released counts (003 Algorithm 1, Bernstein or Hoeffding).

    ``counts``: consistent private counts; exact ones give APVI.
    ``penalty``: kind of the width Γ: ``bernstein`` (Algorithm 1) or ``hoeffding``.
    Returns the emitted policy, its pessimistic value and the tied states.
    """
    m = model(counts, task, constants, penalty)  # line 2
    H, (L, A), S = task.horizon, task.allowed.shape, counts.n_sas.shape[-1]
    V = np.zeros((H + 1, S))
    probabilities, abstains, tied = np.zeros((H, L, A)), np.zeros((H, L), bool), np.zeros((H, L), bool)
    threshold, reach = evidence_threshold(counts, constants), max(map(abs, task.value_range(0)))
    seen = counts.n_sa > threshold
    if constants.preset == "practical":
        steps = len(counts.n_sa)
        threshold, seen = max(threshold, least_visits(counts.release, steps)), seen & supported(counts.release, steps)
    for h in reversed(range(H)):  # line 3
        Q_hat, Q_bar = m.backup(h, V[h + 1], sign=-1)  # lines 4-7
        may = task.allowed & seen[min(h, len(seen) - 1)]
        best, tied[h] = best_actions(Q_bar, Q_hat, may, rng, reach)
        abstains[h] = ~may.any(axis=1)
        probabilities[h] = np.eye(A)[best]
        V[h, :L] = np.where(abstains[h], task.value_range(h)[0], Q_bar[np.arange(L), best])  # line 8
    return Plan(Policy(probabilities, abstains), V, tied & ~abstains, threshold)  # line 10


def policy_bounds(m: Model, policy: Policy) -> PolicyBounds:
    """Bounds on a policy's value in the released model: one pass over the counts of its actions.

    ``policy``: fixed beforehand, ``(H, L, A)`` probabilities.
    """
    (H, L, _), S = policy.probabilities.shape, m.counts.n_sas.shape[-1]
    V = PolicyBounds(*(np.zeros((H + 1, S)) for _ in range(3)))
    done = policy.beside(m.task.allowed / m.task.allowed.sum(1, keepdims=True))
    for h in reversed(range(H)):
        Q, (least, most) = m.action_values(h, V, done[h] > 0), m.task.value_range(h)
        followed, silent = policy.probabilities[h], policy.abstains[h]
        V.lower[h, :L] = np.where(silent, least, (followed * Q.lower).sum(axis=1))
        V.upper[h, :L] = np.where(silent, most, (followed * Q.upper).sum(axis=1))
        V.middle[h, :L] = (done[h] * Q.middle).sum(axis=1)
    return V


def optimal_upper(m: Model) -> Array:
    """Upper value ``(H+1, S)`` of the *best* allowed policy: the same recursion with + Γ and a maximum."""
    H, S, (L, _) = m.task.horizon, m.counts.n_sas.shape[-1], m.task.allowed.shape
    V = np.zeros((H + 1, S))
    for h in reversed(range(H)):
        V[h, :L] = np.where(m.task.allowed, m.backup(h, V[h + 1], sign=+1)[1], -np.inf).max(axis=1)
    return V
