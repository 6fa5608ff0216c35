"""Running sums of online agents in simulated worlds: the sum so far, and the noise that a released one would have.

``RunningSum`` keeps the exact sum and the noise of the rows, and shows sum + W z: the same numbers as W (M x + z), for
A = W M, but not computed from M x + z alone.  So it claims what the protocol it simulates claims, and refuses data
registered as real; a release of real data draws rows (:func:`~pipeline.privacy.factorisation.draw_rows`).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.continual import Estimate, Tree, digits, largest_node, levels, node_variance
from pipeline.privacy.factorisation import Factorisation, NoiseBlocks, Once, Time
from pipeline.privacy.noise import Integers, RealDataError

Array = NDArray[np.float64]


class CounterFullError(RuntimeError):
    """A step beyond the declared number: its noise is not paid for."""


@dataclass(frozen=True)
class LazyTree:
    """The binary tree over people, read after declared batches of them only: a step is a batch; simulations.

    Same nodes, same noise and same cost as :class:`~pipeline.privacy.continual.Tree` over as many people: what nobody
    reads is not drawn, or drawn together, so a tree over 10^8 people takes some hundreds of draws.  A node in which no
    sum was ever read has an estimate whose noise is one Gaussian of
    :func:`~pipeline.privacy.continual.node_variance`; in the others the halves keep the noise they were read with.

    Parameters
    ----------
    ends
        Increasing: people seen after each batch; the last is the number of leaves.  Declared.
    estimate
        See :class:`~pipeline.privacy.continual.Tree`.
    """

    ends: tuple[int, ...]
    estimate: Estimate = "bottom-up"

    def __post_init__(self) -> None:
        if any(b <= a for a, b in zip((0, *self.ends), self.ends, strict=False)):
            raise ValueError("batches must end one after the other, each with at least one person")

    @property
    def steps(self) -> int:
        """Batches."""
        return len(self.ends)

    @property
    def cost(self) -> int:
        """Squared length of all that one person of length 1 moves: the nodes that hold them."""
        return levels(self.ends[-1])

    @property
    def draws(self) -> int:
        """Nodes of the whole tree, most of them never drawn."""
        return 2 * self.ends[-1] - self.ends[-1].bit_count()

    def error(self, t: int) -> float:
        """Variance of the sum of ``t`` batches, in units of a node's noise."""
        return sum(node_variance(j, self.estimate) for j in digits(self.ends[t - 1] if t else 0))


class RunningSum:
    """The sum of integer steps so far, seen through noise; simulations only.

    Parameters
    ----------
    time
        A factorisation, or a lazy tree.
    blocks
        Noise of one released row.

    Raises
    ------
    RealDataError
        If the noise protects data registered as real.
    """

    def __init__(self, time: Time, blocks: NoiseBlocks) -> None:
        if blocks.data.data_kind != "synthetic":
            raise RealDataError("running sums of agents are for simulations; this dataset is registered as real")
        self.time, self.blocks, self.seen = time, blocks, 0
        self._sum, self._noise = np.zeros(blocks.length, dtype=np.int64), _noise_of(time, blocks)

    @property
    def error(self) -> float:
        """Variance of what is shown now, in units of a row's noise."""
        return self.time.error(self.seen)

    def add(self, step: Integers, steps: int = 1) -> None:
        """Add the sum ``(n,)`` of the next steps and draw their noise.

        Sums between them are not read, so it does not matter to any later one where among them the sum lies.

        Raises
        ------
        CounterFullError
            If they are more than were declared.
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


class _Noise(Protocol):
    """The noise of the rows so far."""

    def draw(self, steps: int) -> None:
        """Draw what the next steps release."""
        ...

    def read(self) -> Array:
        """Noise ``(n,)`` of the running sum."""
        ...


def _noise_of(time: Time, blocks: NoiseBlocks) -> _Noise:
    if isinstance(time, LazyTree):
        return _LazyNodes(time, blocks)
    if isinstance(time, Tree):
        return _Nodes(time, blocks)
    if isinstance(time, Once):
        return _Summed(blocks)
    if isinstance(time, Factorisation):
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
