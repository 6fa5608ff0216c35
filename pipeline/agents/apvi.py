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
    * where no allowed action has evidence the policy abstains, and is worth the least that the step can be worth;
    * the clip [0, H-h+1] is [(H-h) min(low, 0), (H-h) max(high, 0)] for rewards in [low, high], within the total;
    * rewards may be declared by the state entered: then V stands for what the next state pays and is worth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.pessimism import (
    Constants,
    Penalty,
    evidence_threshold,
    reward_estimate,
    transition_estimate,
    width,
)
from pipeline.mdp.model import Task
from pipeline.mdp.policy import Policy, best_actions
from pipeline.statistics.counts import PrivateCounts

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Plan:
    """A policy and what its making said.

    ``V (H+1, S)`` is the pessimistic value; ``tied (H, L)`` marks states in which clipping left several best actions.

    Parameters
    ----------
    policy
        The emitted policy, ``(H, L, A)`` probabilities, with the states in which it abstains.
    threshold
        Visits at or below which a cell says nothing (003 eq. 5).
    """

    policy: Policy
    V: Array
    tied: NDArray[np.bool_]
    threshold: float


# how APVI is called, and whatever plans on released counts in its place
CountsPlanner = Callable[[PrivateCounts, Task, Constants, np.random.Generator, Penalty], Plan]


@dataclass(frozen=True)
class Model:
    """Estimates of one release under one preset: P~ ``(G, L, A, S)`` and r~ ``(G, L, A)``, with their width Γ.

    Parameters
    ----------
    counts
        The consistent private counts that it was made from.
    task
        The declared process.
    constants, penalty
        The preset of its width Γ, and whether Γ is of Bernstein's or Hoeffding's kind.
    P, r
        ``(G, L, A, S)`` transition estimate, and ``(1 or G or H, L, A)`` reward a step, in reward units, but for what
        entering pays.
    """

    counts: PrivateCounts
    task: Task
    constants: Constants
    penalty: Penalty
    P: Array
    r: Array

    def backup(self, h: int, V: Array, sign: int) -> tuple[Array, Array]:
        """Unclipped and clipped ``r + P V + sign Γ`` ``(L, A)`` at step ``h``; unseen cells take the extreme value."""
        g = min(h, self.P.shape[0] - 1)
        P, r = self.P[g], self.r[min(h, self.r.shape[0] - 1)]
        Q = self.ahead(h, V)  # line 4
        Gamma = width(
            self.counts,
            g,
            P,
            self.task.onward(V),
            self.constants,
            reward=None if self.task.rewards is not None else r,
            bounds=self.task.bounds,
            reach=self.task.reach,
            penalty=self.penalty,
        )  # line 5
        Q_hat = Q + sign * Gamma  # line 6
        low, high = self.task.value_range(h)
        seen = self.counts.n_sa[g] > evidence_threshold(self.counts, self.constants)
        limited = np.clip(Q_hat, low, high)  # line 7
        return Q_hat, np.where(seen, limited, low if sign < 0 else high)

    def ahead(self, h: int, V: Array) -> Array:
        """Reward and value to come ``(L, A)`` at step ``h``, without any width."""
        return self.r[min(h, self.r.shape[0] - 1)] + self.P[min(h, self.P.shape[0] - 1)] @ self.task.onward(V)

    def of(self, policy: Policy, h: int, Q: Array, silent: float) -> Array:
        """Value ``(L,)`` at step ``h`` of following the policy there; ``silent`` where it abstains."""
        return np.where(policy.abstains[h], silent, (policy.probabilities[h] * Q).sum(axis=1))


def model(counts: PrivateCounts, task: Task, constants: Constants, penalty: Penalty = "bernstein") -> Model:
    """Transition and reward estimates of a release (003 eq. 5).

    Parameters
    ----------
    counts
        Consistent private counts.
    task
        Declared rewards and reward range; rewards are estimated from the release where it declares none.
    constants, penalty
        Of the width that its backups subtract or add.
    """
    threshold = evidence_threshold(counts, constants)
    P = transition_estimate(counts, threshold)
    if task.rewards is not None:
        r = task.rewards if task.rewards.ndim == 3 else task.rewards[None]
    else:
        r = reward_estimate(counts, threshold, *task.bounds)
    return Model(counts, task, constants, penalty, P, r)


def apvi(
    counts: PrivateCounts,
    task: Task,
    constants: Constants,
    rng: np.random.Generator,
    penalty: Penalty = "bernstein",
) -> Plan:
    """Pessimistic value iteration on released counts (003 Algorithm 1, Bernstein or Hoeffding).

    Parameters
    ----------
    counts
        Consistent private counts; exact ones give APVI.
    task
        Declared horizon, rewards and vetoes.
    constants
        A preset of :func:`pipeline.agents.pessimism.constants`.
    rng
        Breaks the ties that remain after the unclipped Q̂.
    penalty
        Kind of the width Γ: ``bernstein`` (Algorithm 1) or ``hoeffding``.

    Returns
    -------
    The emitted policy, its pessimistic value and the tied states.
    """
    m = model(counts, task, constants, penalty)  # line 2
    H, (L, A), S = task.horizon, task.allowed.shape, counts.n_sas.shape[-1]
    V = np.zeros((H + 1, S))
    probabilities, abstains, tied = np.zeros((H, L, A)), np.zeros((H, L), bool), np.zeros((H, L), bool)
    threshold, reach = evidence_threshold(counts, constants), max(map(abs, task.value_range(0)))
    for h in reversed(range(H)):  # line 3
        Q_hat, Q_bar = m.backup(h, V[h + 1], sign=-1)  # lines 4-7
        seen = counts.n_sa[min(h, counts.n_sa.shape[0] - 1)] > threshold
        best, tied[h] = best_actions(Q_bar, Q_hat, task.allowed & seen, rng, reach)
        abstains[h] = ~(task.allowed & seen).any(axis=1)
        probabilities[h] = np.eye(A)[best]
        V[h, :L] = np.where(abstains[h], task.value_range(h)[0], Q_bar[np.arange(L), best])  # line 8
    return Plan(Policy(probabilities, abstains), V, tied & ~abstains, threshold)  # line 10


def policy_bounds(m: Model, policy: Policy) -> tuple[Array, Array]:
    """Lower and upper value ``(H+1, S)`` each of a *fixed* policy: free after the release.

    Parameters
    ----------
    m
        The released model with its width.
    policy
        Fixed beforehand; where it abstains, practice may be worth anything.
    """
    H, S, L = m.task.horizon, m.counts.n_sas.shape[-1], policy.probabilities.shape[1]
    lower, upper = np.zeros((H + 1, S)), np.zeros((H + 1, S))
    for h in reversed(range(H)):
        least, most = m.task.value_range(h)
        lower[h, :L] = m.of(policy, h, m.backup(h, lower[h + 1], sign=-1)[1], least)
        upper[h, :L] = m.of(policy, h, m.backup(h, upper[h + 1], sign=+1)[1], most)
    return lower, upper


def optimal_upper(m: Model) -> Array:
    """Upper value ``(H+1, S)`` of the *best* allowed policy: the same recursion with + Γ and a maximum."""
    H, S, (L, _) = m.task.horizon, m.counts.n_sas.shape[-1], m.task.allowed.shape
    V = np.zeros((H + 1, S))
    for h in reversed(range(H)):
        V[h, :L] = np.where(m.task.allowed, m.backup(h, V[h + 1], sign=+1)[1], -np.inf).max(axis=1)
    return V


def model_value(m: Model, policy: Policy) -> Array:
    """Value ``(H+1, S)`` of a policy in the released model, without any width: a noisy-model figure, not a bound.

    Parameters
    ----------
    m
        The released model.
    policy
        ``(H, L, A)`` probabilities; where it abstains, practice is taken for a uniform choice among allowed actions.
    """
    H, S, (L, _) = m.task.horizon, m.counts.n_sas.shape[-1], m.task.allowed.shape
    V, done = np.zeros((H + 1, S)), policy.beside(m.task.allowed / m.task.allowed.sum(1, keepdims=True))
    for h in reversed(range(H)):
        V[h, :L] = (done[h] * m.ahead(h, V[h + 1])).sum(axis=1)
    return V
