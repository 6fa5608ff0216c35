"""The binary tree over people, read after declared batches of them only; simulations.

Same nodes, same noise and same cost as :class:`~pipeline.privacy.counters.TreeCounter` over as many leaves: what nobody
reads is not drawn, or drawn together, so a tree over 10^8 people takes some hundreds of draws.  A node of 2^j leaves in
which no sum was ever read has an estimate whose noise is one Gaussian of :func:`node_variance`; in the others the
halves keep the noise they were read with.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.counters import Estimate, Lanes, levels, node_variance, room
from pipeline.privacy.noise import Integers, RealDataError

Array = NDArray[np.float64]


class LazyTree:
    """See :class:`~pipeline.privacy.counters.Counter`; a leaf is the sum over one batch of people.

    Parameters
    ----------
    ends
        Increasing: people seen after each batch; the last is T of the tree.  Declared.
    """

    def __init__(self, ends: Sequence[int], lanes: Lanes, estimate: Estimate = "bottom-up") -> None:
        if lanes.data.data_kind != "synthetic":
            raise RealDataError("this tree draws noise as it is read; this dataset is registered as real")
        if any(b <= a for a, b in zip([0, *ends], ends, strict=False)):
            raise ValueError("batches must end one after the other, each with at least one person")
        self.ends, self.lanes, self.leaves, self.seen = tuple(ends), lanes, len(ends), 0
        self.estimate: Estimate = estimate
        self.cost = levels(ends[-1])
        self._sum, self._noise = np.zeros(lanes.length, dtype=np.int64), np.zeros(lanes.length)
        self._nodes: dict[tuple[int, int], Array] = {}

    def error(self, t: int) -> float:
        """Variance of the sum of ``t`` batches, in units of the noise's variance."""
        people = self.ends[t - 1] if t else 0
        return sum(node_variance(j, self.estimate) for j in range(people.bit_length()) if people >> j & 1)

    def add(self, leaf: Integers, leaves: int = 1) -> None:
        """Add the next batch's sum and read the tree; a batch is one leaf."""
        if leaves != 1:
            raise ValueError(f"batches come one at a time; got {leaves}")
        room(self.seen, self.leaves)
        people = self.ends[self.seen]
        nodes = [(j, people >> (j + 1) << (j + 1)) for j in range(people.bit_length()) if people >> j & 1]
        self._noise = np.sum([self._read(level, start) for level, start in nodes], axis=0)
        self._sum += leaf
        self.seen += 1

    def total(self) -> Array:
        """Sum of the batches so far, as released."""
        return self._sum + self._noise

    def _read(self, level: int, start: int) -> Array:
        """Noise of the node of the 2^level people after the first ``start``."""
        if (level, start) not in self._nodes:
            own = self.lanes.draw(1)[0].astype(np.float64)
            if self.estimate == "plain" or not self._was_read_inside(level, start):
                noise = own * np.sqrt(node_variance(level, self.estimate))
            else:
                half = 2 ** (level - 1)
                halves = self._read(level - 1, start) + self._read(level - 1, start + half)
                noise = own + (1 - node_variance(level, self.estimate)) * (halves - own)
            self._nodes[level, start] = noise
        return self._nodes[level, start]

    def _was_read_inside(self, level: int, start: int) -> bool:
        after = bisect_right(self.ends, start)
        return after < self.seen and self.ends[after] < start + 2**level
