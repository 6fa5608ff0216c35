"""Upper ends of the suboptimality of a policy, from a release: post-processing, no paper has it.

*Of counts.*  The policies that a log supports leave practice only where released visits show that people took the
action (:func:`pipeline.agents.support.supported`).  Let pi* be the best of them.  It is one policy, whatever the noise;
the greatest value in the released model is at least that model's value of pi*; and its value of one policy is
unbiased to first order, with counts as they were drawn, neither projected nor cut at 0.  So

    V* = V^{pi*}  <=  max_pi V~^pi + z sd,

with the standard deviation of *one* policy's value instead of a width for every cell: noise of thousands of cells is
averaged over the states that an episode visits.  Simultaneous widths add it up.

| code | shape | meaning |
|---|---|---|
| ``moved``, ``paid`` | (G, L, A, S), (G, L, A) | rows as drawn, by successor; sums of rewards above ``offset`` |
| ``allowed`` | (G, L, A) | actions that the release supports |
| ``W`` | (H, S) | value of a step by its successor |
| ``share`` | (k, L, A) | weight of a row of each cell, in units of the chance of being there |

Where no action is supported, practice goes on: it is the mean of all rows of a state, and for states whose rows are
lost in noise, the mean of all these rows together.  ``sd`` is that of the policy that is best in the released model.

*Of linear sums.*  The recursion of :func:`~pipeline.agents.linear_backup.one_shot` with its width added, over actions
with evidence: :func:`best_seen`.  That width leaves the noise of targets out, so it is an estimate.

*Of one step.*  Nothing: temporal differences were cut before they were summed, at a width that follows the released
values, and no sum of cut differences bounds the mean of whole ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from pipeline.agents.support import floor, supported
from pipeline.arrays import Array, Bools
from pipeline.mdp.model import Task
from pipeline.statistics.planning_counts import PrivateCounts, fit_visits

if TYPE_CHECKING:
    from pipeline.agents.linear_backup import LinearConstants, LinearTask
    from pipeline.statistics.regression import OneShot


# standard deviations of an end that is missed once in forty
Z = 1.96
# multiple of the noise floor of a cell at which practice in a state is estimated from its own rows: noise decides which
# states just pass a threshold, and those that it lifts over one have too many rows beside their rewards
_CLEAR = 2.0


@dataclass(frozen=True)
class ReleasedRows:
    """Released rows as drawn; ``sd``, ``paid_sd``: of the noise of one entry.

    ``first`` ``(L,)``: distribution of the first state, and ``first_variance`` ``(L,)`` of its entries.
    """

    moved: Array
    paid: Array | None
    offset: float
    sd: float
    paid_sd: float
    first: Array
    first_variance: Array


def rows_of(counts: PrivateCounts, start: Array | None) -> ReleasedRows:
    """The rows behind ``counts`` that were planned on: of all steps together where these share one table.

    ``start`` ``(L,)``: declared distribution of the first state, or None.
    """
    release = counts.release
    sd = {m.table: m.standard_deviation for m in release.mechanisms}
    released_scales = {"visits_summed": "n_sa" not in sd, "sd_sas": sd["n_sas"], "sd_sa": sd.get("n_sa", 0.0)}
    moved = fit_visits(replace(counts, **released_scales))
    if len(counts.n_sas) < len(moved):
        moved = moved.sum(0, keepdims=True)
    if start is not None:
        return ReleasedRows(
            moved, counts.r_sa, counts.reward_offset, counts.sd_sas, counts.sd_r, start, np.zeros(len(start))
        )
    first_counts = release.tables["n_0" if "n_0" in sd else "n_sas"].astype(np.float64)
    first_counts = first_counts if "n_0" in sd else first_counts[0].sum((1, 2))
    total = max(float(first_counts.sum()), 1.0)
    first = first_counts / total
    variance = (counts.sd_0 / total) ** 2 + np.clip(first, 0.0, 1.0) / total
    return ReleasedRows(moved, counts.r_sa, counts.reward_offset, counts.sd_sas, counts.sd_r, first, variance)


@dataclass(frozen=True)
class _Step:
    """One step: the best choice of each state, and the grounds of its estimate.

    ``action`` ``(L, A)``: the action where one is chosen; ``usual``, ``pooled`` ``(L,)``: practice by the rows of
    the state, or by those of all unclear states.
    ``value``, ``ahead`` ``(L,)``: the estimate, and its part after the step.
    """

    action: Array
    usual: Bools
    pooled: Bools
    value: Array
    ahead: Array


def best_supported(rows: ReleasedRows, counts: PrivateCounts, task: Task) -> float:
    """Upper end, at 97.5 %, of the value of the best policy that leaves practice on supported cells alone.

    ``counts``: as they were planned on; they give arrivals, not values.
    """
    (G, L, A, S), H = rows.moved.shape, task.horizon
    allowed = supported(counts.release, G) & task.allowed
    clear = rows.moved.sum((2, 3)) > _CLEAR * floor(rows.sd * math.sqrt(A * S), G * L)
    V, W, steps = np.zeros(S), np.zeros((H, S)), list[_Step]()
    for h in reversed(range(H)):
        g = min(h, G - 1)
        W[h] = task.onward(V)
        steps.insert(0, _step(rows, task, allowed[g], clear[g], h, W[h]))
        # a value below the least is noise; one above the most may balance one below elsewhere
        V[:L] = np.maximum(steps[0].value, task.value_range(h)[0])
    variance = float((rows.first_variance * (V[:L] - rows.first @ V[:L]) ** 2).sum())
    arrival = np.clip(rows.first, 0.0, None)
    arrival, shares = arrival / max(arrival.sum(), 1e-300), np.zeros((H, L, A))
    for h, step in enumerate(steps):
        g = min(h, G - 1)
        shares[h] = _shares(rows.moved[g], clear[g], step, arrival)
        next_arrival = np.einsum("sa,sat->t", shares[h], counts.n_sas[g])
        arrival = next_arrival[:L] * min(1.0, float(arrival.sum()) / max(float(next_arrival.sum()), 1e-300))
    for g in range(G):
        of_table = slice(None) if G == 1 else slice(g, g + 1)
        variance += _variance(rows, task, counts.n_sas[g], shares[of_table], W[of_table], steps[of_table], g)
    least, most = task.value_range(0)
    return float(np.clip(rows.first @ V[:L] + Z * math.sqrt(variance), least, most))


def _paid_at_least(rows: ReleasedRows, task: Task, h: int, shape: tuple[int, int]) -> Array:
    """Known part of a row's reward ``(L, A)``: all of a declared one, the offset of another."""
    if task.rewards is None:
        return np.full(shape, rows.offset)
    return task.rewards if task.rewards.ndim == 2 else task.rewards[min(h, len(task.rewards) - 1)]


def _step(rows: ReleasedRows, task: Task, allowed: Bools, clear: Bools, h: int, W: Array) -> _Step:
    """The choice of each state at step ``h``, by means of rows."""
    g = min(h, len(rows.moved) - 1)
    n, ahead = rows.moved[g].sum(-1), rows.moved[g] @ W
    paid = n * _paid_at_least(rows, task, h, allowed.shape) + (0.0 if rows.paid is None else rows.paid[g])
    unclear = ~clear
    unclear_rows = max(float(n[unclear].sum()), 1.0)

    def mean(sums: Array) -> tuple[Array, Array, float]:
        """Means by action, by state, and of all unclear states."""
        by_action = np.where(allowed, sums / np.where(allowed, n, 1.0), -np.inf)
        all_of = np.where(clear, sums.sum(-1) / np.where(clear, n.sum(-1), 1.0), 0.0)
        return by_action, all_of, float(sums[unclear].sum()) / unclear_rows

    (by_action, usual, pooled), (by_action_after, usual_after, pooled_after) = mean(ahead + paid), mean(ahead)
    if unclear.any() and unclear_rows <= floor(rows.sd * math.sqrt(float(unclear.sum()) * rows.moved[g][0].size), 1):
        # even together they are lost in noise
        pooled = task.value_range(h)[1]
    practice_value = np.where(clear, usual, pooled)
    best = by_action.argmax(-1)
    departs = by_action.max(-1) > practice_value
    action = np.eye(allowed.shape[1])[best] * departs[:, None]
    value = np.where(departs, by_action.max(-1), practice_value)
    after = np.where(clear, usual_after, pooled_after)
    after = np.where(departs, np.take_along_axis(by_action_after, best[:, None], -1)[:, 0], after)
    return _Step(action, clear & ~departs, unclear & ~departs, value, after)


def _shares(moved: Array, clear: Bools, step: _Step, arrival: Array) -> Array:
    """Weight ``(L, A)`` of a row of each cell, from the chances ``arrival (L,)`` to be in each state."""
    n = moved.sum(-1)
    by_action: Array = np.where(step.action > 0, arrival[:, None] / np.where(step.action > 0, n, 1.0), 0.0)
    by_state: Array = np.where(step.usual, arrival / np.where(step.usual, n.sum(-1), 1.0), 0.0)
    unclear_rows = max(float(n[~clear].sum()), 1.0)
    by_all: Array = np.where(clear, 0.0, arrival[step.pooled].sum() / unclear_rows)
    return by_action + (by_state + by_all)[:, None]


def _variance(
    rows: ReleasedRows, task: Task, counts: Array, shares: Array, W: Array, steps: list[_Step], g: int
) -> float:
    """Variance that noise and sampling of one table give the value of the steps that read it.

    ``counts`` ``(L, A, S)``: consistent counts, for the sampling variance.
    ``shares`` ``(k, L, A)``, ``W`` ``(k, S)``: of the k steps.
    """
    k, L, A = shares.shape
    used = (shares != 0).any(0)
    C, n = shares[:, used], np.maximum(counts.sum(-1)[used], 1.0)
    at_least = np.stack([_paid_at_least(rows, task, g if k == 1 else h, (L, A))[used] for h in range(k)])
    value = np.stack([np.broadcast_to(s.value[:, None], (L, A))[used] for s in steps])
    ahead = np.stack([np.broadcast_to(s.ahead[:, None], (L, A))[used] for s in steps])
    next_values = C.T @ W
    noise = rows.sd**2 * float(((next_values - (C * (value - at_least)).sum(0)[:, None]) ** 2).sum())
    sampling = float((counts[used] * (next_values - (C * ahead).sum(0)[:, None]) ** 2).sum())
    if rows.paid is None:
        return noise + sampling
    low, high = task.bounds
    paid = np.clip(value - ahead, low, high)
    spread = (np.abs(C) * np.sqrt((paid - low) * (high - paid))).sum(0)
    # reward and successor of a row may vary together
    return noise + rows.paid_sd**2 * float((C.sum(0) ** 2).sum()) + 2 * (sampling + float((n * spread**2).sum()))


def best_seen(released: OneShot, task: LinearTask, c: LinearConstants, least: float) -> Array:
    """Upper value ``(M,)`` of the first step of the best policy over actions with more than ``least`` evidence.

    Of the linear recursion with its width added.  Where no action has evidence any allowed one may go on for practice.
    """
    # plans of counts need no linear module
    from pipeline.agents.linear_backup import backup_of, regression_of, successor_values

    H, multiplier = task.horizon, c.C * math.sqrt(task.dimension)
    V = np.zeros((H + 1, task.reference.shape[0]))
    allowed = np.broadcast_to(True if task.allowed is None else task.allowed, task.reference.shape[:2])
    for h in reversed(range(H)):
        sums = regression_of(released, h, successor_values(V[h + 1], task))
        backup = replace(backup_of(sums, h, task, c, multiplier), sign=+1)
        seen = allowed & (backup.evidence(task.reference) > least)
        candidates = np.where(seen.any(-1, keepdims=True), seen, allowed)
        V[h] = np.where(candidates, backup.q(task.reference)[1], -np.inf).max(-1)
    return V[0]
