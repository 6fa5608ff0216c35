"""Scores of people that measure a one-step policy: value, own return, gain and two placebos."""

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
    """Psi, own return, what is gained, and two placebos.

    Of somebody with several episodes each score is their mean.  What a log cuts off is worth nothing, in psi and in the
    own return alike.

    ``action`` ``(K,)``: see :class:`FeatureQuestion`.
    ``weights`` ``(H, K)``: of a row that follows, or stands where practice goes on, in 1/``RATIO_STEPS``.
    ``chance`` ``(K,)``: of the policy's action under practice, in 1/``RATIO_STEPS``, for the placebos.
    ``values`` ``(H + 1, K)``: of the policy from a step on, in 1/``RETURN_STEPS`` of the range of returns.
    ``practice`` ``(K,)``: of practice, for the placebos.
    ``lost``, ``past`` ``(K,)``: what is to be expected of what lies before a cell, as the placebos measure it.
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
        # what a person surprises us by being treated so, times what lay before: what was lost, and how it went
        surprise = np.where(r.action == self.action[r.cell], RATIO_STEPS, 0) - self.chance[r.cell]
        surprise[self.action[r.cell] < 0] = 0
        here = self.practice[r.cell]
        fall = self.practice[np.append(0, r.cell[:-1])] - here
        # of one step, what lies before is a person's earlier episodes
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
