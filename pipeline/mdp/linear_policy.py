"""A linear policy over observations, as plain arrays, and directions in which its learner's values are checked.

Every row is computed by itself, to the last bit: a BLAS product rounds a row by its place in the batch, and one
person's choice would depend on earlier people.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.arrays import Array, Bools, Integers

PRACTICE = -1
# of the directions, which are the same for every release
_SEED = 29
# steps on end that a person may have followed
LONGEST = 3
# radians over the declared ball, wave by wave: slow waves are nearly squares
_TURNS = (1.5, 3.0, 6.0)


@dataclass(frozen=True)
class LinearPolicy:
    """The allowed action with the greatest clipped pessimistic value among those with evidence; else practice.

    ``w``, ``inverse``: of each step ``(H, d)`` and ``(H, d, d)``: Q = phi.w + offset - multiplier (phi' inverse
    phi)^1/2 - constant, phi = ``unit`` x integers.
    ``offset``, ``multiplier``, ``constant`` ``(H,)``, ``clip`` ``(H, 2)``: reward units of the learner.
    ``threshold``: rows that an action's direction must exceed, see :func:`~pipeline.agents.linear_backup.evidence_of`.
    ``allowed`` ``(A,)``: in any state.
    """

    w: Array
    inverse: Array
    offset: Array
    multiplier: Array
    constant: Array
    clip: Array
    unit: float
    threshold: float
    allowed: Bools

    def choose(self, h: int, features: Array) -> Integers:
        """Action ``(n,)`` at integer features of every action ``(n, A, d)``; :data:`PRACTICE` where none has evidence.

        Ties of the clipped value go to the unclipped one, then to the first.
        """
        phi = features * self.unit
        length = np.maximum(np.einsum("nad,nad->na", np.einsum("nad,de->nae", phi, self.inverse[h]), phi), 0.0)
        width = self.multiplier[h] * np.sqrt(length) + self.constant[h]
        Q = np.einsum("nad,d->na", phi, self.w[h]) + self.offset[h] - width
        evidence = np.einsum("nad,nad->na", phi, phi) / np.maximum(length, 1e-300)
        may = self.allowed & (evidence > self.threshold)
        clipped = np.where(may, np.clip(Q, *self.clip[h]), -np.inf)
        first = clipped == clipped.max(axis=1, keepdims=True)
        best = np.where(first & may, Q, -np.inf).argmax(axis=1)
        return np.where(may.any(axis=1), best, PRACTICE)


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
    following: Bools

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
