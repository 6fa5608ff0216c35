"""Attack on online agents' statistics: continual counters under joint privacy, single messages under local privacy.

The two streams differ in their first episode alone, which lies in a node of every level; the episodes after it are
empty.  Adversaries see the sums that the counter shows, and read off them what was released:

==============  =======================================================================  ===================
counter         what is read off the shown sums                                          independent noise
==============  =======================================================================  ===================
``plain``       the sum of the first 2^j leaves is one node                              1
``bottom-up``   N_j - h_j N_(j-1): the node and its right half, as they were averaged    less than the claim
``toeplitz``    G x + z, by dividing the sums by A G^-1                                  1
``local``       the message                                                              1
==============  =======================================================================  ===================

A claim covers the nodes themselves, more than bottom-up sums show: the bound there stays below it by construction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline.audits.attack import Array, Attack, Side, Trust
from pipeline.audits.pooled import Pooled, Silence
from pipeline.card import CardError
from pipeline.privacy.counters import Counter, Lanes, Messages, TreeCounter, levels, node_variance
from pipeline.privacy.noise import Integers, NoiseSource, SimulatedWorld
from pipeline.privacy.square_root import SquareRoot, coefficients, squared_column
from pipeline.statistics.mixture_calibration import Ask, Variances, paper_000, paper_001, tight
from pipeline.statistics.mixture_message import Message, Visits

Kind = Literal["plain", "bottom-up", "toeplitz", "local"]
# a counter of 10 000 leaves works the same and takes a week
LEAVES = 8
_WORLD = SimulatedWorld("audit")
_TOO_LONG = 3.0
_READINGS = 3
Built = Callable[[int, Lanes], Counter]
_COUNTERS: dict[Kind, Built] = {
    "plain": lambda leaves, lanes: TreeCounter(leaves, lanes, "plain"),
    "bottom-up": lambda leaves, lanes: TreeCounter(leaves, lanes, "bottom-up"),
    "toeplitz": SquareRoot,
    "local": Messages,
}


def counter_attack(
    message: Message,
    ask: Ask,
    kind: Kind,
    *,
    leaves: int = LEAVES,
    variances: Variances | None = None,
    build: Built | None = None,
    integers: Callable[[Visits], Integers] | None = None,
) -> Attack:
    """The worst pair of first episodes against a counter of ``leaves`` leaves.

    Parameters
    ----------
    variances, build, integers
        What really calibrates, counts, and turns an episode into integers, where a test breaks one of them.

    Raises
    ------
    CardError
        If no noise is asked for.
    """
    leaves = 1 if kind == "local" else leaves
    cost = {"local": 1, "toeplitz": squared_column(leaves)}.get(kind, levels(leaves))
    claimed_noise = _calibrated(message, ask, kind, leaves, cost)
    claimed = claimed_noise.rho(message, cost)
    if claimed is None:
        raise CardError("an audit needs noise: epsilon is infinite")
    sides = tuple((integers or message.integers)(_episode(message, i)) for i in (0, 1))
    honest = tuple(message.integers(_episode(message, i)) for i in (0, 1))
    where = sides[0] != sides[1]
    entries = _entries(message, claimed_noise)[where]
    drawn = _entries(message, variances or claimed_noise)[where]
    path = _Path(kind, leaves, (sides[0][where], sides[1][where]), drawn, build or _COUNTERS[kind])
    model = _Path(kind, leaves, (honest[0][where], honest[1][where]), entries, _COUNTERS[kind])
    trust: Trust = "local" if kind == "local" else "joint"
    return Attack(
        mechanism=f"{kind} {'messages' if kind == 'local' else 'counter'}, discrete gaussian, {ask.calibration}"
        + (", unit features" if message.unit else ""),
        trust=trust,
        path=path,
        means=([t[0] for t in model(0, Silence(), 1)], [t[0] for t in model(1, Silence(), 1)]),
        variances=[entries * factor for factor in _shown(kind, leaves)],
        claimed_rho=claimed,
    )


def _calibrated(message: Message, ask: Ask, kind: Kind, leaves: int, cost: int) -> Variances:
    if ask.calibration == "tight":
        return tight(message, ask, cost)
    return paper_001(message, ask) if kind == "local" else paper_000(message, ask, leaves)


def _episode(message: Message, which: int) -> Visits:
    """An episode whose rows lie in a block, or on a coordinate, of its own; longer than the bounds allow."""
    d, blocks, steps = message.dimension, message.blocks, np.arange(message.steps)
    block, row = (which, 0) if blocks > 1 else (0, which % d)
    length = np.sqrt(message.gram_bound * _TOO_LONG)
    phi = np.eye(d)[row] * length[:, None]
    response = message.target_bound * _TOO_LONG / length
    return Visits(steps, np.full_like(steps, block), phi, response, np.ones_like(steps), 1)


def _entries(message: Message, variances: Variances) -> Array:
    """Variance of every integer of a message."""
    lanes = zip((variances.diagonal, variances.above, variances.target), message.sizes, strict=True)
    return np.concatenate([np.repeat(np.array(v, dtype=float), n // message.steps) for v, n in lanes])


def _shown(kind: Kind, leaves: int) -> list[float]:
    """Variance of what is read off each shown sum, in units of a node's."""
    if kind == "local":
        return [1.0]
    if kind == "toeplitz":
        return [1.0] * leaves
    tops = leaves.bit_length()
    if kind == "plain":
        return [1.0] * tops
    halves = [1 - node_variance(j, "bottom-up") for j in range(tops)]
    return [1.0] + [(1 - halves[j]) ** 2 + halves[j] ** 2 * node_variance(j - 1, "bottom-up") for j in range(1, tops)]


@dataclass(frozen=True)
class _Path:
    """The counter itself, on the integers in which the two episodes differ, many copies at once."""

    kind: Kind
    leaves: int
    pair: tuple[Integers, Integers]
    variances: Array
    build: Built

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        source = noise if isinstance(noise, Silence | Pooled) else Pooled(noise)
        n = len(self.variances)
        lanes = Lanes((copies,) * n, tuple(int(v) for v in self.variances), source, _WORLD)
        counter = self.build(self.leaves, lanes)
        first = np.repeat(self.pair[side], copies)
        sums: list[Array] = []
        for t in range(1, self.leaves + 1):
            counter.add(first if t == 1 else np.zeros_like(first))
            if self.kind == "toeplitz" or t & (t - 1) == 0:
                # read several times: what is drawn anew on every reading averages out
                shown = np.mean([counter.total() for _ in range(_READINGS)], axis=0)
                sums.append(shown.reshape(n, copies).T)
        return self._read(np.array(sums))

    def _read(self, sums: Array) -> list[Array]:
        if self.kind == "toeplitz":
            steps = np.diff(sums, axis=0, prepend=0)
            g = coefficients(self.leaves).astype(float)
            factor = np.array([[g[t - s] if t >= s else 0.0 for s in range(len(g))] for t in range(len(g))])
            return list(np.tensordot(factor, steps, axes=1))
        if self.kind != "bottom-up":
            return list(sums)
        halves = [1 - node_variance(j, "bottom-up") for j in range(len(sums))]
        return [sums[0], *(sums[j] - halves[j] * sums[j - 1] for j in range(1, len(sums)))]
