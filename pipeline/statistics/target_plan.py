"""Both stages of one-step improvement as one plan: their prices, and the question that the second one asks.

The question is computed from the answer of the first stage: values of current practice on a lattice, and the width at
which temporal differences are cut.  It is part of the mechanism and stands in the release.
"""

# ruff: noqa: N806  (H, as in the docstring of the layout)

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.card import Card, task_of
from pipeline.privacy.epochs import Epochs
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics.ask import Ask
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.target_layout import STEPS, Stage, TargetLayout

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
# lattice steps of the range of returns on which the values of the first stage stand
VALUE_STEPS = 1 << 12
# least width of the second stage's window, in parts of the range: values alike still leave room for rewards
_LEAST_CLIP = 1 / 16


@dataclass(frozen=True)
class Question:
    """What the second stage asks, computed from the answer of the first.

    Parameters
    ----------
    values
        ``(G, L)``: value of current practice, in 1/:data:`VALUE_STEPS` of the span of returns above its least.
    clip
        Temporal differences are cut to this on both sides, in the same steps; at least 1.
    """

    values: Integers
    clip: int


def window(counts: Integers, values: Integers, spread: int) -> int:
    """Width at which temporal differences are cut: so many standard deviations of the values over rows.

    Parameters
    ----------
    counts
        Released rows by state; what is negative counts as none.
    values
        As in :class:`Question`.
    spread
        How many.

    Returns
    -------
    In the steps of ``values``, between 1/16 of the range and the range; exact integers throughout.
    """
    rows = [max(0, int(n)) for n in counts.ravel()]
    points = [int(v) for v in values.ravel()]
    n, s = sum(rows), sum(w * v for w, v in zip(rows, points, strict=True))
    squares = sum(w * v * v for w, v in zip(rows, points, strict=True))
    found = 0 if n == 0 else spread * math.isqrt(max(0, n * squares - s * s)) // n
    return min(VALUE_STEPS, max(round(_LEAST_CLIP * VALUE_STEPS), found))


@dataclass(frozen=True)
class TargetPlan:
    """All that a one-step release depends on but the rows.

    Parameters
    ----------
    card
        What is declared.
    ask
        zCDP budget, none for a baseline; ``v`` in its ``split`` is the share of the first stage.
    rows, cap
        W, and rows a key, of both stages.
    spread
        See :func:`window`; part of the question.
    version
        Of the planner that makes values of the first answer: another one asks another question.
    """

    card: Card
    ask: Ask
    rows: int
    cap: int
    spread: int
    version: int

    @property
    def rho(self) -> Fraction | None:
        """ZCDP budget, exactly; None: no noise."""
        return self.ask.zcdp()

    def layout(self, stage: Stage) -> TargetLayout:
        """What is summed in a stage."""
        return TargetLayout(self.card, stage, self.rows, self.cap)

    @cached_property
    def stages(self) -> dict[Stage, PrivateSum]:
        """Both private sums, the second one adaptive in what it asks and fixed in what it costs."""
        share = self.ask.share("v", Fraction(3, 20))
        parts: dict[Stage, Fraction] = {"v": share, "q": 1 - share}
        # values are read when an epoch opens; gains are summed within it
        q = self.ask.counter
        times = {"v": q.openings if isinstance(q, Epochs) else q, "q": q}
        return {
            stage: self.layout(stage).summed(None if self.rho is None else self.rho * p, times[stage])
            for stage, p in parts.items()
        }

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """Of both stages, in order; of a counter with the noise of its noisiest sums."""
        return tuple(m for s in self.stages.values() for m in s.mechanisms)

    @property
    def once(self) -> TargetPlan:
        """A plan without a counter whose noise is that of the noisiest sums of this one."""
        counter, rho = self.ask.counter, dict[str, Fraction]()
        if counter is None or self.rho is None:
            return replace(self, ask=replace(self.ask, counter=None))
        for stage, s in self.stages.items():
            length = 2 * self.layout(stage).square * self.layout(stage).steps ** 2
            rho[stage] = length / Fraction(s.mechanisms[-1].standard_deviation ** 2)
        whole = sum(rho.values(), Fraction(0))
        return replace(self, ask=Ask(whole, split={"v": rho["v"] / whole}))

    @property
    def cost(self) -> Fraction | None:
        """Exact zCDP of both stages; None without noise."""
        costs = [s.rho for s in self.stages.values()]
        return None if None in costs else sum((c for c in costs if c is not None), Fraction(0))

    @property
    def returns(self) -> list[tuple[float, float]]:
        """Least and largest return from a row on ``(G)``, reward units: of each step, or of all where they share."""
        task, H = task_of(self.card), self.card.domain.horizon
        ends = [task.value_range(h) for h in range(H)]
        if self.card.domain.dynamics == "per_step":
            return ends
        return [(min(low for low, _ in ends), max(high for _, high in ends))]

    @property
    def span(self) -> tuple[float, float]:
        """Least and greatest return of all, reward units: the range on which values stand."""
        return min(low for low, _ in self.returns), max(high for _, high in self.returns)

    def rewards(self, values: Integers) -> Array:
        """Values of a question in reward units."""
        low, high = self.span
        return low + values.astype(np.float64) * ((high - low) / VALUE_STEPS)

    def width(self, asked: Question) -> float:
        """Width at which temporal differences are cut, in reward units."""
        low, high = self.span
        return asked.clip * (high - low) / VALUE_STEPS

    def joint(self) -> dict[str, object]:
        """What the joint bounds rest on, and what defines the second question: plain values."""
        d = self.card.domain
        return {
            "rule": "each stage: supremum over two people's rows of counts and sums together; the stages add",
            "variant": "one_step",
            "split": False,
            "horizon": d.horizon,
            "episodes": self.card.unit.episodes_per_user,
            "square": self.layout("v").square,
            "features_sha256": None if d.states.features is None else d.states.features.sha256,
            "stages": {stage: self.layout(stage).joint() for stage in STEPS},
            "spread": self.spread,
            "version": self.version,
        }

    def joined(self, answers: Sequence[Release], question: Question) -> Release:
        """Both answers as one release, and the values that the second question was about."""
        first, second = answers
        return replace(
            first,
            mechanisms=first.mechanisms + second.mechanisms,
            tables={**first.tables, **second.tables},
            derived={"v_value": question.values},
            joint_rho=self.cost,
            joint=self.joint(),
        )
