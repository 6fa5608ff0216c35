"""One-shot linear statistics: released once, whatever the planner; every plan on them afterwards is free.

Per step, the Gram matrix ``sum f f^T`` and the table ``sum f x^T`` with ``x = (tag at the successor, reward)``: for
*any* V the sum of phi V(s') is a combination of columns.  Nothing adapts, so C, lambda, any penalty on unweighted
sums, upper values and the values of other policies cost nothing more.  The price is noise that grows with the number
of successors, ``||V - c||_2`` instead of ``max |V - c|``: good for few states.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Release
from pipeline.statistics.gram import counted_sums
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.linear_calibration import one_shot_sum
from pipeline.statistics.linear_plan import LinearPlan
from pipeline.statistics.regression import OneShot
from pipeline.statistics.regression_rows import CountRows, TalliedRows

Integers = NDArray[np.int64]


def release_one_shot(
    plan: LinearPlan, rows: CountRows | TalliedRows, noise: NoiseSource, *, epsilon: float | None = None
) -> OneShot:
    """Draw the release, or the exact statistics where the plan has no budget (simulation only).

    Parameters
    ----------
    plan
        With variant ``one_shot`` and a finite feature map.
    rows
        What is summed; not read before everything else is in order.
    noise
        The operating system's where the data are real.
    epsilon
        The epsilon that will be stated, where a sampler's share of delta has to be listed; None: it is exact.

    Raises
    ------
    RealDataError
        If the data is real and the noise is not the operating system's, or there is none.
    ValueError
        If the plan is of another variant, or the sampler's share of delta is not listed.
    """
    if plan.terms.variant != "one_shot":
        raise ValueError("a one-shot release needs variant 'one_shot'")
    summed = one_shot_sum(plan)
    if epsilon is not None:
        summed = summed.with_slack(noise, epsilon)
    summed.admit(noise, rows.data_kind)
    gram, table = _sums(rows, plan.one_shot_steps[0], *plan.reward_steps, plan.terms.value_steps)
    sums = ExactSums(plan.domain.name, rows.data_kind, "per_step", {"gram": gram, "target": table})
    return released_statistics(plan, summed.draw(sums, noise))


def released_statistics(plan: LinearPlan, release: Release) -> OneShot:
    """Statistics in real units from the integers of a release.

    Parameters
    ----------
    plan
        That priced the release.
    release
        With tables ``gram (H, d, d)`` and ``target (H, S' + 1, d)``, in lattice steps.
    """
    q, (least, most), (tag, _) = plan.terms.value_steps, plan.reward_steps, plan.one_shot_steps
    gram, table, unit = release.tables["gram"], release.tables["target"], plan.features.unit
    sds = {m.table: 0.0 if m.variance is None else math.sqrt(m.variance) for m in release.mechanisms}
    return OneShot(
        gram=(gram * unit**2).astype(np.float64),
        successors=(table[:, :-1] * (unit / tag)).astype(np.float64),
        rewards=(table[:, -1] * (unit / (2 * q))).astype(np.float64),
        middle=(least + most) / (2 * q),
        gram_sd=sds["gram"] / math.sqrt(2) * unit**2,
        successor_sd=sds["target"] * unit / tag,
        reward_sd=sds["target"] * unit / (2 * q),
        release=release,
    )


def _sums(rows: CountRows | TalliedRows, tag: int, least: int, most: int, q: int) -> tuple[Integers, Integers]:
    """Exact Gram matrices ``(H, d, d)`` and tables ``(H, S' + 1, d)``."""
    f = rows.features.integers.reshape(-1, rows.features.dimension)
    n, r = rows.totals(least, most, q)
    y = 2 * r - (least + most) * n.sum(-1)
    x = np.concatenate([tag * n, y[..., None]], axis=-1).reshape(len(n), len(f), -1)
    each = [counted_sums(f, n_h.sum(-1).reshape(-1), x_h.T) for n_h, x_h in zip(n, x, strict=True)]
    return np.stack([g for g, _ in each]), np.stack([t for _, t in each])
