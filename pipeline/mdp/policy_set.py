"""Many deterministic policies at once: all of a tiny world, their values and where they go.

Kernels may be sub-stochastic: what a row lacks of 1 goes to an absorbing state that pays nothing.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

MOST_POLICIES = 20_000


def policy_count(shape: tuple[int, int, int]) -> int:
    """A^(HS) of ``shape (H, S, A)``."""
    H, S, A = shape
    return A ** (H * S)


def all_policies(shape: tuple[int, int, int]) -> Integers:
    """Every deterministic policy ``(A^(HS), H, S)`` of ``shape (H, S, A)``.

    Raises
    ------
    ValueError
        If there are more than 20 000.
    """
    H, S, A = shape
    count = policy_count(shape)
    if count > MOST_POLICIES:
        raise ValueError(f"{count:.3g} policies are too many to list; at most {MOST_POLICIES}")
    return np.array(list(product(range(A), repeat=H * S)), dtype=np.int64).reshape(count, H, S)


def set_values(P: Array, rewards: Array, start: Array, policies: Integers) -> Array:
    """Value ``(M,)`` of each of ``policies (M, H, S)`` for ``P (H, S, A, S)`` and ``rewards (H, S, A)``.

    Parameters
    ----------
    P
        ``(H, S, A, S)``.
    rewards
        ``(H, S, A)``.
    start
        ``(S,)`` distribution of the first state.
    policies
        ``(M, H, S)`` actions.
    """
    states = np.arange(P.shape[1])
    value = np.zeros((len(policies), P.shape[1]))
    for h in reversed(range(P.shape[0])):
        a = policies[:, h]
        value = rewards[h][states, a] + np.einsum("mst,mt->ms", P[h][states, a], value)
    return value @ start


def set_arrivals(P: Array, start: Array, policies: Integers, step: int) -> Array:
    """Chance ``(M, S)`` that each of ``policies (M, H, S)`` is in each state at ``step``.

    Parameters
    ----------
    P
        ``(H, S, A, S)``.
    start
        ``(S,)`` distribution of the first state.
    policies
        ``(M, H, S)`` actions.
    step
        0-based.
    """
    states = np.arange(P.shape[1])
    d = np.broadcast_to(start, (len(policies), len(start)))
    for h in range(step):
        d = np.einsum("ms,mst->mt", d, P[h][states, policies[:, h]])
    return d
