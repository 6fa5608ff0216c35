"""A linear policy as the page draws it: evidence and weights, from what ``policy.parquet`` holds of each step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.policy import Policy
from reports.facts.dataset import DeclaredTables
from reports.facts.policy import Decisions, Weights, decisions

Array = NDArray[np.float64]


def linear_view(
    data: DeclaredTables,
    policy: Policy,
    tied: NDArray[np.bool_],
    weights: Array,
    integers: NDArray[np.int64],
    units: tuple[float, float],
) -> Decisions:
    """The policy state by state, beside the rows that released Gram matrices hold of each pair.

    Parameters
    ----------
    data
        Labels of states and actions.
    policy, tied
        As emitted, and ``(H, L)`` where several actions were equally good.
    weights
        ``(H, d + d (d + 1) / 2)``: w of each step, then the upper triangle of its inverse Gram matrix by rows.
    integers
        ``(L, A, d)`` features.
    units
        Length of one integer step, and reward of one unit of value.
    """
    d, upper = integers.shape[-1], np.triu_indices(integers.shape[-1])
    phi, inverse = integers.astype(np.float64) * units[0], np.zeros((len(weights), d, d))
    inverse[:, upper[0], upper[1]] = inverse[:, upper[1], upper[0]] = weights[:, d:]
    evidence = 1 / np.maximum(np.einsum("sad,hde,sae->hsa", phi, inverse, phi, optimize=True), 1e-12)
    named = Weights(_names(data, integers), weights[:, :d] * units[1])
    return decisions((data.live_states, data.actions), policy, tied, evidence, weights=named)


def _names(data: DeclaredTables, integers: NDArray[np.int64]) -> list[str]:
    names = [f"feature {i}" for i in range(integers.shape[-1])]
    for i in range(len(names)):
        # a feature that one pair alone has is that pair's own
        if len(pairs := np.argwhere(integers[:, :, i])) == 1:
            s, a = pairs[0]
            names[i] = f"{data.live_states[s]} / {data.actions[a]}"
    return names
