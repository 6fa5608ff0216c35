"""Integer feature maps: what a linear planner and the sums under its noise both see (privacy.md §8, remedy B).

The integers *are* the feature map, also for planning: rounding happens once, here, and nowhere after.  One integer
step is ``unit`` long, so that ``phi = unit * f``; every ``||f||^2`` is at most ``square``, checked in integers.

A better basis makes less noise for the same linear class: isotropic noise is scaled to the longest feature, and a map
in which every direction is as long as it can be for that length wastes none of it.  So the smallest ellipsoid round all
±phi becomes the unit ball (John's position).  The basis is a function of the *declared* features alone, so it costs
nothing.  On paper 003's Appendix F, one-hot bits (0, 1) turn into about (-1, 1): noise per bit falls about threefold.

Features of a linear mixture MDP: P_h(s'|s,a) = <psi(s'|s,a), theta_h> with psi known (papers 000 and 001).

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
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray


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


Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# keeps a row of norm exactly 1 inside the ball after the float rounding of its norm
_INSIDE = 1 - 1e-12


@dataclass(frozen=True)
class FeatureMap:
    """Features of finitely many states and actions, or those of a public sample of observations.

    Parameters
    ----------
    integers
        ``(S, A, d)`` int64.
    square
        Declared bound F^2 on every ``||f||^2``.
    unit_squared
        Squared length of one integer step, exactly; ``1 / square`` puts ``phi`` in the unit ball.
    sample_of
        The map of observations, as text, of which these rows are a public sample; None: they are all there are.
    points
        Of such a sample: observations ``(S, p)``, scaled, and indices of their live states ``(S,)``; None where only
        sums are read.

    Raises
    ------
    ValueError
        If a feature is longer than declared, or so long that its Gram matrix would leave 64-bit integers.
    """

    integers: Integers
    square: int
    unit_squared: Fraction
    sample_of: str | None = None
    points: tuple[Array, Integers] | None = None

    def __post_init__(self) -> None:
        f = self.integers
        if f.ndim != 3 or f.dtype != np.int64:
            raise ValueError(f"features must be int64 (S, A, d); got {f.dtype} {f.shape}")
        if self.square <= 0 or self.square >= 2**30:
            raise ValueError(f"square must be in 1 .. 2^30; got {self.square}")
        # entries first: a wrapped square could look small
        longest = max(int(f.max(initial=0)), -int(f.min(initial=0)))
        if longest > math.isqrt(self.square) or (f * f).sum(-1).max(initial=0) > self.square:
            raise ValueError(
                f"a feature is longer than the declared square norm {self.square}; clip or rescale the map"
            )

    @property
    def unit(self) -> float:
        """Length of one integer step."""
        return math.sqrt(self.unit_squared)

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return self.integers.shape[-1]


def quantise(phi: Array, steps: int) -> Array:
    """Rows ``(..., d)`` clipped to the unit ball and truncated toward zero to ``steps`` steps a unit, as float64.

    The result holds integers of square norm at most ``steps**2``; what is not a number becomes 0.
    """
    phi = np.nan_to_num(np.asarray(phi, dtype=np.float64), nan=0.0, posinf=1e150, neginf=-1e150)
    # the largest entry is divided out first, so that no square overflows
    largest = np.maximum(np.abs(phi).max(axis=-1, keepdims=True), 1.0)
    norm = np.linalg.norm(phi / largest, axis=-1, keepdims=True) * largest
    return np.trunc(phi / np.maximum(norm, 1.0) * (steps * _INSIDE))


def finite_map(phi: Array, steps: int = 1024) -> FeatureMap:
    """Real features ``(S, A, d)`` of norm at most 1 on the lattice of ``1 / steps``."""
    return FeatureMap(quantise(phi, steps).astype(np.int64), steps * steps, Fraction(1, steps * steps))


_ROUNDS = 500
# singular values below this share of the largest are directions no declared feature has
_RANK = 1e-9


def balance(features: FeatureMap, steps: int = 1024) -> FeatureMap:
    """The same features in John's position, unused directions dropped, on the lattice of ``1 / steps``.

    Parameters
    ----------
    features
        Declared integers ``(S, A, d)``.
    steps
        Lattice steps of one unit of length, of the new map.

    Returns
    -------
    ``(S, A, rank)``, every ``phi`` in the unit ball.
    """
    phi = balance_rows(features.integers.reshape(-1, features.dimension).astype(np.float64))
    return finite_map(phi.reshape(*features.integers.shape[:2], -1), steps)


def balance_rows(rows: Array) -> Array:
    """Rows ``(n, d)`` in John's position ``(n, rank)``, the longest of norm 1.

    The weights of the smallest ellipsoid round ±rows are found by Titterington's multiplicative rounds, which double
    as D-optimal design; stopping early only leaves the basis a little less even.
    """
    _, s, Vt = np.linalg.svd(rows, full_matrices=False)
    X = rows @ Vt[: int((s > _RANK * s[0]).sum())].T
    p = np.full(len(X), 1 / len(X))
    for _ in range(_ROUNDS):
        M = (X * p[:, None]).T @ X
        p *= np.einsum("ij,ji->i", X, np.linalg.solve(M, X.T)) / X.shape[1]
    w, E = np.linalg.eigh((X * p[:, None]).T @ X)
    Y = X @ (E / np.sqrt(w))
    return Y / np.linalg.norm(Y, axis=1).max()
