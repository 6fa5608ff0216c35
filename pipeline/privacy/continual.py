"""The factorisations of continual releases: the binary tree and the square root of the running sums.

===================  ============================  ====================  ===========================  ================
factorisation        rows at step t                cost                  weights                      T = 10^4:
                                                                                                      cost * max error
===================  ============================  ====================  ===========================  ================
``Once``             the step                      1                     1                            10 000
:class:`Tree`        dyadic nodes that end at t    floor(log2 T) + 1     ``plain``: nodes of t        182
                                                                         ``bottom-up``: nodes with    102
                                                                         their halves
:class:`SquareRoot`  sum over k of g_k x_{t-k}     sum of g_k^2, k < T   of 1 / ((1 - q) g(q))        16
===================  ============================  ====================  ===========================  ================

Levels are counted with the logarithm to base 2, and for T sums, the last included.  Paper 000 counts ceil(log2 T):
right for its T - 1 sums, one short at powers of two when the sum of all T steps is read as well (privacy.md §4).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.factorisation import Factorisation, Kind, Row, check_step
from pipeline.privacy.noise import Integers

Array = NDArray[np.float64]
Estimate = Literal["bottom-up", "plain"]
# how options of online agents call what recipes call a kind
Mechanism = Literal["bottom-up", "plain", "square-root"]

# lattice points of g_0
_SCALE = 2**14


@dataclass(frozen=True)
class Tree(Factorisation):
    """Binary tree: a row is a dyadic node, released when it is complete (paper 000, Assumption 2).

    Parameters
    ----------
    estimate
        ``bottom-up`` averages each node with the estimates of its halves, the variance-optimal reading of the nodes
        complete by then; ``plain`` is paper 000's sum of nodes.
    """

    estimate: Estimate = "bottom-up"

    @property
    def kind(self) -> Kind:
        """See :class:`Factorisation`."""
        return "tree" if self.estimate == "bottom-up" else super().kind

    @property
    def draws(self) -> int:
        """See :class:`Factorisation`."""
        return 2 * self.steps - self.steps.bit_count()

    def cost_of(self, steps: int) -> int:
        """See :class:`Factorisation`: for each level, nodes full of the first steps, and one that has the rest."""
        cost = 0
        for level in range(self.steps.bit_length()):
            size = 2**level
            full, rest = divmod(min(steps, self.steps // size * size), size)
            cost += full * size**2 + rest**2
        return cost

    def error(self, t: int) -> float:
        """See :class:`Factorisation`: the sum of :func:`node_variance` over the binary digits of ``t``."""
        return sum(node_variance(j, self.estimate) for j in digits(t))

    def rows(self, t: int) -> tuple[Row, ...]:
        """See :class:`Factorisation`: nodes of 1, 2, 4, ... steps that end at ``t``."""
        check_step(t, self.steps)
        return tuple(Row(t - 2**j + 1, (1,) * 2**j) for j in range(largest_node(t) + 1))

    def weights(self, t: int) -> Array:
        """See :class:`Factorisation`.

        The recursion of :func:`node_variance` in closed form: the estimate of a node of 2^j steps is the sum of 2^i
        times the nodes of 2^i steps in it, over 2^(j+1) - 1.
        """
        found: list[float] = []
        begin = 0
        for top in reversed(digits(t)):
            for k in range(begin + 1, begin + 2**top + 1):
                within = range(min(top, largest_node(k - begin)) + 1)
                if self.estimate == "plain":
                    found += [float(i == top) for i in within]
                else:
                    found += [2**i / (2 ** (top + 1) - 1) for i in within]
            begin += 2**top
        return np.array(found)


@dataclass(frozen=True)
class SquareRoot(Factorisation):
    """The square root of the running sums (Fichtenberger, Henzinger, Upadhyay 2023): one row a step.

    The matrix A of running sums is L L, with L lower triangular, Toeplitz, first column f_0 = 1, f_k = f_{k-1} (2k-1) /
    (2k).  To stay on integers M is G with first column g_k = round(2^14 f_k), so ``cost`` is exact, and W = A G^-1 has
    the coefficients of the power series 1 / ((1 - q) g(q)): about f_k / 2^14, exactly unbiased.
    """

    @property
    def kind(self) -> Kind:
        """See :class:`Factorisation`."""
        return "toeplitz"

    @property
    def draws(self) -> int:
        """See :class:`Factorisation`."""
        return self.steps

    def cost_of(self, steps: int) -> int:
        """See :class:`Factorisation`: the first steps lie in every row."""
        sums = np.concatenate([[0], np.cumsum(coefficients(self.steps))])
        after = np.arange(1, self.steps + 1)
        moved = sums[after] - sums[np.maximum(after - steps, 0)]
        return int(moved @ moved)

    def error(self, t: int) -> float:
        """See :class:`Factorisation`."""
        p = _decoder(self.steps)[:t]
        return float(p @ p)

    def rows(self, t: int) -> tuple[Row, ...]:
        """See :class:`Factorisation`."""
        check_step(t, self.steps)
        return (Row(1, tuple(map(int, coefficients(self.steps)[:t][::-1]))),)

    def weights(self, t: int) -> Array:
        """See :class:`Factorisation`."""
        return _decoder(self.steps)[:t][::-1]


def continual(name: Kind | Mechanism, steps: int) -> Factorisation:
    """The factorisation of a name.

    Parameters
    ----------
    name
        ``tree`` or ``bottom-up``; ``plain``; ``toeplitz`` or ``square-root``.
    steps
        T, declared.
    """
    if name in ("toeplitz", "square-root"):
        return SquareRoot(steps)
    return Tree(steps, "plain" if name == "plain" else "bottom-up")


def levels(steps: int) -> int:
    """Most nodes of the binary tree that one of ``steps`` steps lies in: floor(log2 T) + 1.

    >>> levels(1023), levels(1024)
    (10, 11)
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1; got {steps}")
    return steps.bit_length()


def node_variance(level: int, estimate: Estimate) -> float:
    """Variance of a node of 2^level steps, in units of its own noise.

    Bottom-up: v_0 = 1 and 1/v_j = 1 + 1/(2 v_{j-1}), the node's noisy sum averaged with that of its two halves:
    2^j / (2^(j+1) - 1), the least of any linear unbiased estimate from the nodes complete by then.
    """
    return 1.0 if estimate == "plain" else 2**level / (2 ** (level + 1) - 1)


def digits(t: int) -> list[int]:
    """Binary digits of ``t``, smallest first: levels of the nodes whose sum is the first ``t`` steps."""
    return [j for j in range(t.bit_length()) if t >> j & 1]


def largest_node(t: int) -> int:
    """Level of the largest node that ends at step ``t``."""
    return (t & -t).bit_length() - 1


@cache
def coefficients(steps: int) -> Integers:
    """g_0 .. g_{T-1} ``(T,)``, rounded from exact binomials 2^14 binom(2k, k) / 4^k; read-only.

    >>> coefficients(3) / 2**14
    array([1.   , 0.5  , 0.375])
    """
    g, f = np.empty(steps, dtype=np.int64), Fraction(_SCALE)
    for k in range(steps):
        # 80 bits keep the recurrence exact to far below a rounding
        f = f if k == 0 else Fraction(round(f * Fraction(2 * k - 1, 2 * k) * 2**80), 2**80)
        g[k] = round(f)
    g.setflags(write=False)
    return g


@cache
def _decoder(steps: int) -> Array:
    """p_0 .. p_{T-1} ``(T,)``: weight of the noise that is k steps old in a running sum; read-only."""
    g, inverse = coefficients(steps), np.zeros(steps)
    inverse[0] = 1 / g[0]
    for k in range(1, steps):
        inverse[k] = -(g[k:0:-1] @ inverse[:k]) / g[0]
    p = np.cumsum(inverse)
    p.setflags(write=False)
    return p
