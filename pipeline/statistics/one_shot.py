"""One-shot linear statistics: released once, whatever the planner; every plan on them afterwards is free.

Per step, the Gram matrix ``sum f f^T`` and the table ``sum f x^T`` with ``x = (tag at the successor, reward)``: for
*any* V the sum of phi V(s') is a combination of columns.  Nothing adapts, so C, lambda, any penalty on unweighted
sums, upper values and the values of other policies cost nothing more.  The price is noise that grows with the number
of successors, ``||V - c||_2`` instead of ``max |V - c|``: good for few states.
"""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.features import FeatureMap
from pipeline.privacy.noise import NoiseSource, RealDataError
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics.gram import counted_sums
from pipeline.statistics.interactive import symmetric_noise
from pipeline.statistics.joint_loss import joint_facts
from pipeline.statistics.linear_calibration import Scales, one_shot_scales
from pipeline.statistics.linear_plan import LinearPlan
from pipeline.statistics.linear_sensitivity import largest, table_moves
from pipeline.statistics.regression import OneShot
from pipeline.statistics.rows import CountRows, TalliedRows

Integers = NDArray[np.int64]


def release_one_shot(plan: LinearPlan, rows: CountRows | TalliedRows, noise: NoiseSource) -> OneShot:
    """Draw the release, or the exact statistics where the plan has no budget (simulation only).

    Raises
    ------
    RealDataError
        If the data is real and the noise is not the operating system's, or there is none.
    """
    noise.admit(plan.domain.kind)
    if plan.domain.kind != rows.data_kind or (plan.domain.kind == "real" and plan.ask.rho is None):
        raise RealDataError(
            f"{plan.domain.name}: rows are {rows.data_kind}, the plan {plan.domain.kind}; nothing was read"
        )
    if not isinstance(plan.features, FeatureMap) or plan.ask.variant != "one_shot":
        raise ValueError("a one-shot release needs a finite feature map and variant 'one_shot'")
    q, (least, most) = plan.ask.value_steps, plan.reward_steps
    tag, _ = plan.one_shot_steps
    gram, table = _sums(rows, tag, least, most, q)
    scales = None if plan.ask.rho is None else _scales(plan)
    if scales is not None:
        drawn = [symmetric_noise(noise, plan.features.dimension, scales.gram, rows) for _ in gram]
        gram = gram + np.stack(drawn)
        table = table + noise.gaussian(table.size, scales.targets[0], rows).reshape(table.shape)
    release = Release(
        dataset=plan.domain.name,
        data_kind=rows.data_kind,
        dynamics="per_step",
        mechanisms=one_shot_mechanisms(plan, table.shape[1]),
        tables={"gram": gram, "target": table},
        noise="none" if scales is None else noise.name,
        sampler="none: exact sums, simulation, not private" if scales is None else noise.sampler,
        joint_rho=None if scales is None else one_shot_rho(plan),
        joint=joint_facts(plan),
    )
    return released_statistics(plan, release)


def _scales(plan: LinearPlan) -> Scales:
    return one_shot_scales(plan, *plan.one_shot_steps)


def one_shot_rho(plan: LinearPlan) -> Fraction:
    """Exact joint cost of both tables: nothing adapts, so it is known before a row is read."""
    return Fraction(plan.domain.horizon) * _scales(plan).rho


def one_shot_mechanisms(plan: LinearPlan, columns: int) -> tuple[Mechanism, ...]:
    """Both tables; ``columns``: successors and the reward."""
    if not isinstance(plan.features, FeatureMap):
        raise ValueError("a one-shot release needs a finite feature map")
    H, d, exact = plan.domain.horizon, plan.features.dimension, plan.ask.rho is None
    reach = table_moves(plan.features, *plan.one_shot_steps, plan.domain.episodes)
    variances = (None, None) if exact else (_scales(plan).gram, _scales(plan).targets[0])
    rule = "every step at its worst pair, joint with the other table"
    found: list[Mechanism] = []
    for i, (name, shape) in enumerate((("gram", (H, d, d)), ("target", (H, columns, d)))):
        square = H * largest(reach, i)
        l1 = math.isqrt(square * math.prod(shape)) + 1
        found.append(Mechanism(name, shape, "lattice steps", square, l1, rule, variance=variances[i]))
    return tuple(found)


def released_statistics(plan: LinearPlan, release: Release) -> OneShot:
    """Statistics in real units from the integers of a release."""
    q, (least, most), (tag, _) = plan.ask.value_steps, plan.reward_steps, plan.one_shot_steps
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
