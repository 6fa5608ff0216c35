"""What a planner sees of a growing least-squares problem, whatever noise is in it (paper 000, Assumption 2)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.budget import up
from pipeline.privacy.losses import safe_epsilon
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


@dataclass(frozen=True)
class Guarantee:
    """What the drawn noise gives, replace-one episode; ``rho`` is None without noise."""

    trust: Literal["none", "joint", "local"]
    rho: Fraction | None

    def epsilon(self, delta: float) -> float | None:
        """Epsilon at ``delta``: recomputed from the variances, whatever was asked."""
        return None if self.rho is None else safe_epsilon(up(self.rho), delta)

    def beside(self, other: Guarantee) -> Guarantee:
        """Both released from the same episodes: costs add up."""
        both = None if self.rho is None or other.rho is None else self.rho + other.rho
        return Guarantee(self.trust, both)
