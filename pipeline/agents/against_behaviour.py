"""Comparison of a policy with current practice, state by state, from released counts: post-processing.

| code | shape | meaning |
|---|---|---|
| ``usual`` | (G, L, A) | share of each action in the released visits; NaN where too few (G = H, or 1 if stationary) |
| ``followed`` | (H, L) | share of practice that already agrees with the policy |
| ``gain`` | (H, L) | value of following the policy from here, less one step of practice first; no width |
| ``apart`` | (H, L) | the lower end of the former lies above the upper end of the latter |

No paper has this; it is the model of 003 with its own width, for two first steps.
"""

from dataclasses import dataclass

import numpy as np

from pipeline.agents.apvi import Model, PolicyBounds
from pipeline.arrays import Array, Bools
from pipeline.mdp.policy import Policy


@dataclass(frozen=True)
class AgainstPractice:
    """``followed (H, L)``, ``gain (H, L)`` in reward units, ``apart (H, L)``; NaN and False where either is silent."""

    followed: Array
    gain: Array
    apart: Bools


def against_practice(m: Model, policy: Policy, usual: Array, values: PolicyBounds) -> AgainstPractice:
    """Compare, in each state at each step, the policy with one step of current practice.

    ``usual`` ``(G, L, A)``: shares of the actions taken, rows of NaN where released counts are too few.
    """
    H, L, _ = policy.probabilities.shape
    compared = ~np.isnan(usual).any(-1) & ~policy.abstains
    usual = np.broadcast_to(np.nan_to_num(usual), policy.probabilities.shape)
    followed = np.minimum(usual, policy.probabilities).sum(-1)
    gain, apart = np.zeros((H, L)), np.zeros((H, L), bool)
    for h in range(H):
        first = m.action_values(h, values, usual[h] > 0)
        gain[h] = values.middle[h, :L] - (usual[h] * first.middle).sum(-1)
        apart[h] = values.lower[h, :L] > (usual[h] * first.upper).sum(-1)
    return AgainstPractice(np.where(compared, followed, np.nan), np.where(compared, gain, np.nan), apart & compared)


def as_practised(usual: Array, allowed: Bools, horizon: int) -> Policy:
    """Current practice as a policy: released shares, a uniform choice among allowed actions where counts are too few.

    ``usual`` ``(G, L, A)``: shares of the actions in the released visits; a row of NaN where these are too few.
    ``allowed`` ``(L, A)``: bool, False where an action is vetoed.
    """
    even = allowed / allowed.sum(1, keepdims=True)
    rows = np.where(np.isnan(usual), even, usual)
    shape = (horizon, *allowed.shape)
    return Policy(np.broadcast_to(rows, shape).copy(), np.zeros(shape[:2], bool))
