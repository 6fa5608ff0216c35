"""Features of real-valued observations: inside the unit ball by construction, then put on a lattice of integers.

An observation is shortened to the unit ball first, so ``|o| <= 1`` whatever was logged.

===========  ============================================  ==========================
kind         psi(o)                                        |psi|^2
===========  ============================================  ==========================
affine       (1, o) / sqrt 2                               (1 + |o|^2) / 2 <= 1
quadratic    (1, o, o o' above and on the diagonal) / √3   (1 + |o|^2 + |o|^4) / 3
fourier      (cos w_i.o, sin w_i.o) / sqrt m               1: m waves, declared seed
===========  ============================================  ==========================

The features of a row are e_s (x) psi(o) (x) alpha(a): a block a declared state, and alpha one-hot or a declared row of
integers over the longest one's length.  A product of lengths at most 1 is at most 1; what rounding adds is cut off
where the product is put on the lattice, by truncation toward zero.  Every row is computed by itself, to the last bit.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.features import FeatureMap, quantise

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Kind = Literal["affine", "quadratic", "fourier"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_STEPS = 1024
# points of the public sample: on axes, and drawn in the ball by a seed of its own
_DRAWN, _SAMPLE_SEED = 64, 7


@dataclass(frozen=True)
class ObservedMap:
    """A map from (observation, declared state) to the integer features of every action.

    Parameters
    ----------
    kind
        See the module.
    size
        Coordinates p of an observation, which is scaled already.
    radius
        Declared bound on its length; what is longer is shortened.
    states
        Declared live states: a block of features each.
    actions
        ``A`` rows of integers; one-hot where nothing else is declared.
    waves, bandwidth, seed
        Of ``fourier``: m, the length over which features turn by about one radian, and what the waves are drawn by.
    steps
        Lattice steps of the unit.
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
        """The whole map as text, from which it is made again."""
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
        """Observations ``(n, p)`` over the radius, shortened to the unit ball; what is not finite is 0."""
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

        Parameters
        ----------
        observations, states
            ``(n, p)`` scaled, and ``(n,)`` indices of live states.
        """
        psi = self.psi(observations)
        of_action = np.einsum("nk,aq->nakq", psi, self._alpha).reshape(len(psi), len(self.actions), -1)
        return self._placed(quantise(of_action, self.steps), states)

    def of_taken(self, observations: Array, states: Integers, taken: Integers) -> Array:
        """The same of the action that was taken ``(n, d)``.

        Parameters
        ----------
        observations, states, taken
            As of :meth:`of_actions`, and ``(n,)`` indices of actions.
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

        Parameters
        ----------
        first
            ``(k, p)`` declared first observations, scaled; they come first.
        """
        rng = np.random.default_rng(_SAMPLE_SEED)
        drawn = rng.normal(size=(_DRAWN, self.size))
        drawn *= rng.random((_DRAWN, 1)) ** (1 / self.size) / np.linalg.norm(drawn, axis=1, keepdims=True)
        axes = np.concatenate([np.zeros((1, self.size)), np.eye(self.size), -np.eye(self.size)])
        points = np.concatenate([first, axes * self.radius, drawn * self.radius])
        # the states of one observation stand together, so that the first observations stay first
        return np.repeat(points, self.states, axis=0), np.tile(np.arange(self.states), len(points))

    def feature_map(self, first: Array) -> FeatureMap:
        """The map on its public sample: a :class:`~pipeline.mdp.features.FeatureMap` that is no whole one.

        Parameters
        ----------
        first
            See :meth:`sample`.
        """
        return self.at(*self.sample(first))

    def at(self, observations: Array, states: Integers) -> FeatureMap:
        """The same on other public observations ``(M, p)``, scaled, in live states ``(M,)``."""
        integers, points = self.of_actions(observations, states).astype(np.int64), (observations, states)
        return FeatureMap(integers, self.steps**2, Fraction(1, self.steps**2), self.told, points)

    def onto(self, steps: int) -> ObservedMap:
        """Features of where a row led, whatever is done there: one vector a successor, on its own lattice.

        Parameters
        ----------
        steps
            Lattice steps of its unit.
        """
        return replace(self, actions=((1,),), steps=steps)


def observed_map(told: str) -> ObservedMap:
    """The map that a text tells.

    Parameters
    ----------
    told
        :attr:`ObservedMap.told`.
    """
    values: dict[str, Any] = json.loads(told)
    actions = tuple(tuple(row) for row in values.pop("actions"))
    return ObservedMap(actions=actions, **values)
