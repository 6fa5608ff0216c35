"""Rows of the evaluation part -> exact integers: who follows a one-step policy, moments of features, values of people.

What is summed here is what :mod:`pipeline.statistics.one_step_layout` bounds.  All arithmetic that a person enters is
of integers or of that person's rows alone, so nobody's value depends on who stands beside them.
"""

# ruff: noqa: N806  (K cells, W and q of the layout)

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.logs.aggregate import successor
from pipeline.logs.target_sums import first_rows, lattice_rewards
from pipeline.statistics.gram import Extent, exact_sums
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.one_step_layout import FEATURES, PRACTICE_ROWS, STEPS, WEIGHT, FollowLayout, MomentLayout

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

# lattice steps of the declared range of returns on which values of states, returns and values of people stand
RETURN_STEPS = 1 << 16
# lattice steps of a weight of 1
RATIO_STEPS = 1 << 14


@dataclass(frozen=True)
class MomentQuestion:
    """What the moments are asked about, computed from earlier answers.

    Parameters
    ----------
    action
        ``(K,)``: what the policy does in a cell; -1 where practice goes on.
    weight
        ``(K,)``: of a row that follows the policy there, or where practice goes on, at most ``WEIGHT``.
    features
        ``(K, d)``: at most ``STEPS`` long.
    values
        ``(K,)``: what the policy is thought to be worth, in 1/``RETURN_STEPS`` of the range of returns.
    """

    action: Integers
    weight: Integers
    features: Integers
    values: Integers

    def __post_init__(self) -> None:
        """Refuse what no sensitivity bounds."""
        if (self.weight < 0).any() or (self.weight > WEIGHT).any() or ((self.features**2).sum(1) > STEPS**2).any():
            raise ValueError("a weight or a feature is longer than the sums' bounds allow")


@dataclass(frozen=True)
class ValueQuestion:
    """What people's values are asked about.

    Parameters
    ----------
    action
        ``(K,)``: see :class:`MomentQuestion`.
    weights
        ``(H, K)``: of a row that follows, or stands where practice goes on, in 1/``RATIO_STEPS``.
    ratio
        ``(K,)``: the propensity's part of it.
    values
        ``(H + 1, K)``: of the policy from a step on, in 1/``RETURN_STEPS`` of the range of returns.
    practice
        ``(K,)``: of practice, for the placebo.
    """

    action: Integers
    weights: Integers
    ratio: Integers
    values: Integers
    practice: Integers


@dataclass(frozen=True)
class PersonValues:
    """Of each person, in 1/``RETURN_STEPS`` of the range of returns; secret.

    Parameters
    ----------
    value
        ``(n,)`` doubly robust value of the policy: mean over the person's episodes.
    own
        ``(n,)`` the person's own return: mean over episodes.
    placebo
        ``(n,)`` what must be 0 on average where the states hold what practice acts on.
    """

    value: Integers
    own: Integers
    placebo: Integers


@dataclass(frozen=True)
class _Rows:
    """Columns of whole people."""

    user: Integers
    episode: Integers
    step: Integers
    cell: Integers
    action: Integers
    onto: Integers
    reward: Integers

    @property
    def first(self) -> Bools:
        """First row of each episode."""
        return np.append(True, np.diff(self.episode) != 0)


def _read(card: Card, rows: pl.DataFrame, span: float) -> _Rows:
    """Columns, with a cell for each row and for what it leads to (-1: an end, unknown, or behind the last step)."""
    d = card.domain
    rows = rows.with_columns(successor(card).alias("next_state"))
    user = rows["user_id"].rle_id().to_numpy().astype(np.int64)
    episode = rows.select(pl.struct("user_id", "episode_id").rle_id().alias("e"))["e"].to_numpy().astype(np.int64)
    step, state, action = (rows[c].to_numpy().astype(np.int64) for c in ("step", "state", "action"))
    onto = rows["next_state"].fill_null(-1).to_numpy().astype(np.int64)
    rewards, unit = lattice_rewards(rows, card, step, state, action, onto)
    paid = np.rint((card.reward.range[0] + unit * rewards.astype(np.float64)) * (RETURN_STEPS / span)).astype(np.int64)
    L, stepped = len(d.live_states), d.dynamics == "per_step"
    live = (onto >= 0) & (onto < L) & (not stepped or step < d.horizon - 1)
    follows = np.where(live, onto + L * (step + 1 if stepped else 0), -1)
    return _Rows(user, episode, step, state + L * (step if stepped else 0), action, follows, paid)


def follow_sums(layout: FollowLayout, action: Integers, people: Iterable[pl.DataFrame]) -> ExactSums:
    """Count, by cell, first rows of people that follow a policy and first rows that do not.

    Parameters
    ----------
    layout
        Of the sums.
    action
        ``(K,)``: what the policy would do; -1 where it leaves practice alone, and nothing is counted.
    people
        Canonical rows of the evaluation part, whole people in each frame.
    """
    card, K = layout.card, len(action)
    table = np.zeros(2 * K, dtype=np.int64)
    for frame in people:
        if frame.is_empty():
            continue
        rows = _read(card, frame, 1.0)
        kept = first_rows(rows.user, rows.cell, len(frame), 1) & (action[rows.cell] >= 0)
        follows = rows.action == action[rows.cell]
        table += np.bincount((follows * K + rows.cell)[kept], minlength=2 * K)
    G, L = layout.cells
    return ExactSums(layout.dataset, card.kind, layout.dynamics, {"b_follow": table.reshape(2, G, L)})


def moment_sums(
    layout: MomentLayout, asked: MomentQuestion, span: float, people: Iterable[pl.DataFrame]
) -> ExactSums:
    """Sum products of features and errors: under the policy, and under practice where the layout has them.

    Parameters
    ----------
    layout
        Of the sums.
    asked
        Policy, weights, features and values.
    span
        Range of returns, reward units.
    people
        See :func:`follow_sums`.
    """
    card, c = layout.card, layout.most
    d = card.domain
    N = card.unit.users_public * card.unit.episodes_per_user * d.horizon
    extent = Extent(N, STEPS**2, WEIGHT, STEPS)
    tables = {t.name: np.zeros(t.shape, dtype=np.int64) for t in layout.tables}
    features = np.vstack([asked.features, np.zeros((1, FEATURES), dtype=np.int64)]).astype(np.float64)
    for frame in people:
        if frame.is_empty():
            continue
        rows = _read(card, frame, span)
        weight = row_weights(rows.cell, rows.action, asked.action, asked.weight[rows.cell])
        here, there = features[rows.cell], features[rows.onto]
        kept = enough_left(rows.user, weight, c * WEIGHT)
        worth = np.append(asked.values, 0)
        off = rows.reward + worth[rows.onto] - asked.values[rows.cell]
        error = np.rint(STEPS * np.clip(off / RETURN_STEPS, -1, 1))
        gram, sums = exact_sums(
            extent, here[kept], np.vstack([there[kept].T, error[kept]]), weight[kept].astype(np.float64)
        )
        tables["b_gram"] += gram
        # the last axis is where one goes
        tables["b_next"] += sums[:FEATURES].T
        tables["b_error"] += sums[FEATURES]
        if not layout.practice:
            continue
        early = _rank(rows.user) < PRACTICE_ROWS
        gram, sums = exact_sums(extent, here[early], there[early].T)
        each = c * WEIGHT // PRACTICE_ROWS
        tables["b_gram_mu"] += gram * each
        tables["b_next_mu"] += sums.T * each
        begins = _rank(rows.user) == 0
        tables["b_start"] += WEIGHT * STEPS * here[begins].sum(0).astype(np.int64)
    return ExactSums(layout.dataset, card.kind, layout.dynamics, tables)


def person_values(card: Card, asked: ValueQuestion, span: float, frame: pl.DataFrame) -> PersonValues:
    """Values of each person.

    Parameters
    ----------
    card
        What is declared.
    asked
        Policy, weights and values.
    span
        Range of returns, reward units.
    frame
        Canonical rows of whole people.
    """
    rows = _read(card, frame, span)
    people, episodes = int(rows.user[-1]) + 1, int(rows.episode[-1]) + 1
    weight = row_weights(rows.cell, rows.action, asked.action, asked.weights[rows.step, rows.cell])
    following = np.where(rows.onto >= 0, asked.values[rows.step + 1, rows.onto], 0)
    error = rows.reward + following - asked.values[rows.step, rows.cell]
    # exact: integers far below 2^53
    corrections = np.bincount(rows.episode, weights=weight * error, minlength=episodes)
    begins = np.flatnonzero(rows.first)
    psi = asked.values[rows.step[begins], rows.cell[begins]] + np.rint(corrections / RATIO_STEPS)
    own = np.bincount(rows.episode, weights=rows.reward, minlength=episodes)
    # a person's surprise of being treated so, times where they came from
    before = np.append(-1, rows.cell[:-1])
    moved = np.where(rows.first, 0, asked.practice[before] - asked.practice[rows.cell])
    surprise = np.where(rows.action == asked.action[rows.cell], asked.ratio[rows.cell], 0) - RATIO_STEPS
    surprise = np.where(asked.action[rows.cell] >= 0, surprise, 0)
    placebo = np.bincount(rows.user, weights=surprise * moved, minlength=people)
    owner, many = rows.user[begins], np.bincount(rows.user[begins], minlength=people)
    value, own = (np.rint(np.bincount(owner, weights=x, minlength=people) / many) for x in (psi, own))
    return PersonValues(value.astype(np.int64), own.astype(np.int64), np.rint(placebo / RATIO_STEPS).astype(np.int64))


def row_weights(cell: Integers, action: Integers, policy: Integers, each: Integers) -> Integers:
    """Weight of each row: ``each`` where it follows the policy or practice goes on, 0 where it does not follow.

    Parameters
    ----------
    cell, action, each
        ``(n,)`` of each row.
    policy
        ``(K,)`` action of a cell; -1: practice goes on.
    """
    asked = policy[cell]
    return np.where((asked < 0) | (action == asked), each, 0)


def enough_left(user: Integers, weight: Integers, most: int) -> Bools:
    """Whether rows may still enter: what came before of the person leaves room for one full weight.

    Looks at the past only.

    Parameters
    ----------
    user, weight
        ``(n,)``: rows of a person stand together, in the order of the log.
    most
        Weight of all that enters.
    """
    before = np.cumsum(weight) - weight
    begins = np.append(True, np.diff(user) != 0)
    return before - np.maximum.accumulate(np.where(begins, before, 0)) <= most - WEIGHT


def _rank(user: Integers) -> Integers:
    """Number of each row among its person's, from 0."""
    at = np.arange(len(user))
    return at - np.maximum.accumulate(np.where(np.append(True, np.diff(user) != 0), at, 0))
