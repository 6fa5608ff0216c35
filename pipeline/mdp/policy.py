"""Policies as values: one of a tabular process, all deterministic ones of a tiny world at once, and greedy choices.

Kernels of a set may be sub-stochastic: the missing mass of a row goes to an absorbing state that pays nothing.
"""

# pyright: reportUnknownVariableType=false
from dataclasses import dataclass
from itertools import product

import numpy as np

from pipeline.arrays import Array, Bools, Integers


@dataclass(frozen=True)
class Policy:
    """A policy: action probabilities, or abstention, by which current practice goes on.

    ``probabilities`` ``(H, S, A)``: rows sum to 1; where the policy abstains a row is set to zero.
    ``abstains`` ``(H, S)``: bool: nothing is recommended, current practice goes on.
    """

    probabilities: Array
    abstains: Bools

    def __post_init__(self) -> None:
        p = self.probabilities
        if p.ndim != 3 or self.abstains.shape != p.shape[:2]:
            raise ValueError(f"abstains must be (H, S) beside (H, S, A); got {self.abstains.shape} and {p.shape}")
        # written so that NaN fails: a plug-in's planner could put it into the queries to held-out people
        if not ((p >= 0).all() and (np.abs(p.sum(-1) - 1) <= 1e-9)[~self.abstains].all()):
            raise ValueError(f"probabilities must be (H, S, A) rows that sum to 1; got shape {p.shape}")
        if p[self.abstains].any():
            object.__setattr__(self, "probabilities", np.where(self.abstains[..., None], 0.0, p))

    def beside(self, practice: Array) -> Array:
        """Action probabilities under the policy ``(H, S, A)``: its own rows, and practice where it abstains.

        ``practice`` ``(H, S, A)``: or anything that is broadcast to it: action probabilities of current practice.
        """
        return np.where(self.abstains[..., None], practice, self.probabilities)


# lattice of scores: rounding differences of two processors are far below it, relevant differences far above
_STEPS = 2.0**30


def best_actions(
    clipped: Array, unclipped: Array, allowed: Bools, rng: np.random.Generator, reach: float
) -> tuple[Integers, Bools]:
    """Greatest ``clipped`` score of each state over its allowed actions, ties by ``unclipped``, then at random.

    Scores are compared on a lattice of 2^-30 of their reach, so that two machines, which round sums differently, choose
    alike.

    ``clipped``, ``unclipped``, ``allowed`` ``(S, A)``: everything clipped to 0 must not mean action 0, so the unclipped
    scores decide there.
    Returns the actions ``(S,)``, and where the clipped scores alone were tied ``(S,)``.
    """
    first = _best(clipped, allowed, reach)
    second = _best(unclipped, first, reach)
    return np.where(second, rng.random(clipped.shape), -1.0).argmax(axis=1), first.sum(axis=1) > 1


def even_actions(clipped: Array, unclipped: Array, allowed: Bools, reach: float) -> tuple[Array, Bools]:
    """The same without a draw: remaining ties are played evenly, an episode at a time.

    Returns probabilities ``(S, A)``, and where the clipped scores alone were tied ``(S,)``.
    """
    first = _best(clipped, allowed, reach)
    second = _best(unclipped, first, reach)
    return second / second.sum(axis=1, keepdims=True), first.sum(axis=1) > 1


def _best(scores: Array, among: Bools, reach: float) -> Bools:
    on_lattice = np.where(among, np.rint(scores * (_STEPS / reach)), -np.inf)
    return among & (on_lattice == on_lattice.max(axis=1, keepdims=True))


def uniform(horizon: int, states: int, actions: int) -> Policy:
    """Every action equally likely: the first trivial baseline."""
    return Policy(np.full((horizon, states, actions), 1 / actions), np.zeros((horizon, states), dtype=bool))


def constant(horizon: int, states: int, actions: int, action: int) -> Policy:
    """The same action everywhere.

    ``action``: the one that is always taken, 0-based.
    """
    p = np.zeros((horizon, states, actions))
    p[:, :, action] = 1
    return Policy(p, np.zeros((horizon, states), dtype=bool))


MOST_POLICIES = 20_000


def policy_count(shape: tuple[int, int, int]) -> int:
    """A^(HS) of ``shape (H, S, A)``."""
    H, S, A = shape
    return A ** (H * S)


def all_policies(shape: tuple[int, int, int]) -> Integers:
    """Every deterministic policy ``(A^(HS), H, S)`` of ``shape (H, S, A)``.

    Raises ValueError if there are more than 20 000.
    """
    H, S, A = shape
    count = policy_count(shape)
    if count > MOST_POLICIES:
        raise ValueError(f"{count:.3g} policies are too many to list; at most {MOST_POLICIES}")
    return np.array(list(product(range(A), repeat=H * S)), dtype=np.int64).reshape(count, H, S)


def set_values(P: Array, rewards: Array, start: Array, policies: Integers) -> Array:
    """Value ``(M,)`` of each of ``policies (M, H, S)`` for ``P (H, S, A, S)`` and ``rewards (H, S, A)``.

    ``P``: ``(H, S, A, S)``.
    ``rewards``: ``(H, S, A)``.
    ``start`` ``(S,)``: distribution of the first state.
    ``policies`` ``(M, H, S)``: actions.
    """
    states = np.arange(P.shape[1])
    value = np.zeros((len(policies), P.shape[1]))
    for h in reversed(range(P.shape[0])):
        a = policies[:, h]
        value = rewards[h][states, a] + np.einsum("mst,mt->ms", P[h][states, a], value)
    return value @ start


def set_arrivals(P: Array, start: Array, policies: Integers, step: int) -> Array:
    """Chance ``(M, S)`` that each of ``policies (M, H, S)`` is in each state at ``step``.

    ``P``: ``(H, S, A, S)``.
    ``start`` ``(S,)``: distribution of the first state.
    ``policies`` ``(M, H, S)``: actions.
    ``step``: 0-based.
    """
    states = np.arange(P.shape[1])
    d = np.broadcast_to(start, (len(policies), len(start)))
    for h in range(step):
        d = np.einsum("ms,mst->mt", d, P[h][states, policies[:, h]])
    return d
