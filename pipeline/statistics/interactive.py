"""The regression desk: rows on one side, an adaptive planner on the other, noise and budget in between.

One call per (step, half), from the last step to the first; the budget is charged once, before the first answer; any
call the plan does not hold is refused.  DP-VAPVI feeds its answers into later questions: C, lambda, D, clips, the
seed of ties and the planner's version are therefore *part of the mechanism*, and another value of any of them is a
new release with its own charge (privacy.md §0.1-4).  Only the one-shot release (:mod:`~pipeline.statistics.one_shot`)
is free to re-plan.
"""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.noise import DataHandle, NoiseSource, RealDataError
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics.joint_loss import joint_facts
from pipeline.statistics.linear_calibration import Scales, Target, call_scales, targets_of, true_rho
from pipeline.statistics.linear_plan import Half, LinearPlan
from pipeline.statistics.regression import DeskClosedError, PrivateRegression, Value, Weight, Window
from pipeline.statistics.rows import Quantiser, Rows, Side

Integers = NDArray[np.int64]


def symmetric_noise(noise: NoiseSource, dimension: int, variance: int, data: DataHandle) -> Integers:
    """Symmetric integer noise ``(d, d)``: ``variance`` on the diagonal, half of it off the diagonal (svec)."""
    return symmetric_noises(noise, 1, dimension, variance, data)[0]


def symmetric_noises(noise: NoiseSource, copies: int, dimension: int, variance: int, data: DataHandle) -> Integers:
    """Independent ones ``(copies, d, d)``."""
    out = np.zeros((copies, dimension, dimension), dtype=np.int64)
    rows, columns = np.triu_indices(dimension, 1)
    above = noise.gaussian(copies * len(rows), variance // 2, data).reshape(copies, -1)
    out[:, rows, columns] = out[:, columns, rows] = above
    diagonal = np.arange(dimension)
    out[:, diagonal, diagonal] = noise.gaussian(copies * dimension, variance, data).reshape(copies, -1)
    return out


@dataclass
class RegressionDesk:
    """The one desk: exact (``rho`` None, simulation only), tight or with the paper's scales.

    Parameters
    ----------
    charge
        Called once with the plan, before the first row is read; raising there leaves everything unread.
    """

    plan: LinearPlan
    rows: Rows
    noise: NoiseSource
    charge: Callable[[LinearPlan], None] = lambda plan: None
    spent: Fraction = field(default=Fraction(0), init=False)
    _charged: bool = field(default=False, init=False)
    _done: list[tuple[int, Half]] = field(default_factory=list, init=False)
    _mechanisms: list[Mechanism] = field(default_factory=list, init=False)
    _tables: dict[str, Integers] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Refuse what would not be private before a row is read."""
        self.noise.admit(self.plan.domain.kind)
        if self.rows.data_kind != self.plan.domain.kind:
            raise RealDataError(
                f"rows say {self.rows.data_kind!r}, the plan {self.plan.domain.kind!r}; nothing was read"
            )
        asked, true = self.plan.ask.rho, true_rho(self.plan)
        if self.plan.domain.kind == "real" and (asked is None or true is None or true > asked):
            raise RealDataError(
                f"{self.plan.domain.name} is registered as real: the plan's noise does not give what it asks"
            )

    @property
    def lattice(self) -> int:
        """Lattice steps q of one reward unit."""
        return self.plan.ask.value_steps

    def variance(self, h: int, value: Value, window: Window) -> PrivateRegression:
        """See :class:`~pipeline.statistics.regression.Desk`."""
        if not self.plan.ask.variance or h == self.plan.domain.horizon - 1:
            raise DeskClosedError(f"the plan has no variance call at step {h}")
        self._admit(h, "D'")
        return self._answer(h, "D'", value, window, None)

    def regression(self, h: int, value: Value, window: Window, weight: Weight | None = None) -> PrivateRegression:
        """See :class:`~pipeline.statistics.regression.Desk`; alone it takes the whole step's budget."""
        self._admit(h, "D")
        return self._answer(h, "D", value, window, weight)

    def _admit(self, h: int, half: Half) -> None:
        last = self._done[-1] if self._done else (self.plan.domain.horizon, "D")
        follows = {(last[0] - 1, "D'"), (last[0] - 1, "D")} if last[1] == "D" else {(last[0], "D")}
        if (h, half) not in follows or h < 0:
            raise DeskClosedError(f"step {h}, {half} was answered, skipped or is not next; a desk never answers twice")
        if not self._charged:
            self.charge(self.plan)
            self._charged = True
        self._done.append((h, half))

    def _answer(self, h: int, half: Half, value: Value, window: Window, weight: Weight | None) -> PrivateRegression:
        plan, (quantiser, bound) = self.plan, call_window(self.plan, h, half, window)
        alone = half == "D" and (h, "D'") not in self._done
        side: Side = "both" if not plan.ask.split or alone else half
        gram, sums = self.rows.sums(h, side, value, quantiser, weight, plan.extent())
        W = plan.weight(half)
        if weight is None:
            gram, sums = gram * W, sums * W
        targets, scales = targets_of(plan, half, bound), None
        if plan.ask.rho is not None:
            scales = call_scales(plan, h, half, targets, whole=alone)
            gram = gram + symmetric_noise(self.noise, plan.features.dimension, scales.gram, self.rows)
            drawn = [self.noise.gaussian(plan.features.dimension, v, self.rows) for v in scales.targets]
            sums = sums + np.stack(drawn)
            self.spent += scales.rho
        for m, table in zip(call_mechanisms(plan, h, half, targets, scales), (gram, *sums), strict=True):
            self._mechanisms.append(m)
            self._tables[m.table] = table
        return answered(plan, half, quantiser.offset, bound, gram, sums, scales)

    def release(self) -> Release:
        """All that left the desk so far, at the joint cost of its calls; without noise it is marked so (simulation)."""
        exact = self.plan.ask.rho is None
        return Release(
            dataset=self.plan.domain.name,
            data_kind=self.plan.domain.kind,
            dynamics="per_step",
            mechanisms=tuple(self._mechanisms),
            tables=self._tables,
            noise="none" if exact else self.noise.name,
            sampler="none: exact sums, simulation, not private" if exact else self.noise.sampler,
            joint_rho=true_rho(self.plan),
            joint=joint_facts(self.plan),
        )


def call_window(plan: LinearPlan, h: int, half: Half, window: Window) -> tuple[Quantiser, int]:
    """Integer window of a call with its centre, and the bound on its targets; wider than declared is cut."""
    q, domain = plan.ask.value_steps, plan.domain
    low, high = (math.floor(v * q + 1e-9) for v in domain.value_range(h + 1))
    if plan.centred:
        low, high = (min(max(math.floor(v * q + 1e-9), low), high) for v in (window.low, window.high))
    reward = None if half == "D'" else plan.reward_steps
    least, most = low + (reward[0] if reward else 0), high + (reward[1] if reward else 0)
    offset = (least + most) // 2 if plan.centred else 0
    bound = max(most - offset, offset - least, 1)
    return Quantiser(q, low, high, reward, offset, plan.ask.weight_steps), bound


def call_tables(h: int, half: Half) -> tuple[str, ...]:
    """Names of what one call releases: the Gram matrix, then its targets."""
    names = ("gram", "target_squared", "target") if half == "D'" else ("gram", "target")
    return tuple(f"{name}_{half}_{h}" for name in names)


def call_mechanisms(
    plan: LinearPlan, h: int, half: Half, targets: tuple[Target, ...], scales: Scales | None
) -> list[Mechanism]:
    """What one call releases, each table with the sensitivity it would have alone."""
    moved, W, d = plan.largest_moves, plan.weight(half), plan.features.dimension
    rule = "{}, joint with the other sums of the step: the step costs no more than their sum"
    squares = [W**2 * moved[0], *((W * t.bound) ** 2 * moved[1 if t.signed else 2] for t in targets)]
    variances = (None,) * len(squares) if scales is None else (scales.gram, *scales.targets)
    shapes = [(d, d), *((d,) for _ in targets)]
    rules = ["svec: half the variance off the diagonal", *("targets at their bound" for _ in targets)]
    return [
        Mechanism(
            name,
            shape,
            "lattice steps",
            square,
            math.isqrt(square * math.prod(shape)) + 1,
            rule.format(words),
            variance=v,
        )
        for name, shape, square, words, v in zip(call_tables(h, half), shapes, squares, rules, variances, strict=True)
    ]


def answered(
    plan: LinearPlan, half: Half, offset: int, bound: int, gram: Integers, sums: Integers, scales: Scales | None
) -> PrivateRegression:
    """Noisy integers of one call in real units."""
    W, q = plan.weight(half), plan.ask.value_steps
    unit2, powers = float(plan.features.unit_squared), (2, 1) if half == "D'" else (1,)
    steps = [plan.features.unit / (W * q**p) for p in powers]
    return PrivateRegression(
        gram=gram.astype(np.float64) * (unit2 / W),
        targets=sums.astype(np.float64) * np.array(steps)[:, None],
        offset=offset / q,
        bound=bound / q,
        gram_sd=math.sqrt(scales.gram / 2) * unit2 / W if scales else 0.0,
        target_sd=tuple(math.sqrt(v) * s for v, s in zip(scales.targets, steps, strict=True))
        if scales
        else (0.0,) * len(powers),
    )
