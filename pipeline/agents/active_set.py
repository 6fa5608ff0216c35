"""What SDP-PE believes of the process, and its active policies: a list, or one linear constraint on occupancies.

Paper 002 keeps a list of policies and drops some after each stage.  The list has A^(HS) entries.  The other form keeps
the *model* that the drops were judged by: under it, "upper value of pi at least the largest lower value" is one linear
constraint on the occupancy of pi, whatever the number of policies.

The model is the absorbing one of paper 002: EstimateTransition and EstimateRewards, which it prints nowhere (our
reading).  Where a tuple is visited too seldom (W), its probability goes to an absorbing state x† that pays nothing:
rows of ``P`` then sum to less than 1.  Shapes: ``P, W (H, S, A, S)``, the rest ``(H, S, A)``; X is S here.
"""

# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.planning import most_visits
from pipeline.mdp.policy import MOST_POLICIES, all_policies, policy_count, set_arrivals, set_values
from pipeline.statistics.batch_counts import BatchLayout, NoisyTables, PrivateBatch, consistent

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# values this close are equal: rounding must not choose between policies
TIE = 1e-12


@dataclass(frozen=True)
class Plays:
    """For each of T targets one policy or a mixture of two: ``policies (T, 2, H, S)`` with ``weights (T, 2)``."""

    policies: Integers
    weights: Array

    def pure(self) -> Plays:
        """The first policy of each mixture alone: where there is a constraint, the one that keeps it."""
        return Plays(self.policies, np.tile([1.0, 0.0], (len(self.weights), 1)))

    def episodes(self, total: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
        """Policies ``(2T, H, S)`` and how many of ``total`` users follow each: targets evenly, mixtures by lot."""
        T, _, H, S = self.policies.shape
        share = np.full(T, total // T) + (rng.permutation(T) < total % T)
        first = rng.binomial(share, np.clip(self.weights[:, 0], 0.0, 1.0))
        return self.policies.reshape(2 * T, H, S), np.stack([first, share - first], axis=1).reshape(-1)


class ActiveSet(Protocol):
    """Policies that have not been eliminated."""

    def most_visits(self, P: Array, targets: Integers, rng: np.random.Generator) -> Plays:
        """For each of ``targets (T, 3)`` an active policy that visits it most under ``P``; ties at random."""
        ...

    def best(self, P: Array, rewards: Array, rng: np.random.Generator) -> Integers:
        """An active policy ``(H, S)`` of largest value; ties at random."""
        ...

    def keeps(self, policy: Integers) -> bool:
        """Whether ``policy (H, S)`` is active."""
        ...

    @property
    def left(self) -> int | None:
        """Number of active policies; None where they are too many to count."""
        ...


@dataclass(frozen=True)
class Listed:
    """Policies ``(M, H, S)`` one by one, for tiny worlds."""

    start: Array
    policies: Integers

    def most_visits(self, P: Array, targets: Integers, rng: np.random.Generator) -> Plays:
        """See :class:`ActiveSet`."""
        arrivals = [set_arrivals(P, self.start, self.policies, h) for h in range(int(targets[:, 0].max()) + 1)]
        chosen = [_one_of_best(arrivals[h][:, x] * (self.policies[:, h, x] == a), rng) for h, x, a in targets.tolist()]
        policies = self.policies[chosen]
        weights = np.tile([1.0, 0.0], (len(targets), 1))
        return Plays(np.stack([policies, policies], axis=1), weights)

    def best(self, P: Array, rewards: Array, rng: np.random.Generator) -> Integers:
        """See :class:`ActiveSet`."""
        return self.policies[_one_of_best(set_values(P, rewards, self.start, self.policies), rng)]

    def keeps(self, policy: Integers) -> bool:
        """See :class:`ActiveSet`."""
        return bool((self.policies == policy).all((1, 2)).any())

    @property
    def left(self) -> int:
        """See :class:`ActiveSet`."""
        return len(self.policies)


@dataclass(frozen=True)
class Constrained:
    """All policies whose occupancy under ``P (H, S, A, S)`` earns at least ``floor`` of ``bonus (H, S, A)``.

    Parameters
    ----------
    start
        ``(S,)`` first-state distribution.
    """

    P: Array
    start: Array
    bonus: Array
    floor: float

    def most_visits(self, P: Array, targets: Integers, rng: np.random.Generator) -> Plays:
        """See :class:`ActiveSet`; ``P`` must be the model of the constraint, so that both are linear in one occupancy.

        Raises
        ------
        ValueError
            If it is another model: the problem would not be convex.
        """
        if P is not self.P:
            raise ValueError("targets and constraint must share one model")
        found = most_visits(P, self.start, self.bonus, self.floor, targets, rng)
        return Plays(found.policies, found.weights)

    def best(self, P: Array, rewards: Array, rng: np.random.Generator) -> Integers:
        """See :class:`ActiveSet`; no policy but an active one is best, since bonuses are at least the rewards."""
        H, S = P.shape[:2]
        V, policy = np.zeros((H + 1, S)), np.empty((H, S), dtype=np.int64)
        for h in reversed(range(H)):
            Q = rewards[h] + P[h] @ V[h + 1]
            V[h] = Q.max(-1)
            policy[h] = np.where(V[h][:, None] - Q <= TIE, rng.random(Q.shape), -1.0).argmax(-1)
        return policy

    def keeps(self, policy: Integers) -> bool:
        """See :class:`ActiveSet`; up to rounding."""
        return bool(self._upper(policy[None])[0] >= self.floor - 1e-9)

    @property
    def left(self) -> int | None:
        """See :class:`ActiveSet`."""
        shape = self.bonus.shape[0], self.bonus.shape[1], self.bonus.shape[2]
        if policy_count(shape) > MOST_POLICIES:
            return None
        return int((self._upper(all_policies(shape)) >= self.floor - 1e-9).sum())

    @property
    def worst(self) -> float:
        """Smallest upper value of any policy: below ``floor`` something is eliminated."""
        return -best_value(self.P, -self.bonus, self.start)

    def _upper(self, policies: Integers) -> Array:
        return set_values(self.P, self.bonus, self.start, policies)


def best_value(P: Array, rewards: Array, start: Array) -> float:
    """Largest value of any policy under ``P`` whose rows may sum to less than 1."""
    V = np.zeros((len(P) + 1, len(start)))
    for h in reversed(range(len(P))):
        V[h] = (rewards[h] + P[h] @ V[h + 1]).max(-1)
    return float(start @ V[0])


def _one_of_best(score: Array, rng: np.random.Generator) -> int:
    best = np.flatnonzero(score >= score.max() - TIE)
    return int(best[rng.integers(len(best))])


Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Model:
    """Estimates of a stage, and reward per step that bounds a policy's value from above and below under ``P``."""

    P: Array
    r: Array
    upper: Array
    lower: Array
    W: Bools


def nothing_known(shape: tuple[int, int, int]) -> Model:
    """All mass at x†."""
    zero, (_, S, _) = np.zeros(shape), shape
    return Model(np.zeros((*shape, S)), zero, zero, zero, np.ones((*shape, S), dtype=bool))


def transition_estimate(n_sas: Array, n_sa: Array, W: Bools) -> Array:
    """N~(x,a,x') / N~(x,a) off W, 0 on it: what a row lacks of 1 goes to x†."""
    return np.where(W, 0.0, n_sas) / np.where(n_sa > 0, n_sa, 1.0)[..., None]


def reward_estimate(r_sa: Array, n_sa: Array) -> Array:
    """R~ / N~(x,a), clipped to [0, 1]."""
    return np.clip(r_sa / np.where(n_sa > 0, n_sa, 1.0), 0.0, 1.0)


def paper_model(counts: PrivateBatch, W: Bools) -> Model:
    """Algorithm 3, lines 7-10."""
    assert counts.r_sa is not None
    P, r = transition_estimate(counts.n_sas, counts.n_sa, W), reward_estimate(counts.r_sa, counts.n_sa)
    return Model(P, r, r, r, W)


def practical_model(noisy: NoisyTables, layout: BatchLayout, log_term: float, scale: float, z: float) -> Model:
    """Estimates from counts without a shift, and what a policy can win more or less than its value says.

    Width of a cell: ``scale * (span (sqrt(l / 2N) + z sd sqrt(X) / 2N) + sqrt(l / 2N) + z sd (1 + r) / N)``, the last
    two for the reward, with ``span`` the steps to go; x† pays 1 a step from above, 0 from below.

    Parameters
    ----------
    log_term
        l = log(4HX²A stages/δ).
    z
        Standard deviations with which noise counts; tuples within them of 0 are in W.
    """
    assert noisy.r_sa is not None
    H, S, _ = layout.shape
    counts = consistent(noisy, layout, slack=0.0 if layout.lean else z * noisy.sd, shift=0.0, error=0.0)
    W = counts.n_sas <= z * noisy.sd
    W[-1] = True
    P, r = transition_estimate(counts.n_sas, counts.n_sa, W), reward_estimate(noisy.r_sa, counts.n_sa)
    N = np.maximum(counts.n_sa, 1.0)
    span = np.arange(H - 1, -1, -1.0)[:, None, None]
    chance = np.sqrt(log_term / (2 * N))
    moves = scale * span * (chance + z * noisy.sd * math.sqrt(S) / (2 * N))
    pays = scale * (chance + z * noisy.sd * (1 + r) / N)
    above = np.minimum(moves + span * (1 - P.sum(-1)), span)
    upper = np.minimum(r + pays, 1.0) + above
    return Model(P, r, upper, np.maximum(r - pays, 0.0) - np.minimum(moves, span), W)
