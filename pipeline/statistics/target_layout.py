"""Sums of targets and the counts beside them: the two stages of one-step improvement, and what each costs.

A row of a person has a *key* (its state, or its state and action) and a *target*, an integer in [-L, L].  Of a person
enter the first W rows, in the order of the log, and of those the first ``cap`` a key, so the cap looks at the past
only.  By key are summed N, the rows, and Z, the targets.  A person who puts m rows into a key moves N by m and Z by at
most L m, and sum m² is at most M = floor(W/cap) cap² + (W mod cap)², so a replaced person moves a pair (L N, Z) by

    sum over keys of (L m - L m')² + (L m + L m')² = 2 L² sum (m² + m'²) <= 4 L² M:

as much as Z alone.  Counts are free beside sums of a variance L² times theirs (enumerated in
``tests/statistics/test_target_layout.py``; attained).
"""

# ruff: noqa: N806  (the letters of the docstring)

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.factorisation import Factorisation
from pipeline.privacy.noise import LARGEST_SCALE
from pipeline.statistics.calibration import running
from pipeline.statistics.count_layout import Person, largest_square
from pipeline.statistics.layout import CardLayout, Rates, Relation, Sensitivity, Table
from pipeline.statistics.private_sum import PrivateSum

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Stage = Literal["v", "q"]
# lattice steps from 0 to the largest target
STEPS: dict[Stage, int] = {"v": 32, "q": 64}


def pair_cost(square: int, steps: int, count: Fraction, total: Fraction, relation: Relation = "replace") -> Fraction:
    """Exact largest ``count |dN|² + total |dZ|²`` of one person."""
    of_sums = total * steps * steps
    if relation == "add_remove":
        return (count + of_sums) * square
    # same keys at opposite ends, or disjoint keys
    return max(4 * of_sums, 2 * (count + of_sums)) * square


@dataclass(frozen=True)
class TargetLayout(CardLayout):
    """See :class:`~pipeline.statistics.layout.Layout`: N and Z of one stage, bounded together.

    Parameters
    ----------
    stage
        ``v``: a row's key is its state, its target the return from there on.  ``q``: key (state, action), target the
        temporal difference.
    rows, cap
        W, and rows a key.
    """

    stage: Stage
    rows: int
    cap: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """``(G, L)`` or ``(G, L, A)``: G is H, or 1 where the dynamics are stationary."""
        d = self.card.domain
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
        words = f"M = {M} for W = {W} rows a person, cap {self.most_a_key} a key"
        unit = f"1/{L} of the largest target"
        return (
            Table(
                f"{self.stage}_count",
                self.shape,
                "rows",
                Sensitivity(2 * M, 2 * W, f"2 M (L2²), 2 W (L1), {words}; free beside the sums of targets"),
                Sensitivity(M, W, f"M (L2²), W (L1), {words}"),
            ),
            Table(
                f"{self.stage}_sum",
                self.shape,
                unit,
                Sensitivity(4 * L * L * M, 2 * L * W, f"4 L² M (L2²), 2 L W (L1), L = {L}, {words}"),
                Sensitivity(L * L * M, L * W, f"L² M (L2²), L W (L1), L = {L}, {words}"),
            ),
        )

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        """See :class:`~pipeline.statistics.layout.Layout`."""
        count, total = (rates.get(t.name, Fraction(0)) for t in self.tables)
        return pair_cost(self.square, self.steps, count, total, relation)

    def joint(self) -> dict[str, object]:
        """See :class:`~pipeline.statistics.layout.Layout`."""
        keys = math.prod(self.shape)
        return {"rows": self.most_rows, "cap": self.most_a_key, "keys": keys, "steps": self.steps}

    def extremes(self) -> Iterator[Person]:
        """People who walk through as many keys as they can: all with one end of the reward, and into one state."""
        d, m = self.card.domain, self.card.unit.episodes_per_user
        cells = list(itertools.product(range(len(d.live_states)), range(len(d.action_labels))))
        by = len(d.action_labels) if self.stage == "v" else 1
        onto = {0, *range(d.states.first_terminal, len(d.state_labels))}
        for start, reward, last in itertools.product({0, len(cells) // 2}, self.card.reward.range, onto):
            place = [cells[(start + i // self.cap * by) % len(cells)] for i in range(m * d.horizon)]
            rows = [(s, a, reward, last) for s, a in place]
            yield [rows[e * d.horizon : (e + 1) * d.horizon] for e in range(m)]

    def summed(self, rho: Fraction | None, time: Factorisation | None = None) -> PrivateSum:
        """N and Z with their noise, counts free beside the sums.

        A person is in one leaf of a counter, and weights are at least 0: whoever moves to another leaf moves all rows
        by 2 L² (cost of the one M + cost of the other M) at most, so the pair costs the counter's ``cost`` times as
        much as released once.

        Parameters
        ----------
        rho
            zCDP; None: no noise (a baseline, simulation only).
        time
            Of a counter, whose rows have the noise; None: released once.

        Raises
        ------
        ValueError
            If the noise would leave 64-bit integers.
        """
        if rho is None:
            return PrivateSum(self, tuple(t.mechanism() for t in self.tables), time)
        squared = self.steps**2
        variance = math.ceil(2 * squared * self.square * (1 if time is None else time.cost) / rho)
        if variance > LARGEST_SCALE**2:
            raise ValueError(f"{self.dataset}: noise leaves 64-bit integers; ask for more than rho = {float(rho):g}")
        count, total = self.tables
        drawn = count.mechanism(math.ceil(Fraction(variance, squared))), total.mechanism(variance)
        return PrivateSum(self, drawn if time is None else running(drawn, time), time)
