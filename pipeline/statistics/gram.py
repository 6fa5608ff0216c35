"""Exact integer sums of rows: Gram matrices and target vectors, a batch at a time, at the speed of float64 GEMM.

A product of integers below 2^53 is exact in float64 whatever the order of summation, so each batch is cut into blocks
short enough for that, multiplied by BLAS, and added in int64.  Memory does not depend on the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_EXACT = 2**53
_SAFE = 2**62
# rows of one block that keep features and product in cache
_BLOCK = 16_384


@dataclass(frozen=True)
class Extent:
    """Largest integers that may enter a sum: declared, checked before any row is read.

    Parameters
    ----------
    rows
        Declared number of rows (public users times their episodes).
    square
        F^2, bound on ``||f||^2``.
    weight
        W, largest weight.
    target
        Largest absolute target.

    Raises
    ------
    OverflowError
        If a sum could leave 64-bit integers, or one row the exact range of float64.
    """

    rows: int
    square: int
    weight: int
    target: int

    def __post_init__(self) -> None:
        if self.rows * self._largest >= _SAFE:
            raise OverflowError(
                f"{self.rows} rows of products up to {self._largest} leave 64-bit integers; use a coarser lattice"
            )
        if self._largest >= _EXACT:
            raise OverflowError(f"a product of {self._largest} is not exact in float64; use a coarser lattice")

    @property
    def _largest(self) -> int:
        return self.weight * max(self.square, (int(self.square**0.5) + 1) * self.target, 1)

    @property
    def block(self) -> int:
        """Rows that may be multiplied at once: their sums stay below 2^53."""
        return max(1, min(_BLOCK, (_EXACT - 1) // self._largest))


def exact_sums(
    extent: Extent, features: Array, targets: Array, weights: Array | None = None
) -> tuple[Integers, Integers]:
    """Gram matrix and target sums of one batch.

    Parameters
    ----------
    features
        ``(n, d)`` integers held as float64.
    targets
        ``(k, n)`` integers held as float64, one row a regression.
    weights
        ``(n,)`` integers as float64; None for all 1.

    Returns
    -------
    ``(d, d)`` and ``(k, d)`` int64.
    """
    d = features.shape[1]
    gram, sums = np.zeros((d, d), dtype=np.int64), np.zeros((len(targets), d), dtype=np.int64)
    for start in range(0, len(features), extent.block):
        part = slice(start, start + extent.block)
        f = np.ascontiguousarray(features[part], dtype=np.float64)
        wf = f if weights is None else f * weights[part, None]
        gram += (wf.T @ f).astype(np.int64)
        sums += (targets[:, part] @ wf).astype(np.int64)
    return gram, sums


def counted_sums(
    features: Integers, visits: Integers, targets: Integers, weights: Integers | None = None
) -> tuple[Integers, Integers]:
    """The same from counts: ``features (n, d)``, ``visits (n,)`` and summed ``targets (k, n)`` of each (s, a), int64.

    Wraps nowhere where :class:`Extent` allows the rows themselves.

    Parameters
    ----------
    features
        ``(n, d)``: of each (s, a).
    visits
        ``(n,)``: rows of each (s, a).
    targets
        ``(k, n)``: summed targets of each (s, a), one row a regression.
    weights
        ``(n,)``: weight of each (s, a); None for all 1.

    Returns
    -------
    ``(d, d)`` and ``(k, d)`` int64.
    """
    w = visits if weights is None else visits * weights
    t = targets if weights is None else targets * weights
    return features.T @ (features * w[:, None]), t @ features


def raise_eigenvalues(gram: Array, floor: float) -> tuple[Array, int]:
    """The nearest symmetric matrix whose eigenvalues are at least ``floor``, and how many were below; exact if none.

    Parameters
    ----------
    gram
        ``(d, d)`` symmetric.
    floor
        Least eigenvalue of the result; 0 or less changes nothing.
    """
    values, vectors = np.linalg.eigh(gram)
    low = values < floor
    if floor <= 0 or not low.any():
        return gram, 0
    return (vectors * np.maximum(values, floor)) @ vectors.T, int(low.sum())
