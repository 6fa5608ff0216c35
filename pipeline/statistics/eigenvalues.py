"""Raising the small eigenvalues of a symmetric matrix that noise was added to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def raise_eigenvalues(gram: Array, floor: float) -> tuple[Array, int]:
    """The nearest symmetric matrix whose eigenvalues are at least ``floor``, and how many were below; exact if none."""
    values, vectors = np.linalg.eigh(gram)
    low = values < floor
    if floor <= 0 or not low.any():
        return gram, 0
    return (vectors * np.maximum(values, floor)) @ vectors.T, int(low.sum())
