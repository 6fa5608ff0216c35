"""The linear MDP of paper 003, Appendix F: 2 states, 100 actions, 20 steps, d = 10.

phi(s, a) = (bits of a, delta, 1 - delta) with delta = 1 iff [s = 0] = [a = 0]; per step, alpha_1, alpha_2, r ~ U[0, 1]:
P(0 | s, a) = delta alpha_1 + (1 - delta) alpha_2, and theta = (r/8, 0, r/8, 1/2 - r/2, r/8, 0, r/8, 0, r/2, 1/2 - r/2).
Behaviour: action 0 with probability 0.6, else one of the other 99; the first state is uniform.  Generator seed 0, most
significant bit first, alphas drawn before r: v* = 14.150866.

What is not exactly right
    * ||phi||^2 reaches 7, while the algorithm assumes 1: ``literal`` keeps the printed map (and breaks the printed
      guarantee), ``normalised`` divides it by sqrt(7): the same MDP.  ``balanced`` is the same linear class in John's
      position.
    * the order of the bits is not printed: ``msb`` (most significant first) or ``lsb``;
    * actions stop at 99 < 128, so one bit is always 0: features have rank 9 and the paper's coverage constant kappa
      is 0;
    * rewards: the paper gives the expected reward only; logs here hold the mean.
"""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.features import FeatureMap, balance
from pipeline.mdp.model import TabularMDP

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Scale = Literal["literal", "normalised", "balanced"]

STATES, ACTIONS, HORIZON, BITS = 2, 100, 20, 8
_FIRST = 0.6


@dataclass(frozen=True)
class LinearWorld:
    """A finite linear MDP: its exact model, integer features and logging policy ``(S, A)``.

    Parameters
    ----------
    mdp
        Exact model ``(20, 2, 100, 2)``, rewards in [0, 1].
    features
        Integer map ``(2, 100, d)``, d = 10, or 9 where balanced.
    behaviour
        ``(2, 100)`` probabilities of the logging policy.
    """

    mdp: TabularMDP
    features: FeatureMap
    behaviour: Array

    def counts(self, episodes: int, rng: np.random.Generator) -> Integers:
        """Transitions ``(H, S, A, S)`` of so many logged episodes, by multinomials: the exact law, at any number."""
        H, S, A = self.mdp.shape
        n = np.zeros((H, S, A, S), dtype=np.int64)
        at = rng.multinomial(episodes, self.mdp.start)
        for h in range(H):
            n[h] = rng.multinomial(rng.multinomial(at, self.behaviour), self.mdp.transitions[h])
            at = n[h].sum((0, 1))
        return n


def linear_003(seed: int, scale: Scale = "normalised", order: Literal["msb", "lsb"] = "msb") -> LinearWorld:
    """Build an instance.

    Parameters
    ----------
    seed
        Of the generator that draws alpha ``(H, 2)``, then r ``(H,)``.
    scale
        ``literal`` as printed, ``normalised`` over sqrt(7), or ``balanced`` in John's position.
    order
        Of the bits of an action: most or least significant first.
    """
    rng = np.random.default_rng(seed)
    alpha, r = rng.random((HORIZON, 2)), rng.random(HORIZON)
    f = integer_features(order)
    half = (1 - r) / 2
    theta = np.stack([r / 8, 0 * r, r / 8, half, r / 8, 0 * r, r / 8, 0 * r, r / 2, half], axis=1)
    P = np.zeros((HORIZON, STATES, ACTIONS, STATES))
    P[..., 0] = np.einsum("sad,hd->hsa", f[..., BITS:], alpha)
    P[..., 1] = 1 - P[..., 0]
    rewards = np.einsum("sad,hd->hsa", f, theta)
    behaviour = np.full((STATES, ACTIONS), (1 - _FIRST) / (ACTIONS - 1))
    behaviour[:, 0] = _FIRST
    return LinearWorld(TabularMDP(P, rewards, np.full(STATES, 0.5)), feature_map(scale, order), behaviour)


def integer_features(order: Literal["msb", "lsb"]) -> Integers:
    """Printed features ``(S, A, d)``: zeros and ones."""
    shift = np.arange(BITS)[:: -1 if order == "msb" else 1]
    f = np.zeros((STATES, ACTIONS, BITS + 2), dtype=np.int64)
    f[:, :, :BITS] = (np.arange(ACTIONS)[:, None] >> shift) & 1
    f[..., BITS] = (np.arange(STATES) == 0)[:, None] == (np.arange(ACTIONS) == 0)
    f[..., BITS + 1] = 1 - f[..., BITS]
    return f


def feature_map(scale: Scale, order: Literal["msb", "lsb"] = "msb") -> FeatureMap:
    """The printed map, the same over sqrt(7), or its linear class in John's position."""
    f = integer_features(order)
    square = int((f * f).sum(-1).max())
    printed = FeatureMap(f, square, Fraction(1) if scale == "literal" else Fraction(1, square))
    return balance(printed) if scale == "balanced" else printed
