"""Rows of people for the evaluation of a one-step policy: those that follow it, moments of features, and scores.

A query is a small value, which may be sent to a worker on another machine; earlier answers made it.  Contributions are
computed in integers, or from one person's rows alone: they do not depend on other people.
:mod:`pipeline.statistics.one_step_layout` and :mod:`~pipeline.statistics.moment_layout` bound their sums.
"""

# ruff: noqa: N806  (L states and K cells, as in the layout)

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from pipeline.arrays import Array, Bools, Integers
from pipeline.declaration.card import Card
from pipeline.logs.aggregate import person_rows, successor
from pipeline.logs.score_sums import PeopleSums
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import HERE, Resources, Sums, sum_snapshot
from pipeline.logs.target_sums import first_rows, lattice_rewards
from pipeline.statistics.count_layout import Person
from pipeline.statistics.gram import Extent, exact_sums
from pipeline.statistics.layout import ExactSums, Tables
from pipeline.statistics.one_step_layout import FEATURES, PRACTICE_ROWS, STEPS, WEIGHT, FeatureLayout, FollowLayout
from pipeline.statistics.scores import Clips, fared

# lattice steps of the declared range of returns, for values of states, rewards and scores; and of a weight of 1
RETURN_STEPS, RATIO_STEPS = 1 << 16, 1 << 14


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


@dataclass(frozen=True)
class FollowQuestion:
    """Query of counts of rows that follow a policy.

    ``action`` ``(K,)``: the policy's action; -1 for practice, where nothing is counted.
    """

    layout: FollowLayout = field(repr=False)
    action: Integers = field(repr=False)

    def of(self, rows: pl.DataFrame) -> Tables:
        """Count people's first rows in each cell that do not follow, and that do."""
        r, K = read_cells(self.layout.card, rows, 1.0), len(self.action)
        # the cap depends on the cell alone, neither on the action nor on the outcome
        kept = first_rows(r.user, r.cell, len(rows), 1) & (self.action[r.cell] >= 0)
        place = (r.action == self.action[r.cell]) * K + r.cell
        return {"b_follow": np.bincount(place[kept], minlength=2 * K).reshape(2, *self.layout.cells)}


@dataclass(frozen=True)
class FeatureQuestion:
    """Query of moments of features, computed from earlier answers.

    ``action`` ``(K,)``: the policy's action; -1 for practice.
    ``weight`` ``(K,)``: of a row that follows the policy there, or where it is practice, at most ``WEIGHT``.
    ``features`` ``(K, d)``: at most ``STEPS`` long.
    ``values`` ``(K,)``: estimated values of the policy, in 1/``RETURN_STEPS`` of the range of returns.
    Raises ValueError if a weight or a feature is longer than the bounds of the sums allow.
    """

    layout: FeatureLayout = field(repr=False)
    action: Integers = field(repr=False)
    weight: Integers = field(repr=False)
    features: Integers = field(repr=False)
    values: Integers = field(repr=False)
    span: float

    def __post_init__(self) -> None:
        """Refuse values beyond the bounds of the sensitivity."""
        # each number first: the square of a huge one may overflow to 0
        far = (self.features < -STEPS).any() or (self.features > STEPS).any()
        if (self.weight < 0).any() or (self.weight > WEIGHT).any() or far or self._too_long:
            raise ValueError("a weight or a feature is longer than the bounds of the sums allow")

    @property
    def _too_long(self) -> bool:
        return bool(((self.features**2).sum(1) > STEPS**2).any())

    def of(self, rows: pl.DataFrame) -> Tables:
        card, c = self.layout.card, self.layout.most
        most = card.unit.users_public * card.unit.episodes_per_user * card.domain.horizon
        extent, r = Extent(most, STEPS**2, WEIGHT, STEPS), read_cells(card, rows, self.span)
        # the last line stands for no next cell
        features = np.vstack([self.features, np.zeros((1, FEATURES), dtype=np.int64)]).astype(np.float64)
        worth = np.append(self.values, 0)
        here, there, weight = features[r.cell], features[r.onto], followed(r, self.action, self.weight[r.cell])
        off = r.reward + worth[r.onto] - worth[r.cell]
        error = np.rint(STEPS * np.clip(off / RETURN_STEPS, -1, 1))
        kept = enough_left(r.user, weight, c * WEIGHT)
        targets = np.vstack([there.T, error])
        gram, sums = exact_sums(extent, here[kept], targets[:, kept], weight[kept].astype(np.float64))
        # first index: the present cell; second: the next
        found = {"b_gram": gram, "b_next": sums[:FEATURES].T, "b_error": sums[FEATURES]}
        if self.layout.practice:
            rank = rank_rows(r.user)
            early, each = rank < PRACTICE_ROWS, c * WEIGHT // PRACTICE_ROWS
            gram, sums = exact_sums(extent, here[early], there[early].T)
            begins = here[rank == 0].sum(0).astype(np.int64)
            found |= {"b_gram_mu": each * gram, "b_next_mu": each * sums.T, "b_start": WEIGHT * STEPS * begins}
        return found


@dataclass(frozen=True)
class RowSums(PeopleSums):
    """Sums of the tables that answer a query of rows."""

    asked: FollowQuestion | FeatureQuestion = field(repr=False)

    @property
    def people_of(self) -> Card:
        """The card."""
        return self.asked.layout.card

    def zero(self) -> dict[str, Integers]:
        """Tables of zeros."""
        return {t.name: np.zeros(t.shape, dtype=np.int64) for t in self.asked.layout.tables}

    def add_rows(self, sums: Sums, rows: pl.DataFrame) -> None:
        """Add the rows of whole people."""
        if not rows.is_empty():
            for name, table in self.asked.of(rows).items():
                sums[name][:] += table

    def exact(self, sums: Tables, kind: str) -> ExactSums:
        """The sums as tables of the layout."""
        layout = self.asked.layout
        return ExactSums(layout.dataset, kind, layout.dynamics, sums)


def sum_rows(snapshot: Snapshot, asked: FollowQuestion | FeatureQuestion, resources: Resources = HERE) -> ExactSums:
    """Answer a question exactly, a batch of whole people in memory at a time.

    Returns exact tables; secret, a private sum's input.
    """
    work = RowSums(asked)
    return work.exact(sum_snapshot(work, snapshot, resources), snapshot.kind)


def add_people(asked: FollowQuestion | FeatureQuestion, people: Iterable[pl.DataFrame]) -> ExactSums:
    """Answer a query for synthetic people."""
    work = RowSums(asked)
    return work.exact(work.sum_people(people), "synthetic")


def ask_person(asked: FollowQuestion | FeatureQuestion, person: Person) -> Tables:
    """Answer of one synthetic person, for audits."""
    return asked.of(person_rows(person, asked.layout.card))


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
