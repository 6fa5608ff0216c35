"""Rows of LQ episodes behind the privacy wall, and how they are cut to declared balls.

A row (x, u, x_next) that is too long in x or u is shortened *as a whole*, so that x_next = A x + B u + w still holds on
what is left; then x_next alone is projected onto its ball.  Where the declared bounds hold, nothing is changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# what is cut anyway: an unclipped twin gives itself away
_TOO_LONG = 3.0


@dataclass(frozen=True)
class Episodes:
    """Raw episodes behind the privacy wall; ``T`` is the longest.

    Parameters
    ----------
    states
        ``(E, T+1, n)``: the state after the last control is needed.
    controls
        ``(E, T, d)``.
    lengths
        ``(E,)`` transitions of each episode; what lies behind them is never read.

    Raises
    ------
    ValueError
        If shapes disagree.
    """

    states: Array
    controls: Array
    lengths: Integers

    def __post_init__(self) -> None:
        E, T, _ = self.controls.shape  # noqa: N806
        if self.states.shape[:2] != (E, T + 1) or self.lengths.shape != (E,):
            raise ValueError(
                f"episodes need states (E, T+1, n), controls (E, T, d), lengths (E,); got {self.states.shape}, "
                f"{self.controls.shape}, {self.lengths.shape}"
            )


@dataclass(frozen=True)
class Transitions:
    """Raw rows behind the privacy wall, each of its own: ``x (R, n)``, ``u (R, d)`` and where they led.

    At most H rows an episode and m episodes a person: whoever makes them has to see to that.

    Parameters
    ----------
    following
        ``(R, n)``: where they led.
    """

    x: Array
    u: Array
    following: Array


class LqRows(Protocol):
    """Raw rows that pass by once, a batch at a time; contributions are already capped at m a person."""

    @property
    def data_kind(self) -> str:
        """Registered kind of the data: real | synthetic."""
        ...

    def batches(self) -> Iterator[Episodes | Transitions]:
        """Every row in exactly one batch."""
        ...


@dataclass(frozen=True)
class SimulatedRows:
    """Episodes made up in this process: there is no way to say ``real`` with them.

    Parameters
    ----------
    episodes
        Batches of them.
    """

    episodes: tuple[Episodes, ...]

    @property
    def data_kind(self) -> str:
        """Always ``synthetic``."""
        return "synthetic"

    def batches(self) -> Iterator[Episodes]:
        """See :class:`LqRows`."""
        return iter(self.episodes)


@dataclass(frozen=True)
class SummedRows:
    """Rows that were summed where they lie; ``sums`` is called once, when nothing stands against reading them.

    Parameters
    ----------
    data_kind
        ``real`` or ``synthetic``, as registered.
    sums
        Gives ``(n+d, n+d)`` and ``(n+d, n)``, lattice steps squared.
    """

    data_kind: str
    sums: Callable[[], tuple[Integers, Integers]]


def on_lattice(
    units: Sequence[Array], read: NDArray[np.bool_], lattice: Sequence[float], squares: Sequence[int]
) -> tuple[Array, Array]:
    """Rows cut to the unit ball and truncated toward zero: z = (x, u) and next states, integers held as float64.

    Not a number, or longer than its ball after truncation: the row counts as absent, and is zeros.

    Parameters
    ----------
    units
        x ``(rows, n)``, u ``(rows, d)`` and next x ``(rows, n)``, in units of their bounds.
    read
        ``(rows,)``: which rows count at all.
    lattice, squares
        Of each of the three: lattice steps of its bound, and the largest squared length in them.
    """
    # a number near the largest float may overflow on its way; its row does not count
    with np.errstate(over="ignore", invalid="ignore"):
        read = np.logical_and.reduce([read, *(np.isfinite(v).all(1) for v in units)])
        x, u, following = (np.where(read[:, None], v, 0.0) for v in units)
        factor = np.minimum(shortening(x), shortening(u))
        following = following * factor
        parts = x * factor, u * factor, following * shortening(following)
        whole = [np.trunc(v * q) for v, q in zip(parts, lattice, strict=True)]
        short = [(v * v).sum(1) <= square for v, square in zip(whole, squares, strict=True)]
        within = np.logical_and.reduce(short)[:, None]
    x, u, following = (np.where(within, v, 0.0) for v in whole)
    return np.hstack([x, u]), following


def shortening(v: Array) -> Array:
    """``(rows, 1)``: the factor that brings a vector onto the unit ball, 1 inside it."""
    return 1.0 / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1.0)


def stretched(
    horizon: int, sizes: tuple[int, int], bounds: tuple[float, float], angles: tuple[float, float], ratio: float
) -> tuple[Array, Array]:
    """An episode of one direction for states and one for controls, all too long, for an attack.

    Parameters
    ----------
    horizon
        H.
    sizes, bounds
        Dimensions n and d, and declared lengths, of states and controls.
    angles
        Of each direction from the first axis, radians.
    ratio
        Each row is so much longer than the one before; negative: it also flips its sign.

    Returns
    -------
    States ``(H+1, n)`` and controls ``(H, d)``.
    """
    sign = ratio ** np.arange(horizon + 1)[:, None] * _TOO_LONG
    state, control = (_turned(n, angle) for n, angle in zip(sizes, angles, strict=True))
    return sign * state * bounds[0], sign[:-1] * control * bounds[1]


def _turned(dimension: int, angle: float) -> Array:
    """Unit vector turned away from the first axis; on a line there is nowhere to turn."""
    v = np.zeros(dimension)
    v[0] = 1.0
    if dimension > 1:
        v[:2] = math.cos(angle), math.sin(angle)
    return v
