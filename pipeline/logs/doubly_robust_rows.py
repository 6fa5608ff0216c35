"""Scores of people for the tabular doubly robust estimator: their rows, and what a released model asks of them."""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.logs.aggregate import successor
from pipeline.logs.target_sums import lattice_rewards
from pipeline.statistics.scores import Clips, Question

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TabularScores:
    """See :class:`~pipeline.logs.score_sums.Scores`: psi, own return, what is gained, and a placebo.

    Of somebody with several episodes each score is their mean.  What a log cuts off is worth nothing, in psi and in the
    own return alike.

    Parameters
    ----------
    asked
        Of each row.
    clips
        Declared.
    changes
        False: the policy is practice, so what a person gains is 0.
    """

    asked: Question = field(repr=False)
    clips: Clips
    changes: bool = True

    def depends_on(self) -> Any:
        """See :class:`~pipeline.logs.score_sums.Scores`."""
        q = self.asked
        arrays = b"".join(np.ascontiguousarray(x).tobytes() for x in (q.V, q.Q, q.w, q.placebo, q.W))
        return ["tabular", hashlib.sha256(arrays).hexdigest(), astuple(self.clips), self.changes]

    def of(self, card: Card, rows: pl.DataFrame) -> Array:
        """See :class:`~pipeline.logs.score_sums.Scores`."""
        q, rows = self.asked, rows.with_columns(successor(card).alias("next_state"))
        user, episode = (rows.select(pl.struct(c).rle_id().alias("i"))["i"].to_numpy() for c in (_USER, _EPISODE))
        step, state, action = (rows[c].to_numpy().astype(np.int64) for c in ("step", "state", "action"))
        onto = rows["next_state"].fill_null(-1).to_numpy().astype(np.int64)
        steps, unit = lattice_rewards(rows, card, step, state, action, onto)
        paid = card.reward.range[0] + unit * steps.astype(np.float64)
        first = np.append(True, np.diff(episode) != 0)
        # the column behind all states is worth nothing: a row without a successor
        V = np.append(q.V, np.zeros((len(q.V), 1)), axis=1)  # noqa: N806
        ahead = paid + V[step + 1, onto] - q.Q[step, state, action]
        psi = np.where(first, V[step, state], 0.0) + q.w[step, state, action] * ahead
        fall = q.W[np.maximum(step - 1, 0), np.append(0, state[:-1])] - q.W[step, state]
        placebo = np.where(first, 0.0, q.placebo[step, state, action] * fall)
        people = int(user[-1]) + 1
        episodes = np.bincount(user[first], minlength=people)
        # one after the other, so that no rounding of one person's sums depends on who stands beside them
        scores = [np.bincount(user, weights=x, minlength=people) / episodes for x in (psi, paid, placebo)]
        return self.clips.scaled(scores[0] if self.changes else scores[1], scores[1], scores[2])


_USER, _EPISODE = ["user_id"], ["user_id", "episode_id"]
