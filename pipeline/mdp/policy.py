"""A policy: what to do in each state at each step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Policy:
    """Action probabilities, and where the policy has no evidence to stand on.

    Parameters
    ----------
    probabilities
        ``(H, S, A)``, rows sum to 1.
    abstains
        ``(H, S)`` bool: "not enough evidence: keep current practice".  The row of ``probabilities`` is then a
        stand-in, uniform over the allowed actions, so that the policy can be evaluated as written.
    """

    probabilities: Array
    abstains: NDArray[np.bool_]

    def __post_init__(self) -> None:
        p = self.probabilities
        if p.ndim != 3 or (p < 0).any() or (np.abs(p.sum(-1) - 1) > 1e-9).any():
            raise ValueError(f"probabilities must be (H, S, A) rows that sum to 1; got shape {p.shape}")
        if self.abstains.shape != p.shape[:2]:
            raise ValueError(f"abstains must be {p.shape[:2]}; got {self.abstains.shape}")


def uniform(horizon: int, states: int, actions: int) -> Policy:
    """Every action equally likely: the first trivial baseline.

    Parameters
    ----------
    horizon, states, actions
        H, S and A.
    """
    return Policy(np.full((horizon, states, actions), 1 / actions), np.zeros((horizon, states), dtype=bool))


def constant(horizon: int, states: int, actions: int, action: int) -> Policy:
    """The same action everywhere.

    Parameters
    ----------
    horizon, states, actions
        H, S and A.
    action
        The one that is always taken, 0-based.
    """
    p = np.zeros((horizon, states, actions))
    p[:, :, action] = 1
    return Policy(p, np.zeros((horizon, states), dtype=bool))
