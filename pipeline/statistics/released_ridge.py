"""What a planner sees of a growing least-squares problem, whatever noise is in it (paper 000, Assumption 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.release import Release
from pipeline.statistics.mixture_message import Visits

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Ridge:
    """``Lambda (steps, blocks, d, d)`` positive definite and ``U (steps, blocks, d)``, real units."""

    Lambda: Array
    U: Array


@dataclass(frozen=True)
class Bounds:
    """Paper 000, Assumption 2, a step ``(steps,)`` each.

    Parameters
    ----------
    lambda_min, lambda_max
        The regularizer lies between them.
    nu
        The noise of U is at most so long in the norm of Lambda^-1.
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

    def release(self) -> Release:
        """All that has left by now, and by which mechanisms."""
        ...


@dataclass(frozen=True)
class LqRidge:
    """What may be looked at, and the numbers of Assumption 2 (paper 004) at this moment.

    Parameters
    ----------
    V, U
        ``(D, D)`` positive definite, and ``(D, n)``.
    lambda_min, lambda_max, nu
        Bounds on the regularizer, and on the noise of U.
    raised
        Eigenvalues of V that the noise pushed below ``lambda_min`` and that were raised to it.
    """

    V: Array
    U: Array
    lambda_min: float
    lambda_max: float
    nu: float
    raised: int


class LqRegularizer(Protocol):
    """Takes a batch of episodes at a time, shows noisy sums."""

    def observe(self, batch: LqBatch) -> None:
        """Add the next batch; its vectors are cut to their balls here."""
        ...

    def ridge(self) -> LqRidge:
        """The released sums, regularized."""
        ...

    def release(self) -> Release:
        """All that has left by now, and by which mechanisms."""
        ...
