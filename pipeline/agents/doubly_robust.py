"""Marginalised doubly robust evaluation of a tabular policy: queries of a released model to held-out people.

For a held-out person with steps (s_t, a_t, r_t, s_{t+1}),

    psi = V_0(s_0) + sum_t w_t(s_t, a_t) [r_t + V_{t+1}(s_{t+1}) - Q_t(s_t, a_t)]

has the policy's value as its mean where the values V, Q are right, or where the weights w are; the remaining error
is the product of both (Kallus and Uehara 2020, "Double reinforcement learning").

| code | shape | meaning |
|---|---|---|
| ``V`` | (H+1, S) | value of the policy in the released model, in reward units; 0 at an end and after the horizon |
| ``Q`` | (H, L, A) | of one action first |
| ``w`` | (H, L, A) | how much more often the policy is in s at t and takes a than practice, in the released model |
| ``surprise`` | (H, L, A) | pi(a | s) - sum_a' mu(a' | s) pi(a' | s): 0 in the mean for any past of s |
| ``W`` | (H+1, S) | value of practice, the unit of the past of s |
| ``lost`` | (H, L) | mean of W_{t-1}(s_{t-1}) - W_t(s) before s in the released model |
| ``past`` | (H, L) | mean there of the excess over W before s (``scores.fared``) |
| ``aim`` | (H, L, A) | divided by the logged probability it is w; NaN where practice goes on |

Where the policy abstains, practice goes on, whatever it is: w is the state's ratio for every action and Q is V, so that
the released shares of practice, which noise may hide, have no say there.  Where the release does not show practice's
actions, w is 0 and the model alone counts; likewise where it has no row of the policy's action.
"""

from __future__ import annotations

import math

import numpy as np

from pipeline.agents.against_behaviour import as_practised
from pipeline.agents.apvi import Model
from pipeline.arrays import Array
from pipeline.mdp.policy import Policy
from pipeline.statistics.scores import FADING, Question

# largest ratio of two chances to be in a state, and of two chances of a step: rarer ones would speak for too many
MOST_STATE, MOST_STEP = 10.0, 60.0
# ranges of values that a score may be from the middle: least and most
SPREADS = 1, 64
# share of practice's rows below which a cell sets no clip
_SELDOM = 1e-4
VERSION = 3


def question(m: Model, policy: Policy, usual: Array, start: Array) -> Question:
    """The query of a released model and a policy to rows of held-out people.

    ``m``: the released model, without its width.
    ``usual`` ``(G, L, A)``: shares of the actions in the released visits; a row of NaN where they are too few.
    ``start`` ``(L,)``: distribution of the first state.
    """
    H, (L, A) = m.task.horizon, m.task.allowed.shape
    mu = as_practised(usual, m.task.allowed, H).probabilities
    pi, known = policy.beside(mu), np.broadcast_to(~np.isnan(usual).any(-1), (H, L))
    V, Q = _values(m, pi)
    W, _ = _values(m, mu)
    there, state = _more_often(m, pi, mu, start)
    told = (known | policy.abstains)[..., None] & (mu > 0)
    ratio = np.divide(pi, mu, out=np.zeros((H, L, A)), where=told)
    # where practice goes on its rows are the policy's, also of actions that noise hides
    keeps = policy.abstains[..., None]
    ratio, Q = np.where(keeps, 1.0, ratio), np.where(keeps, V[:H, :L, None], Q)  # pyright: ignore[reportConstantRedefinition]
    w = np.clip(state[..., None] * ratio, 0, MOST_STEP)
    aside = (known & ~policy.abstains)[..., None]
    surprise = np.where(aside, pi - (pi * mu).sum(-1, keepdims=True), 0.0)
    visits = there[..., None] * mu * told
    total, square = float((visits * w).sum()), float((visits * w * w).sum())
    # of the rows that practice has; what the policy alone would reach is not there to be cut
    most = float(w[visits > _SELDOM * visits.sum()].max(initial=1.0))
    spread = int(np.clip(2 ** round(math.log2(max(most, 1.0))), *SPREADS))
    # of all rows of practice: no share exceeds 1 (Cauchy and Schwarz), whatever noise made of the model
    rows = float(there.sum())
    effective = min(total * total / (square * rows), 1.0) if square and rows else 0.0
    return Question(V, Q, w, surprise, W, *before(m, mu, W, there), spread, effective)


def aim(m: Model, policy: Policy, usual: Array, start: Array) -> Array:
    """``aim (H, L, A)``: how much more often the policy is in a state, times its chance of an action there."""
    mu = as_practised(usual, m.task.allowed, m.task.horizon).probabilities
    _, state = _more_often(m, policy.beside(mu), mu, start)
    return np.where(policy.abstains[..., None], np.nan, state[..., None] * policy.probabilities)


def _more_often(m: Model, pi: Array, mu: Array, start: Array) -> tuple[Array, Array]:
    """Chance ``(H, L)`` of practice to be in each state, and how much more often the policy is there, cut."""
    here, there = _visits(m, pi, start), _visits(m, mu, start)
    ratio = np.divide(here, there, out=np.ones_like(there), where=there > 0)
    return there, np.clip(ratio, 0, MOST_STATE)


def practice_visits(m: Model, usual: Array, start: Array) -> Array:
    """Chance ``(H, L)`` of practice to be in each live state at each step, in the released model."""
    return _visits(m, as_practised(usual, m.task.allowed, m.task.horizon).probabilities, start)


def policy_visits(m: Model, policy: Policy, usual: Array, start: Array) -> Array:
    """Chance ``(H, L)`` of the policy to be in each live state at each step, in the released model."""
    return _visits(m, policy.beside(as_practised(usual, m.task.allowed, m.task.horizon).probabilities), start)


def _values(m: Model, pi: Array) -> tuple[Array, Array]:
    """``V (H+1, S)`` and ``Q (H, L, A)`` of a policy, within what a step can be worth at all."""
    H, L, A = pi.shape
    V, Q = np.zeros((H + 1, m.counts.n_sas.shape[-1])), np.zeros((H, L, A))
    for h in reversed(range(H)):
        Q[h] = np.clip(m.ahead(h, V[h + 1]), *m.task.value_range(h))
        V[h, :L] = (pi[h] * Q[h]).sum(-1)
    return V, Q


def _visits(m: Model, pi: Array, start: Array) -> Array:
    """Chance ``(H, L)`` to be in each live state at each step."""
    H, L, _ = pi.shape
    found = np.zeros((H, L))
    found[0] = start
    for h in range(H - 1):
        found[h + 1] = np.einsum("s,sa,sat->t", found[h], pi[h], m.P[min(h, len(m.P) - 1)][..., :L])
    return found


def before(m: Model, mu: Array, W: Array, visits: Array) -> tuple[Array, Array]:
    """Means over the past of a state ``(H, L)`` in the released model: the loss, and the excess over W.

    ``mu`` ``(H, L, A)``: practice.
    ``W`` ``(H+1, S)``: its value.
    ``visits`` ``(H, L)``: its chance to be in each live state.
    """
    H, L, _ = mu.shape
    lost, past, sums, weight = np.zeros((H, L)), np.zeros((H, L)), np.zeros(L), 0.0
    for h in range(1, H):
        acts = visits[h - 1][:, None] * mu[h - 1]
        P = m.P[min(h - 1, len(m.P) - 1)][..., :L]
        into = np.einsum("sa,sat->st", acts, P)
        arrived = into.sum(0)
        there = np.where(arrived > 0, arrived, 1.0)
        lost[h] = (into.T @ W[h - 1, :L] - arrived * W[h, :L]) / there
        # mean reward and next value of a step, less their expectation
        paid = np.einsum("sa,sat->t", acts * (_paid(m, h - 1) - W[h - 1, :L, None]), P)
        kept = np.divide(into, visits[h - 1][:, None], out=np.zeros_like(into), where=visits[h - 1][:, None] > 0)
        sums = FADING * (sums @ kept) + paid + arrived * m.task.onward(W[h])[:L]
        weight = FADING * weight + 1.0
        past[h] = sums / there / weight
    return lost, past


def _paid(m: Model, h: int) -> Array:
    """``(L, A)``: reward of a step, without that of the entered state."""
    return m.reward(h, np.arange(m.task.allowed.size)).reshape(m.task.allowed.shape)


def doubts(m: Model, policy: Policy, usual: Array, start: Array) -> tuple[float, float, float, float]:
    """Sums that bound the effect of a trait behind the choices.

    Returns sums over an episode of practice, where the policy leaves it, of 1 - p and of the variance of what is done,
    p the chance of the policy's action; the mean number of rows; and the largest share over steps of people whom the
    policy treats unlike practice.
    """
    mu = as_practised(usual, m.task.allowed, m.task.horizon).probabilities
    pi = policy.beside(mu)
    here, there = _visits(m, pi, start), _visits(m, mu, start)
    apart = np.where(policy.abstains, 0.0, 1 - (pi * mu).sum(-1))
    spread = np.where(policy.abstains, 0.0, (mu * pi**2).sum(-1) - (mu * pi).sum(-1) ** 2)
    largest = float((here * apart).sum(-1).max())
    return float((there * apart).sum()), float((there * spread).sum()), float(there.sum()), largest
