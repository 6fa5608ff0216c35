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

A *window* of N steps takes all rows of more than N steps out: each sum is that of the last N steps, the steps before
are forgotten, and the cost no longer grows with T.  A window of one step releases every step by itself.

================================  =============================  ====================================================
window of N steps                 cost                           weights
================================  =============================  ====================================================
:class:`Tree`                     floor(log2 N) + 1              fewest nodes that make up the window
:class:`SquareRoot`               sum of g_k^2, k < N            of (1 - q^N) / ((1 - q) g(q)), g cut after N terms
================================  =============================  ====================================================

Cut, g decreases from its first term on, so 1 / g(q) converges (Enestrom and Kakeya), and old noise dies out.

Levels are counted with the logarithm to base 2, and for T sums, the last included.  Paper 000 counts ceil(log2 T):
right for its T - 1 sums, one short at powers of two when the sum of all T steps is read as well (privacy.md §4).

A release over T steps publishes *rows*: integer combinations of the integer steps so far, each with exact noise of its
own, drawn once.  The matrix A of running sums is factored as A = W M: M holds the rows, W the weights.  Given all rows
before, a row is one Gaussian release whose mean a step moves by its weight, so zCDP adds over rows, also where later
steps depend on earlier releases.  Two numbers describe a factorisation:

``cost``
    largest squared length of a column of M: Gaussian noise of variance v in every row is ``cost * Delta^2 / (2 v)``-
    zCDP for a person who is in one step and moves it by at most Delta.
``error(t)``
    squared length of the t-th row of W: variance of the sum of the first t steps, in units of v.

``RunningSum``, of online agents in simulated worlds, keeps the exact sum and the noise of the rows, and returns
sum + W z: the same numbers as W (M x + z), for A = W M, but not computed from M x + z alone.  So it makes the claim of
the protocol that it simulates, and refuses data registered as real; a release of real data draws rows
(:func:`draw_rows`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Literal

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.privacy.noise import DataHandle, NoiseSource, RealDataError

# names of the two nightly counters in recipes, JSON and ledgers; keys hash them, so they never change
Kind = Literal["tree", "toeplitz"]


@dataclass(frozen=True)
class Row:
    """One released combination of steps.

    ``first``: the earliest step in it; steps count from 1.
    ``weights``: integer weights of the steps ``first``, ``first + 1``, ...
    """

    first: int
    weights: tuple[int, ...]


@dataclass(frozen=True)
class Factorisation(ABC):
    """A = W M as plain arithmetic; see the module.

    ``steps``: T, declared: at least 1.
    ``window``: number of the last steps that a sum is of; None: all so far.
    """

    steps: int
    window: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1; got {self.steps}")
        if self.window is not None and not 1 <= self.window <= self.steps:
            raise ValueError(f"a window has at least one of the {self.steps} steps, and no more; got {self.window}")

    @property
    def longest(self) -> int:
        """Largest number of steps of a sum."""
        return self.window or self.steps

    @property
    def kind(self) -> Kind:
        """Name in recipes, JSON and ledgers.

        Raises ValueError if no nightly release may use it.
        """
        raise ValueError("only the bottom-up tree and the square-root factorisation keep nights")

    @property
    def cost(self) -> int:
        """Squared length by which all rows together move when a person moves one step by 1."""
        return self.cost_of(1)

    @property
    @abstractmethod
    def draws(self) -> int:
        """Number of rows in all."""

    @abstractmethod
    def cost_of(self, steps: int) -> int:
        """Largest squared length by which all rows together move when a person moves each of so many steps by 1.

        Weights are at least 0, so the worst are the moves in one direction; the columns of the first steps are the
        longest and overlap most, so the worst steps are the first ones (enumerated in the tests).

        ``steps``: number of different steps, 1 to T.
        """

    @abstractmethod
    def error(self, t: int) -> float:
        """Variance of the sum at step ``t``, in units of a row's noise: squared length of its weights."""

    @abstractmethod
    def rows(self, t: int) -> tuple[Row, ...]:
        """Rows that are released at step ``t``.

        Raises ValueError if ``t`` is not in 1 .. T.
        """

    @abstractmethod
    def weights(self, t: int) -> Array:
        """Weights ``(R,)`` of the R rows of steps 1 .. ``t``, in their order, in the sum at step ``t``."""

    def total(self, t: int, noisy: Callable[[int], Integers]) -> Array:
        """Sum at step ``t`` ``(n,)``, read off the released rows; post-processing.

        ``noisy``: from a step k to its released rows ``(len(rows(k)), n)``; called once for each, in order.
        """
        weights = self.weights(t)
        total, position = np.zeros(1), 0
        for k in range(1, t + 1):
            step_rows = noisy(k)
            total = total + weights[position : position + len(step_rows)] @ step_rows
            position += len(step_rows)
        return total


@dataclass(frozen=True)
class Once(Factorisation):
    """Every step is released by itself: one release where T = 1, else local messages or batches of other people.

    A neighbour must stay in their step: rows of different steps do not overlap, so a record that moves to another step
    can move more than one that is replaced in place (which the rows of the other factorisations exclude).
    """

    @property
    def draws(self) -> int:
        return self.steps

    def cost_of(self, steps: int) -> int:
        """A release a step."""
        return steps

    def error(self, t: int) -> float:
        """The noise of every step."""
        return float(t)

    def rows(self, t: int) -> tuple[Row, ...]:
        check_step(t, self.steps)
        return (Row(t, (1,)),)

    def weights(self, t: int) -> Array:
        return np.ones(t)


@dataclass(frozen=True)
class NoiseBlocks:
    """Noise of one released vector: consecutive blocks of entries, one variance each.

    ``sizes``, ``variances``: entries, and integer variance, of each block, in squared lattice steps; variance 0 draws
    nothing (simulation only).
    Raises RealDataError if the data is registered as real and a block has no noise, or the noise is not the operating
    system's.
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
        """Entries of the vector, n."""
        return sum(self.sizes)

    def draw(self, rows: int, times: int = 1) -> Integers:
        """Fresh noise ``(rows, n)``, one call of the source a block.

        ``times``: each row is the sum of so many draws, in one (simulation only).  Sums of discrete Gaussians are
        nearly, not exactly, discrete Gaussian: below 10^-15 at the scales drawn here.
        """
        if times > 1 and self.data.data_kind != "synthetic":
            raise RealDataError("noise of several leaves in one draw is for simulations; this dataset is real")
        drawn = [
            self.noise.gaussian(rows * n, v * times, self.data) if v else np.zeros(rows * n, dtype=np.int64)
            for n, v in zip(self.sizes, self.variances, strict=True)
        ]
        return np.concatenate([x.reshape(rows, n) for x, n in zip(drawn, self.sizes, strict=True)], axis=1)


def squared_weights(rows: Sequence[Row]) -> int:
    """Largest sum of squared weights of one step over ``rows``: their cost if only they were released."""
    last = max((r.first + len(r.weights) for r in rows), default=1)
    squares = np.zeros(last, dtype=np.int64)
    for r in rows:
        squares[r.first : r.first + len(r.weights)] += np.square(np.array(r.weights, dtype=np.int64))
    return int(squares.max())


def exact_rows(rows: Sequence[Row], step: Callable[[int], Integers | None], size: int) -> Integers:
    """The rows before noise ``(len(rows), size)``; ``step(k)``, called once, is None where step ``k`` is empty."""
    sums = np.zeros((len(rows), size), dtype=np.int64)
    for k in range(min(r.first for r in rows), max(r.first + len(r.weights) for r in rows)):
        x = step(k)
        if x is not None:
            weights = [r.weights[k - r.first] if 0 <= k - r.first < len(r.weights) else 0 for r in rows]
            sums += np.array(weights, dtype=np.int64)[:, None] * x
    return sums


def draw_rows(rows: Sequence[Row], step: Callable[[int], Integers | None], blocks: NoiseBlocks) -> Integers:
    """The released rows, each with independent noise that is drawn here, once.

    ``step``: from a step k to its exact integers ``(n,)``, None where it is empty.
    Returns integers: ``(len(rows), blocks.length)``.
    """
    if not rows:
        return np.zeros((0, blocks.length), dtype=np.int64)
    return exact_rows(rows, step, blocks.length) + blocks.draw(len(rows))


def check_step(t: int, steps: int) -> None:
    """Refuse a step that was not declared."""
    if not 1 <= t <= steps:
        raise ValueError(f"leaf {t} is not among the {steps} that this counter was declared for")


Estimate = Literal["bottom-up", "plain"]
# names of the kinds in options of online agents
Mechanism = Literal["bottom-up", "plain", "square-root"]

# lattice points of g_0
_SCALE = 2**14


@dataclass(frozen=True)
class Tree(Factorisation):
    """Binary tree: a row is a dyadic node, released when it is complete (paper 000, Assumption 2).

    ``estimate``: ``bottom-up`` averages each node with the estimates of its halves, the variance-optimal reading of the
    nodes complete by then; ``plain`` is paper 000's sum of nodes.
    """

    estimate: Estimate = "bottom-up"

    @property
    def kind(self) -> Kind:
        return "tree" if self.estimate == "bottom-up" else super().kind

    @property
    def draws(self) -> int:
        return sum(self.steps >> level for level in range(levels(self.longest)))

    def cost_of(self, steps: int) -> int:
        """For each level, nodes full of the first steps, and one that has the rest."""
        cost = 0
        for level in range(levels(self.longest)):
            size = 2**level
            full, rest = divmod(min(steps, self.steps // size * size), size)
            cost += full * size**2 + rest**2
        return cost

    def error(self, t: int) -> float:
        """The sum of :func:`node_variance` over the nodes that make up the sum."""
        # the order of versions before windows: sums of floats depend on it
        return sum(node_variance(j, self.estimate) for j in reversed(self._levels(t)))

    def _levels(self, t: int) -> list[int]:
        """Levels of the nodes that make up the sum at step ``t``, the oldest first."""
        position, node_levels = max(0, t - self.longest), list[int]()
        while position < t:
            # the largest that begins here
            largest = (t - position).bit_length() - 1
            node_levels.append(largest if position == 0 else min(largest, largest_node(position)))
            position += 2 ** node_levels[-1]
        return node_levels

    def rows(self, t: int) -> tuple[Row, ...]:
        """Nodes of 1, 2, 4, ... steps that end at ``t``."""
        check_step(t, self.steps)
        return tuple(Row(t - 2**j + 1, (1,) * 2**j) for j in range(self._nodes(t)))

    def _nodes(self, t: int) -> int:
        return min(largest_node(t) + 1, levels(self.longest))

    def weights(self, t: int) -> Array:
        """See :class:`Factorisation`.

        The recursion of :func:`node_variance` in closed form: the estimate of a node of 2^j steps is the sum of 2^i
        times the nodes of 2^i steps in it, over 2^(j+1) - 1.
        """
        begin = max(0, t - self.longest)
        # rows before the window have weight 0
        weights = [0.0] * sum(self._nodes(k) for k in range(1, begin + 1))
        for top in self._levels(t):
            for k in range(begin + 1, begin + 2**top + 1):
                within = min(top, largest_node(k - begin)) + 1
                if self.estimate == "plain":
                    weights += [float(i == top) for i in range(within)]
                else:
                    weights += [2**i / (2 ** (top + 1) - 1) for i in range(within)]
                # the node that ends here may begin before the window
                weights += [0.0] * (self._nodes(k) - within)
            begin += 2**top
        return np.array(weights)


@dataclass(frozen=True)
class SquareRoot(Factorisation):
    """The square root of the running sums (Fichtenberger, Henzinger, Upadhyay 2023): one row a step.

    The matrix A of running sums is L L, with L lower triangular, Toeplitz, first column f_0 = 1, f_k = f_{k-1} (2k-1) /
    (2k).  To stay on integers M is G with first column g_k = round(2^14 f_k), so ``cost`` is exact, and W = A G^-1 has
    the coefficients of the power series 1 / ((1 - q) g(q)): about f_k / 2^14, exactly unbiased.
    """

    @property
    def kind(self) -> Kind:
        return "toeplitz"

    @property
    def draws(self) -> int:
        return self.steps

    def cost_of(self, steps: int) -> int:
        """The first steps lie in every row, or in those of a window, and overlap most."""
        sums = np.concatenate([[0], np.cumsum(_cut(self.steps, self.longest))])
        after = np.arange(1, self.steps + 1)
        moved = sums[after] - sums[np.maximum(after - steps, 0)]
        return int(moved @ moved)

    def error(self, t: int) -> float:
        p = _decoder(self.steps, self.longest)[:t]
        return float(p @ p)

    def rows(self, t: int) -> tuple[Row, ...]:
        check_step(t, self.steps)
        held = min(t, self.longest)
        return (Row(t - held + 1, tuple(map(int, coefficients(self.steps)[:held][::-1]))),)

    def weights(self, t: int) -> Array:
        return _decoder(self.steps, self.longest)[:t][::-1]


def continual(name: Kind | Mechanism, steps: int, window: int | None = None) -> Factorisation:
    """The factorisation of a name; ``window`` as in :class:`Factorisation`."""
    if name in ("toeplitz", "square-root"):
        return SquareRoot(steps, window=window)
    return Tree(steps, "plain" if name == "plain" else "bottom-up", window=window)


def each_night(steps: int) -> Factorisation:
    """Every step by itself: a window of one."""
    return Tree(steps, window=1)


def levels(steps: int) -> int:
    """Largest number of nodes of the binary tree that one of ``steps`` steps lies in: floor(log2 T) + 1.

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


def _cut(steps: int, longest: int) -> Integers:
    """:func:`coefficients` ``(T,)``, 0 from the ``longest`` one on."""
    return np.where(np.arange(steps) < longest, coefficients(steps), 0)


@cache
def _decoder(steps: int, longest: int) -> Array:
    """p_0 .. p_{T-1} ``(T,)``: weight of the noise that is k steps old in a sum of the last ones; read-only."""
    g, inverse = _cut(steps, longest), np.zeros(steps)
    inverse[0] = 1 / g[0]
    for k in range(1, steps):
        inverse[k] = -(g[k:0:-1] @ inverse[:k]) / g[0]
    p = np.cumsum(inverse)
    p[longest:] -= p[: steps - longest].copy()
    p.setflags(write=False)
    return p


class CounterFullError(RuntimeError):
    """A step beyond the declared number: its noise is not paid for."""


@dataclass(frozen=True)
class LazyTree:
    """The binary tree over people, read after declared batches of them only: a step is a batch; simulations.

    Same nodes, same noise and same cost as :class:`Tree` over as many people: noise that is never read is not drawn, or
    drawn together, so a tree over 10^8 people takes some hundreds of draws.  A node in which no sum was ever read has
    an estimate whose noise is one Gaussian of :func:`node_variance`; in the others the halves keep the noise they were
    read with.

    ``ends``: increasing: people seen after each batch; the last is the number of leaves.  Declared.
    """

    ends: tuple[int, ...]
    estimate: Estimate = "bottom-up"

    def __post_init__(self) -> None:
        if any(b <= a for a, b in zip((0, *self.ends), self.ends, strict=False)):
            raise ValueError("batches must end one after the other, each with at least one person")

    @property
    def steps(self) -> int:
        """Number of batches."""
        return len(self.ends)

    @property
    def cost(self) -> int:
        """Squared length by which one person of length 1 moves all nodes: the number of nodes that hold them."""
        return levels(self.ends[-1])

    @property
    def draws(self) -> int:
        """Number of nodes of the whole tree, most of them never drawn."""
        return 2 * self.ends[-1] - self.ends[-1].bit_count()

    def error(self, t: int) -> float:
        """Variance of the sum of ``t`` batches, in units of a node's noise."""
        return sum(node_variance(j, self.estimate) for j in digits(self.ends[t - 1] if t else 0))


# the times at which sums are released, as far as a price or an error bound depends on them
Time = Factorisation | LazyTree


class RunningSum:
    """The noisy sum of integer steps so far; simulations only.

    Raises RealDataError if the noise protects data registered as real.
    """

    def __init__(self, time: Time, blocks: NoiseBlocks) -> None:
        if blocks.data.data_kind != "synthetic":
            raise RealDataError("running sums of agents are for simulations; this dataset is registered as real")
        self.time, self.blocks, self.seen = time, blocks, 0
        self._sum, self._noise = np.zeros(blocks.length, dtype=np.int64), _noise_of(time, blocks)

    @property
    def error(self) -> float:
        """Variance of the sum now, in units of a row's noise."""
        return self.time.error(self.seen)

    def add(self, step: Integers, steps: int = 1) -> None:
        """Add the sum ``(n,)`` of the next steps and draw their noise.

        Sums between them are not read, so no later one depends on how the sum is spread among them.

        Raises CounterFullError if they are more than were declared.
        """
        if self.seen + steps > self.time.steps:
            raise CounterFullError(
                f"this counter was declared for {self.time.steps} leaves, and all are in; declare more"
            )
        self._noise.draw(steps)
        self._sum += step
        self.seen += steps

    def total(self) -> Array:
        """Sum of the steps so far ``(n,)``, as released: the same until the next step."""
        return self._sum + self._noise.read()


def _noise_of(time: Time, blocks: NoiseBlocks) -> _LazyNodes | _Nodes | _Summed | _Rows:
    if isinstance(time, LazyTree):
        return _LazyNodes(time, blocks)
    if isinstance(time, Tree) and time.window is None:
        return _Nodes(time, blocks)
    if isinstance(time, Once):
        return _Summed(blocks)
    if isinstance(time, SquareRoot):
        return _Rows(time, blocks)
    raise TypeError(f"no running sum over {time!r}")


class _Summed:
    """Every row has weight 1: their sum is kept, and noise of several steps is one draw."""

    def __init__(self, blocks: NoiseBlocks) -> None:
        self._blocks, self._sum = blocks, np.zeros(blocks.length, dtype=np.int64)

    def draw(self, steps: int) -> None:
        self._sum += self._blocks.draw(1, steps)[0]

    def read(self) -> Array:
        return self._sum.astype(np.float64)


class _Rows:
    """Noise of all rows ``(T, n)``; one product a reading."""

    def __init__(self, time: Factorisation, blocks: NoiseBlocks) -> None:
        self._time, self._blocks, self._seen = time, blocks, 0
        self._drawn = np.zeros((time.draws, blocks.length))

    def draw(self, steps: int) -> None:
        self._drawn[self._seen : self._seen + steps] = self._blocks.draw(steps)
        self._seen += steps

    def read(self) -> Array:
        return self._time.weights(self._seen) @ self._drawn[: self._seen]


class _Nodes:
    """Estimates of the last complete node of each level ``(levels, n)``: all that later sums need."""

    def __init__(self, tree: Tree, blocks: NoiseBlocks) -> None:
        self._blocks, self._seen = blocks, 0
        count = levels(tree.steps)
        self._nodes = np.zeros((count, blocks.length))
        self._halves = [1 - node_variance(level, tree.estimate) for level in range(count)]

    def draw(self, steps: int) -> None:
        """Complete the nodes that end at each step, from the smallest up."""
        for _ in range(steps):
            self._seen += 1
            top = largest_node(self._seen)
            own = self._blocks.draw(top + 1).astype(np.float64)
            node = own[0]
            for level in range(1, top + 1):
                node = own[level] + self._halves[level] * (self._nodes[level - 1] + node - own[level])
            self._nodes[top] = node

    def read(self) -> Array:
        return self._nodes[digits(self._seen)].sum(0)


class _LazyNodes:
    """Noise of the nodes that were read."""

    def __init__(self, tree: LazyTree, blocks: NoiseBlocks) -> None:
        self._tree, self._blocks, self._seen = tree, blocks, 0
        self._nodes: dict[tuple[int, int], Array] = {}
        self._noise = np.zeros(blocks.length)

    def draw(self, steps: int) -> None:
        if steps != 1:
            raise ValueError(f"batches come one at a time; got {steps}")
        people = self._tree.ends[self._seen]
        self._noise = np.sum([self._node(j, people >> (j + 1) << (j + 1)) for j in digits(people)], axis=0)
        self._seen += 1

    def read(self) -> Array:
        return self._noise

    def _node(self, level: int, start: int) -> Array:
        """Noise of the node of the 2^level people after the first ``start``."""
        if (level, start) not in self._nodes:
            own, variance = self._blocks.draw(1)[0].astype(np.float64), node_variance(level, self._tree.estimate)
            if self._tree.estimate == "plain" or not self._was_read_inside(level, start):
                noise = own * np.sqrt(variance)
            else:
                half = 2 ** (level - 1)
                halves = self._node(level - 1, start) + self._node(level - 1, start + half)
                noise = own + (1 - variance) * (halves - own)
            self._nodes[level, start] = noise
        return self._nodes[level, start]

    def _was_read_inside(self, level: int, start: int) -> bool:
        after = bisect_right(self._tree.ends, start)
        return after < self._seen and self._tree.ends[after] < start + 2**level
