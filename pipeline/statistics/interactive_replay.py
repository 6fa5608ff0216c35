"""A desk of released answers: the same planner, asked again, gets the same noisy sums; nothing is read or drawn.

It is how a committed linear release becomes a policy, on the first day and on every replay: what is published is
therefore a function of the release alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pipeline.privacy.release import Release
from pipeline.statistics.interactive import answered, call_mechanisms, call_tables, call_window
from pipeline.statistics.linear_calibration import Scales, targets_of
from pipeline.statistics.linear_plan import Half, LinearPlan
from pipeline.statistics.regression import PrivateRegression, Value, Weight, Window


@dataclass(frozen=True)
class ReleasedDesk:
    """Answers the calls that a release recorded, and no other."""

    plan: LinearPlan
    release: Release

    @property
    def lattice(self) -> int:
        """Lattice steps of one reward unit."""
        return self.plan.ask.value_steps

    def variance(self, h: int, value: Value, window: Window) -> PrivateRegression:
        """See :class:`~pipeline.statistics.regression.Desk`."""
        return self._answer(h, "D'", window)

    def regression(self, h: int, value: Value, window: Window, weight: Weight | None = None) -> PrivateRegression:
        """See :class:`~pipeline.statistics.regression.Desk`."""
        return self._answer(h, "D", window)

    def _answer(self, h: int, half: Half, window: Window) -> PrivateRegression:
        quantiser, bound = call_window(self.plan, h, half, window)
        targets = targets_of(self.plan, half, bound)
        names, listed = call_tables(h, half), {m.table: m for m in self.release.mechanisms}
        if any(name not in listed for name in names):
            raise ValueError(f"this release holds no answer at step {h}, {half}: it was made by another planner")
        drawn = [v for v in (listed[name].variance for name in names) if v is not None]
        # what the call cost was settled when it was drawn
        scales = Scales(drawn[0], tuple(drawn[1:]), Fraction(0)) if drawn else None
        if [m.l2_squared for m in call_mechanisms(self.plan, h, half, targets, scales)] != [
            listed[name].l2_squared for name in names
        ]:
            raise ValueError(f"step {h}, {half} was asked with other targets: another planner made this release")
        table, *sums = (self.release.tables[name] for name in names)
        return answered(self.plan, half, quantiser.offset, bound, table, np.stack(sums), scales)
