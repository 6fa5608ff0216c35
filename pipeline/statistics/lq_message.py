"""What LQ episodes add to the two sums of paper 004: integers cut to balls, and how far one person moves them.

With z = (x, u) an episode adds sum_h z z' and sum_h z x_next'.  x, u and x_next are cut to their balls *before* they
are multiplied, episodes to H steps: the guarantee rests on that alone, never on the plant (privacy.md §7).

====================  ==============================  =====================================  =====================
sum                   declared                        replace-one, here                      paper 004 prints
====================  ==============================  =====================================  =====================
``gram``, Frobenius   ``||z||^2 <= 1 + gamma^2``      sqrt(2) H (1 + gamma^2)                H (1 + gamma)^2
``cross``             ``||z x_next'||``               2 H sqrt(1 + gamma^2)                  H (1 + gamma)
====================  ==============================  =====================================  =====================

The paper's are norms of one episode, not of a difference of two.  The two largest moves exclude each other:
:class:`~pipeline.statistics.gram_moves.BallMoves` bounds them together.

What an episode adds when residuals are asked: one matrix, cut as a whole to a ball, and how far one person moves it.

An episode adds sum_h F z_h (x_{h+1} - [A, B] z_h)' with z = (x, u), a frame F and a centre [A, B] that are public.
The sum is cut to ``|.| <= radius`` (Frobenius), not each of its H rows: its length grows with the root of H, and with
the noise of the plant instead of the length of its states.  Then it is put on the lattice of ``radius / steps`` by
truncation toward zero, which keeps its length.  So replacing a person moves the sum by at most ``2 steps`` lattice
points, whatever the plant, the frame and the centre are.
"""

# ruff: noqa: N806  (the letters of the paper)
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.rollout import LqBatch
from pipeline.statistics.ask import Ask
from pipeline.statistics.gram_moves import BallMoves
from pipeline.statistics.layout import Rates, Relation, Table
from pipeline.statistics.lq_layout import ANGLES
from pipeline.statistics.lq_rows import on_lattice, stretched
from pipeline.statistics.online_sum import Groups, SimulatedLayout, lattice_table

# keeps a matrix of length exactly 1 inside the ball after the rounding of its length
_INSIDE = 1 - 1e-12
# each state of an extreme episode is so much longer than the one before: the centre hardly counts
_GROWTH = 1e3


@dataclass(frozen=True)
class ResidualMessage(SimulatedLayout):
    """Shape and bound of one episode's matrix, all public before the episode is played.

    Parameters
    ----------
    centre
        ``(n, D)``: [A, B] whose prediction is subtracted.
    frame
        ``(D, D)``: F.
    radius
        Length to which an episode's matrix is cut.
    horizon
        H: steps of an episode that are read.
    steps
        Lattice steps from the middle of the ball to its edge.
    """

    centre: Array
    frame: Array
    radius: float
    horizon: int
    steps: int = 2**20
    of = "residual sums"

    def __post_init__(self) -> None:
        """Refuse what is no ball."""
        if not 0 < self.radius < np.inf or self.horizon < 1 or self.steps < 1:
            raise ValueError(f"radius, horizon and steps must be positive; got {self.radius}, {self.horizon}")

    @property
    def tables(self) -> tuple[Table, ...]:
        """See :class:`~pipeline.statistics.layout.Layout`: the matrix, flat."""
        rule = "each episode's matrix cut to its ball"
        return (lattice_table("residual", self.centre.size, 4 * self.steps**2, rule),)

    def integers(self, batch: LqBatch) -> Integers:
        """Sum of the matrices of a batch ``(D n,)``, lattice steps.

        Parameters
        ----------
        batch
            Episodes, every one of them played; one that is not finite counts as absent.

        Raises
        ------
        ValueError
            If the batch stands for more episodes than it holds: a cut sum has no exact mean.
        """
        if batch.episodes != len(batch.states):
            raise ValueError("residual sums are cut episode by episode: ask for batches that are played in full")
        return self.each(batch.states, batch.controls).sum(axis=0)

    def each(self, states: Array, controls: Array) -> Integers:
        """One flat matrix an episode ``(B, D n)``, cut, truncated toward zero; it depends on that episode alone.

        Parameters
        ----------
        states, controls
            ``(B, T+1, n)`` and ``(B, T, d)``; steps beyond H are not read.
        """
        H = min(self.horizon, controls.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            z = np.concatenate([states[:, :H], controls[:, :H]], axis=2)
            # einsum: a BLAS product rounds an episode by its place in the batch
            residual = states[:, 1 : H + 1] - np.einsum("ij,bhj->bhi", self.centre, z)
            found = np.einsum("ij,bhj,bhk->bik", self.frame, z, residual).reshape(len(z), -1) / self.radius
            largest = np.maximum(np.abs(found).max(axis=1, keepdims=True), 1.0)
            length = largest * np.sqrt(np.einsum("bi,bi->b", found / largest, found / largest))[:, None]
            cut = np.trunc(found / np.maximum(length, 1.0) * (self.steps * _INSIDE))
        cut = np.where(np.isfinite(cut).all(axis=1, keepdims=True), cut, 0.0)
        return np.where(np.einsum("bi,bi->b", cut, cut)[:, None] <= self.steps**2, cut, 0.0).astype(np.int64)

    def matrix(self, total: Array) -> Array:
        """The inverse of :meth:`integers` on noisy sums: ``(D, n)`` in real units.

        Parameters
        ----------
        total
            ``(D n,)``, lattice steps.
        """
        return (total * (self.radius / self.steps)).reshape(self.centre.shape[::-1])

    def extremes(self) -> Iterator[LqBatch]:
        """Two episodes whose matrices are far too long and opposite: one grows, the other also flips its sign."""
        n, D = self.centre.shape
        for ratio in (_GROWTH, -_GROWTH):
            states, controls = stretched(min(self.horizon, 10), (n, D - n), (1.0, 1.0), (0.0, 0.0), ratio)
            yield LqBatch(states[None], controls[None], 1)


Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# of the two shares the one that makes sqrt(lambda_max) + nu least is between .6 and .8 for n + d = 3 .. 6
GRAM_SHARE = Fraction(2, 3)


@dataclass(frozen=True)
class LqMessage(SimulatedLayout):
    """Shape and bounds of one episode's sums, all declared.

    Parameters
    ----------
    state, control
        n and d.
    horizon
        H: steps of an episode that are read.
    gamma
        Bound on ``||u||``; those on x and x_next are 1, the unit.
    steps
        q: lattice steps to the unit.
    """

    state: int
    control: int
    horizon: int
    gamma: float
    steps: int = 4096

    @property
    def dimension(self) -> int:
        """D = n + d."""
        return self.state + self.control

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Integers on the diagonal of the Gram matrix, above it, and in the cross sums."""
        D = self.dimension
        return D, D * (D - 1) // 2, D * self.state

    @property
    def _squares(self) -> tuple[int, int]:
        """Largest squared lengths of x (and x_next) and of u, in lattice steps squared."""
        return self.steps**2, math.floor((Fraction(self.gamma) * self.steps) ** 2)

    @property
    def tables(self) -> tuple[Table, ...]:
        """See :class:`~pipeline.statistics.layout.Layout`: the Gram matrix's diagonal, what is above it, cross sums."""
        rule, one = "rows cut to balls", Fraction(1)
        squares = (self.cost({"diagonal": one}), self.cost({"above": one}), self.cost({"cross": one}))
        found = zip(("diagonal", "above", "cross"), self.sizes, squares, strict=True)
        return tuple(lattice_table(name, size, math.ceil(square), rule) for name, size, square in found)

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        """Largest summed ``rate |move|^2`` of a replaced episode, lattice steps to the 4th, all tables together.

        A Gram matrix has squared Frobenius norm diagonal^2 + 2 above^2, so it counts with the larger of the diagonal's
        rate and half of the rate above it: attained by isotropic variances, an upper bound for the paper's equal ones.
        Who comes or goes moves no more than who is replaced.
        """
        diagonal, above, cross = (rates.get(name, Fraction(0)) for name in ("diagonal", "above", "cross"))
        of_state, of_control = self._squares
        reach = BallMoves(of_state + of_control, self.horizon)
        return reach.cost(max(diagonal, above / 2), cross * of_state, Fraction(0))

    def joint(self) -> dict[str, object]:
        """See :class:`~pipeline.statistics.layout.Layout`."""
        return {"rule": "both sums together, rows cut to balls", "steps": self.steps, "horizon": self.horizon}

    def groups(self, ask: Ask) -> Groups:
        """See :class:`~pipeline.statistics.online_sum.SimulatedLayout`: isotropic in svec coordinates."""
        return [({"diagonal": 2, "above": 1}, GRAM_SHARE), ({"cross": 1}, 1 - GRAM_SHARE)]

    def extremes(self) -> Iterator[LqBatch]:
        """Episodes that keep one row, longer than the bounds allow, turned by two angles.

        The first stands still; every other flips its sign at each step.
        """
        sizes, bounds = (self.state, self.control), (1.0, self.gamma)
        turns = itertools.product(np.linspace(0, np.pi, ANGLES), repeat=2)
        for how in (((0.0, 0.0), 1.0), *((turn, -1.0) for turn in turns)):
            states, controls = stretched(self.horizon, sizes, bounds, *how)
            yield LqBatch(states[None], controls[None], 1)

    def integers(self, batch: LqBatch) -> Integers:
        """The message of all episodes that a batch stands for ``(L,)``, in lattice steps squared: the sum of theirs.

        Parameters
        ----------
        batch
            Episodes; a row that is not finite counts as absent.
        """
        z, following = self.rows(batch.states, batch.controls)
        # products up to 2^25 each: sums of 2^28 rows are exact in float64
        found, episodes = _flat(z.T @ z, z.T @ following), len(batch.states)
        if batch.means is not None:
            mean = _flat(*batch.means) * self.steps**2
            deviation = found.astype(np.int64) - episodes * mean
            found = np.rint(batch.episodes * mean + math.sqrt(batch.episodes / episodes) * deviation)
        return found.astype(np.int64)

    def rows(self, states: Array, controls: Array) -> tuple[Array, Array]:
        """Integers held as float64: z ``(rows, D)`` and next states ``(rows, n)``, cut, truncated toward zero."""
        H = min(self.horizon, controls.shape[1])
        raw = states[:, :H], controls[:, :H] / self.gamma, states[:, 1 : H + 1]
        flat = [v.reshape(-1, v.shape[2]) for v in raw]
        of_state, of_control = self._squares
        lattice = self.steps, self.steps * self.gamma, self.steps
        return on_lattice(flat, np.ones(len(flat[0]), dtype=bool), lattice, (of_state, of_control, of_state))

    def sums(self, total: Array) -> tuple[Array, Array]:
        """The inverse of :meth:`integers` on noisy sums: ``(D, D)`` symmetric and ``(D, n)``, in units."""
        D, n = self.dimension, self.state
        diagonal, above, cross = np.split(total / self.steps**2, np.cumsum(self.sizes)[:2])
        gram = np.zeros((D, D))
        gram[np.triu_indices(D, 1)] = above
        return gram + gram.T + np.diag(diagonal), cross.reshape(D, n)


def _flat(gram: Array, cross: Array) -> Array:
    return np.concatenate([gram.diagonal(), gram[np.triu_indices(len(gram), 1)], cross.ravel()])


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
