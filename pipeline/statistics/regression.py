"""Queries and noisy answers of an adaptive linear planner: the protocol of the interactive mechanism.

The mechanism holds the rows; the planner passes *functions* of a state's features and gets noisy sums only.  So one
planner serves counts of a finite world, rows of a log and streams of observations alike.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.privacy.release import Release

Bound = TypeVar("Bound", float, Array)
Seen = TypeVar("Seen", contravariant=True)

# Both read one row at a time, to the last bit: a function whose rounding depends on the other rows of the batch, as a
# two-dimensional BLAS product does, lets one person move another's integers.
# (..., A, d) integer features of every action of a state -> (...) its value to go, reward units
Value = Callable[[Array], Array]
# (..., d) integer features -> (...) weight in (0, 1]
Weight = Callable[[Array], Array]


class MechanismClosedError(RuntimeError):
    """A call the plan does not hold: out of order, a second one, or of a step whose budget is spent."""


@dataclass(frozen=True)
class Window:
    """Range to which values are clipped before they are summed, reward units; chosen from public or private values.

    Raises ValueError if ``low`` is above ``high`` or one is NaN: the bound on centred targets would not hold.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"a window needs low <= high; got [{self.low}, {self.high}]")

    @property
    def half(self) -> float:
        """Half the span: no value is further from the middle."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class PrivateRegression:
    """Noisy sums of one call in real units.

    ``gram`` ``(d, d)``: symmetric: sum of w phi phi^T plus noise.
    ``targets`` ``(k, d)``: sums of w phi y plus noise, y in reward units to the power of the call.
    ``gram_sd``: standard deviation of the noise off the diagonal; 0 without noise.
    """

    gram: Array
    targets: Array
    offset: float
    bound: float
    gram_sd: float


@dataclass(frozen=True, eq=False)
class OneShot:
    """Statistics released once, in real units; all planning on them is post-processing.

    ``gram``: ``(H, d, d)``.
    ``successors`` ``(H, columns, d)``: sums of phi over the rows that led to each successor, or times a feature
    of it.
    ``onto`` ``(columns, S')``: from values of the declared successors to the combination of columns that represents
    them.
    ``rewards`` ``(H, d)``: sums of phi (r - ``middle``).
    """

    gram: Array
    successors: Array
    onto: Array
    rewards: Array
    middle: float
    gram_sd: float
    successor_sd: float
    reward_sd: float


@dataclass(frozen=True)
class LqMoments:
    """Noisy sums for a planner, of vectors divided by their bounds.

    ``gram``, ``cross`` ``(n+d, n+d)``: symmetric and ``(n+d, n)``.
    ``gram_sd``: noise of one entry off G's diagonal; 0 without noise.
    """

    gram: Array
    cross: Array
    gram_sd: float
    bounds: tuple[float, float, float]

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.cross.shape[1], len(self.cross) - self.cross.shape[1]


@dataclass(frozen=True)
class Visits:
    """Distinct regression rows of a batch of episodes that were played by one policy.

    ``step``, ``block`` ``(n,)``: where each row belongs.
    ``phi``, ``response`` ``(n, d)``: regressor and ``(n,)`` response.
    ``count`` ``(n,)``: episodes of the batch that met the row.
    """

    step: Integers
    block: Integers
    phi: Array
    response: Array
    count: Integers
    episodes: int


@dataclass(frozen=True)
class RidgeSums(Generic[Bound]):
    """Regularized sums of a growing least-squares problem, and the numbers of Assumption 2 (papers 000, 004) now.

    ``V``, ``U``: positive definite, and its targets: ``(D, D)`` and ``(D, n)`` of a plant; ``(steps, blocks, d, d)``
    and ``(steps, blocks, d)`` of a mixture, real units.
    ``lambda_min``, ``lambda_max``: the regularizer lies between them; of a mixture a step ``(steps,)`` each.
    ``nu``: the noise of U is at most so long in the norm of V^-1.
    """

    V: Array
    U: Array
    lambda_min: Bound
    lambda_max: Bound
    nu: Bound
    raised: int = 0


class Regularizer(Protocol[Seen, Bound]):
    """Takes batches of episodes, shows noisy sums made positive definite."""

    @property
    def seen(self) -> int:
        """Episodes so far."""
        ...

    def observe(self, batch: Seen, /) -> None:
        """One batch of episodes, played by one policy; cut to the declared bounds here."""
        ...

    def ridge(self) -> RidgeSums[Bound]:
        """The released sums, regularized."""
        ...

    def release(self) -> Release:
        """The noisy sums so far, as a run's folder keeps them."""
        ...


class InteractiveMechanism(Protocol):
    """Answers each step once, from the last to the first; quantises, clips and weighs by itself."""

    @property
    def lattice(self) -> int:
        """q: values are floored to multiples of 1/q."""
        ...

    def variance(self, h: int, value: Value, window: Window) -> PrivateRegression:
        """Sums over D' of phi y^2 and phi y with y = V(s') - offset (003 Algorithm 2, lines 4-6)."""
        ...

    def regression(self, h: int, value: Value, window: Window, weight: Weight | None = None) -> PrivateRegression:
        """Sums over D of w phi y with y = r + V(s') - offset (lines 9-10)."""
        ...


def floored(value: Array, lattice: int) -> Array:
    """Values on the lattice, rounded down: a lower value stays one (privacy.md §0.1-11)."""
    # a float product this close below an integer is that integer
    return np.floor(value * lattice + 1e-9) / lattice
