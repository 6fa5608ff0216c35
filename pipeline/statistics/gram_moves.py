"""How far one person can move the sums of one step of a linear regression: replace-one, in squared integers.

A person has at most one row f y (with its f f^T) a step and an episode, or none: absent, ended, or in the other half.
The moves of a replacement, for |y| <= 1 and weights in [0, 1], are three squared lengths that must be bounded
*jointly*:

============  ==========================================  ===========================================
move          what moves                                  squared length, for features f and g
============  ==========================================  ===========================================
``gram``      f f^T, Frobenius (= Euclid in svec)         ||f||^4 + ||g||^4 - 2 <f,g>^2
``signed``    f y, targets of both signs (centred)        ||f||^2 + ||g||^2 + 2 |<f,g>|
``unsigned``  f y, targets in [0, 1]                      max(||f - g||^2, ||f||^2, ||g||^2)
============  ==========================================  ===========================================

Each is attained at weights and targets on the ends of their ranges: a move is linear in (w, w y), whose extreme points
these are, and a squared norm is convex.  Orthogonal f, g move the Gram matrix most, equal or opposite ones the
vectors: adding the worst cases up charges for a person who does not exist (privacy.md §3, "joint sup").

Somebody who comes or goes moves ``||f||^4``, ``||f||^2`` and ``||f||^2``: the longest feature moves all three most.
"""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.features import FeatureMap
from pipeline.statistics.layout import Relation

Integers = NDArray[np.int64]

# above this many distinct features the pairs are not enumerated: the ball's bound holds for any map
_ENUMERATED = 3000


class Reach(Protocol):
    """The set of moves one person can make at one step."""

    def cost(self, gram: Fraction, signed: Fraction, unsigned: Fraction, relation: Relation = "replace") -> Fraction:
        """Exact upper bound on ``gram * |move of Gram|^2 + signed * ... + unsigned * ...`` over all moves.

        Parameters
        ----------
        gram, signed, unsigned
            Weights of the three squared lengths, each at least 0.
        relation
            Which moves: of a replacement, or of somebody who comes or goes.
        """
        ...


@dataclass(frozen=True)
class Moves:
    """Enumerated moves of a finite feature map: the exact supremum.

    Parameters
    ----------
    squares
        ``(3, n)``: squared lengths (Gram, signed, unsigned) of each replacement of one row.
    episodes
        m: rows of a person at one step; moves are multiplied by it.
    alone
        The same three for the longest row, which comes or goes.
    """

    squares: Integers
    episodes: int = 1
    alone: tuple[int, int, int] = (0, 0, 0)

    def cost(self, gram: Fraction, signed: Fraction, unsigned: Fraction, relation: Relation = "replace") -> Fraction:
        """See :class:`Reach`; floats find the candidates, fractions decide."""
        rates = gram, signed, unsigned
        if relation == "add_remove":
            return self.episodes**2 * _weighted(rates, self.alone)
        size = np.array([float(r) for r in rates]) @ self.squares.astype(np.float64)
        # twelve digits are far coarser than the rounding of a sum of three products
        near = np.unique(self.squares[:, size >= size.max() * (1 - 1e-12)], axis=1)
        return self.episodes**2 * max(_weighted(rates, point) for point in near.T)


@dataclass(frozen=True)
class BallMoves:
    """Any features of ``||f||^2 <= square``, finite or not.

    With c = <f,g>/F^2, G the largest cost of the Gram matrix and v that of the vectors alone, the cost is at most
    ``G (1 - c^2) + v (1 + |c|) / 2``: G + v/2 + v^2/(16 G) at |c| = v/(4 G), or v once v > 4 G.  Shorter features
    cost less: with s^2 the ratio of the two squared norms and x = v/(2 G) <= 2, (1 - s^2)^2 + x (1 + s)^2 <= 2 + 2 x
    + x^2/2 wherever |c| is forced to 1 (s <= x/2), because it grows in s for x >= 1/2, ends at or below the bound,
    and is below 2 otherwise.

    Parameters
    ----------
    square
        F^2, bound on a row's squared length, in squared integers.
    episodes
        m: rows of a person at one step.
    target
        N, where targets are vectors of ``|x|^2 <= N``: f x^T moves N times as far as f y does.
    """

    square: int
    episodes: int = 1
    target: int = 1

    def cost(self, gram: Fraction, signed: Fraction, unsigned: Fraction, relation: Relation = "replace") -> Fraction:
        """See :class:`Reach`; opposite features make unsigned targets as costly as signed ones."""
        if relation == "add_remove":
            return self.episodes**2 * (self.square**2 * gram + self.square * self.target * (signed + unsigned))
        G, v = 2 * self.square**2 * gram, 4 * self.square * self.target * (signed + unsigned)
        worst = v if v > 4 * G else G + v / 2 + (v * v / (16 * G) if G else 0)
        return self.episodes**2 * worst


def _weighted(rates: tuple[Fraction, ...], squares: Iterable[int]) -> Fraction:
    return sum((r * int(x) for r, x in zip(rates, squares, strict=True)), Fraction(0))


def _distinct(features: FeatureMap) -> Integers:
    return np.unique(features.integers.reshape(-1, features.dimension), axis=0)


def _pairs(f: Integers) -> tuple[Integers, Integers, Integers]:
    """Squared lengths of features ``(n, d)`` and of no row at all, inner products, and moves of the Gram matrix."""
    f = np.vstack([f, np.zeros((1, f.shape[1]), dtype=np.int64)])
    inner = f @ f.T
    n = np.diag(inner)
    return n, inner, n[:, None] ** 2 + n**2 - 2 * inner**2


def moves(features: FeatureMap, episodes: int = 1) -> Reach:
    """Moves of a finite map: every pair of declared (s, a), and every one against no row at all.

    Parameters
    ----------
    features
        The declared map; where it has more distinct rows than can be enumerated, or is one of observations, the
        ball's bound is taken.
    episodes
        m: rows of a person at one step.
    """
    f = _distinct(features)
    if len(f) > _ENUMERATED or features.sample_of is not None:
        return BallMoves(features.square, episodes)
    n, inner, gram = _pairs(f)
    both = n[:, None] + n
    unsigned = np.maximum(np.maximum(n[:, None], n), both - 2 * inner)
    found = np.stack([gram, both + 2 * np.abs(inner), unsigned])[:, *np.triu_indices(len(n))]
    longest = int(n.max())
    return Moves(np.unique(found, axis=1), episodes, (longest**2, longest, longest))


def table_moves(features: FeatureMap, tag: int, reward: int, episodes: int = 1) -> Reach:
    """Moves of the one-shot release, as ``(gram, table, 0)``.

    A row adds f f^T and f x^T, where x holds ``tag`` in the column of its successor and a reward integer of absolute
    value at most ``reward`` in the last: ||x||^2 <= N = tag^2 + reward^2, and <x, x'> is at least -reward^2, at most
    N.  Of an observation x holds the successor's features, at most ``tag`` long and of any sign: the ball's bound.
    """
    f, N = _distinct(features), tag**2 + reward**2
    if len(f) > _ENUMERATED or features.sample_of is not None:
        return BallMoves(features.square, episodes, N)
    n, inner, gram = _pairs(f)
    table = N * (n[:, None] + n) + 2 * np.where(inner >= 0, inner * reward**2, -inner * N)
    found, longest = np.stack([gram, table, np.zeros_like(gram)])[:, *np.triu_indices(len(n))], int(n.max())
    return Moves(np.unique(found, axis=1), episodes, (longest**2, N * longest, 0))


def largest(reach: Reach, which: int, relation: Relation = "replace") -> int:
    """The largest single move, rounded up: what one mechanism alone is charged.

    Parameters
    ----------
    reach
        What one person can do at one step.
    which
        0 Gram, 1 signed, 2 unsigned targets.
    relation
        Of a replacement, or of somebody who comes or goes.

    Returns
    -------
    Squared integers.
    """
    gram, signed, unsigned = (Fraction(int(i == which)) for i in range(3))
    return math.ceil(reach.cost(gram, signed, unsigned, relation))
