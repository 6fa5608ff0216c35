"""Sums over people of a few bounded scores each, of their squares, and of ones: means and variances of a log.

A person has J scores, integers k in [-L, L]: in parts of its clip, a score is y = k / L.  By score are summed k and
r(k) - L/2, with r(k) = rint(k² / L), and of each person a one.  With sums and squares of one variance a replaced person
costs at most

    J max (k - k')² + (r(k) - r(k'))² = 4 J L²,

which opposite ends of the clip attain: there the squares agree.  A person who joins or leaves moves J L² (1 + 1/4) of
these, and the number of people by one.  Enumerated in ``tests/statistics/test_moment_layout.py``.
"""

# ruff: noqa: N806  (the letters of the docstring)

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.noise import LARGEST_SCALE
from pipeline.statistics.layout import Integers, Rates, Relation, Sensitivity, Table
from pipeline.statistics.private_sum import PrivateSum

Array = NDArray[np.float64]
# L: lattice steps of a clip
STEPS = 1 << 16
SUMS, SQUARES, PEOPLE = "b_sum", "b_square", "b_people"


def moments_cost(
    scores: int, steps: int, sums: Fraction, squares: Fraction, people: Fraction, of: Relation
) -> Fraction:
    """Exact largest ``sums |dΣk|² + squares |dΣr|² + people |dn|²`` of one person.

    Parameters
    ----------
    scores, steps
        J and L.
    sums, squares, people
        Weights of the three tables.
    of
        ``replace`` one person by another, or ``add_remove`` one.
    """
    if of == "add_remove":
        return scores * steps**2 * (sums + squares / 4) + people
    # at one weight opposite ends are the worst; a larger one of the squares is priced apart
    return scores * steps**2 * (4 * sums + (squares if squares > sums else 0))


@dataclass(frozen=True)
class MomentLayout:
    """See :class:`~pipeline.statistics.layout.Layout`: sums, squares and people, bounded together.

    Parameters
    ----------
    dataset, data_kind
        Name of the lineage, and ``real`` or ``synthetic`` as registered.
    dynamics
        Of the card.
    scores
        J, scores a person.
    steps
        L, even.
    """

    dataset: str
    data_kind: str
    dynamics: str
    scores: int
    steps: int = STEPS

    @property
    def tables(self) -> tuple[Table, ...]:
        """Sums, squares and people, each with the largest move that it has alone."""
        J, L = self.scores, self.steps
        words = f"J = {J} scores a person in -L .. L, L = {L}"
        return (
            Table(
                SUMS,
                (J,),
                f"1/{L} of a score's clip",
                Sensitivity(4 * J * L * L, 2 * J * L, f"4 J L² (L2²), 2 J L (L1), {words}; squares are free beside"),
                Sensitivity(J * L * L, J * L, f"J L² (L2²), J L (L1), {words}"),
            ),
            Table(
                SQUARES,
                (J,),
                f"1/{L} of a squared clip, less a half a person",
                Sensitivity(J * L * L, J * L, f"J L² (L2²), J L (L1), {words}"),
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
        """See :class:`~pipeline.statistics.layout.Layout`."""
        sums, squares, people = (rates.get(t.name, Fraction(0)) for t in self.tables)
        return moments_cost(self.scores, self.steps, sums, squares, people, relation)

    def joint(self) -> dict[str, object]:
        """See :class:`~pipeline.statistics.layout.Layout`."""
        return {"scores": self.scores, "steps": self.steps}

    def extremes(self) -> Iterator[Array]:
        """People whose scores lie at the ends and in the middle of their clips."""
        for ends in itertools.product((-1.0, 0.0, 1.0), repeat=self.scores):
            yield np.array([ends])

    def add_up(self, scores: Array) -> dict[str, Integers]:
        """Exact tables of some people: what is bounded here is what is summed here.

        Parameters
        ----------
        scores
            ``(n, J)`` in parts of the clips; what is beyond -1 or 1 is cut.
        """
        k = np.rint(self.steps * np.clip(scores, -1.0, 1.0)).astype(np.int64)
        squares = np.rint(k * k / self.steps).astype(np.int64) - self.steps // 2
        return {SUMS: k.sum(0), SQUARES: squares.sum(0), PEOPLE: np.array([len(k)], dtype=np.int64)}

    def summed(self, rho: Fraction | None) -> PrivateSum:
        """The three tables with their noise, squares and people free beside the sums.

        Parameters
        ----------
        rho
            zCDP; None: no noise (a baseline, simulation only).

        Raises
        ------
        ValueError
            If the noise would leave 64-bit integers.
        """
        sums, squares, people = self.tables
        if rho is None:
            return PrivateSum(self, tuple(t.mechanism() for t in self.tables))
        variance = math.ceil(2 * self.scores * self.steps**2 / rho)
        if variance > LARGEST_SCALE**2:
            raise ValueError(f"{self.dataset}: noise leaves 64-bit integers; ask for more than rho = {float(rho):g}")
        heads = math.ceil(Fraction(variance, self.steps**2))
        return PrivateSum(self, (sums.mechanism(variance), squares.mechanism(variance), people.mechanism(heads)))
