"""Attack on running sums: two streams that differ in their first leaf alone, which lies in a node of every level.

The leaves after it are empty.  Adversaries see the sums that a counter shows, and read off them what was released:

===============  ========================================================================  ===================
counter          what is read off the shown sums                                          independent noise
===============  ========================================================================  ===================
``plain``        the sum of the first 2^j leaves is one node                              1
``bottom-up``    N_j - h_j N_(j-1): the node and its right half, as they were averaged    less than the claim
``square-root``  G x + z, by dividing the sums by A G^-1                                  1
``once``         the message, or the sum of one batch                                     1
===============  ========================================================================  ===================

A claim covers the nodes themselves, more than bottom-up sums show: the bound there stays below it by construction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.audits.attack import Array, Side
from pipeline.audits.pooled import Pooled, Silence, fresh
from pipeline.privacy.continual import Mechanism, coefficients, continual, node_variance
from pipeline.privacy.factorisation import Factorisation, Once, Time
from pipeline.privacy.noise import LARGEST_SCALE, NoiseBlocks, NoiseSource, SimulatedWorld
from pipeline.privacy.running import RunningSum

Integers = NDArray[np.int64]
Kind = Mechanism | Literal["once"]
Built = Callable[[Time, NoiseBlocks], RunningSum]
# a counter of 10 000 leaves works the same and takes a week
LEAVES = 8
WORLD = SimulatedWorld("audit")
_READINGS = 3


def time_of(kind: Kind, leaves: int) -> Factorisation:
    """What is released, and when."""
    return Once(leaves) if kind == "once" else continual(kind, leaves)


def ends(kind: Kind, leaves: int) -> tuple[int, ...]:
    """After which leaves the attacker reads the sum."""
    if kind == "once":
        return (1,)
    return tuple(range(1, leaves + 1)) if kind == "square-root" else tuple(2**j for j in range(leaves.bit_length()))


def factors(kind: Kind, leaves: int) -> list[float]:
    """Variance of what is read off each sum, in units of the drawn one."""
    many = len(ends(kind, leaves))
    if kind != "bottom-up":
        return [1.0] * many
    halves = _halves(many)
    return [1.0] + [(1 - halves[j]) ** 2 + halves[j] ** 2 * node_variance(j - 1, kind) for j in range(1, many)]


def read_off(kind: Kind, sums: Array) -> list[Array]:
    """What was released for each of the shown ``sums (times, ...)``."""
    if kind == "square-root":
        steps = np.diff(sums, axis=0, prepend=0)
        g = coefficients(len(sums)).astype(float)
        factor = np.array([[g[t - s] if t >= s else 0.0 for s in range(len(g))] for t in range(len(g))])
        return list(np.tensordot(factor, steps, axes=1))
    if kind != "bottom-up":
        return list(sums)
    halves = _halves(len(sums))
    return [sums[0], *(sums[j] - halves[j] * sums[j - 1] for j in range(1, len(sums)))]


def _halves(many: int) -> list[float]:
    return [1 - node_variance(j, "bottom-up") for j in range(many)]


def watched(look: Callable[[], Array]) -> Array:
    """What a counter shows, read several times: what is drawn anew on every reading averages out."""
    return np.mean([look() for _ in range(_READINGS)], axis=0)


@dataclass(frozen=True)
class CounterPath:
    """A counter itself, on the integers in which two first leaves differ, many copies at once.

    Parameters
    ----------
    kind, leaves
        How its sums are read off, and after how many leaves the last one is.
    time
        What is counted: each leaf, or, where it has fewer steps than leaves, one step for each reading.
    pair, variances
        ``(n,)`` each: what differs, and the variance of its noise.
    """

    kind: Kind
    leaves: int
    time: Time
    pair: tuple[Integers, Integers]
    variances: Array
    build: Built = RunningSum

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        """See :class:`~pipeline.audits.attack.ReleasePath`."""
        # noise so wide is drawn in simulations only, by seeds
        wide = float(self.variances.max()) > LARGEST_SCALE**2
        source = noise if isinstance(noise, Silence | Pooled) else Pooled(fresh() if wide else noise)
        n, looked = len(self.variances), ends(self.kind, self.leaves)
        blocks = NoiseBlocks((copies,) * n, tuple(int(v) for v in self.variances), source, WORLD)
        counter, first = self.build(self.time, blocks), np.repeat(self.pair[side], copies)
        sums: list[Array] = []
        for t in range(1, self.leaves + 1) if self.time.steps == self.leaves else looked:
            counter.add(first if t == 1 else np.zeros_like(first))
            if t in looked:
                sums.append(watched(counter.total).reshape(n, copies).T)
        return read_off(self.kind, np.array(sums))
