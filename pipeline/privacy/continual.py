"""Counters that outlive their process: what is released when a leaf is in, and how a running sum is read off it.

A counter over T leaves releases *rows*: integer combinations of the integer leaves so far, each with exact noise of its
own, drawn once.  Nothing else has to be kept: the exact leaves stay with the curator, and every running sum is
post-processing of the noisy rows.  Given all rows before, a row is one Gaussian release whose mean a leaf moves by its
weight, so zCDP adds over rows, also where later leaves depend on earlier releases: a leaf that moves by at most Delta
costs ``cost * Delta^2 / (2 v)`` with ``cost`` the largest sum of squared weights of any one leaf.

==================  ==============================  =====================  ==========================================
counter             rows at leaf t                  cost                   running sum
==================  ==============================  =====================  ==========================================
:class:`Tree`       dyadic nodes that end at t      floor(log2 T) + 1      nodes averaged with what lies below them
:class:`Toeplitz`   sum over k of g_k x_{t-k}       sum of g_k^2, k < T    the rows, weighted by 1 / ((1 - q) g(q))
==================  ==============================  =====================  ==========================================

The variance of the t-th sum, in units of v, is ``error(t)``; ``cost * error(t)`` is its variance in units of that of
one release at the same budget: at most 43 (tree) and 8.7 (Toeplitz) for T = 365.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.counters import Lanes, levels, node_variance
from pipeline.privacy.noise import Integers
from pipeline.privacy.square_root import coefficients, decoder, squared_column

Array = NDArray[np.float64]
Kind = Literal["tree", "toeplitz"]


@dataclass(frozen=True)
class Row:
    """One released combination: ``weights`` of the leaves ``first``, ``first + 1``, ...; leaves count from 1."""

    first: int
    weights: tuple[int, ...]


class Continual(Protocol):
    """A counter as plain arithmetic; see the module."""

    @property
    def kind(self) -> Kind:
        """Name in recipes and ledgers."""
        ...

    @property
    def leaves(self) -> int:
        """T, declared."""
        ...

    @property
    def cost(self) -> int:
        """Largest sum of squared weights of one leaf over all rows."""
        ...

    @property
    def draws(self) -> int:
        """Rows in all."""
        ...

    def error(self, t: int) -> float:
        """Variance of the sum of the first ``t`` leaves, in units of a row's noise."""
        ...

    def rows(self, t: int) -> tuple[Row, ...]:
        """What is released when leaf ``t`` is in."""
        ...

    def total(self, t: int, noisy: Callable[[int], Integers]) -> Array:
        """Sum of the first ``t`` leaves ``(n,)`` from the noisy rows ``noisy(k) (rows(k), n)`` of each leaf so far."""
        ...


@dataclass(frozen=True)
class Tree:
    """Binary tree; a node is averaged with the estimates of its halves (variance-optimal, from below)."""

    leaves: int
    kind: Kind = "tree"

    @property
    def cost(self) -> int:
        """See :class:`Continual`: nodes that hold one leaf."""
        return levels(self.leaves)

    @property
    def draws(self) -> int:
        """See :class:`Continual`."""
        return 2 * self.leaves - self.leaves.bit_count()

    def error(self, t: int) -> float:
        """See :class:`Continual`."""
        return sum(node_variance(j, "bottom-up") for j in range(t.bit_length()) if t >> j & 1)

    def rows(self, t: int) -> tuple[Row, ...]:
        """See :class:`Continual`: nodes of 1, 2, 4, ... leaves that end at ``t``."""
        _within(t, self.leaves)
        return tuple(Row(t - 2**j + 1, (1,) * 2**j) for j in range(_top(t) + 1))

    def total(self, t: int, noisy: Callable[[int], Integers]) -> Array:
        """See :class:`Continual`.

        The recursion of :func:`~pipeline.privacy.counters.node_variance` in closed form: the estimate of a node of 2^j
        leaves is the sum of 2^i times the noisy nodes of 2^i leaves in it, over 2^(j+1) - 1.
        """
        parts: list[Array] = []
        end = t
        while end:
            top = _top(end)
            begin = end - 2**top
            nodes = (noisy(k) for k in range(begin + 1, end + 1))
            scaled = sum(2 ** np.arange(len(rows), dtype=np.int64) @ rows for rows in nodes)
            parts.append(np.asarray(scaled, dtype=np.float64) / (2 ** (top + 1) - 1))
            end = begin
        return np.sum(parts[::-1], axis=0)


@dataclass(frozen=True)
class Toeplitz:
    """Square-root factorisation on the integer lattice of square_root.py: one row a leaf."""

    leaves: int
    kind: Kind = "toeplitz"

    @property
    def cost(self) -> int:
        """See :class:`Continual`: that of the first leaf, which lies in every row."""
        return squared_column(self.leaves)

    @property
    def draws(self) -> int:
        """See :class:`Continual`."""
        return self.leaves

    def error(self, t: int) -> float:
        """See :class:`Continual`."""
        p = _decoder(self.leaves)[:t]
        return float(p @ p)

    def rows(self, t: int) -> tuple[Row, ...]:
        """See :class:`Continual`."""
        _within(t, self.leaves)
        return (Row(1, tuple(map(int, _coefficients(self.leaves)[:t][::-1]))),)

    def total(self, t: int, noisy: Callable[[int], Integers]) -> Array:
        """See :class:`Continual`."""
        p = _decoder(self.leaves)
        return np.asarray(sum(p[t - k] * noisy(k)[0] for k in range(1, t + 1)), dtype=np.float64)


def continual(kind: Kind, leaves: int) -> Continual:
    """The counter of a kind."""
    return Tree(leaves) if kind == "tree" else Toeplitz(leaves)


def squared_weights(rows: Sequence[Row]) -> int:
    """Largest sum of squared weights of one leaf over ``rows``: their cost if only they were released."""
    last = max((r.first + len(r.weights) for r in rows), default=1)
    squares = np.zeros(last, dtype=np.int64)
    for r in rows:
        squares[r.first : r.first + len(r.weights)] += np.square(np.array(r.weights, dtype=np.int64))
    return int(squares.max())


def exact_rows(rows: Sequence[Row], leaf: Callable[[int], Integers | None], size: int) -> Integers:
    """The rows before noise ``(len(rows), size)``; ``leaf(k)`` is None where leaf ``k`` is empty, and asked once."""
    sums = np.zeros((len(rows), size), dtype=np.int64)
    for k in range(min(r.first for r in rows), max(r.first + len(r.weights) for r in rows)):
        x = leaf(k)
        if x is not None:
            weights = [r.weights[k - r.first] if 0 <= k - r.first < len(r.weights) else 0 for r in rows]
            sums += np.array(weights, dtype=np.int64)[:, None] * x
    return sums


def drawn_rows(rows: Sequence[Row], leaf: Callable[[int], Integers | None], lanes: Lanes) -> Integers:
    """The rows as they are released ``(len(rows), lanes.length)``: each with noise of its own, drawn here and once."""
    return exact_rows(rows, leaf, lanes.length) + lanes.draw(len(rows))


def _top(t: int) -> int:
    """Level of the largest node that ends at ``t``."""
    return (t & -t).bit_length() - 1


def _within(t: int, leaves: int) -> None:
    if not 1 <= t <= leaves:
        raise ValueError(f"leaf {t} is not among the {leaves} that this counter was declared for")


@cache
def _coefficients(leaves: int) -> Integers:
    return coefficients(leaves)


@cache
def _decoder(leaves: int) -> Array:
    return decoder(coefficients(leaves))
