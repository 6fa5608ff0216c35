"""One step of improvement where most cells are lost in noise: by groups of states first, then state by state.

Beside the sums by state and action (:mod:`pipeline.agents.one_step`) those by *group* of states and action are
released.  Groups are made of public features, or where there are none of the released values of practice.

1.  p(s,a) <- share of an action in a state, shrunk towards its share in the group
2.  x(g,a) <- mean temporal difference in a group: the group's own sums and those of its states, by their precision;
    shrunk towards the action's value in other groups
3.  x(s,a) <- x(g,a), plus the posterior of the state's own deviation from it
4.  pi(s)  <- argmax over supported a of  E[A] - kappa sd[A];  practice wherever that does not beat practice itself

Shares use rows by state, whose cap does not depend on actions.  Features enter through groups alone: in step 3 they
would only add noise.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import numpy as np

from pipeline.agents.one_step import ALIKE, FEW, SPREAD, Answer, Constants, Plan, shrink, unit_features
from pipeline.arrays import Array, Bools, Integers
from pipeline.mdp.policy import Policy

# rounds of k-means
_ROUNDS = 50
# standard deviations of noise: beyond the first a share is believed as it is; means of groups below the second are none
_PLAIN, _SURE = 3.0, 1.0
# variance of the mean of two states drawn alike, of one row, in parts of the width
_ROW = 2 / SPREAD**2


def group_states(features: Array | None, values: Integers, rows: Array, groups: int) -> Integers:
    """Group ``(L,)`` of each state, by public features (k-means); without any, by quantiles of released values.

    ``values``, ``rows`` ``(L,)``: released values of practice and noisy rows of states.
    """
    L = len(values)
    if features is None:
        order, weight = np.argsort(values, kind="stable"), np.maximum(rows, 0.0) + 1.0
        below = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
        found = np.empty(L, dtype=np.int64)
        found[order] = np.minimum(below * groups, groups - 1).astype(np.int64)
        return found
    x = unit_features(features, L)
    # the first centre is the state nearest to the mean, each further one the state farthest from those before
    centres = x[[np.argmin((x**2).sum(1))]]
    for _ in range(groups - 1):
        centres = np.vstack([centres, x[np.argmax(_squares(x, centres).min(1))]])
    for _ in range(_ROUNDS):
        of = _squares(x, centres).argmin(1)
        size, sums = np.bincount(of, minlength=groups)[:, None], _added(x, of, groups)
        moved = np.where(size > 0, sums / np.maximum(size, 1), centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return _squares(x, centres).argmin(1).astype(np.int64)


def _squares(x: Array, centres: Array) -> Array:
    return (x**2).sum(1)[:, None] - 2 * x @ centres.T + (centres**2).sum(1)


def _added(x: Array, group: Integers, groups: int) -> Array:
    """Sums over the states of each group ``(groups, n)``."""
    found = np.zeros((groups, x.shape[1]))
    np.add.at(found, group, x)
    return found


def pooled_shares(fine: Answer, visits: Array, group: Integers, groups: int) -> tuple[Array, Array]:
    """Step 1: share of each action in each state ``(L, A)``, and the resulting rows.

    ``fine``: keys ``(1, L, A)``.
    ``visits`` ``(L,)``: noisy rows of each state, less noisy than the sum of those by action.
    """
    N, visits = fine.rows[0], np.maximum(visits, FEW)
    rows = (visits * max(float(N.sum()), 1.0) / float(visits.sum()))[:, None]
    whole = np.maximum(_added(N, group, groups), 0.0)
    prior = (whole / np.maximum(whole.sum(1, keepdims=True), 1.0))[group]
    raw, spread = N / rows, prior * (1 - prior)
    noise = (fine.sd / rows) ** 2 + spread / rows
    # how far shares spread within a group, in parts of p (1 - p), by moments
    weight = spread / np.maximum(noise, 1e-300) ** 2
    part = float((weight * ((raw - prior) ** 2 - noise)).sum()) / max(float((weight * spread).sum()), 1e-300)
    own = max(part, 0.0) * spread
    p = prior + own / np.maximum(own + noise, 1e-300) * (raw - prior)
    p = np.clip(np.where(_PLAIN * fine.sd < N, raw, p), 0.0, 1.0)
    return p, rows * p


def _of_groups(fine: Answer, coarse: Answer, group: Integers, rows: Array) -> tuple[Array, Array]:
    """Step 2: posterior mean and deviation of the gain of an action in each group ``(groups, A)``.

    ``rows`` ``(L, A)``: of step 1.
    """
    groups, A = coarse.rows.shape
    size = np.bincount(group, minlength=groups)[:, None]
    pooled = (_added(fine.rows[0], group, groups), _added(fine.targets[0], group, groups), fine.sd**2 * size)
    weight, total = np.zeros((groups, A)), np.zeros((groups, A))
    for N, Z, variance in (pooled, (coarse.rows, coarse.targets, coarse.sd**2 * np.ones_like(size))):
        seen = np.maximum(_SURE * np.sqrt(variance), FEW) < N
        n = np.where(seen, N, 1.0)
        w = np.where(seen, n**2 / np.maximum(variance, 1e-9), 0.0)
        weight, total = weight + w, total + w * np.clip(Z / n, -1, 1)
    there, n = weight > 0, np.maximum(_added(rows, group, groups), 1.0)
    x = np.where(there, total / np.maximum(weight, 1e-300), 0.0)
    sampling, noise = np.where(there, _ROW / n, np.inf), np.where(there, 1 / np.maximum(weight, 1e-300), 1.0)
    action, none = np.tile(np.arange(A), groups), np.zeros((groups * A, 0))
    found = shrink(x.ravel(), sampling.ravel(), noise.ravel(), action, none, own=True)
    return found.mean.reshape(groups, A), found.sd.reshape(groups, A)


def pooled_step(
    fine: Answer,
    coarse: Answer,
    group: Integers,
    visits: Array,
    width: float,
    horizon: int,
    allowed: Bools,
    constants: Constants,
) -> Plan:
    """Steps 1 to 4: the policy.

    ``fine``, ``coarse``: keys ``(1, L, A)`` and ``(groups, A)``: targets -1 and 1 are temporal differences of
    ``width``, reward units.
    ``group`` ``(L,)``: of each state.
    ``visits`` ``(L,)``: noisy rows of each state.
    ``allowed`` ``(L, A)``: actions that a policy may recommend.
    """
    (L, A), groups = fine.rows.shape[1:], len(coarse.rows)
    p, n = pooled_shares(fine, visits, group, groups)
    mean, sd = (x[group] for x in _of_groups(fine, coarse, group, n))
    supported = (n > FEW) & fine.supported(constants.support)[0]
    rows = n[supported]
    if len(rows):
        beyond = fine.targets[0][supported] / rows - mean[supported]
        none = np.zeros((len(rows), 0))
        found = shrink(beyond, _ROW / rows, (fine.sd / rows) ** 2, np.zeros(len(rows), dtype=np.int64), none)
        mean[supported] += found.mean
        sd[supported] = np.sqrt(sd[supported] ** 2 + found.sd**2)
    # what practice does there has the same posterior means
    gain = mean - (mean * p).sum(1, keepdims=True) / np.maximum(p.sum(1, keepdims=True), 1e-300)
    usual = supported & (p >= constants.floor) & np.isfinite(sd)
    score = np.where(usual & allowed, np.rint((gain - constants.pessimism * np.where(usual, sd, 0)) / ALIKE), -np.inf)
    best = np.eye(A)[score.argmax(-1)]
    recommended = np.where((best > 0) & np.isfinite(score), gain, 0.0).sum(-1) > ALIKE
    chosen = np.where(recommended[:, None], best, 0.0)
    policy = Policy(np.broadcast_to(chosen, (horizon, L, A)).copy(), np.broadcast_to(~recommended, (horizon, L)).copy())
    shown, doubt = (np.where(usual, x, np.nan)[None] * width for x in (gain, sd))
    return Plan(policy, shown, doubt)
