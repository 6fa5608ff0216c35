"""Integer feature maps of linear planners and of their noisy sums (privacy.md §8, remedy B).

The integers *are* the feature map, also for planning: rounding happens once, here, and nowhere after.  One integer
step is ``unit`` long, so that ``phi = unit * f``; every ``||f||^2`` is at most ``square``, checked in integers.

A better basis makes less noise for the same linear class: isotropic noise is scaled to the longest feature, and a map
in which every direction is as long as it can be for that length wastes none of it.  So the smallest ellipsoid round all
±phi becomes the unit ball (John's position).  The basis is a function of the *declared* features alone, so it costs
nothing.  On paper 003's Appendix F, one-hot bits (0, 1) turn into about (-1, 1): noise per bit falls about threefold.

Features of a linear mixture MDP: P_h(s'|s,a) = <psi(s'|s,a), theta_h> with psi known (papers 000 and 001).

Regressions see phi_V(s,a) = sum_s' psi(s'|s,a) V(s').  The coordinates of phi_V fall into ``blocks`` of ``dimension``
each, and (s, a) uses one block only: a Gram matrix is then block diagonal, and only its blocks are released.

=================  =======  =========  =============================  =================================
features           blocks   dimension  phi_V(s, a) in its block       sup ||phi_V|| / ||V||_inf
=================  =======  =========  =============================  =================================
:func:`one_hot`    S A      S          V itself                       sqrt(S), and not 1 (paper 001)
:func:`dense`      1        d          psi(., s, a)^T V               at most sqrt(d) for kernels psi_i
=================  =======  =========  =============================  =================================

Features of real-valued observations: inside the unit ball by construction, then put on a lattice of integers.

An observation is shortened to the unit ball first, so ``|o| <= 1`` for any logged values.

===========  ============================================  ==========================
kind         psi(o)                                        |psi|^2
===========  ============================================  ==========================
affine       (1, o) / sqrt 2                               (1 + |o|^2) / 2 <= 1
quadratic    (1, o, o o' above and on the diagonal) / √3   (1 + |o|^2 + |o|^4) / 3
fourier      (cos w_i.o, sin w_i.o) / sqrt m               1: m waves, declared seed
===========  ============================================  ==========================

The features of a row are e_s (x) psi(o) (x) alpha(a): a block a declared state, and alpha one-hot or a declared row of
integers over the longest one's length.  A product of lengths at most 1 is at most 1; rounding errors are cut
where the product is put on the lattice, by truncation toward zero.  Every row is computed by itself, to the last bit.
"""

import json
import math
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from pipeline.arrays import Array, Integers


@dataclass(frozen=True)
class MixtureFeatures:
    """Known psi, entries at least 0.

    ``psi`` ``(S, A, S, d)``: of one block that all (s, a) share, or None: one-hot, each (s, a) its own block of S.
    ``stretch``: declared bound on ``||phi_V(s,a)|| / ||V||_inf`` for V >= 0.
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
        phi = np.einsum("satd,...t->...sad", self.psi, V)
        return phi.reshape(*V.shape[:-1], 1, -1, self.dimension)

    def place(self, cell: Integers) -> tuple[Integers, Integers]:
        """Block, and row in it, of each (s, a), ordered s A + a."""
        return (cell, np.zeros_like(cell)) if self.psi is None else (np.zeros_like(cell), cell)


def one_hot(states: int, actions: int) -> MixtureFeatures:
    """Psi = e_(s,a,s'): any tabular world is a mixture, theta_h its S^2 A transition probabilities."""
    return MixtureFeatures(None, states, actions, math.sqrt(states))


def dense(psi: Array) -> MixtureFeatures:
    """One block from ``psi (S, A, S, d)``; its stretch is attained at V = 1, as psi is nowhere negative.

    Raises ValueError if the shape is another one, or an entry is negative or not finite.
    """
    if psi.ndim != 4 or psi.shape[0] != psi.shape[2]:
        raise ValueError(f"psi must be (S, A, S, d); got {psi.shape}")
    if not np.isfinite(psi).all() or (psi < 0).any():
        raise ValueError("psi must be finite and nowhere negative")
    return MixtureFeatures(psi, psi.shape[0], psi.shape[1], float(np.linalg.norm(psi.sum(2), axis=-1).max()))


def dense_one_hot(states: int, actions: int) -> MixtureFeatures:
    """The one-hot psi as one dense block of S^2 A coordinates, as papers 000 and 001 print it, and much slower."""
    psi = np.eye(states * actions * states).reshape(states, actions, states, -1)
    return dense(psi)


@dataclass(frozen=True)
class RewardFeatures:
    """Known phi_r >= 0 of norm at most 1: r_h(s, a) = <phi_r(s, a), theta_{h,r}>.

    ``rows`` ``(S, A, d_2)``: or None: one-hot, each (s, a) its own block of one coordinate.
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


# keeps a row of norm exactly 1 inside the ball after the float rounding of its norm
_INSIDE = 1 - 1e-12


@dataclass(frozen=True)
class FeatureMap:
    """Features of finitely many states and actions, or those of a public sample of observations.

    ``integers`` ``(S, A, d)``: int64.
    ``square``: declared bound F^2 on every ``||f||^2``.
    ``unit_squared``: squared length of one integer step, exactly; ``1 / square`` puts ``phi`` in the unit ball.
    ``sample_of``: the map of observations, as text, of which these rows are a public sample; None: these rows are all.
    ``points``: of such a sample: observations ``(S, p)``, scaled, and indices of their live states ``(S,)``; None where
    only sums are read.
    Raises ValueError if a feature is longer than declared, or so long that its Gram matrix would leave 64-bit integers.
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

    The result holds integers of square norm at most ``steps**2``; NaN becomes 0.
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


def balance(features: FeatureMap) -> FeatureMap:
    """The same features in John's position, unused directions dropped, on the lattice of :func:`finite_map`.

    ``features``: declared integers ``(S, A, d)``.
    Returns ``(S, A, rank)``, every ``phi`` in the unit ball.
    """
    phi = balance_rows(features.integers.reshape(-1, features.dimension).astype(np.float64))
    return finite_map(phi.reshape(*features.integers.shape[:2], -1))


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


Kind = Literal["affine", "quadratic", "fourier"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_STEPS = 1024
# points of the public sample: on axes, and drawn in the ball by a seed of its own
_DRAWN, _SAMPLE_SEED = 64, 7


@dataclass(frozen=True)
class ObservedMap:
    """A map from (observation, declared state) to the integer features of every action.

    ``radius``: declared bound on its length; a longer one is shortened.
    ``actions``: ``A`` rows of integers; one-hot where nothing else is declared.
    ``waves``, ``bandwidth``, ``seed``: of ``fourier``: m, the length over which features turn by about one radian, and
    the seed of the waves.
    """

    kind: Kind
    size: int
    radius: float
    states: int
    actions: tuple[tuple[int, ...], ...]
    waves: int = 0
    bandwidth: float = 1.0
    seed: int = 0
    steps: int = _STEPS

    @property
    def told(self) -> str:
        """The map as text; the inverse of :func:`observed_map`."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def dimension(self) -> int:
        """d: length of a row's features."""
        p = self.size
        width = {"affine": 1 + p, "quadratic": 1 + p + p * (p + 1) // 2, "fourier": 2 * self.waves}[self.kind]
        return self.states * width * len(self.actions[0])

    @cached_property
    def frequencies(self) -> Array:
        """``(p, m)``: normal, of standard deviation 1 / bandwidth."""
        return np.random.default_rng(self.seed).normal(size=(self.size, self.waves)) / self.bandwidth

    @cached_property
    def _alpha(self) -> Array:
        rows = np.array(self.actions, dtype=np.float64)
        return rows / math.sqrt((rows * rows).sum(axis=1).max())

    def inside(self, observations: Array) -> Array:
        """Observations ``(n, p)`` over the radius, shortened to the unit ball; rows that are not finite are 0."""
        x = np.where(np.isfinite(observations).all(axis=1, keepdims=True), observations / self.radius, 0.0)
        largest = np.maximum(np.abs(x).max(axis=1, keepdims=True), 1.0)
        length = np.sqrt(np.einsum("np,np->n", x / largest, x / largest))[:, None] * largest
        return x / np.maximum(length, 1.0)

    def psi(self, observations: Array) -> Array:
        """``(n, k)``: features of observations ``(n, p)``."""
        o = self.inside(observations)
        if self.kind == "fourier":
            phase = np.einsum("np,pm->nm", o, self.frequencies)
            return np.concatenate([np.cos(phase), np.sin(phase)], axis=1) / math.sqrt(self.waves)
        one = np.ones((len(o), 1))
        if self.kind == "affine":
            return np.concatenate([one, o], axis=1) / math.sqrt(2)
        i, j = np.triu_indices(self.size)
        squares = o[:, i] * o[:, j] * np.where(i == j, 1.0, math.sqrt(2))
        return np.concatenate([one, o, squares], axis=1) / math.sqrt(3)

    def of_actions(self, observations: Array, states: Integers) -> Array:
        """Integer features of every action ``(n, A, d)``, as float64; every squared length is at most ``steps**2``.

        ``observations``, ``states`` ``(n, p)``: scaled, and ``(n,)`` indices of live states.
        """
        psi = self.psi(observations)
        of_action = np.einsum("nk,aq->nakq", psi, self._alpha).reshape(len(psi), len(self.actions), -1)
        return self._placed(quantise(of_action, self.steps), states)

    def of_taken(self, observations: Array, states: Integers, taken: Integers) -> Array:
        """The same of the action that was taken ``(n, d)``.

        ``observations``, ``states``, ``taken``: as of :meth:`of_actions`, and ``(n,)`` indices of actions.
        """
        psi = self.psi(observations)
        of_action = np.einsum("nk,nq->nkq", psi, self._alpha[taken]).reshape(len(psi), 1, -1)
        return self._placed(quantise(of_action, self.steps), states)[:, 0]

    def _placed(self, of_action: Array, states: Integers) -> Array:
        n, A, width = of_action.shape
        out = np.zeros((n, A, self.states, width))
        out[np.arange(n), :, states] = of_action
        return out.reshape(n, A, -1)

    def sample(self, first: Array) -> tuple[Array, Integers]:
        """Public observations ``(M, p)``, scaled, each in every declared state ``(M,)``: ``first``, axes, a draw.

        ``first`` ``(k, p)``: declared first observations, scaled; they come first.
        """
        rng = np.random.default_rng(_SAMPLE_SEED)
        drawn = rng.normal(size=(_DRAWN, self.size))
        drawn *= rng.random((_DRAWN, 1)) ** (1 / self.size) / np.linalg.norm(drawn, axis=1, keepdims=True)
        axes = np.concatenate([np.zeros((1, self.size)), np.eye(self.size), -np.eye(self.size)])
        points = np.concatenate([first, axes * self.radius, drawn * self.radius])
        # the states of one observation stand together, so that the first observations stay first
        return np.repeat(points, self.states, axis=0), np.tile(np.arange(self.states), len(points))

    def feature_map(self, first: Array) -> FeatureMap:
        """The map on its public sample: a :class:`~pipeline.mdp.features.FeatureMap` of a part."""
        return self.at(*self.sample(first))

    def at(self, observations: Array, states: Integers) -> FeatureMap:
        """The same on other public observations ``(M, p)``, scaled, in live states ``(M,)``."""
        integers, points = self.of_actions(observations, states).astype(np.int64), (observations, states)
        return FeatureMap(integers, self.steps**2, Fraction(1, self.steps**2), self.told, points)

    def onto(self, steps: int) -> "ObservedMap":
        """Features of successors without actions: one vector a successor, on its own lattice."""
        return replace(self, actions=((1,),), steps=steps)


def observed_map(text: str) -> ObservedMap:
    """The map of a text of :attr:`ObservedMap.told`."""
    values: dict[str, Any] = json.loads(text)
    actions = tuple(tuple(row) for row in values.pop("actions"))
    return ObservedMap(actions=actions, **values)
