"""How much better a policy could be, as far as a release speaks: free after it, no paper has it.

*Of counts.*  The policies that a log speaks about leave practice only where released visits show that people took the
action (:func:`pipeline.agents.support.supported`).  Let pi* be the best of them.  It is one policy, whatever the noise;
the greatest value in the released model is at least what that model says of pi*; and what it says of one policy is
right on average to first order, where counts stand as they were drawn, neither projected nor cut at 0.  So

    V* = V^{pi*}  <=  max_pi V~^pi + z sd,

with the standard deviation of *one* policy's value instead of a width for every cell: noise of thousands of cells is
averaged over the states that an episode comes to.  Simultaneous widths add it up.

| code | shape | meaning |
|---|---|---|
| ``moved``, ``paid`` | (G, L, A, S), (G, L, A) | rows as drawn, by where they led; sums of rewards above ``offset`` |
| ``may`` | (G, L, A) | actions that the release speaks about |
| ``W`` | (H, S) | what a step is worth by where it leads |
| ``share`` | (k, L, A) | of a chance to be somewhere, a row of each cell speaks for so much |

Where no action is supported, practice goes on: it is what all rows of a state say, and of states whose rows drown in
the noise, what all these rows together say.  ``sd`` is that of the policy that is best in the released model.

*Of linear sums.*  The recursion of :mod:`pipeline.agents.one_shot` with its width added, over actions with evidence:
:func:`best_seen`.  That width leaves the noise of targets out, so it is an estimate.

*Of one step.*  What the best action of each state gains over the policy's own, on practice's visits, by the posterior
of released cells: :func:`left_within_one_step`.  Differences were cut before they were released: an estimate.
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
# of the rows at which a cell speaks, those from which practice in a state is read from its own: which states just pass
# a threshold is the luck of noise, and those that it lifts over one have too many rows beside their rewards
_HEARD = 2.0


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
    own = {"visits_summed": "n_sa" not in sd, "sd_sas": sd["n_sas"], "sd_sa": sd.get("n_sa", 0.0)}
    moved = fit_visits(replace(counts, **own))
    if len(counts.n_sas) < len(moved):
        moved = moved.sum(0, keepdims=True)
    if start is not None:
        return ReleasedRows(
            moved, counts.r_sa, counts.reward_offset, counts.sd_sas, counts.sd_r, start, np.zeros(len(start))
        )
    begun = release.tables["n_0" if "n_0" in sd else "n_sas"].astype(np.float64)
    begun = begun if "n_0" in sd else begun[0].sum((1, 2))
    total = max(float(begun.sum()), 1.0)
    first = begun / total
    variance = (counts.sd_0 / total) ** 2 + np.clip(first, 0.0, 1.0) / total
    return ReleasedRows(moved, counts.r_sa, counts.reward_offset, counts.sd_sas, counts.sd_r, first, variance)


@dataclass(frozen=True)
class _Step:
    """Of one step: the best choice of each state, and what its estimate rests on.

    ``own`` ``(L, A)``: the action where one is chosen; ``usual``, ``pooled`` ``(L,)``: practice by the rows of the
    state, or by those of all states that drown.
    ``value``, ``ahead`` ``(L,)``: the estimate, and the part of it that comes after the step.
    """

    own: Array
    usual: Bools
    pooled: Bools
    value: Array
    ahead: Array


def best_supported(rows: ReleasedRows, counts: PrivateCounts, task: Task) -> float:
    """Upper end, at 97.5 %, of the value of the best policy that leaves practice on supported cells alone.

    ``counts``: as they were planned on; they say where an episode comes, not what it is worth.
    """
    (G, L, A, S), H = rows.moved.shape, task.horizon
    may = supported(counts.release, G) & task.allowed
    heard = rows.moved.sum((2, 3)) > _HEARD * floor(rows.sd * math.sqrt(A * S), G * L)
    V, W, steps = np.zeros(S), np.zeros((H, S)), list[_Step]()
    for h in reversed(range(H)):
        g = min(h, G - 1)
        W[h] = task.onward(V)
        steps.insert(0, _step(rows, task, may[g], heard[g], h, W[h]))
        # what lies below the least is noise; above the most it may stand for what lies below elsewhere
        V[:L] = np.maximum(steps[0].value, task.value_range(h)[0])
    variance = float((rows.first_variance * (V[:L] - rows.first @ V[:L]) ** 2).sum())
    there = np.clip(rows.first, 0.0, None)
    there, shares = there / max(there.sum(), 1e-300), np.zeros((H, L, A))
    for h, step in enumerate(steps):
        g = min(h, G - 1)
        shares[h] = _shares(rows.moved[g], heard[g], step, there)
        led = np.einsum("sa,sat->t", shares[h], counts.n_sas[g])
        there = led[:L] * min(1.0, float(there.sum()) / max(float(led.sum()), 1e-300))
    for g in range(G):
        of = slice(None) if G == 1 else slice(g, g + 1)
        variance += _variance(rows, task, counts.n_sas[g], shares[of], W[of], steps[of], g)
    least, most = task.value_range(0)
    return float(np.clip(rows.first @ V[:L] + Z * math.sqrt(variance), least, most))


def _paid_at_least(rows: ReleasedRows, task: Task, h: int, shape: tuple[int, int]) -> Array:
    """What is known of a row's reward before it is read ``(L, A)``: all of a declared one, the offset of another."""
    if task.rewards is None:
        return np.full(shape, rows.offset)
    return task.rewards if task.rewards.ndim == 2 else task.rewards[min(h, len(task.rewards) - 1)]


def _step(rows: ReleasedRows, task: Task, may: Bools, heard: Bools, h: int, W: Array) -> _Step:
    """The choice of each state at step ``h``, by means of rows."""
    g = min(h, len(rows.moved) - 1)
    n, ahead = rows.moved[g].sum(-1), rows.moved[g] @ W
    paid = n * _paid_at_least(rows, task, h, may.shape) + (0.0 if rows.paid is None else rows.paid[g])
    silent = ~heard
    drowned = max(float(n[silent].sum()), 1.0)

    def mean(sums: Array) -> tuple[Array, Array, float]:
        """By action, by state, and of all that drown."""
        one = np.where(may, sums / np.where(may, n, 1.0), -np.inf)
        all_of = np.where(heard, sums.sum(-1) / np.where(heard, n.sum(-1), 1.0), 0.0)
        return one, all_of, float(sums[silent].sum()) / drowned

    (one, usual, pooled), (one_after, usual_after, pooled_after) = mean(ahead + paid), mean(ahead)
    if silent.any() and drowned <= floor(rows.sd * math.sqrt(float(silent.sum()) * rows.moved[g][0].size), 1):
        # even together they say nothing
        pooled = task.value_range(h)[1]
    goes_on = np.where(heard, usual, pooled)
    best = one.argmax(-1)
    leaves = one.max(-1) > goes_on
    own = np.eye(may.shape[1])[best] * leaves[:, None]
    value = np.where(leaves, one.max(-1), goes_on)
    after = np.where(heard, usual_after, pooled_after)
    after = np.where(leaves, np.take_along_axis(one_after, best[:, None], -1)[:, 0], after)
    return _Step(own, heard & ~leaves, silent & ~leaves, value, after)


def _shares(moved: Array, heard: Bools, step: _Step, there: Array) -> Array:
    """Of the chances ``there (L,)`` to be in each state, what a row of each cell speaks for ``(L, A)``."""
    n = moved.sum(-1)
    own: Array = np.where(step.own > 0, there[:, None] / np.where(step.own > 0, n, 1.0), 0.0)
    usual: Array = np.where(step.usual, there / np.where(step.usual, n.sum(-1), 1.0), 0.0)
    drowned = max(float(n[~heard].sum()), 1.0)
    together: Array = np.where(heard, 0.0, there[step.pooled].sum() / drowned)
    return own + (usual + together)[:, None]


def _variance(
    rows: ReleasedRows, task: Task, seen: Array, shares: Array, W: Array, steps: list[_Step], g: int
) -> float:
    """Variance that noise and sampling of one table give the value of the steps that read it.

    ``seen`` ``(L, A, S)``: consistent counts: of how many rows sampling is the luck.
    ``shares`` ``(k, L, A)``, ``W`` ``(k, S)``: of the k steps.
    """
    k, L, A = shares.shape
    used = (shares != 0).any(0)
    C, n = shares[:, used], np.maximum(seen.sum(-1)[used], 1.0)
    at_least = np.stack([_paid_at_least(rows, task, g if k == 1 else h, (L, A))[used] for h in range(k)])
    value, ahead = (np.stack([np.broadcast_to(x[:, None], (L, A))[used] for x in of]) for of in _means(steps))
    along = C.T @ W
    noise = rows.sd**2 * float(((along - (C * (value - at_least)).sum(0)[:, None]) ** 2).sum())
    sampling = float((seen[used] * (along - (C * ahead).sum(0)[:, None]) ** 2).sum())
    if rows.paid is None:
        return noise + sampling
    low, high = task.bounds
    paid = np.clip(value - ahead, low, high)
    spread = (np.abs(C) * np.sqrt((paid - low) * (high - paid))).sum(0)
    # what a row pays and where it leads may vary together
    return noise + rows.paid_sd**2 * float((C.sum(0) ** 2).sum()) + 2 * (sampling + float((n * spread**2).sum()))


def _means(steps: list[_Step]) -> tuple[list[Array], list[Array]]:
    return [s.value for s in steps], [s.ahead for s in steps]


def best_seen(released: OneShot, task: LinearTask, c: LinearConstants, least: float) -> Array:
    """Upper value ``(M,)`` of the first step of the best policy over actions with more than ``least`` evidence.

    Of the linear recursion with its width added.  Where no action has evidence any allowed one may go on for practice.
    """
    # plans of counts need none of it
    from pipeline.agents.linear_backup import backup_of
    from pipeline.agents.one_shot import regression_of, successor_values

    H, multiplier = task.horizon, c.C * math.sqrt(task.dimension)
    V = np.zeros((H + 1, task.reference.shape[0]))
    allowed = np.broadcast_to(True if task.allowed is None else task.allowed, task.reference.shape[:2])
    for h in reversed(range(H)):
        sums = regression_of(released, h, successor_values(V[h + 1], task))
        backup = replace(backup_of(sums, h, task, c, multiplier), sign=+1)
        seen = allowed & (backup.evidence(task.reference) > least)
        may = np.where(seen.any(-1, keepdims=True), seen, allowed)
        V[h] = np.where(may, backup.q(task.reference)[1], -np.inf).max(-1)
    return V[0]


def left_within_one_step(advantage: Array, sd: Array, own: Array, visits: Array, horizon: int) -> float:
    """Upper end of what one step of improvement would gain beyond a policy, an episode on average.

    Sum over practice's visits of max(0, gains of supported actions), one posterior deviation up in all cells at once,
    less the gain of the policy.

    ``advantage``, ``sd`` ``(G, L, A)``: posterior of what each action gains over practice, reward units; NaN where it
    is not supported.
    ``own`` ``(G, L, A)``: what the policy does; zeros where practice goes on.
    ``visits`` ``(G, L)``: noisy rows.  Of one table for all steps an episode is taken to have all ``horizon`` of them.
    """
    most = np.where(np.isnan(advantage), 0.0, advantage + sd).max(-1)
    left = np.maximum(most, 0.0) - (own * np.nan_to_num(advantage)).sum(-1)
    rows = np.maximum(visits, 0.0)
    share = rows / np.maximum(rows.sum(1, keepdims=True), 1.0)
    return max(0.0, float((share * left).sum()) * horizon / len(advantage))
