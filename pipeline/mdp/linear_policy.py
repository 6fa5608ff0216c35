"""A linear policy over observations, as plain arrays: its action at the features of an observation, and its values.

Every row is computed by itself, to the last bit: a BLAS product rounds a row by its place in the batch, and one
person's choice would depend on earlier people.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

PRACTICE = -1


@dataclass(frozen=True)
class LinearPolicy:
    """The allowed action with the greatest clipped pessimistic value among those with evidence; else practice.

    ``w``, ``inverse``: of each step ``(H, d)`` and ``(H, d, d)``: Q = phi.w + offset - multiplier (phi' inverse
    phi)^1/2 - constant, phi = ``unit`` x integers.
    ``offset``, ``multiplier``, ``constant`` ``(H,)``, ``clip`` ``(H, 2)``: reward units of the learner.
    ``threshold``: rows that an action's direction must exceed, see :func:`~pipeline.agents.linear_backup.evidence_of`.
    ``allowed`` ``(A,)``: in any state.
    """

    w: Array
    inverse: Array
    offset: Array
    multiplier: Array
    constant: Array
    clip: Array
    unit: float
    threshold: float
    allowed: NDArray[np.bool_]

    def choose(self, h: int, features: Array) -> Integers:
        """Action ``(n,)`` at integer features of every action ``(n, A, d)``; :data:`PRACTICE` where none has evidence.

        Ties of the clipped value go to the unclipped one, then to the first.
        """
        phi = features * self.unit
        length = np.maximum(np.einsum("nad,nad->na", np.einsum("nad,de->nae", phi, self.inverse[h]), phi), 0.0)
        width = self.multiplier[h] * np.sqrt(length) + self.constant[h]
        Q = np.einsum("nad,d->na", phi, self.w[h]) + self.offset[h] - width
        evidence = np.einsum("nad,nad->na", phi, phi) / np.maximum(length, 1e-300)
        may = self.allowed & (evidence > self.threshold)
        clipped = np.where(may, np.clip(Q, *self.clip[h]), -np.inf)
        first = clipped == clipped.max(axis=1, keepdims=True)
        best = np.where(first & may, Q, -np.inf).argmax(axis=1)
        return np.where(may.any(axis=1), best, PRACTICE)
