"""What an episode adds when residuals are asked: one matrix, cut as a whole to a ball, and how far one person moves it.

An episode adds sum_h F z_h (x_{h+1} - [A, B] z_h)' with z = (x, u), a frame F and a centre [A, B] that are public.
The sum is cut to ``|.| <= radius`` (Frobenius), not each of its H rows: its length grows with the root of H, and with
the noise of the plant instead of the length of its states.  Then it is put on the lattice of ``radius / steps`` by
truncation toward zero, which keeps its length.  So replacing a person moves the sum by at most ``2 steps`` lattice
points, whatever the plant, the frame and the centre are.
"""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.rollout import LqBatch
from pipeline.statistics.layout import Table
from pipeline.statistics.lq_rows import stretched
from pipeline.statistics.online_sum import SimulatedLayout, lattice_table

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

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
