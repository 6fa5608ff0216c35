"""A continual release as two matrices: the rows that are released, and the weights by which sums are read off them.

A release over T steps publishes *rows*: integer combinations of the integer steps so far, each with exact noise of its
own, drawn once.  The matrix A of running sums is factored as A = W M: M holds the rows, W the weights.  Given all rows
before, a row is one Gaussian release whose mean a step moves by its weight, so zCDP adds over rows, also where later
steps depend on earlier releases.  Two numbers say all about a factorisation:

``cost``
    largest squared length of a column of M: Gaussian noise of variance v in every row is ``cost * Delta^2 / (2 v)``-
    zCDP for a person who is in one step and moves it by at most Delta.
``error(t)``
    squared length of the t-th row of W: variance of the sum of the first t steps, in units of v.

:class:`Once` is here, the tree and the square root are in :mod:`~pipeline.privacy.continual`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.noise import DataHandle, Integers, NoiseSource, RealDataError

Array = NDArray[np.float64]
# the two nightly counters as recipes, JSON and ledgers name them; keys hash these words, so they never change
Kind = Literal["tree", "toeplitz"]


@dataclass(frozen=True)
class Row:
    """One released combination of steps.

    Parameters
    ----------
    first
        The earliest step in it; steps count from 1.
    weights
        Integer weights of the steps ``first``, ``first + 1``, ...
    """

    first: int
    weights: tuple[int, ...]


class Time(Protocol):
    """When sums are released, as far as a price or an error bound depends on it; every factorisation is one."""

    @property
    def steps(self) -> int:
        """T, declared."""
        ...

    @property
    def cost(self) -> int:
        """Squared length by which all rows together move when one step moves by length 1."""
        ...

    @property
    def draws(self) -> int:
        """Most rows in all."""
        ...

    def error(self, t: int) -> float:
        """Variance of the sum of the first ``t`` steps, in units of a row's noise."""
        ...


@dataclass(frozen=True)
class Factorisation(ABC):
    """A = W M as plain arithmetic; see the module.

    Parameters
    ----------
    steps
        T, declared: at least 1.
    """

    steps: int

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1; got {self.steps}")

    @property
    def kind(self) -> Kind:
        """Name in recipes, JSON and ledgers.

        Raises
        ------
        ValueError
            If no nightly release may use it.
        """
        raise ValueError("only the bottom-up tree and the square-root factorisation keep nights")

    @property
    def cost(self) -> int:
        """Squared length by which all rows together move when a person moves one step by 1."""
        return self.cost_of(1)

    @property
    @abstractmethod
    def draws(self) -> int:
        """Rows in all."""

    @abstractmethod
    def cost_of(self, steps: int) -> int:
        """Largest squared length by which all rows together move when a person moves each of so many steps by 1.

        Weights are at least 0, so the worst are the moves in one direction; the columns of the first steps are the
        longest and overlap most, so the worst steps are the first ones (enumerated in the tests).

        Parameters
        ----------
        steps
            Number of different steps, 1 to T.
        """

    @abstractmethod
    def error(self, t: int) -> float:
        """Variance of the sum of the first ``t`` steps, in units of a row's noise: squared length of its weights."""

    @abstractmethod
    def rows(self, t: int) -> tuple[Row, ...]:
        """Rows that are released at step ``t``.

        Raises
        ------
        ValueError
            If ``t`` is not in 1 .. T.
        """

    @abstractmethod
    def weights(self, t: int) -> Array:
        """Weights ``(R,)`` of the R rows of steps 1 .. ``t``, in their order, in the sum of the first ``t`` steps."""

    def placed(self, since: int, now: int) -> int:
        """The step in which people are counted who came in after ``since - 1``, at a run on step ``now``: that one.

        Parameters
        ----------
        since, now
            The steps that become known with the run; its own is the last.
        """
        return now

    def total(self, t: int, noisy: Callable[[int], Integers]) -> Array:
        """Sum of the first ``t`` steps ``(n,)``, read off the released rows; post-processing.

        Parameters
        ----------
        noisy
            From a step k to its released rows ``(len(rows(k)), n)``; asked once for each, in order.
        """
        weights = self.weights(t)
        total, at = np.zeros(1), 0
        for k in range(1, t + 1):
            found = noisy(k)
            total = total + weights[at : at + len(found)] @ found
            at += len(found)
        return total


@dataclass(frozen=True)
class Once(Factorisation):
    """Every step is released by itself: one release where T = 1, else local messages or batches of other people.

    A neighbour must stay in their step: rows of different steps do not overlap, so a record that moves to another step
    can move more than one that is replaced in place (which the rows of the other factorisations exclude).
    """

    @property
    def draws(self) -> int:
        """See :class:`Factorisation`."""
        return self.steps

    def cost_of(self, steps: int) -> int:
        """See :class:`Factorisation`: a release a step."""
        return steps

    def error(self, t: int) -> float:
        """See :class:`Factorisation`: the noise of every step."""
        return float(t)

    def rows(self, t: int) -> tuple[Row, ...]:
        """See :class:`Factorisation`."""
        check_step(t, self.steps)
        return (Row(t, (1,)),)

    def weights(self, t: int) -> Array:
        """See :class:`Factorisation`."""
        return np.ones(t)


@dataclass(frozen=True)
class NoiseBlocks:
    """Noise of one released vector: consecutive blocks of entries, one variance each.

    Parameters
    ----------
    sizes, variances
        Entries, and integer variance, of each block, in squared lattice steps; variance 0 draws nothing (simulation
        only).
    noise
        What is drawn from.
    data
        Handle of what the noise protects.

    Raises
    ------
    RealDataError
        If the data is registered as real and a block has no noise, or the noise is not the operating system's.
    """

    sizes: tuple[int, ...]
    variances: tuple[int, ...]
    noise: NoiseSource
    data: DataHandle

    def __post_init__(self) -> None:
        if 0 in self.variances and self.data.data_kind != "synthetic":
            raise RealDataError("a counter without noise is for simulations; this dataset is registered as real")
        self.noise.admit(self.data.data_kind)

    @property
    def length(self) -> int:
        """Entries of the vector, n."""
        return sum(self.sizes)

    def draw(self, rows: int, times: int = 1) -> Integers:
        """Fresh noise ``(rows, n)``, one call of the source a block.

        Parameters
        ----------
        times
            Each row is the sum of so many draws, in one (simulation only).  Sums of discrete Gaussians are nearly, not
            exactly, discrete Gaussian: below 10^-15 at the scales drawn here.
        """
        if times > 1 and self.data.data_kind != "synthetic":
            raise RealDataError("noise of several leaves in one draw is for simulations; this dataset is real")
        drawn = [
            self.noise.gaussian(rows * n, v * times, self.data) if v else np.zeros(rows * n, dtype=np.int64)
            for n, v in zip(self.sizes, self.variances, strict=True)
        ]
        return np.concatenate([x.reshape(rows, n) for x, n in zip(drawn, self.sizes, strict=True)], axis=1)


def squared_weights(rows: Sequence[Row]) -> int:
    """Largest sum of squared weights of one step over ``rows``: their cost if only they were released."""
    last = max((r.first + len(r.weights) for r in rows), default=1)
    squares = np.zeros(last, dtype=np.int64)
    for r in rows:
        squares[r.first : r.first + len(r.weights)] += np.square(np.array(r.weights, dtype=np.int64))
    return int(squares.max())


def exact_rows(rows: Sequence[Row], step: Callable[[int], Integers | None], size: int) -> Integers:
    """The rows before noise ``(len(rows), size)``; ``step(k)`` is None where step ``k`` is empty, and asked once."""
    sums = np.zeros((len(rows), size), dtype=np.int64)
    for k in range(min(r.first for r in rows), max(r.first + len(r.weights) for r in rows)):
        x = step(k)
        if x is not None:
            weights = [r.weights[k - r.first] if 0 <= k - r.first < len(r.weights) else 0 for r in rows]
            sums += np.array(weights, dtype=np.int64)[:, None] * x
    return sums


def draw_rows(rows: Sequence[Row], step: Callable[[int], Integers | None], blocks: NoiseBlocks) -> Integers:
    """The rows as they are released: each with noise of its own, drawn here and once.

    Parameters
    ----------
    rows
        Of one or several steps; where none is due nothing is drawn.
    step
        From a step k to its exact integers ``(n,)``, None where it is empty.
    blocks
        Noise of one row.

    Returns
    -------
    Integers
        ``(len(rows), blocks.length)``.
    """
    if not rows:
        return np.zeros((0, blocks.length), dtype=np.int64)
    return exact_rows(rows, step, blocks.length) + blocks.draw(len(rows))


def check_step(t: int, steps: int) -> None:
    """Refuse a step that was not declared."""
    if not 1 <= t <= steps:
        raise ValueError(f"leaf {t} is not among the {steps} that this counter was declared for")
