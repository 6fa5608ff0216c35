"""Directions that declared features of observations may leave out: public waves of what was seen, by what was done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_SEED = 29
# radians over the declared ball, wave by wave: slow waves are nearly squares
_TURNS = (1.5, 3.0, 6.0)


@dataclass(frozen=True)
class Directions:
    """K - 1 waves cos(o.frequency + phase) of an observation o in the unit ball, with a sign for each action.

    ``frequencies``, ``phases``, ``signs``: ``(p, K - 1)``, ``(L, K - 1)``, ``(A, K - 1)``.
    """

    frequencies: Array
    phases: Array
    signs: Array

    def of(self, inside: Array, states: Integers, taken: Integers, follows: NDArray[np.bool_]) -> Array:
        """``(n, K)``, each in -1 .. 1: whether a row follows the policy, then the waves.

        ``inside`` ``(n, p)``: observations in the unit ball.
        ``states``, ``taken`` ``(n,)``: live state and action.
        """
        phase = np.einsum("np,pk->nk", inside, self.frequencies) + self.phases[states]
        return np.concatenate([follows[:, None] * 1.0, np.cos(phase) * self.signs[taken]], axis=1)


def directions(size: int, states: int, actions: int, number: int) -> Directions:
    """Directions ``number`` in all, the same for every release: every other wave has one sign for all actions."""
    rng, waves = np.random.default_rng(_SEED), number - 1
    turns = np.resize(_TURNS, waves)
    signs = np.where(np.arange(waves) % 2 == 0, 1.0, rng.choice([-1.0, 1.0], size=(actions, waves)))
    return Directions(
        rng.normal(size=(size, waves)) * turns, rng.uniform(0, 2 * np.pi, size=(states, waves)), signs
    )
