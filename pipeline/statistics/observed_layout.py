"""Moments of declared features of observations, of people who evaluate a linear policy; step by step.

At each step and in each of m episodes a person has one row at most.  With phi its features, of length at most F, and
x the vector beside them, of length at most X = (F, E, D) together:

=============  ======================================================================  ==============
table          sum                                                                      (L2²) replaced
=============  ======================================================================  ==============
``b_gram``     of a step phi phi'                                                       2 H (m F²)²
``b_beside``   of a step phi x', x = (features where it led under the policy, what the   4 H (m F X)²
               learner's values were off by there, directions that features leave out)
``b_first``    features of first observations under the policy                          4 (m F)²
=============  ======================================================================  ==============

Gram matrices of two people are positive, so their inner product is not negative; the other sums may point against each
other.  An added or removed person moves half, a quarter and a quarter of that.  Tables are priced one by one: their
costs add.  Each bound is attained (``tests/statistics/test_observed_layout.py``).
"""

# ruff: noqa: N806  (the letters of the docstring)

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.mdp.features import quantise
from pipeline.privacy.noise import LARGEST_SCALE
from pipeline.statistics.gram import Extent, exact_sums
from pipeline.statistics.layout import CardLayout, Sensitivity, Table
from pipeline.statistics.moment_layout import MomentLayout
from pipeline.statistics.private_sum import PrivateSum

# directions that the features leave out, in which the values are checked
DIRECTIONS = 12
# lattice steps of a feature's length, of what values are off by, and of all directions together
STEPS, OFF, ASIDE = 1 << 10, 1 << 9, 1 << 9
GRAM, BESIDE, FIRST = "b_gram", "b_beside", "b_first"
# of the budget of the moments
SHARES: Mapping[str, Fraction] = {GRAM: Fraction(2, 5), BESIDE: Fraction(11, 20), FIRST: Fraction(1, 20)}


@dataclass(frozen=True)
class Rows:
    """Rows of some people, n of them, in lattice steps as float64.

    ``step`` ``(n,)``: from 0.
    ``phi``, ``after`` ``(n, d)``: features of the action taken, and of the next one under the policy; 0 at an end.
    ``off`` ``(n,)``: error of the learner's values, in parts of the bound.
    ``aside`` ``(n, K)``: directions, each in -1 .. 1.
    ``first`` ``(e, d)``: of first observations, under the policy.
    """

    step: Integers
    phi: Array
    after: Array
    off: Array
    aside: Array
    first: Array


@dataclass(frozen=True)
class ObservedLayout(CardLayout):
    """See :class:`~pipeline.statistics.layout.Layout`; ``dimension``: d."""

    dimension: int

    @property
    def _long(self) -> int:
        """Length m F of the sum of a person's first features."""
        return self.card.unit.episodes_per_user * STEPS

    @property
    def tables(self) -> tuple[Table, ...]:
        """Gram matrices ``(H, d, d)``, vectors beside them ``(H, d, d + 1 + K)``, first features ``(d,)``."""
        H, d, m = self.card.domain.horizon, self.dimension, self.card.unit.episodes_per_user
        square = (self._long * STEPS) ** 2
        beside = self._long**2 * (STEPS**2 + OFF**2 + ASIDE**2)
        words = f"one row a step and episode, H = {H}, m = {m}, features at most F = {STEPS} long"

        def table(name: str, shape: tuple[int, ...], rule: str, times: int, alone: int) -> Table:
            one, two = alone, times * alone
            each = [Sensitivity(x, math.isqrt(x * math.prod(shape)) + 1, f"{rule}: {words}") for x in (two, one)]
            return Table(name, shape, f"1/{STEPS}²", *each, symmetric=name == GRAM)

        return (
            table(GRAM, (H, d, d), "H (m F²)², twice where replaced", 2, H * square),
            table(BESIDE, (H, d, d + 1 + DIRECTIONS), "H (m F X)², 4 times where replaced", 4, H * beside),
            table(FIRST, (d,), "(m F)², 4 times where replaced", 4, self._long**2),
        )

    def summed(self, rho: Fraction | None) -> PrivateSum:
        """The tables with their noise.

        ``rho``: zCDP; None: no noise (a baseline, simulation only).
        Raises ValueError if the noise would leave 64-bit integers.
        """
        if rho is None:
            return PrivateSum(self, tuple(t.mechanism() for t in self.tables))
        found = list[int]()
        for t in self.tables:
            # even: above a diagonal half of it is drawn
            found.append(2 * math.ceil(t.replace.l2_squared / (4 * rho * SHARES[t.name])))
            if found[-1] > LARGEST_SCALE**2:
                raise ValueError(f"{self.dataset}: noise leaves 64-bit integers; ask for more than {float(rho):g}")
        return PrivateSum(self, tuple(t.mechanism(v) for t, v in zip(self.tables, found, strict=True)))

    def add_up(self, rows: Rows) -> dict[str, Integers]:
        """Exact tables of some people: bounds and sums are in one place."""
        card, d = self.card, self.dimension
        most = card.unit.users_public * card.unit.episodes_per_user
        extent = Extent(most, STEPS**2, 1, STEPS)
        gram, beside, first = (np.zeros(t.shape, dtype=np.int64) for t in self.tables)
        off = np.rint(OFF * np.clip(np.nan_to_num(rows.off), -1.0, 1.0))
        x = np.concatenate([rows.after, off[:, None], quantise(rows.aside / math.sqrt(DIRECTIONS), ASIDE)], axis=1)
        for h in np.unique(rows.step).tolist():
            here = rows.step == h
            gram[h], sums = exact_sums(extent, rows.phi[here], np.ascontiguousarray(x[here].T))
            beside[h] = sums.T
        first += rows.first.astype(np.int64).sum(0)
        assert beside.shape[1] == d
        return {GRAM: gram, BESIDE: beside, FIRST: first}

    def extremes(self) -> Iterator[Rows]:
        """No person, and people whose rows are all alike and as long as possible."""
        H, d, m = self.card.domain.horizon, self.dimension, self.card.unit.episodes_per_user
        step, n = np.tile(np.arange(H), m), H * m
        none = np.zeros((0, d))
        yield Rows(step[:0], none, none, np.zeros(0), np.zeros((0, DIRECTIONS)), none)
        axes = np.eye(d) * STEPS
        for i, sign in itertools.product((0, d - 1), (1.0, -1.0)):
            phi, after = np.tile(axes[i], (n, 1)), np.tile(sign * axes[0], (n, 1))
            first = np.tile(sign * axes[i], (m, 1))
            yield Rows(step, phi, after, np.full(n, sign), np.full((n, DIRECTIONS), sign), first)


class CheckedLayout(MomentLayout):
    """Scores and many checks beside them."""

    def extremes(self) -> Iterator[Array]:
        """All scores at one end or in the middle: opposite ends of all are as far apart as any two people."""
        for end in (-1.0, 0.0, 1.0):
            yield np.full((1, self.scores), end)
