"""Features of a linear mixture MDP: P_h(s'|s,a) = <psi(s'|s,a), theta_h> with psi known (papers 000 and 001).

Regressions see phi_V(s,a) = sum_s' psi(s'|s,a) V(s').  The coordinates of phi_V fall into ``blocks`` of ``dimension``
each, and (s, a) uses one block only: a Gram matrix is then block diagonal, and its blocks are all there is to release.

=================  =======  =========  =============================  =================================
features           blocks   dimension  phi_V(s, a) in its block       sup ||phi_V|| / ||V||_inf
=================  =======  =========  =============================  =================================
:func:`one_hot`    S A      S          V itself                       sqrt(S), and not 1 (paper 001)
:func:`dense`      1        d          psi(., s, a)^T V               at most sqrt(d) for kernels psi_i
=================  =======  =========  =============================  =================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class MixtureFeatures:
    """Known psi, entries at least 0.

    Parameters
    ----------
    psi
        ``(S, A, S, d)`` of one block that all (s, a) share, or None: one-hot, each (s, a) its own block of S.
    states, actions
        S and A.
    stretch
        Declared bound on ``||phi_V(s,a)|| / ||V||_inf`` for V >= 0.
    """

    psi: Array | None
    states: int
    actions: int
    stretch: float

    @property
    def blocks(self) -> int:
        """Blocks of the Gram matrix."""
        return self.states * self.actions if self.psi is None else 1

    @property
    def dimension(self) -> int:
        """Coordinates of one block."""
        return self.states if self.psi is None else self.psi.shape[-1]

    @property
    def unknowns(self) -> int:
        """d_1, length of theta_h."""
        return self.blocks * self.dimension

    def phi(self, V: Array) -> Array:
        """phi_V ``(..., blocks, SA / blocks, dimension)`` of every (s, a), ordered s A + a, for ``V (..., S)``."""
        if self.psi is None:
            return np.broadcast_to(V[..., None, None, :], (*V.shape[:-1], self.blocks, 1, self.states))
        found = np.einsum("satd,...t->...sad", self.psi, V)
        return found.reshape(*V.shape[:-1], 1, -1, self.dimension)

    def place(self, cell: Integers) -> tuple[Integers, Integers]:
        """Block, and row in it, of each (s, a), ordered s A + a."""
        return (cell, np.zeros_like(cell)) if self.psi is None else (np.zeros_like(cell), cell)


def one_hot(states: int, actions: int) -> MixtureFeatures:
    """Psi = e_(s,a,s'): any tabular world is a mixture, theta_h its S^2 A transition probabilities."""
    return MixtureFeatures(None, states, actions, math.sqrt(states))


def dense(psi: Array) -> MixtureFeatures:
    """One block from ``psi (S, A, S, d)``; its stretch is attained at V = 1, as psi is nowhere negative.

    Raises
    ------
    ValueError
        If the shape is another one, or an entry is negative or not finite.
    """
    if psi.ndim != 4 or psi.shape[0] != psi.shape[2]:
        raise ValueError(f"psi must be (S, A, S, d); got {psi.shape}")
    if not np.isfinite(psi).all() or (psi < 0).any():
        raise ValueError("psi must be finite and nowhere negative")
    return MixtureFeatures(psi, psi.shape[0], psi.shape[1], float(np.linalg.norm(psi.sum(2), axis=-1).max()))


def dense_one_hot(states: int, actions: int) -> MixtureFeatures:
    """The one-hot psi as one dense block of S^2 A coordinates: what papers 000 and 001 print, and much slower.

    Parameters
    ----------
    states, actions
        S and A; the block has S^2 A coordinates.
    """
    psi = np.eye(states * actions * states).reshape(states, actions, states, -1)
    return dense(psi)


@dataclass(frozen=True)
class RewardFeatures:
    """Known phi_r >= 0 of norm at most 1: r_h(s, a) = <phi_r(s, a), theta_{h,r}>.

    Parameters
    ----------
    rows
        ``(S, A, d_2)``, or None: one-hot, each (s, a) its own block of one coordinate.
    states, actions
        S and A.
    """

    rows: Array | None
    states: int
    actions: int

    def __post_init__(self) -> None:
        if self.rows is not None and not ((self.rows >= 0).all() and np.linalg.norm(self.rows, axis=-1).max() <= 1):
            raise ValueError("reward features must be nowhere negative and at most 1 long; scale them")

    @property
    def blocks(self) -> int:
        """Blocks of the Gram matrix."""
        return self.states * self.actions if self.rows is None else 1

    @property
    def dimension(self) -> int:
        """Coordinates of one block."""
        return 1 if self.rows is None else self.rows.shape[-1]

    def phi(self) -> Array:
        """``(blocks, SA / blocks, dimension)`` of every (s, a), ordered s A + a."""
        return np.ones((self.blocks, 1, 1)) if self.rows is None else self.rows.reshape(1, -1, self.dimension)

    def place(self, cell: Integers) -> tuple[Integers, Integers]:
        """Block, and row in it, of each (s, a)."""
        return (cell, np.zeros_like(cell)) if self.rows is None else (np.zeros_like(cell), cell)
