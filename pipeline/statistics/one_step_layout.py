"""Sums that measure a one-step policy on held-out people: rows that follow it, and moments of features.

Both layouts are summed over the evaluation part.  A *cell* is a live state, or a step and a live state where steps have
tables of their own; there are K.

**Follow**: of a person enters the first row of each cell, as one that follows the policy or one that does not.  The cap
is a cell's, never an action's: a cap by both would count an action once that was taken five times.  A replaced person
moves at most M cells at each of two ends: squared length 2 M, M the largest number of cells.

**Moments**: with features |phi| <= q, weights w <= W of which a person has c W at most, and errors |z| <= q, a person's
sums of w phi phi', of w phi phi_next' and of w phi z are each c W q² long at most.  Two Gram matrices are positive, so
their inner product is not negative and they lie sqrt(2) c W q² apart at most; the others may point against each other,
2 c W q² apart.  Enumerated in ``tests/statistics/test_one_step_layout.py``; each bound is attained.
"""

# ruff: noqa: N806  (the letters of the docstring)

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from pipeline.privacy.noise import LARGEST_SCALE
from pipeline.statistics.count_layout import Person, largest_square
from pipeline.statistics.layout import CardLayout, Sensitivity, Table
from pipeline.statistics.private_sum import PrivateSum

# numbers of a cell's features, and lattice steps of their length and of an error
FEATURES, STEPS = 5, 1 << 10
# lattice steps of the largest weight of a row: a third of it, and 5/12, are whole
WEIGHT = 384
# rows of a person that enter the moments of practice
PRACTICE_ROWS = 12


@dataclass(frozen=True)
class _OneStepLayout(CardLayout):
    def extremes(self) -> Iterator[Person]:
        """People who walk through all cells, or stay in one, with either action and either end of the reward."""
        d, m = self.card.domain, self.card.unit.episodes_per_user
        L, A = len(d.live_states), len(d.action_labels)
        for start, by, a, onto in itertools.product(
            (0, L // 2), (0, 1), {0, A - 1}, {0, L - 1, d.states.first_terminal}
        ):
            for reward in self.card.reward.range:
                rows = [((start + by * i) % L, a, reward, onto) for i in range(m * d.horizon)]
                yield [rows[e * d.horizon : (e + 1) * d.horizon] for e in range(m)]


@dataclass(frozen=True)
class FollowLayout(_OneStepLayout):
    """Rows that follow the policy, and rows that do not."""

    @property
    def cells(self) -> tuple[int, int]:
        """``(G, L)``: G is H, or 1 where all steps share."""
        return self.card.domain.table_steps, len(self.card.domain.live_states)

    @property
    def tables(self) -> tuple[Table, ...]:
        """``b_follow (2, G, L)``: 0 does not follow, 1 follows."""
        G, L = self.cells
        rows = self.card.unit.episodes_per_user * self.card.domain.horizon
        M = largest_square(rows, 1, G * L)
        rule = f"one row a cell, M = {M} cells a person"
        moved = Sensitivity(2 * M, 2 * M, f"2 M (L2² and L1): {rule}")
        return (Table("b_follow", (2, G, L), "rows", moved, Sensitivity(M, M, f"M (L2² and L1): {rule}")),)

    def summed(self, rho: Fraction | None) -> PrivateSum:
        """The counts with their noise.

        ``rho``: zCDP; None: no noise (simulation only).
        """
        (table,) = self.tables
        variance = None if rho is None else math.ceil(table.replace.l2_squared / (2 * rho))
        return PrivateSum(self, (table.mechanism(variance),))


@dataclass(frozen=True)
class FeatureLayout(_OneStepLayout):
    """Moments of features under the policy, and under practice."""

    most: int = 5
    practice: bool = True

    @property
    def unit(self) -> int:
        """W q²: what 1 is in sums of weighted products."""
        return WEIGHT * STEPS**2

    @property
    def tables(self) -> tuple[Table, ...]:
        """``b_gram``, ``b_next``, ``b_error``; and of practice ``b_gram_mu``, ``b_next_mu`` and ``b_start``."""
        d, c = FEATURES, self.most
        far, words = (c * self.unit) ** 2, f"c = {c} full weights a person"

        def gram(name: str) -> Table:
            one = Sensitivity(far, d * c * self.unit, f"(c W q²)²: {words}")
            two = Sensitivity(2 * far, 2 * one.l1, f"2 (c W q²)², positive matrices: {words}")
            return Table(name, (d, d), "1/(W q²)", two, one, symmetric=True)

        def free(name: str, shape: tuple[int, ...], length: int) -> Table:
            most = math.isqrt(math.prod(shape) - 1) + 1
            one = Sensitivity(length**2, most * length, f"the longest sum of a person, squared: {words}")
            return Table(name, shape, "1/(W q²)", Sensitivity(4 * length**2, 2 * one.l1, f"4 x {one.rule}"), one)

        long = c * self.unit
        found = [gram("b_gram"), free("b_next", (d, d), long), free("b_error", (d,), long)]
        if self.practice:
            found += [gram("b_gram_mu"), free("b_next_mu", (d, d), long), free("b_start", (d,), self.unit)]
        return tuple(found)

    @property
    def square(self) -> int:
        """Squared length of a replaced person's move in units of W q²: 10 c², or 16 c² + 4 with practice."""
        return sum(t.replace.l2_squared for t in self.tables) // self.unit**2

    def summed(self, rho: Fraction | None) -> PrivateSum:
        """All tables with noise of one scale.

        ``rho``: zCDP; None: no noise (simulation only).
        Raises ValueError if the noise would leave 64-bit integers.
        """
        if rho is None:
            return PrivateSum(self, tuple(t.mechanism() for t in self.tables))
        # even: above a diagonal half of it is drawn
        variance = 2 * math.ceil(self.square * self.unit**2 / (4 * rho))
        if variance > LARGEST_SCALE**2:
            raise ValueError(f"{self.dataset}: noise leaves 64-bit integers; ask for more than rho = {float(rho):g}")
        return PrivateSum(self, tuple(t.mechanism(variance) for t in self.tables))
