"""What a planner sees of a growing least-squares problem, whatever noise is in it (paper 000, Assumption 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.statistics.mixture_message import Visits

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Ridge:
    """``Lambda (steps, blocks, d, d)`` positive definite and ``U (steps, blocks, d)``, real units."""

    Lambda: Array
    U: Array


@dataclass(frozen=True)
class Bounds:
    """Paper 000, Assumption 2, a step ``(steps,)``: the regularizer lies in ``[lambda_min, lambda_max]``, and the noise
    of U is at most ``nu`` long in the norm of Lambda^-1.
    """

    lambda_min: Array
    lambda_max: Array
    nu: Array


class Regularizer(Protocol):
    """Takes batches of episodes, shows noisy sums."""

    @property
    def seen(self) -> int:
        """Episodes so far."""
        ...

    @property
    def bounds(self) -> Bounds:
        """What the noise may do to the sums that :meth:`ridge` shows now."""
        ...

    def observe(self, visits: Visits) -> None:
        """One batch of episodes, played by one policy; cut to the declared bounds here."""
        ...

    def ridge(self) -> Ridge:
        """The released sums, made positive definite."""
        ...


def raise_eigenvalues(gram: Array, floor: float) -> tuple[Array, int]:
    """The nearest symmetric matrix whose eigenvalues are at least ``floor``, and how many were below; exact if none.

    Parameters
    ----------
    gram
        ``(d, d)`` symmetric: sums with noise.
    floor
        In the units of ``gram``; at most 0 leaves it as it is.
    """
    values, vectors = np.linalg.eigh(gram)
    low = values < floor
    if floor <= 0 or not low.any():
        return gram, 0
    return (vectors * np.maximum(values, floor)) @ vectors.T, int(low.sum())
