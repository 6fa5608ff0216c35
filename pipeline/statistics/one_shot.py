"""One-shot linear statistics: released once, whatever the planner; every plan on them afterwards is free.

Per step, the Gram matrix ``sum f f^T`` and the table ``sum f x^T`` with ``x = (tag at the successor, reward)``: for
*any* V the sum of phi V(s') is a combination of columns.  Nothing adapts, so C, lambda, any penalty on unweighted
sums, upper values and the values of other policies cost nothing more.  The price is noise that grows with the number
of successors, ``||V - c||_2`` instead of ``max |V - c|``: good for few states.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.features import FeatureMap
from pipeline.privacy.noise import NoiseSource, RealDataError
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics.desk import symmetric_noise
from pipeline.statistics.gram import counted_sums
from pipeline.statistics.linear_calibration import one_shot_scales
from pipeline.statistics.linear_plan import LinearPlan
from pipeline.statistics.linear_sensitivity import largest, table_moves
from pipeline.statistics.regression import OneShot
from pipeline.statistics.rows import CountRows

Integers = NDArray[np.int64]

# weight of the reward column against a successor's: measured on Appendix F, 1 is worse
_REWARD_WEIGHT = 3


def release_one_shot(plan: LinearPlan, rows: CountRows, noise: NoiseSource) -> OneShot:
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
    q, (low, high) = plan.ask.value_steps, plan.domain.bounds
    least, most = math.floor(low * q), math.floor(high * q + 1e-9)
    # rewards are summed in half steps round the middle, so that both ends are equally far
    reward, tag = most - least, round(2 * q / _REWARD_WEIGHT)
    gram, table = _sums(rows, tag, least, most, q)
    scales = None if plan.ask.rho is None else one_shot_scales(plan, tag, reward)
    mechanisms: list[Mechanism] = []
    if scales is not None:
        reach = table_moves(plan.features, tag, reward, plan.domain.episodes)
        drawn = [symmetric_noise(noise, plan.features.dimension, scales.gram, rows) for _ in gram]
        gram = gram + np.stack(drawn)
        table = table + noise.gaussian(table.size, scales.targets[0], rows).reshape(table.shape)
        for name, at, v, i in (("gram", gram, scales.gram, 0), ("target", table, scales.targets[0], 1)):
            square = plan.domain.horizon * largest(reach, i)
            rule = "every step at its worst pair, joint with the other table"
            mechanisms.append(
                Mechanism(name, at.shape, "lattice steps", square, math.isqrt(square * at.size) + 1, rule, variance=v)
            )
    release = None
    if scales is not None:
        release = Release(
            dataset=plan.domain.name,
            data_kind=rows.data_kind,
            dynamics="per_step",
            mechanisms=tuple(mechanisms),
            tables={"gram": gram, "target": table},
            noise=noise.name,
            sampler=noise.sampler,
            joint_rho=Fraction(plan.domain.horizon) * scales.rho,
        )
    unit = plan.features.unit
    sd = math.sqrt(scales.targets[0]) if scales else 0.0
    return OneShot(
        gram=(gram * unit**2).astype(np.float64),
        successors=(table[:, :-1] * (unit / tag)).astype(np.float64),
        rewards=(table[:, -1] * (unit / (2 * q))).astype(np.float64),
        middle=(least + most) / (2 * q),
        gram_sd=math.sqrt(scales.gram / 2) * unit**2 if scales else 0.0,
        successor_sd=sd * unit / tag,
        reward_sd=sd * unit / (2 * q),
        release=release,
    )


def _sums(rows: CountRows, tag: int, least: int, most: int, q: int) -> tuple[Integers, Integers]:
    """Exact Gram matrices ``(H, d, d)`` and tables ``(H, S' + 1, d)``."""
    f = rows.features.integers.reshape(-1, rows.features.dimension)
    n = rows.visits["both"]
    r = np.clip(np.floor(rows.rewards * q + 1e-9), least, most).astype(np.int64)
    y = (2 * r - least - most) * n.sum(-1)
    x = np.concatenate([tag * n, y[..., None]], axis=-1).reshape(len(n), len(f), -1)
    each = [counted_sums(f, n_h.sum(-1).reshape(-1), x_h.T) for n_h, x_h in zip(n, x, strict=True)]
    return np.stack([g for g, _ in each]), np.stack([t for _, t in each])
