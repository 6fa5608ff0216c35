"""What an adaptive linear planner asks and gets: the interactive mechanism's protocol and its noisy answers.

The mechanism holds the rows; the planner hands it *functions* of a state's features and sees noisy sums only.  So one
planner serves counts of a finite world, rows of a log and streams of observations alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Both look at one row at a time, to the last bit: a function whose rounding depends on the other rows of the batch, as
# a two-dimensional BLAS product does, lets one person move another's integers.
# (..., A, d) integer features of every action of a state -> (...) its value to go, reward units
Value = Callable[[Array], Array]
# (..., d) integer features -> (...) weight in (0, 1]
Weight = Callable[[Array], Array]


class MechanismClosedError(RuntimeError):
    """A call the plan does not hold: out of order, a second one, or of a step whose budget is spent."""


@dataclass(frozen=True)
class Window:
    """Range to which values are clipped before they are summed, reward units; chosen from public or private values.

    Raises
    ------
    ValueError
        If ``low`` is above ``high`` or one is no number: the bound on centred targets would not hold.
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

    Parameters
    ----------
    gram
        ``(d, d)`` symmetric: sum of w phi phi^T plus noise.
    targets
        ``(k, d)``: sums of w phi y plus noise, y in reward units to the power the call says.
    offset
        What was subtracted from every target before it was summed, reward units.
    bound
        No |target| was larger, reward units.
    gram_sd, target_sd
        Standard deviation of the noise off the diagonal, and of each target's entries; 0 without noise.
    """

    gram: Array
    targets: Array
    offset: float
    bound: float
    gram_sd: float
    target_sd: tuple[float, ...]


@dataclass(frozen=True)
class OneShot:
    """Statistics released once, in real units; all planning on them is post-processing.

    Parameters
    ----------
    gram
        ``(H, d, d)``.
    successors
        ``(H, columns, d)``: sums of phi over the rows that led to each successor, or times a feature of theirs.
    onto
        ``(columns, S')``: from values of the declared successors to the combination of columns that stands for them.
    rewards
        ``(H, d)``: sums of phi (r - ``middle``).
    middle
        Mid-range of one reward, reward units.
    gram_sd, successor_sd, reward_sd
        Noise off the Gram's diagonal, and of one entry of each table.
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
    """What a planner sees: sums of vectors divided by their bounds.

    Parameters
    ----------
    gram, cross
        ``(n+d, n+d)`` symmetric and ``(n+d, n)``.
    gram_sd, cross_sd
        Noise of one entry off G's diagonal, and of one entry of X; 0 without noise.
    bounds
        Of state, control and successor: their units.
    """

    gram: Array
    cross: Array
    gram_sd: float
    cross_sd: float
    bounds: tuple[float, float, float]

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.cross.shape[1], len(self.cross) - self.cross.shape[1]


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
    """Values on the lattice, rounded down: a lower value stays one (privacy.md §0.1-11).

    Parameters
    ----------
    value
        Values, reward units.
    lattice
        q: steps of one reward unit.
    """
    # a float product this close below an integer is that integer
    return np.floor(value * lattice + 1e-9) / lattice
