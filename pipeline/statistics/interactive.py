"""The interactive mechanism of linear regressions: it answers an adaptive planner with noisy sums, within one budget.

One call per (step, half), from the last step to the first; the budget is charged once, before the first answer; any
call the plan does not hold is refused.  DP-VAPVI feeds its answers into later questions: C, lambda, D, clips, the
seed of ties and the planner's version are therefore *part of the mechanism*, and another value of any of them is a
new release with its own charge (privacy.md §0.1-4).  Only the one-shot release of
:mod:`~pipeline.statistics.linear_sums` is free to re-plan.
"""

# ruff: noqa: N806  (the letters of the paper)

# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.noise import NoiseSource, RealDataError
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics.linear_plan import Half, LinearPlan
from pipeline.statistics.linear_sums import CallLayout, LinearRows, Quantiser, Side, call_sum, joint_facts, true_rho
from pipeline.statistics.regression import MechanismClosedError, PrivateRegression, Value, Weight, Window

Integers = NDArray[np.int64]


@dataclass
class InteractiveRegression:
    """The one that holds the rows: exact (``rho`` None, simulation only), tight or with the paper's scales.

    ``epsilon``: the epsilon that will be stated, where a sampler's share of delta has to be listed; None: it is exact.
    Raises RealDataError if rows and plan are of different kinds, or the noise would not protect real people as asked.
    """

    plan: LinearPlan
    rows: LinearRows
    noise: NoiseSource
    epsilon: float | None = None
    _done: list[tuple[int, Half]] = field(default_factory=list, init=False)
    _mechanisms: list[Mechanism] = field(default_factory=list, init=False)
    _tables: dict[str, Integers] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Refuse what would not be private before a row is read."""
        self.noise.admit(self.plan.domain.kind)
        if self.rows.data_kind != self.plan.domain.kind:
            raise RealDataError(f"rows say {self.rows.data_kind!r}, the plan {self.plan.domain.kind!r}")
        asked, true = self.plan.rho, true_rho(self.plan)
        if self.plan.domain.kind == "real" and (asked is None or true is None or true > asked):
            raise RealDataError(
                f"{self.plan.domain.name} is registered as real: the plan's noise does not give what it asks"
            )

    @property
    def lattice(self) -> int:
        """Lattice steps q of one reward unit."""
        return self.plan.terms.value_steps

    def variance(self, h: int, value: Value, window: Window) -> PrivateRegression:
        if not self.plan.terms.variance or h == self.plan.domain.horizon - 1:
            raise MechanismClosedError(f"the plan has no variance call at step {h}")
        self._admit(h, "D'")
        return self._answer(h, "D'", value, window, None)

    def regression(self, h: int, value: Value, window: Window, weight: Weight | None = None) -> PrivateRegression:
        """See :class:`~pipeline.statistics.regression.InteractiveMechanism`; alone it takes the whole step's budget."""
        self._admit(h, "D")
        return self._answer(h, "D", value, window, weight)

    def _admit(self, h: int, half: Half) -> None:
        last = self._done[-1] if self._done else (self.plan.domain.horizon, "D")
        follows = {(last[0] - 1, "D'"), (last[0] - 1, "D")} if last[1] == "D" else {(last[0], "D")}
        if (h, half) not in follows or h < 0:
            raise MechanismClosedError(
                f"step {h}, {half} was answered, skipped or is not next; a desk never answers twice"
            )
        self._done.append((h, half))

    def _answer(self, h: int, half: Half, value: Value, window: Window, weight: Weight | None) -> PrivateRegression:
        plan, (quantiser, bound) = self.plan, call_window(self.plan, h, half, window)
        alone = half == "D" and (h, "D'") not in self._done
        side: Side = "both" if not plan.terms.halves or alone else half
        layout = CallLayout(plan, h, half, bound)
        summed = call_sum(layout, whole=alone)
        if self.epsilon is not None:
            summed = summed.with_slack(self.noise, self.epsilon)
        gram, sums = self.rows.sums(h, side, value, quantiser, weight, plan.extent())
        if weight is None:
            gram, sums = gram * plan.weight(half), sums * plan.weight(half)
        exact = dict(zip((m.table for m in summed.mechanisms), (gram, *sums), strict=True))
        tables = summed.perturb(exact, self.noise, self.rows)
        self._mechanisms += summed.mechanisms
        self._tables |= tables
        return answer(layout, quantiser.offset, summed.mechanisms, tables)

    def release(self) -> Release:
        """All that was answered so far, at the joint cost of its calls; without noise it is marked so (simulation)."""
        exact = self.plan.rho is None
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
    """Integer window of a call with its centre, and the bound on its targets; wider than declared is cut.

    ``h``, ``half``: step, from 0, and whose rows are summed.
    Returns what turns values into integers, and the largest absolute target in lattice steps.
    """
    q, domain = plan.terms.value_steps, plan.domain
    low, high = (math.floor(v * q + 1e-9) for v in domain.value_range(h + 1))
    if plan.centred:
        low, high = (min(max(math.floor(v * q + 1e-9), low), high) for v in (window.low, window.high))
    reward = None if half == "D'" else plan.reward_steps
    least, most = low + (reward[0] if reward else 0), high + (reward[1] if reward else 0)
    offset = (least + most) // 2 if plan.centred else 0
    bound = max(most - offset, offset - least, 1)
    return Quantiser(q, low, high, reward, offset, plan.terms.weight_steps), bound


def answer(
    layout: CallLayout, offset: int, mechanisms: Sequence[Mechanism], tables: Mapping[str, Integers]
) -> PrivateRegression:
    """Noisy integers of one call in real units.

    ``offset``: what was subtracted from every target, lattice steps.
    ``tables``: noisy integers of each: ``(d, d)`` the Gram matrix, ``(d,)`` the targets.
    """
    plan, W, q = layout.plan, layout.plan.weight(layout.half), layout.plan.terms.value_steps
    unit2, powers = float(plan.features.unit_squared), (2, 1) if layout.half == "D'" else (1,)
    steps = [plan.features.unit / (W * q**p) for p in powers]
    gram, *targets = mechanisms
    return PrivateRegression(
        gram=tables[gram.table].astype(np.float64) * (unit2 / W),
        targets=np.stack([tables[m.table] for m in targets]).astype(np.float64) * np.array(steps)[:, None],
        offset=offset / q,
        bound=layout.bound / q,
        gram_sd=math.sqrt((gram.variance or 0) / 2) * unit2 / W,
        target_sd=tuple(math.sqrt(m.variance or 0) * s for m, s in zip(targets, steps, strict=True)),
    )


@dataclass(frozen=True)
class RecordedRegression:
    """Answers the calls that a release recorded, and no other."""

    plan: LinearPlan
    release: Release

    @property
    def lattice(self) -> int:
        """Lattice steps of one reward unit."""
        return self.plan.terms.value_steps

    def variance(self, h: int, value: Value, window: Window) -> PrivateRegression:
        return self._answer(h, "D'", window)

    def regression(self, h: int, value: Value, window: Window, weight: Weight | None = None) -> PrivateRegression:
        return self._answer(h, "D", window)

    def _answer(self, h: int, half: Half, window: Window) -> PrivateRegression:
        quantiser, bound = call_window(self.plan, h, half, window)
        layout, listed = CallLayout(self.plan, h, half, bound), {m.table: m for m in self.release.mechanisms}
        if any(t.name not in listed for t in layout.tables):
            raise ValueError(f"this release holds no answer at step {h}, {half}: it was made by another planner")
        if any(listed[t.name].l2_squared != t.replace.l2_squared for t in layout.tables):
            raise ValueError(f"step {h}, {half} was asked with other targets: another planner made this release")
        return answer(layout, quantiser.offset, [listed[t.name] for t in layout.tables], self.release.tables)
