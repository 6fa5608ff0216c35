"""What one episode adds to the regressions of a linear mixture agent: its integers, how far they move, what they cost.

At step h an episode adds phi phi^T and phi V(s') with phi = phi_V(s, a), V = V_{h+1}, 0 <= V <= v_h; nothing at the
last step, where V = 0.  All entries are at least 0.  Two episodes at one step differ by squared lengths of at most

============  ====================================================  =============================================
what          declared bound of one episode                         replace-one, squared
============  ====================================================  =============================================
``gram``      ||phi phi^T||_F <= L^2 v_h^2 (``unit``: 1)            2 (L^2 v_h^2)^2: both matrices are psd
``target``    ||phi V(s')|| <= L v_h^2 (``unit``: 1)                2 (L v_h^2)^2: both vectors are >= 0
============  ====================================================  =============================================

L is the features' declared stretch, sqrt(S) for one-hot ones: paper 001 takes it as 1, which one-hot features break.
``unit`` features divide a row by the public weight max(||V||_inf, max_(s,a) ||phi_V(s,a)||): theta is the same, and the
whole message moves by 4 (H - 1) in squared length, for any S.

Entries are cut to their bounds and floored to 2^-26 of them *before* noise, so the moves hold in integers: 2 * 2^52.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# lattice points from 0 to a declared bound
LATTICE = 2**26
# largest squared move of one step's Gram matrix, and of its target, in lattice points
MOVE = 2 * LATTICE**2
_INSIDE = 1 - 2**-40


@dataclass(frozen=True)
class Message:
    """Shape and bounds of one episode's statistics, all declared.

    Parameters
    ----------
    blocks, dimension
        Of the features.
    stretch
        L, at least ``||phi_V|| / ||V||_inf``.
    ranges
        v_h ``(H-1,)``: largest value of the *next* step, reward units; steps after which nothing can be won are left
        out.
    value
        Largest value of a whole episode, reward units: the papers' H.
    unit
        Whether rows come divided by the public weight.
    """

    blocks: int
    dimension: int
    stretch: float
    ranges: tuple[float, ...]
    value: float
    unit: bool

    @property
    def steps(self) -> int:
        """Steps with a regression."""
        return len(self.ranges)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Integers on the diagonals, above them, and in the targets."""
        rows = self.steps * self.blocks
        above = self.dimension * (self.dimension - 1) // 2
        return rows * self.dimension, rows * above, rows * self.dimension

    @property
    def gram_bound(self) -> Array:
        """Largest Frobenius norm of one step's Gram matrix ``(H-1,)``."""
        return np.ones(self.steps) if self.unit else (self.stretch * np.array(self.ranges)) ** 2

    @property
    def target_bound(self) -> Array:
        """Largest norm of one step's target ``(H-1,)``."""
        return np.ones(self.steps) if self.unit else self.stretch * np.array(self.ranges) ** 2

    def integers(self, gram: Array, target: Array) -> Integers:
        """The message ``(n,)``: diagonals, entries above them, targets, each in lattice points of its bound.

        Parameters
        ----------
        gram, target
            ``(H-1, blocks, d, d)`` and ``(H-1, blocks, d)``; whatever leaves the declared bounds is cut to them.
        """
        upper = np.triu_indices(self.dimension, 1)
        parts = np.concatenate([gram.diagonal(axis1=-2, axis2=-1), gram[..., *upper]], axis=-1)
        weight = np.repeat([1.0, 2.0], [self.dimension, len(upper[0])])
        matrix = _on_lattice(parts, self.gram_bound, weight)
        vector = _on_lattice(target, self.target_bound, np.ones(self.dimension))
        d = self.dimension
        return np.concatenate([matrix[..., :d].ravel(), matrix[..., d:].ravel(), vector.ravel()]).astype(np.int64)

    def sums(self, total: Array) -> tuple[Array, Array]:
        """The inverse on sums ``(n,)``: ``(H-1, blocks, d, d)`` symmetric and ``(H-1, blocks, d)``, real units."""
        d, rows = self.dimension, (self.steps, self.blocks)
        diagonal, above, target = np.split(total, np.cumsum(self.sizes)[:2])
        gram = np.zeros((*rows, d, d))
        i, j = np.triu_indices(d, 1)
        gram[..., i, j] = gram[..., j, i] = above.reshape(*rows, -1)
        gram[..., np.arange(d), np.arange(d)] = diagonal.reshape(*rows, d)
        gram *= (self.gram_bound / LATTICE)[:, None, None, None]
        return gram, target.reshape(*rows, d) * (self.target_bound / LATTICE)[:, None, None]


def _on_lattice(x: Array, bound: Array, weight: Array) -> Array:
    """Lattice points of ``x (H-1, blocks, m)``, each step's weighted squared length at most LATTICE^2, exactly."""
    points = np.floor(np.clip(x / bound[:, None, None], 0.0, 1.0) * LATTICE)
    # sums of squares up to the bound, 2^52, are exact in float64
    square = (points**2 * weight).sum((1, 2), keepdims=True)
    shrink = np.where(square > LATTICE**2, LATTICE / np.sqrt(np.maximum(square, 1.0)) * _INSIDE, 1.0)
    return np.floor(points * shrink)
