"""Directions that declared features may leave out: how long a person followed, and public waves of observations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

_SEED = 29
# steps on end that a person may have followed
LONGEST = 3
# radians over the declared ball, wave by wave: slow waves are nearly squares
_TURNS = (1.5, 3.0, 6.0)


@dataclass(frozen=True)
class Directions:
    """Indicators that a person followed the policy for 1, 2 and 3 steps in a row, and k waves.

    A wave is cos(o.frequency + phase) of an observation o in the unit ball, with a sign for each action.  Where the
    policy leads people far from practice, those who followed for a while are there.

    ``frequencies``, ``phases``, ``signs``: ``(p, k)``, ``(L, k)``, ``(A, k)``.
    ``following`` ``(k,)``: waves that are 0 where a row does not follow the policy.
    """

    frequencies: Array
    phases: Array
    signs: Array
    following: NDArray[np.bool_]

    def of(self, inside: Array, states: Integers, taken: Integers, followed: Integers) -> Array:
        """``(n, 3 + k)``, each in -1 .. 1.

        ``inside`` ``(n, p)``: observations in the unit ball.
        ``states``, ``taken`` ``(n,)``: live state and action.
        ``followed`` ``(n,)``: number of steps, this one included, for which the person followed the policy.
        """
        phase = np.einsum("np,pk->nk", inside, self.frequencies) + self.phases[states]
        waves = np.where(self.following & (followed == 0)[:, None], 0.0, np.cos(phase) * self.signs[taken])
        return np.concatenate([followed[:, None] >= np.arange(1, LONGEST + 1), waves], axis=1, dtype=np.float64)


def directions(size: int, states: int, actions: int, number: int) -> Directions:
    """A number of directions, the same for every release.

    By turns a wave is alike for all actions, has signs of its own for each, or is one of rows that follow the policy.
    """
    rng, waves = np.random.default_rng(_SEED), number - LONGEST
    kind = np.arange(waves) % 3
    turns = np.repeat(_TURNS, -(-waves // len(_TURNS)))[:waves]
    frequencies = rng.normal(size=(size, waves)) * turns
    phases = rng.uniform(0, 2 * np.pi, size=(states, waves))
    signs = np.where(kind == 1, rng.choice([-1.0, 1.0], size=(actions, waves)), 1.0)
    return Directions(frequencies, phases, signs, kind == 2)
