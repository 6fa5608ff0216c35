"""Count tables of a known world, drawn directly from their exact law: no episode is simulated.

The tables of n independent episodes are a chain of multinomials: the first states of n people, the actions of those in
each state, the successors of each action; the arrivals are the people in each state one step later.  A draw costs the
same for ten episodes and for a million million.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.model import TabularMDP

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

# the float arithmetic inside a binomial draw keeps every bit of an integer count well below 2^53
MOST_EPISODES = 10**12


@dataclass(frozen=True)
class CountTables:
    """Visits ``n_sa (H, S, A)`` and transitions ``n_sas (H, S, A, S)`` of whole episodes, int64.

    ``n_sas`` sums to ``n_sa`` over its last axis, arrivals at a step are the visits of the next one, and each step
    holds every episode once.
    """

    n_sa: Ints
    n_sas: Ints


def sample_count_tables(mdp: TabularMDP, behaviour: Array, episodes: int, rng: np.random.Generator) -> CountTables:
    """Tables of ``episodes`` independent episodes of a world under a logging policy.

    Parameters
    ----------
    mdp
        The world; episodes last its horizon, a state in which they end is an absorbing one.
    behaviour
        ``(H, S, A)`` action probabilities.
    episodes
        At most :data:`MOST_EPISODES`.
    rng
        Simulation only; the order of its draws is pinned by tests.

    Raises
    ------
    ValueError
        If the behaviour's shape is not the world's, or there are too many episodes.
    """
    H, S, A = mdp.shape  # noqa: N806
    if behaviour.shape != (H, S, A):
        raise ValueError(f"behaviour must be {(H, S, A)}; got {behaviour.shape}")
    if not 0 <= episodes <= MOST_EPISODES:
        raise ValueError(f"episodes must be between 0 and {MOST_EPISODES:g}; got {episodes}")
    n_sa, n_sas = np.zeros((H, S, A), np.int64), np.zeros((H, S, A, S), np.int64)
    chosen, moved = _ordered(behaviour), _ordered(mdp.transitions)
    people = multinomials(np.asarray(episodes), mdp.start, rng)
    for h in range(H):
        n_sa[h] = _drawn(people, chosen[0][h], chosen[1][h], rng)
        n_sas[h] = _drawn(n_sa[h], moved[0][h], moved[1][h], rng)
        people = n_sas[h].sum((0, 1))
    return CountTables(n_sa, n_sas)


def multinomials(trials: Ints, probabilities: Array, rng: np.random.Generator) -> Ints:
    """One multinomial draw ``(..., C)`` for each of ``trials (...)`` with its own ``probabilities (..., C)``.

    numpy gives what rounding loses to the last category, though it be impossible: at 10^12 trials about one draw in
    30 000 does so.  Here the likeliest category stands last.
    """
    return _drawn(trials, *_ordered(probabilities), rng)


def _ordered(probabilities: Array) -> tuple[Array, Ints]:
    """Probabilities ``(..., C)`` with the likeliest last, and which category ``(...)`` that is."""
    likely = probabilities.argmax(-1)
    return _swap_with_last(probabilities / probabilities.sum(-1, keepdims=True), likely), likely


def _drawn(trials: Ints, ordered: Array, likely: Ints, rng: np.random.Generator) -> Ints:
    return _swap_with_last(rng.multinomial(trials, ordered), likely)


def _swap_with_last(x: NDArray[Any], column: Ints) -> NDArray[Any]:
    """A copy of ``x (..., C)`` in which entry ``column (...)`` and the last one have changed places."""
    out = x.reshape(-1, x.shape[-1]).copy()
    at = np.arange(len(out)), column.reshape(-1)
    kept = out[at]
    out[at] = out[:, -1]
    out[:, -1] = kept
    return out.reshape(x.shape)
