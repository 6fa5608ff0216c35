"""One-step improvement: stages of sums of targets with counts, priced as one plan.

A row of a person has a *key* (its state, or its state and action) and a *target*, an integer in [-L, L].  The first W
rows of a person enter, in the order of the log, and of those the first ``cap`` a key, so the cap depends on the past
only.  By key are summed N, the rows, and Z, the targets.  A person who puts m rows into a key moves N by m and Z by at
most L m, and sum m² is at most M = floor(W/cap) cap² + (W mod cap)², so a replaced person moves a pair (L N, Z) by

    sum over keys of (L m - L m')² + (L m + L m')² = 2 L² sum (m² + m'²) <= 4 L² M:

as much as Z alone.  Counts are free beside sums of a variance L² times theirs (enumerated in
``tests/statistics/test_target_layout.py``; attained).

The query of the second stage is computed from the answer of the first: values of current practice on a lattice, and
the width at which temporal differences are cut.  It is part of the mechanism and is recorded in the release.
"""

# ruff: noqa: N806  (the letters of the docstring)
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.declaration.card import Card, task_of
from pipeline.privacy.noise import LARGEST_SCALE
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics.ask import Ask
from pipeline.statistics.count_layout import Person, largest_square
from pipeline.statistics.layout import CardLayout, Rates, Relation, Sensitivity, Table
from pipeline.statistics.private_sum import PrivateSum

Stage = Literal["v", "c", "q"]
# lattice steps from 0 to the largest target
STEPS: dict[Stage, int] = {"v": 32, "c": 64, "q": 64}


def pair_cost(square: int, steps: int, count: Fraction, total: Fraction, relation: Relation = "replace") -> Fraction:
    """Exact largest ``count |dN|² + total |dZ|²`` of one person."""
    of_sums = total * steps * steps
    if relation == "add_remove":
        return (count + of_sums) * square
    # same keys at opposite ends, or disjoint keys
    return max(4 * of_sums, 2 * (count + of_sums)) * square


@dataclass(frozen=True)
class TargetLayout(CardLayout):
    """N and Z of one stage, bounded together."""

    stage: Stage
    rows: int
    cap: int = 1
    groups: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """``(G, L)`` or ``(G, L, A)``: G is H, or 1 where the dynamics are stationary; of groups ``(groups, A)``."""
        d = self.card.domain
        if self.stage == "c":
            return self.groups, len(d.action_labels)
        states = d.table_steps, len(d.live_states)
        return states if self.stage == "v" else (*states, len(d.action_labels))

    @property
    def steps(self) -> int:
        """L."""
        return STEPS[self.stage]

    @property
    def most_rows(self) -> int:
        """Rows of one person at most."""
        return min(self.rows, self.card.unit.episodes_per_user * self.card.domain.horizon)

    @property
    def most_a_key(self) -> int:
        """Rows of one person in one key at most: where steps have keys of their own, an episode has one."""
        each = self.card.unit.episodes_per_user if self.dynamics == "per_step" else self.most_rows
        return min(self.cap, each)

    @property
    def square(self) -> int:
        """M."""
        return largest_square(self.most_rows, self.most_a_key, math.prod(self.shape))

    @property
    def tables(self) -> tuple[Table, ...]:
        """N and Z, each with the largest move that it has alone."""
        M, L, W = self.square, self.steps, min(self.most_rows, self.most_a_key * math.prod(self.shape))
        sizes = f"M = {M} for W = {W} rows a person, cap {self.most_a_key} a key"
        unit = f"1/{L} of the largest target"
        return (
            Table(
                f"{self.stage}_count",
                self.shape,
                "rows",
                Sensitivity(2 * M, 2 * W, f"2 M (L2²), 2 W (L1), {sizes}; free beside the sums of targets"),
                Sensitivity(M, W, f"M (L2²), W (L1), {sizes}"),
            ),
            Table(
                f"{self.stage}_sum",
                self.shape,
                unit,
                Sensitivity(4 * L * L * M, 2 * L * W, f"4 L² M (L2²), 2 L W (L1), L = {L}, {sizes}"),
                Sensitivity(L * L * M, L * W, f"L² M (L2²), L W (L1), L = {L}, {sizes}"),
            ),
        )

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        count, total = (rates.get(t.name, Fraction(0)) for t in self.tables)
        return pair_cost(self.square, self.steps, count, total, relation)

    def joint(self) -> dict[str, object]:
        keys = math.prod(self.shape)
        return {"rows": self.most_rows, "cap": self.most_a_key, "keys": keys, "steps": self.steps}

    def extremes(self) -> Iterator[Person]:
        """People who walk through as many keys as they can: all with one end of the reward, and into one state."""
        d, m = self.card.domain, self.card.unit.episodes_per_user
        cells = list(itertools.product(range(len(d.live_states)), range(len(d.action_labels))))
        stride = len(d.action_labels) if self.stage == "v" else 1
        successors = {0, *range(d.states.first_terminal, len(d.state_labels))}
        for start, reward, last in itertools.product({0, len(cells) // 2}, self.card.reward.range, successors):
            place = [cells[(start + i // self.cap * stride) % len(cells)] for i in range(m * d.horizon)]
            rows = [(s, a, reward, last) for s, a in place]
            yield [rows[e * d.horizon : (e + 1) * d.horizon] for e in range(m)]

    def summed(self, rho: Fraction | None) -> PrivateSum:
        """N and Z with their noise, counts free beside the sums.

        ``rho``: zCDP; None: no noise (a baseline, simulation only).
        Raises ValueError if the noise would leave 64-bit integers.
        """
        if rho is None:
            return PrivateSum(self, tuple(t.mechanism() for t in self.tables))
        squared = self.steps**2
        variance = math.ceil(2 * squared * self.square / rho)
        if variance > LARGEST_SCALE**2:
            raise ValueError(f"{self.dataset}: noise leaves 64-bit integers; ask for more than rho = {float(rho):g}")
        count, total = self.tables
        drawn = count.mechanism(math.ceil(Fraction(variance, squared))), total.mechanism(variance)
        return PrivateSum(self, drawn)


# lattice steps of the range of returns on which the values of the first stage stand
VALUE_STEPS = 1 << 12
# least width of the second stage's window, in parts of the range: values alike still leave room for rewards
_LEAST_CLIP = 1 / 16


@dataclass(frozen=True)
class TargetQuestion:
    """The query of the second stage, computed from the answer of the first.

    ``values`` ``(G, L)``: value of current practice, in 1/:data:`VALUE_STEPS` of the span of returns above its least.
    ``clip``: temporal differences are cut to this on both sides, in the same steps; at least 1.
    ``group`` ``(L,)``: group of each state, where groups are queried; from public features, or from ``values``.
    """

    values: Integers
    clip: int
    group: Integers | None = None

    @property
    def derived(self) -> dict[str, Integers]:
        """Its values in a release, by name."""
        return {"v_value": self.values} | ({} if self.group is None else {"c_group": self.group})


def window(counts: Integers, values: Integers, spread: int) -> int:
    """Width at which temporal differences are cut: ``spread`` standard deviations of the values over rows.

    Returns in the steps of ``values``, between 1/16 of the range and the range; exact integers throughout.
    """
    rows = [max(0, int(n)) for n in counts.ravel()]
    points = [int(v) for v in values.ravel()]
    n, s = sum(rows), sum(w * v for w, v in zip(rows, points, strict=True))
    squares = sum(w * v * v for w, v in zip(rows, points, strict=True))
    width = 0 if n == 0 else spread * math.isqrt(max(0, n * squares - s * s)) // n
    return min(VALUE_STEPS, max(round(_LEAST_CLIP * VALUE_STEPS), width))


@dataclass(frozen=True)
class TargetPlan:
    """All that a one-step release depends on but the rows.

    ``ask``: zCDP budget, none for a baseline; ``v`` in its ``split`` is the share of the first stage, ``c`` that of
    groups of states in the rest.
    ``groups``: number of groups of states that are queried before states; 0: none.
    """

    card: Card
    ask: Ask
    rows: int
    cap: int
    spread: int
    version: int
    groups: int = 0

    @property
    def rho(self) -> Fraction | None:
        """ZCDP budget, exactly; None: no noise."""
        return self.ask.zcdp()

    def layout(self, stage: Stage) -> TargetLayout:
        """Sums of a stage."""
        return TargetLayout(self.card, stage, self.rows, self.cap, self.groups if stage == "c" else 0)

    @cached_property
    def stages(self) -> dict[Stage, PrivateSum]:
        """The private sums; later ones have adaptive queries and fixed costs."""
        share, coarse = self.ask.share("v", Fraction(3, 20)), self.ask.share("c", Fraction(1, 2))
        parts: dict[Stage, Fraction] = {"v": share}
        parts |= {"c": (1 - share) * coarse, "q": (1 - share) * (1 - coarse)} if self.groups else {"q": 1 - share}
        return {s: self.layout(s).summed(None if self.rho is None else self.rho * p) for s, p in parts.items()}

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """Of all stages, in order."""
        return tuple(m for s in self.stages.values() for m in s.mechanisms)

    @property
    def cost(self) -> Fraction | None:
        """Exact zCDP of all stages; None without noise."""
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

    def width(self, question: TargetQuestion) -> float:
        """Width at which temporal differences are cut, in reward units."""
        low, high = self.span
        return question.clip * (high - low) / VALUE_STEPS

    def joint(self) -> dict[str, object]:
        """Grounds of the joint bounds, and definition of the second query: plain values."""
        d = self.card.domain
        return {
            "rule": "each stage: supremum over two people's rows of counts and sums together; the stages add",
            "variant": "one_step",
            "split": False,
            "horizon": d.horizon,
            "episodes": self.card.unit.episodes_per_user,
            "square": self.layout("v").square,
            "features_sha256": None if d.states.features is None else d.states.features.sha256,
            "stages": {stage: self.layout(stage).joint() for stage in self.stages},
            "spread": self.spread,
            "version": self.version,
        }

    def joined(self, answers: Sequence[Release], question: TargetQuestion) -> Release:
        """All answers as one release, with the values and groups of the later queries."""
        first = answers[0]
        return replace(
            first,
            mechanisms=tuple(m for a in answers for m in a.mechanisms),
            tables={name: table for a in answers for name, table in a.tables.items()},
            derived=question.derived,
            joint_rho=self.cost,
            joint=self.joint(),
        )
