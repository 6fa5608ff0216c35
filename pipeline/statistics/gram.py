"""Exact integer sums of rows: Gram matrices and target vectors, a batch at a time, at the speed of float64 GEMM.

A product of integers below 2^53 is exact in float64 whatever the order of summation, so each batch is cut into blocks
short enough for that, multiplied by BLAS, and added in int64.  Memory does not depend on the number of rows.

Below the sums stands how far one person can move those of one step: replace-one, in squared integers.  A person has at
most one row f y (with its f f^T) a step and an episode, or none: absent, ended, or in the other half.
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
vectors: summing the worst cases would charge for a person who cannot exist (privacy.md §3, "joint sup").

A person who is added or removed moves ``||f||^4``, ``||f||^2`` and ``||f||^2``: the longest feature moves all three
most.
"""

# ruff: noqa: N806  (the letters of the paper)
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.mdp.features import FeatureMap
from pipeline.statistics.layout import Relation

_EXACT = 2**53
_SAFE = 2**62
# rows of one block that keep features and product in cache
_BLOCK = 16_384


@dataclass(frozen=True)
class Extent:
    """Largest integers that may enter a sum: declared, checked before any row is read.

    ``square``: F^2, bound on ``||f||^2``.
    ``weight``: W, largest weight.
    ``target``: largest absolute target.
    Raises OverflowError if a sum could leave 64-bit integers, or one row the exact range of float64.
    """

    rows: int
    square: int
    weight: int
    target: int

    def __post_init__(self) -> None:
        if self.rows * self._largest >= _SAFE:
            raise OverflowError(
                f"{self.rows} rows of products up to {self._largest} leave 64-bit integers; use a coarser lattice"
            )
        if self._largest >= _EXACT:
            raise OverflowError(f"a product of {self._largest} is not exact in float64; use a coarser lattice")

    @property
    def _largest(self) -> int:
        return self.weight * max(self.square, (int(self.square**0.5) + 1) * self.target, 1)

    @property
    def block(self) -> int:
        """Rows that may be multiplied at once: their sums stay below 2^53."""
        return max(1, min(_BLOCK, (_EXACT - 1) // self._largest))


def exact_sums(
    extent: Extent, features: Array, targets: Array, weights: Array | None = None
) -> tuple[Integers, Integers]:
    """Gram matrix and target sums of one batch.

    ``features`` ``(n, d)``: integers held as float64.
    ``targets`` ``(k, n)``: integers held as float64, one row a regression.
    ``weights`` ``(n,)``: integers as float64; None for all 1.
    Returns ``(d, d)`` and ``(k, d)`` int64.
    """
    d = features.shape[1]
    gram, sums = np.zeros((d, d), dtype=np.int64), np.zeros((len(targets), d), dtype=np.int64)
    for start in range(0, len(features), extent.block):
        part = slice(start, start + extent.block)
        f = np.ascontiguousarray(features[part], dtype=np.float64)
        wf = f if weights is None else f * weights[part, None]
        gram += (wf.T @ f).astype(np.int64)
        sums += (targets[:, part] @ wf).astype(np.int64)
    return gram, sums


def counted_sums(
    features: Integers, visits: Integers, targets: Integers, weights: Integers | None = None
) -> tuple[Integers, Integers]:
    """The same from counts: ``features (n, d)``, ``visits (n,)`` and summed ``targets (k, n)`` of each (s, a), int64.

    Wraps nowhere where :class:`Extent` allows the rows themselves.

    ``features`` ``(n, d)``: of each (s, a).
    ``visits`` ``(n,)``: rows of each (s, a).
    ``targets`` ``(k, n)``: summed targets of each (s, a), one row a regression.
    ``weights`` ``(n,)``: weight of each (s, a); None for all 1.
    Returns ``(d, d)`` and ``(k, d)`` int64.
    """
    w = visits if weights is None else visits * weights
    t = targets if weights is None else targets * weights
    # a log visits few of many declared pairs, and products of integers are slow
    visited = (w != 0) | t.any(axis=0)
    f = features[visited]
    return f.T @ (f * w[visited, None]), t[:, visited] @ f


def raise_eigenvalues(gram: Array, floor: float) -> tuple[Array, int]:
    """The nearest symmetric matrix whose eigenvalues are at least ``floor``, and how many were below; exact if none.

    ``gram`` ``(d, d)``: symmetric.
    ``floor``: least eigenvalue of the result; 0 or less changes nothing.
    """
    values, vectors = np.linalg.eigh(gram)
    below = values < floor
    if floor <= 0 or not below.any():
        return gram, 0
    return (vectors * np.maximum(values, floor)) @ vectors.T, int(below.sum())


# above this many distinct features the pairs are not enumerated: the ball's bound holds for any map
_ENUMERATED = 3000


@dataclass(frozen=True)
class Moves:
    """Enumerated moves of a finite feature map: the exact supremum.

    ``squares`` ``(3, n)``: squared lengths (Gram, signed, unsigned) of each replacement of one row.
    """

    squares: Integers
    episodes: int = 1
    alone: tuple[int, int, int] = (0, 0, 0)
    _cache: dict[tuple[Fraction, ...], Fraction] = field(
        default_factory=dict[tuple[Fraction, ...], Fraction], init=False, repr=False, compare=False
    )

    def cost(self, gram: Fraction, signed: Fraction, unsigned: Fraction, relation: Relation = "replace") -> Fraction:
        """Exact upper bound on ``gram * |move of Gram|^2 + signed * ... + unsigned * ...`` over all moves.

        Floats find the candidates, fractions decide.

        ``gram``, ``signed``, ``unsigned``: weights of the three squared lengths, each at least 0.
        """
        rates = gram, signed, unsigned
        if relation == "add_remove":
            return self.episodes**2 * _weighted(rates, self.alone)
        if rates not in self._cache:
            size = np.array([float(r) for r in rates]) @ self.squares.astype(np.float64)
            # twelve digits are far coarser than the rounding of a sum of three products
            near = np.unique(self.squares[:, size >= size.max() * (1 - 1e-12)], axis=1)
            self._cache[rates] = self.episodes**2 * max(_weighted(rates, point) for point in near.T)
        return self._cache[rates]


@dataclass(frozen=True)
class BallMoves:
    """Any features of ``||f||^2 <= square``, finite or not.

    With c = <f,g>/F^2, G the largest cost of the Gram matrix and v that of the vectors alone, the cost is at most
    ``G (1 - c^2) + v (1 + |c|) / 2``: G + v/2 + v^2/(16 G) at |c| = v/(4 G), or v once v > 4 G.  Shorter features
    cost less: with s^2 the ratio of the two squared norms and x = v/(2 G) <= 2, (1 - s^2)^2 + x (1 + s)^2 <= 2 + 2 x
    + x^2/2 wherever |c| is forced to 1 (s <= x/2), because it grows in s for x >= 1/2, ends at or below the bound,
    and is below 2 otherwise.

    ``square``: F^2, bound on a row's squared length, in squared integers.
    ``target``: N, where targets are vectors of ``|x|^2 <= N``: f x^T moves N times as far as f y does.
    """

    square: int
    episodes: int = 1
    target: int = 1

    def cost(self, gram: Fraction, signed: Fraction, unsigned: Fraction, relation: Relation = "replace") -> Fraction:
        """See :meth:`Moves.cost`; opposite features make unsigned targets as costly as signed ones."""
        if relation == "add_remove":
            return self.episodes**2 * (self.square**2 * gram + self.square * self.target * (signed + unsigned))
        G, v = 2 * self.square**2 * gram, 4 * self.square * self.target * (signed + unsigned)
        worst = v if v > 4 * G else G + v / 2 + (v * v / (16 * G) if G else 0)
        return self.episodes**2 * worst


# the set of moves that one person can make at one step
Reach = Moves | BallMoves


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
    """Moves of a finite map: every pair of declared (s, a), and every one against no row at all."""
    # the ball's bound needs no list of what lies in it
    if features.sample_of is not None or len(f := _distinct(features)) > _ENUMERATED:
        return BallMoves(features.square, episodes)
    n, inner, gram = _pairs(f)
    sum_of_squares = n[:, None] + n
    unsigned = np.maximum(np.maximum(n[:, None], n), sum_of_squares - 2 * inner)
    squares = np.stack([gram, sum_of_squares + 2 * np.abs(inner), unsigned])[:, *np.triu_indices(len(n))]
    longest = int(n.max())
    return Moves(np.unique(squares, axis=1), episodes, (longest**2, longest, longest))


def table_moves(features: FeatureMap, tag: int, reward: int, episodes: int = 1) -> Reach:
    """Moves of the one-shot release, as ``(gram, table, 0)``.

    A row adds f f^T and f x^T, where x holds ``tag`` in the column of its successor and a reward integer of absolute
    value at most ``reward`` in the last: ||x||^2 <= N = tag^2 + reward^2, and <x, x'> is at least -reward^2, at most
    N.  Of an observation x holds the successor's features, at most ``tag`` long and of any sign: the ball's bound.
    """
    N = tag**2 + reward**2
    if features.sample_of is not None or len(f := _distinct(features)) > _ENUMERATED:
        return BallMoves(features.square, episodes, N)
    n, inner, gram = _pairs(f)
    table = N * (n[:, None] + n) + 2 * np.where(inner >= 0, inner * reward**2, -inner * N)
    squares, longest = np.stack([gram, table, np.zeros_like(gram)])[:, *np.triu_indices(len(n))], int(n.max())
    return Moves(np.unique(squares, axis=1), episodes, (longest**2, N * longest, 0))


def largest(reach: Reach, which: int, relation: Relation = "replace") -> int:
    """The largest single move, rounded up: what one mechanism alone is charged.

    ``which``: 0 Gram, 1 signed, 2 unsigned targets.
    Returns squared integers.
    """
    gram, signed, unsigned = (Fraction(int(i == which)) for i in range(3))
    return math.ceil(reach.cost(gram, signed, unsigned, relation))
