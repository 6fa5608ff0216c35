"""People's rows by cell, for the evaluation of a one-step policy.

Contributions are computed in integers, or from one person's rows alone: they do not depend on other people.
"""

# ruff: noqa: N806  (L states and K cells, as in the layout)

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.logs.aggregate import successor
from pipeline.logs.target_sums import lattice_rewards
from pipeline.statistics.one_step_layout import WEIGHT

Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

# lattice steps of the declared range of returns, for values of states, rewards and scores
RETURN_STEPS = 1 << 16


@dataclass(frozen=True)
class CellRows:
    """Columns of whole people, N rows.

    ``user``, ``step``, ``action`` ``(N,)``: people are numbered from 0 in the order of the rows.
    ``cell``, ``onto`` ``(N,)``: a live state, or a step and a live state if tables are by step; and the next cell: -1
    for an end, for an unknown successor, and behind the last step.
    ``reward`` ``(N,)``: in 1/``RETURN_STEPS`` of the range of returns.
    ``begins`` ``(N,)``: first row of each episode.
    """

    user: Integers
    step: Integers
    cell: Integers
    action: Integers
    onto: Integers
    reward: Integers
    begins: Bools


def read_cells(card: Card, rows: pl.DataFrame, span: float) -> CellRows:
    """Compute the cells and rewards of rows.
    ``rows``: canonical rows of whole people, sorted by person, episode and step; at least one.
    """
    d = card.domain
    rows = rows.with_columns(successor(card).alias("next_state"))
    user = rows["user_id"].rle_id().to_numpy().astype(np.int64)
    step, state, action = (rows[c].to_numpy().astype(np.int64) for c in ("step", "state", "action"))
    onto = rows["next_state"].fill_null(-1).to_numpy().astype(np.int64)
    rewards, unit = lattice_rewards(rows, card, step, state, action, onto)
    paid = np.rint((card.reward.range[0] + unit * rewards.astype(np.float64)) * (RETURN_STEPS / span)).astype(np.int64)
    L, stepped = len(d.live_states), d.dynamics == "per_step"
    live = (onto >= 0) & (onto < L)
    if stepped:
        live &= step < d.horizon - 1
    following = np.where(live, onto + (L * (step + 1) if stepped else 0), -1)
    episode = rows.select(pl.struct("user_id", "episode_id").rle_id().alias("e"))["e"].to_numpy()
    begins = np.append(True, np.diff(episode) != 0)
    return CellRows(user, step, state + (L * step if stepped else 0), action, following, paid, begins)


def followed(r: CellRows, action: Integers, each: Integers) -> Integers:
    """Weight of each row: ``each`` if it follows the policy or the policy is practice there, else 0.

    ``action`` ``(K,)``: the policy's action in a cell; -1 for practice.
    ``each``: ``(N,)``.
    """
    asked = action[r.cell]
    return np.where((asked < 0) | (r.action == asked), each, 0)


def enough_left(user: Integers, weight: Integers, most: int) -> Bools:
    """Mark of rows before which the person's weights leave room for a full weight.

    It depends on the past only: a cap that depended on the row's own weight would choose among actions.
    ``user``, ``weight`` ``(n,)``: rows of a person stand together, in the order of the log.
    """
    before = np.cumsum(weight) - weight
    begins = np.append(True, np.diff(user) != 0)
    return before - np.maximum.accumulate(np.where(begins, before, 0)) <= most - WEIGHT


def rank_rows(user: Integers) -> Integers:
    """Index of each row among its person's, from 0.
    ``user`` ``(N,)``: rows of a person stand together.
    """
    at = np.arange(len(user))
    return at - np.maximum.accumulate(np.where(np.append(True, np.diff(user) != 0), at, 0))


def digest(*arrays: Integers) -> str:
    """Compute the sha256 of arrays."""
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()
