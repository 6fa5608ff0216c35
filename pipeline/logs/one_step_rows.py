"""People's rows -> exact integers, for measuring a one-step policy: who follows it, moments of features, scores.

What is summed here is what :mod:`pipeline.statistics.one_step_layout` bounds.  Whatever a person enters is arithmetic
of integers, or of that person's rows alone: nobody's part depends on who stands beside them.
"""

# ruff: noqa: N806  (L states and K cells, as in the layout)

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.logs.aggregate import BATCH_ROWS, needed, read_parts, successor
from pipeline.logs.contribution_bounding import group_users
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import HERE, Resources, Seen, Sums, sum_snapshot
from pipeline.logs.target_sums import first_rows, lattice_rewards
from pipeline.statistics.gram import Extent, exact_sums
from pipeline.statistics.layout import ExactSums, Tables
from pipeline.statistics.one_step_layout import FEATURES, PRACTICE_ROWS, STEPS, WEIGHT, FeatureLayout, FollowLayout
from pipeline.statistics.scores import Clips

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

# lattice steps of the declared range of returns on which values of states, rewards and scores stand
RETURN_STEPS = 1 << 16
# lattice steps of a weight of 1
RATIO_STEPS = 1 << 14


class RowQuestion(Protocol):
    """What is asked of rows: a small value, which may be sent to a worker on another machine."""

    def depends_on(self) -> Any:
        """Plain values that decide the sums, beside the rows and the code."""
        ...

    def of(self, rows: pl.DataFrame) -> Tables:
        """Exact tables of whole people, sorted by person, episode and step; at least one row."""
        ...


@dataclass(frozen=True)
class FollowQuestion:
    """Which rows follow a policy; see :class:`RowQuestion`.

    Parameters
    ----------
    layout
        Of the sums.
    action
        ``(K,)``: what the policy would do; -1 where it leaves practice alone, and nothing is counted.
    """

    layout: FollowLayout = field(repr=False)
    action: Integers = field(repr=False)

    def depends_on(self) -> Any:
        """See :class:`RowQuestion`."""
        return ["follow", _digest(self.action)]

    def of(self, rows: pl.DataFrame) -> Tables:
        """See :class:`RowQuestion`: by cell, first rows of people that do not follow, and that do."""
        r, K = _read(self.layout.card, rows, 1.0), len(self.action)
        # the cap is a cell's: it looks neither at the action nor at what comes of it
        kept = first_rows(r.user, r.cell, len(rows), 1) & (self.action[r.cell] >= 0)
        place = (r.action == self.action[r.cell]) * K + r.cell
        return {"b_follow": np.bincount(place[kept], minlength=2 * K).reshape(2, *self.layout.cells)}


@dataclass(frozen=True)
class FeatureQuestion:
    """Moments of features, computed from earlier answers; see :class:`RowQuestion`.

    Parameters
    ----------
    layout
        Of the sums.
    action
        ``(K,)``: what the policy does; -1 where practice goes on.
    weight
        ``(K,)``: of a row that follows the policy there, or where practice goes on, at most ``WEIGHT``.
    features
        ``(K, d)``: at most ``STEPS`` long.
    values
        ``(K,)``: what the policy is thought to be worth, in 1/``RETURN_STEPS`` of the range of returns.
    span
        That range, reward units.

    Raises
    ------
    ValueError
        If a weight or a feature is longer than the bounds of the sums allow.
    """

    layout: FeatureLayout = field(repr=False)
    action: Integers = field(repr=False)
    weight: Integers = field(repr=False)
    features: Integers = field(repr=False)
    values: Integers = field(repr=False)
    span: float

    def __post_init__(self) -> None:
        """Refuse what no sensitivity bounds."""
        if (self.weight < 0).any() or (self.weight > WEIGHT).any() or ((self.features**2).sum(1) > STEPS**2).any():
            raise ValueError("a weight or a feature is longer than the bounds of the sums allow")

    def depends_on(self) -> Any:
        """See :class:`RowQuestion`."""
        return ["features", _digest(self.action, self.weight, self.features, self.values), self.layout.most, self.span]

    def of(self, rows: pl.DataFrame) -> Tables:
        """See :class:`RowQuestion`."""
        card, c = self.layout.card, self.layout.most
        most = card.unit.users_public * card.unit.episodes_per_user * card.domain.horizon
        extent, r = Extent(most, STEPS**2, WEIGHT, STEPS), _read(card, rows, self.span)
        # the last line is what lies behind an end
        features = np.vstack([self.features, np.zeros((1, FEATURES), dtype=np.int64)]).astype(np.float64)
        worth = np.append(self.values, 0)
        here, there, weight = features[r.cell], features[r.onto], _followed(r, self.action, self.weight[r.cell])
        off = r.reward + worth[r.onto] - worth[r.cell]
        error = np.rint(STEPS * np.clip(off / RETURN_STEPS, -1, 1))
        kept = enough_left(r.user, weight, c * WEIGHT)
        targets = np.vstack([there.T, error])
        gram, sums = exact_sums(extent, here[kept], targets[:, kept], weight[kept].astype(np.float64))
        # first where one is, then where one goes
        found = {"b_gram": gram, "b_next": sums[:FEATURES].T, "b_error": sums[FEATURES]}
        if self.layout.practice:
            rank = _rank(r.user)
            early, each = rank < PRACTICE_ROWS, c * WEIGHT // PRACTICE_ROWS
            gram, sums = exact_sums(extent, here[early], there[early].T)
            begins = here[rank == 0].sum(0).astype(np.int64)
            found |= {"b_gram_mu": each * gram, "b_next_mu": each * sums.T, "b_start": WEIGHT * STEPS * begins}
        return found


@dataclass(frozen=True)
class RowSums:
    """See :class:`~pipeline.logs.summing.Summation`: the tables that answer a question about rows."""

    asked: FollowQuestion | FeatureQuestion = field(repr=False)

    @property
    def together(self) -> int:
        """Users are sorted within a part only."""
        return 1

    def depends_on(self) -> Any:
        """The whole card, and the question."""
        return [self.asked.depends_on(), self.asked.layout.card.model_dump(mode="json")]

    def zero(self) -> dict[str, Integers]:
        """What nobody adds up to."""
        return {t.name: np.zeros(t.shape, dtype=np.int64) for t in self.asked.layout.tables}

    def add(self, sums: Sums, parts: Sequence[Path], seen: Seen) -> None:
        """A batch of whole people in memory at a time."""
        card = self.asked.layout.card
        for users in group_users(read_parts(parts, card, [pl.col(needed(card))], BATCH_ROWS)):
            self.add_rows(sums, users)
            seen(len(users))

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

    Parameters
    ----------
    snapshot
        Of the evaluation part.
    asked
        What is summed.
    resources
        Where partitions are summed; no sum depends on it.

    Returns
    -------
    Exact tables; secret, a private sum's input.
    """
    work = RowSums(asked)
    return work.exact(sum_snapshot(work, snapshot, resources), snapshot.kind)


def add_people(asked: FollowQuestion | FeatureQuestion, people: Iterable[pl.DataFrame]) -> ExactSums:
    """The same of people who do not exist.

    Parameters
    ----------
    asked
        What is summed.
    people
        Canonical rows, whole people in each frame.
    """
    work = RowSums(asked)
    sums = work.zero()
    for rows in people:
        work.add_rows(sums, rows)
    return work.exact(sums, "synthetic")


@dataclass(frozen=True)
class OneStepScores:
    """See :class:`~pipeline.logs.score_sums.Scores`: psi, own return, what is gained, and a placebo.

    Of somebody with several episodes each score is their mean.  What a log cuts off is worth nothing, in psi and in the
    own return alike.

    Parameters
    ----------
    action
        ``(K,)``: see :class:`FeatureQuestion`.
    weights
        ``(H, K)``: of a row that follows, or stands where practice goes on, in 1/``RATIO_STEPS``.
    ratio
        ``(K,)``: the propensity's part of it.
    values
        ``(H + 1, K)``: of the policy from a step on, in 1/``RETURN_STEPS`` of the range of returns.
    practice
        ``(K,)``: of practice, for the placebo.
    clips
        Declared; their ``high - low`` is the range of returns.
    """

    action: Integers = field(repr=False)
    weights: Integers = field(repr=False)
    ratio: Integers = field(repr=False)
    values: Integers = field(repr=False)
    practice: Integers = field(repr=False)
    clips: Clips

    def depends_on(self) -> Any:
        """See :class:`~pipeline.logs.score_sums.Scores`."""
        arrays = self.action, self.weights, self.ratio, self.values, self.practice
        return ["one step", _digest(*arrays), astuple(self.clips)]

    def of(self, card: Card, rows: pl.DataFrame) -> Array:
        """See :class:`~pipeline.logs.score_sums.Scores`."""
        unit = (self.clips.high - self.clips.low) / RETURN_STEPS
        r, first = _read(card, rows, self.clips.high - self.clips.low), _first(rows)
        following = np.where(r.onto >= 0, self.values[r.step + 1, r.onto], 0)
        off = r.reward + following - self.values[r.step, r.cell]
        corrected = _followed(r, self.action, self.weights[r.step, r.cell]) * off
        begun = np.where(first, self.values[r.step, r.cell], 0)
        # what a person surprises us by being treated so, times what they had lost before
        surprise = np.where(r.action == self.action[r.cell], self.ratio[r.cell], 0) - RATIO_STEPS
        lost = self.practice[np.append(0, r.cell[:-1])] - self.practice[r.cell]
        placebo = np.where(first | (self.action[r.cell] < 0), 0, surprise * lost)
        # exact: no sum of a person's integers reaches 2^53
        people = int(r.user[-1]) + 1
        told = (begun * RATIO_STEPS + corrected, r.reward * RATIO_STEPS, placebo)
        psi, own, control = (np.bincount(r.user, weights=x, minlength=people) * (unit / RATIO_STEPS) for x in told)
        episodes = np.bincount(r.user[first], minlength=people)
        if (self.action < 0).all():
            psi = own
        return self.clips.scaled(psi / episodes, own / episodes, control / episodes)


@dataclass(frozen=True)
class _Rows:
    """Columns of whole people: cells, lattice steps of rewards, and in ``onto`` the cell that follows, -1 for none."""

    user: Integers
    step: Integers
    cell: Integers
    action: Integers
    onto: Integers
    reward: Integers


def _read(card: Card, rows: pl.DataFrame, span: float) -> _Rows:
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
    return _Rows(user, step, state + (L * step if stepped else 0), action, following, paid)


def _followed(r: _Rows, action: Integers, each: Integers) -> Integers:
    """Weight of each row: ``each`` where it follows the policy or practice goes on, 0 where it does not follow."""
    asked = action[r.cell]
    return np.where((asked < 0) | (r.action == asked), each, 0)


def enough_left(user: Integers, weight: Integers, most: int) -> Bools:
    """Whether rows may enter: what came before of the person leaves room for a full weight.

    Looks at the past only: a cap on what a row itself weighs would choose among actions.

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


def _first(rows: pl.DataFrame) -> Bools:
    """First row of each episode."""
    episode = rows.select(pl.struct("user_id", "episode_id").rle_id().alias("e"))["e"].to_numpy()
    return np.append(True, np.diff(episode) != 0)


def _digest(*arrays: Integers) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()
