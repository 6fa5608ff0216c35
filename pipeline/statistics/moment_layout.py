"""Sums over people of a few bounded scores each, of their squares, and of ones: means and variances of a log.

A person has J scores, integers k in [-b, b]: in parts of its clip, a score is y = k / b.  Of most b = L; of the ones
that are *halved* b = isqrt(L² / 2), so that two of these cost what one other costs.  By score are summed k and
r(k) - L/2, with r(k) = rint(k² / L), and of each person a one.  With sums and squares of one variance a replaced person
costs at most

    sum over scores of max (k - k')² + (r(k) - r(k'))² = 4 b²,

which opposite ends of the clip attain: there the squares agree.  A person who joins or leaves moves b² + (b²/L - L/2)²
of each score at most, which is 5/4 L² and L²/2, and the number of people by one.  Enumerated in
``tests/statistics/test_moment_layout.py``.
"""

# ruff: noqa: N806  (the letters of the docstring)

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.privacy.noise import LARGEST_SCALE
from pipeline.statistics.layout import Rates, Relation, Sensitivity, Table
from pipeline.statistics.private_sum import PrivateSum

# L: lattice steps of a clip
STEPS = 1 << 16
SUMS, SQUARES, PEOPLE = "b_sum", "b_square", "b_people"


def half(steps: int) -> int:
    """Lattice steps of the clip of a halved score."""
    return math.isqrt(steps * steps // 2)


def moments_cost(
    scores: int, steps: int, sums: Fraction, squares: Fraction, people: Fraction, of: Relation, halved: int = 0
) -> Fraction:
    """Exact largest ``sums |dΣk|² + squares |dΣr|² + people |dn|²`` of one person."""
    whole, short, L2 = scores - halved, half(steps), steps**2
    if of == "add_remove":
        # convex in k²: an end of the clip is the worst, or its middle
        each = max(sums * short**2 + squares * _square(short, steps) ** 2, squares * L2 / 4)
        return whole * L2 * (sums + squares / 4) + halved * each + people
    # at one weight opposite ends are the worst; a larger one of the squares is priced apart
    apart = squares if squares > sums else Fraction(0)
    return whole * L2 * (4 * sums + apart) + halved * (4 * sums * short**2 + apart * round(short**2 / steps) ** 2)


def _square(k: int, steps: int) -> int:
    return round(k * k / steps) - steps // 2


@dataclass(frozen=True)
class MomentLayout:
    """Sums, squares and people, bounded together."""

    dataset: str
    data_kind: str
    dynamics: str
    scores: int
    steps: int = STEPS
    halved: tuple[int, ...] = ()

    @property
    def lengths(self) -> Integers:
        """``(J,)`` lattice steps of each score's clip."""
        short = np.isin(np.arange(self.scores), self.halved)
        return np.where(short, half(self.steps), self.steps).astype(np.int64)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Sums, squares and people, each with its largest move alone."""
        J, L, h, short = self.scores, self.steps, len(self.halved), half(self.steps)
        long, top = J - h, round(short * short / self.steps)
        words = f"J = {J} scores a person in -L .. L, L = {L}" + (f", {h} of them in -{short} .. {short}" if h else "")
        square, line = long * L * L + h * short**2, long * L + h * short
        of, of_l1 = ("J", "J L") if not h else (f"({long} + {h}/2)", str(line))
        return (
            Table(
                SUMS,
                (J,),
                f"1/{L} of a score's clip",
                Sensitivity(4 * square, 2 * line, f"4 {of} L² (L2²), 2 {of_l1} (L1), {words}; squares are free beside"),
                Sensitivity(square, line, f"{of} L² (L2²), {of_l1} (L1), {words}"),
            ),
            Table(
                SQUARES,
                (J,),
                f"1/{L} of a squared clip, less a half a person",
                Sensitivity(long * L * L + h * top**2, long * L + h * top, f"largest squares (L2²; L1), {words}"),
                Sensitivity(J * L * L // 4, J * L // 2, f"J L²/4 (L2²), J L/2 (L1), {words}"),
            ),
            Table(
                PEOPLE,
                (1,),
                "people",
                Sensitivity(2, 2, "2 (L2², L1): one person is one; free where a person is replaced"),
                Sensitivity(1, 1, "1 (L2², L1): one person is one"),
            ),
        )

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        sums, squares, people = (rates.get(t.name, Fraction(0)) for t in self.tables)
        return moments_cost(self.scores, self.steps, sums, squares, people, relation, len(self.halved))

    def joint(self) -> dict[str, object]:
        halved = {"halved": len(self.halved)} if self.halved else {}
        return {"scores": self.scores, "steps": self.steps, **halved}

    def extremes(self) -> Iterator[Array]:
        """People whose scores lie at the ends and in the middle of their clips."""
        for ends in itertools.product((-1.0, 0.0, 1.0), repeat=self.scores):
            yield np.array([ends])

    def add_up(self, scores: Array) -> dict[str, Integers]:
        """Exact tables of some people: bounds and sums are in one place.

        ``scores`` ``(n, J)``: in parts of the clips, clipped to -1 .. 1.
        """
        k = np.rint(self.lengths * np.clip(scores, -1.0, 1.0)).astype(np.int64)
        squares = np.rint(k * k / self.steps).astype(np.int64) - self.steps // 2
        return {SUMS: k.sum(0), SQUARES: squares.sum(0), PEOPLE: np.array([len(k)], dtype=np.int64)}

    def summed(self, rho: Fraction | None) -> PrivateSum:
        """The three tables with their noise, squares and people free beside the sums.

        ``rho``: zCDP; None: no noise (a baseline, simulation only).
        Raises ValueError if the noise would leave 64-bit integers.
        """
        sums, squares, people = self.tables
        if rho is None:
            return PrivateSum(self, tuple(t.mechanism() for t in self.tables))
        variance = math.ceil(sums.replace.l2_squared / (2 * rho))
        if variance > LARGEST_SCALE**2:
            raise ValueError(f"{self.dataset}: noise leaves 64-bit integers; ask for more than rho = {float(rho):g}")
        heads = math.ceil(Fraction(variance, self.steps**2))
        return PrivateSum(self, (sums.mechanism(variance), squares.mechanism(variance), people.mechanism(heads)))
