"""Continual counters: the running sum of integer vectors, seen only through noise.

A counter over T leaves is a linear map of the stream.  Two numbers say all about it:

``cost``
    squared length of what one leaf of length 1 moves, over everything that is ever released: a Gaussian of variance v
    in every released number is ``cost * Delta^2 / (2 v)``-zCDP for leaves that move by at most Delta, also when later
    leaves depend on earlier releases.
``error(t)``
    variance of the t-th running sum, in units of v.

====================  ====================  ==========================================  ===================
counter               cost                  error                                       T = 10^4: cost * max
====================  ====================  ==========================================  ===================
:class:`Messages`     1                     t                                           10 000
:class:`TreeCounter`  floor(log2 T) + 1     sum over the binary digits of t             182, averaged 102
square_root.py        sum of f_k^2          sum of f_k^2, k < t                         16
====================  ====================  ==========================================  ===================

Levels are counted with the logarithm to base 2, and for T sums, the last included.  Paper 000 counts ceil(log2 T):
right for its T - 1 sums, one short at powers of two when the sum of all T leaves is read as well (privacy.md §4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.noise import DataHandle, Integers, NoiseSource, RealDataError

Array = NDArray[np.float64]
Estimate = Literal["bottom-up", "plain"]


class CounterFullError(RuntimeError):
    """A leaf beyond the declared number: its noise is not paid for."""


class Counter(Protocol):
    """A running sum; see the module for ``cost`` and ``error``."""

    @property
    def cost(self) -> int:
        """Squared length of everything that a leaf of length 1 moves."""
        ...

    @property
    def leaves(self) -> int:
        """T, declared."""
        ...

    @property
    def seen(self) -> int:
        """Leaves added so far."""
        ...

    def error(self, t: int) -> float:
        """Variance of the sum of the first ``t`` leaves, in units of the noise's variance."""
        ...

    def add(self, leaf: Integers, leaves: int = 1) -> None:
        """Add the sum ``(n,)`` of the next leaves; raises :class:`CounterFullError` beyond the declared number.

        Sums between them are not read, so it does not matter to any later one where among them the sum lies.
        """
        ...

    def total(self) -> Array:
        """Sum of the leaves so far ``(n,)``, as released: the same until the next leaf."""
        ...


@dataclass(frozen=True)
class Lanes:
    """Noise of one released vector: consecutive entries of one variance each.

    Parameters
    ----------
    sizes, variances
        Entries and integer variance of each lane; variance 0 draws nothing (simulation only).
    data
        Handle of what the noise protects.
    """

    sizes: tuple[int, ...]
    variances: tuple[int, ...]
    noise: NoiseSource
    data: DataHandle

    def __post_init__(self) -> None:
        if 0 in self.variances and self.data.data_kind != "synthetic":
            raise RealDataError("a counter without noise is for simulations; this dataset is registered as real")
        self.noise.admit(self.data.data_kind)

    @property
    def length(self) -> int:
        """Entries of the vector."""
        return sum(self.sizes)

    def draw(self, rows: int, times: int = 1) -> Integers:
        """Fresh noise ``(rows, n)``; each row is the sum of so many draws, in one (simulation only).

        Sums of discrete Gaussians are nearly, not exactly, discrete Gaussian: below 10^-15 at the scales drawn here.
        """
        if times > 1 and self.data.data_kind != "synthetic":
            raise RealDataError("noise of several leaves in one draw is for simulations; this dataset is real")
        drawn = [
            self.noise.gaussian(rows * n, v * times, self.data) if v else np.zeros(rows * n, dtype=np.int64)
            for n, v in zip(self.sizes, self.variances, strict=True)
        ]
        return np.concatenate([x.reshape(rows, n) for x, n in zip(drawn, self.sizes, strict=True)], axis=1)


def levels(leaves: int) -> int:
    """Most nodes of the binary tree that one of ``leaves`` leaves lies in: floor(log2 T) + 1.

    >>> levels(1023), levels(1024)
    (10, 11)
    """
    if leaves < 1:
        raise ValueError(f"leaves must be at least 1; got {leaves}")
    return leaves.bit_length()


def node_variance(level: int, estimate: Estimate) -> float:
    """Variance of a node of 2^level leaves, in units of its own noise.

    Bottom-up: v_0 = 1 and 1/v_j = 1 + 1/(2 v_{j-1}), the node's noisy sum averaged with that of its two halves:
    2^j / (2^(j+1) - 1), the least of any linear unbiased estimate from the nodes complete by then.
    """
    return 1.0 if estimate == "plain" else 2**level / (2 ** (level + 1) - 1)


class TreeCounter:
    """Binary tree: every completed dyadic node is released once, with noise drawn once.

    Parameters
    ----------
    leaves
        T, declared.
    estimate
        ``bottom-up`` averages each node with its halves (post-processing); ``plain`` is paper 000's sum of nodes.
    """

    def __init__(self, leaves: int, lanes: Lanes, estimate: Estimate = "bottom-up") -> None:
        self.leaves, self.lanes = leaves, lanes
        self.estimate: Estimate = estimate
        self.cost, self.seen = levels(leaves), 0
        shape = levels(leaves), lanes.length
        self._sums, self._nodes = np.zeros(shape, dtype=np.int64), np.zeros(shape)

    def error(self, t: int) -> float:
        """Sum of :func:`node_variance` over the binary digits of ``t``."""
        return sum(node_variance(j, self.estimate) for j in range(t.bit_length()) if t >> j & 1)

    def add(self, leaf: Integers, leaves: int = 1) -> None:
        """See :class:`Counter`; a sum of several leaves lies in the first."""
        room(self.seen, self.leaves, leaves)
        self._next(leaf)
        for _ in range(leaves - 1):
            self._next(np.zeros_like(leaf))

    def _next(self, leaf: Integers) -> None:
        """Complete the nodes that end at this leaf, from the smallest up."""
        self.seen += 1
        top = (self.seen & -self.seen).bit_length() - 1
        # exact sums of the completed nodes: the leaf, with its left neighbours one level after the other
        exact = np.cumsum(np.vstack([leaf[None], self._sums[:top]]), axis=0)
        noisy = exact + self.lanes.draw(top + 1)
        node = noisy[0].astype(np.float64)
        for level in range(1, top + 1):
            own = noisy[level].astype(np.float64)
            halves = 0.0 if self.estimate == "plain" else 1 - node_variance(level, self.estimate)
            # written so that equal estimates average to themselves, to the last bit
            node = own + halves * (self._nodes[level - 1] + node - own)
        self._sums[:top], self._sums[top], self._nodes[top] = 0, exact[-1], node

    def total(self) -> Array:
        """See :class:`Counter`."""
        return self._nodes[[j for j in range(len(self._nodes)) if self.seen >> j & 1]].sum(0)


class Messages:
    """Noise in every leaf, added before anything is stored: what a server holds of local messages.

    Each leaf is private by itself, whoever reads the sum; ``cost`` is that of one message.
    """

    def __init__(self, leaves: int, lanes: Lanes) -> None:
        self.leaves, self.lanes, self.cost, self.seen = leaves, lanes, 1, 0
        self._sum = np.zeros(lanes.length, dtype=np.int64)

    def error(self, t: int) -> float:
        """One message's noise for each leaf."""
        return float(t)

    def add(self, leaf: Integers, leaves: int = 1) -> None:
        """See :class:`Counter`."""
        room(self.seen, self.leaves, leaves)
        self.seen += leaves
        self._sum += leaf + self.lanes.draw(1, leaves)[0]

    def total(self) -> Array:
        """See :class:`Counter`."""
        return self._sum.astype(np.float64)


def room(seen: int, declared: int, more: int = 1) -> None:
    """Refuse leaves after the last declared one."""
    if seen + more > declared:
        raise CounterFullError(f"this counter was declared for {declared} leaves, and all are in; declare more")
