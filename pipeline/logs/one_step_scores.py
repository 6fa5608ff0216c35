"""Scores of people for the evaluation of a one-step policy: value, own return, gain and two placebos."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.logs.one_step_rows import RETURN_STEPS, digest, followed, read_cells
from pipeline.statistics.scores import Clips, fared

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# lattice steps of a weight of 1
RATIO_STEPS = 1 << 14


@dataclass(frozen=True)
class OneStepScores:
    """Psi, own return, gain, and two placebos; each score of a person is the mean over their episodes.

    Steps that the log cuts off count as 0, in psi and in the own return alike.

    ``action`` ``(K,)``: see :class:`FeatureQuestion`.
    ``weights`` ``(H, K)``: of rows that follow the policy or where it is practice, in 1/``RATIO_STEPS``.
    ``chance`` ``(K,)``: probability of the policy's action under practice, in 1/``RATIO_STEPS``, for the placebos.
    ``values`` ``(H + 1, K)``: of the policy from a step on, in 1/``RETURN_STEPS`` of the range of returns.
    ``practice`` ``(K,)``: values of practice, for the placebos.
    ``lost``, ``past`` ``(K,)``: expectations of the past before a cell, as the placebos measure it.
    """

    action: Integers = field(repr=False)
    weights: Integers = field(repr=False)
    chance: Integers = field(repr=False)
    values: Integers = field(repr=False)
    practice: Integers = field(repr=False)
    lost: Integers = field(repr=False)
    past: Integers = field(repr=False)
    clips: Clips

    def depends_on(self) -> Any:
        arrays = self.action, self.weights, self.chance, self.values, self.practice, self.lost, self.past
        return ["one step", digest(*arrays), astuple(self.clips)]

    def of(self, card: Card, rows: pl.DataFrame) -> Array:
        unit = (self.clips.high - self.clips.low) / RETURN_STEPS
        r = read_cells(card, rows, self.clips.high - self.clips.low)
        first = r.begins
        following = np.where(r.onto >= 0, self.values[r.step + 1, r.onto], 0)
        off = r.reward + following - self.values[r.step, r.cell]
        corrected = followed(r, self.action, self.weights[r.step, r.cell]) * off
        begun = np.where(first, self.values[r.step, r.cell], 0)
        # surprise of the action, times the past: the value lost, and the luck
        surprise = np.where(r.action == self.action[r.cell], RATIO_STEPS, 0) - self.chance[r.cell]
        surprise[self.action[r.cell] < 0] = 0
        here = self.practice[r.cell]
        fall = self.practice[np.append(0, r.cell[:-1])] - here
        # in episodes of one step, the past is a person's earlier episodes
        anew = first if card.domain.horizon > 1 else np.append(True, np.diff(r.user) != 0)
        luck = np.rint(fared((r.reward + np.where(r.onto >= 0, self.practice[r.onto], 0) - here).astype(float), anew))
        lost = np.where(first, 0, surprise * (fall - self.lost[r.cell]))
        past = np.where(anew, 0, surprise * (luck.astype(np.int64) - self.past[r.cell]))
        # exact: no sum of a person's integers reaches 2^53
        people = int(r.user[-1]) + 1
        told = (begun * RATIO_STEPS + corrected, r.reward * RATIO_STEPS, lost, past)
        psi, own, lost, past = (np.bincount(r.user, weights=x, minlength=people) * (unit / RATIO_STEPS) for x in told)
        episodes = np.bincount(r.user[first], minlength=people)
        if (self.action < 0).all():
            psi = own
        return self.clips.scaled(psi / episodes, own / episodes, lost / episodes, past / episodes)
