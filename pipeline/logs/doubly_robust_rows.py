"""Scores of people for the tabular doubly robust estimator, from their rows and a released model."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from pipeline.arrays import Array, Integers
from pipeline.declaration.card import Card
from pipeline.logs.aggregate import successor
from pipeline.logs.target_sums import lattice_rewards
from pipeline.statistics.scores import Clips, Question, fared

# bound of logged weights, and of a person's sum of their excess over the mean, in clips of psi
REACH = 2.0


@dataclass(frozen=True)
class TabularScores:
    """Psi, own return, gain, and two placebos; each score of a person is the mean over their episodes.

    Steps that the log cuts off count as 0, in psi and in the own return alike.

    ``changes``: whether the policy differs from practice; if not, every gain is 0.
    ``aim`` ``(H, L, A)``: see :mod:`~pipeline.agents.doubly_robust`: a row with a behaviour probability has the weight
    aim / probability, cut at the clip of its check, which thereby shows the cut; None: these probabilities are ignored.
    """

    asked: Question = field(repr=False)
    clips: Clips
    changes: bool = True
    aim: Array | None = field(default=None, repr=False)

    def of(self, card: Card, rows: pl.DataFrame) -> Array:
        q, rows = self.asked, rows.with_columns(successor(card).alias("next_state"))
        user, episode = (rows.select(pl.struct(c).rle_id().alias("i"))["i"].to_numpy() for c in (_USER, _EPISODE))
        step, state, action = (rows[c].to_numpy().astype(np.int64) for c in ("step", "state", "action"))
        onto = rows["next_state"].fill_null(-1).to_numpy().astype(np.int64)
        steps, unit = lattice_rewards(rows, card, step, state, action, onto)
        paid = card.reward.range[0] + unit * steps.astype(np.float64)
        first = np.append(True, np.diff(episode) != 0)
        # the column behind all states has value 0: it is for rows without a successor
        V, W = (np.append(x, np.zeros((len(x), 1)), axis=1) for x in (q.V, q.W))  # noqa: N806
        ahead = paid + V[step + 1, onto] - q.Q[step, state, action]
        w, off = q.w[step, state, action], list[Array]()
        if self.aim is not None:
            w, more = self._weigh(self.aim, rows["behavior_prob"].to_numpy(), w, step, state, action)
            off.append(more)
        psi = np.where(first, V[step, state], 0.0) + w * ahead
        fall = q.W[np.maximum(step - 1, 0), np.append(0, state[:-1])] - q.W[step, state]
        # in episodes of one step, the past is a person's earlier episodes
        anew = first if len(q.Q) > 1 else np.append(True, np.diff(user) != 0)
        luck = fared(paid + W[step + 1, onto] - q.W[step, state], anew)
        surprise = q.surprise[step, state, action]
        lost = np.where(first, 0.0, surprise * (fall - q.lost[step, state]))
        past = np.where(anew, 0.0, surprise * (luck - q.past[step, state]))
        people = int(user[-1]) + 1
        episodes = np.bincount(user[first], minlength=people)
        # summed sequentially, so that one person's rounding does not depend on other people
        each = [np.bincount(user, weights=x, minlength=people) / episodes for x in (psi, paid, lost, past, *off)]
        scores = self.clips.scaled(each[0] if self.changes else each[1], *each[1:4])
        return np.column_stack([scores, *(x / (REACH * self.clips.spread) for x in each[4:])])

    def _weigh(
        self, aim: Array, chance: Array, w: Array, step: Integers, state: Integers, action: Integers
    ) -> tuple[Array, Array]:
        """Weights by the rows' behaviour probabilities, and their excess over the mean, divided by H."""
        aimed = aim[step, state, action]
        # a row without a valid probability has the released weight
        told = np.isfinite(aimed) & (chance > 0) & (chance <= 1)
        own = np.minimum(np.divide(aimed, chance, out=np.zeros(len(w)), where=told), REACH * self.clips.spread)
        return np.where(told, own, w), np.where(told, own - aim[step, state].sum(-1), 0.0) / len(aim)


_USER, _EPISODE = ["user_id"], ["user_id", "episode_id"]
