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
from pipeline.statistics.linear_calibration import Scales, Target, call_scales, targets_of, true_rho
from pipeline.statistics.linear_plan import Half, LinearPlan
from pipeline.statistics.regression import DeskClosedError, PrivateRegression, Value, Weight, Window
from pipeline.statistics.rows import Quantiser, Rows, Side

Integers = NDArray[np.int64]


def symmetric_noise(noise: NoiseSource, dimension: int, variance: int, data: DataHandle) -> Integers:
    """Symmetric integer noise ``(d, d)``: ``variance`` on the diagonal, half of it off the diagonal (svec)."""
    out = np.zeros((dimension, dimension), dtype=np.int64)
    upper = np.triu_indices(dimension, 1)
    out[upper] = noise.gaussian(len(upper[0]), variance // 2, data)
    out += out.T
    out[np.diag_indices(dimension)] = noise.gaussian(dimension, variance, data)
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
        plan, quantiser, bound = self.plan, *self._quantiser(h, half, window)
        alone = half == "D" and (h, "D'") not in self._done
        side: Side = "both" if not plan.ask.split or alone else half
        gram, sums = self.rows.sums(h, side, value, quantiser, weight, plan.extent())
        W = plan.weight(half)
        if weight is None:
            gram, sums = gram * W, sums * W
        scales = None
        if plan.ask.rho is not None:
            targets = targets_of(plan, half, bound)
            scales = call_scales(plan, h, half, targets, whole=alone)
            gram, sums = self._noisy(h, half, gram, sums, scales, targets)
        q, unit2, powers = plan.ask.value_steps, float(plan.features.unit_squared), (2, 1) if half == "D'" else (1,)
        steps = [plan.features.unit / (W * q**p) for p in powers]
        return PrivateRegression(
            gram=gram.astype(np.float64) * (unit2 / W),
            targets=sums.astype(np.float64) * np.array(steps)[:, None],
            offset=quantiser.offset / q,
            bound=bound / q,
            gram_sd=math.sqrt(scales.gram / 2) * unit2 / W if scales else 0.0,
            target_sd=tuple(math.sqrt(v) * s for v, s in zip(scales.targets, steps, strict=True))
            if scales
            else (0.0,) * len(powers),
        )

    def _quantiser(self, h: int, half: Half, window: Window) -> tuple[Quantiser, int]:
        """Integer window of the call, its centre and the bound on its targets; wider than declared is cut."""
        q, domain = self.plan.ask.value_steps, self.plan.domain
        low, high = (math.floor(v * q + 1e-9) for v in domain.value_range(h + 1))
        if self.plan.centred:
            low, high = (min(max(math.floor(v * q + 1e-9), low), high) for v in (window.low, window.high))
        reward = None if half == "D'" else (math.floor(domain.bounds[0] * q), math.floor(domain.bounds[1] * q + 1e-9))
        least, most = low + (reward[0] if reward else 0), high + (reward[1] if reward else 0)
        offset = (least + most) // 2 if self.plan.centred else 0
        bound = max(most - offset, offset - least, 1)
        return Quantiser(q, low, high, reward, offset, self.plan.ask.weight_steps), bound

    def _noisy(
        self, h: int, half: Half, gram: Integers, sums: Integers, scales: Scales, targets: tuple[Target, ...]
    ) -> tuple[Integers, Integers]:
        d, moved = self.plan.features.dimension, self.plan.largest_moves
        gram = gram + symmetric_noise(self.noise, d, scales.gram, self.rows)
        drawn = [self.noise.gaussian(d, v, self.rows) for v in scales.targets]
        sums = sums + np.stack(drawn)
        self.spent += scales.rho
        W = self.plan.weight(half)
        names = ("target_squared", "target") if half == "D'" else ("target",)
        rule = "{}, joint with the other sums of the step: the step costs less than their sum"
        self._record(
            f"gram_{half}_{h}",
            gram,
            scales.gram,
            W**2 * moved[0],
            rule.format("svec: half the variance off the diagonal"),
        )
        for name, table, v, t in zip(names, sums, scales.targets, targets, strict=True):
            square = (W * t.bound) ** 2 * moved[1 if t.signed else 2]
            self._record(f"{name}_{half}_{h}", table, v, square, rule.format("targets at their bound"))
        return gram, sums

    def _record(self, name: str, table: Integers, variance: int, square: int, rule: str) -> None:
        l1 = math.isqrt(square * table.size) + 1
        self._mechanisms.append(Mechanism(name, table.shape, "lattice steps", square, l1, rule, variance=variance))
        self._tables[name] = table

    def release(self) -> Release:
        """All that left the desk so far, at the joint cost of its calls.

        Raises
        ------
        ValueError
            If the plan draws no noise: an exact desk releases nothing.
        """
        if self.plan.ask.rho is None:
            raise ValueError("an exact desk releases nothing")
        return Release(
            dataset=self.plan.domain.name,
            data_kind=self.plan.domain.kind,
            dynamics="per_step",
            mechanisms=tuple(self._mechanisms),
            tables=self._tables,
            noise=self.noise.name,
            sampler=self.noise.sampler,
            joint_rho=true_rho(self.plan),
        )
