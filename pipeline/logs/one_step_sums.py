"""Exact sums for the evaluation of a one-step policy: rows that follow it, and moments of features.

:mod:`pipeline.statistics.one_step_layout` bounds these sums.
"""

# ruff: noqa: N806  (L states and K cells, as in the layout)

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.logs.aggregate import BATCH_ROWS, needed, person_rows, read_parts
from pipeline.logs.contribution_bounding import group_users
from pipeline.logs.elsewhere import Seen
from pipeline.logs.one_step_rows import RETURN_STEPS, digest, enough_left, followed, rank_rows, read_cells
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import HERE, Resources, Sums, sum_snapshot
from pipeline.logs.target_sums import first_rows
from pipeline.statistics.count_layout import Person
from pipeline.statistics.gram import Extent, exact_sums
from pipeline.statistics.layout import ExactSums, Tables
from pipeline.statistics.one_step_layout import FEATURES, PRACTICE_ROWS, STEPS, WEIGHT, FeatureLayout, FollowLayout

Integers = NDArray[np.int64]


class RowQuestion(Protocol):
    """A query of rows: a small value, which may be sent to a worker on another machine."""

    def depends_on(self) -> Any:
        """Plain values that decide the sums, beside the rows and the code."""
        ...

    def of(self, rows: pl.DataFrame) -> Tables:
        """Exact tables of whole people, sorted by person, episode and step; at least one row."""
        ...


@dataclass(frozen=True)
class FollowQuestion:
    """Counts of rows that follow a policy; see :class:`RowQuestion`.

    ``action`` ``(K,)``: the policy's action; -1 for practice, where nothing is counted.
    """

    layout: FollowLayout = field(repr=False)
    action: Integers = field(repr=False)

    def depends_on(self) -> Any:
        return ["follow", digest(self.action)]

    def of(self, rows: pl.DataFrame) -> Tables:
        """Count people's first rows in each cell that do not follow, and that do."""
        r, K = read_cells(self.layout.card, rows, 1.0), len(self.action)
        # the cap depends on the cell alone, neither on the action nor on the outcome
        kept = first_rows(r.user, r.cell, len(rows), 1) & (self.action[r.cell] >= 0)
        place = (r.action == self.action[r.cell]) * K + r.cell
        return {"b_follow": np.bincount(place[kept], minlength=2 * K).reshape(2, *self.layout.cells)}


@dataclass(frozen=True)
class FeatureQuestion:
    """Moments of features, computed from earlier answers; see :class:`RowQuestion`.

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

    def depends_on(self) -> Any:
        return ["features", digest(self.action, self.weight, self.features, self.values), self.layout.most, self.span]

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
class RowSums:
    """Sums of the tables that answer a query of rows."""

    asked: FollowQuestion | FeatureQuestion = field(repr=False)

    @property
    def together(self) -> int:
        """Part files that are read together: one, because users are sorted within a part only."""
        return 1

    def depends_on(self) -> Any:
        """Plain values that decide the sums: the query and the whole card."""
        return [self.asked.depends_on(), self.asked.layout.card.model_dump(mode="json")]

    def zero(self) -> dict[str, Integers]:
        """Tables of zeros."""
        return {t.name: np.zeros(t.shape, dtype=np.int64) for t in self.asked.layout.tables}

    def add(self, sums: Sums, parts: Sequence[Path], seen: Seen) -> None:
        """Add the rows of part files, a batch of whole people in memory at a time."""
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

    Returns exact tables; secret, a private sum's input.
    """
    work = RowSums(asked)
    return work.exact(sum_snapshot(work, snapshot, resources), snapshot.kind)


def add_people(asked: FollowQuestion | FeatureQuestion, people: Iterable[pl.DataFrame]) -> ExactSums:
    """Answer a query for synthetic people."""
    work = RowSums(asked)
    sums = work.zero()
    for rows in people:
        work.add_rows(sums, rows)
    return work.exact(sums, "synthetic")


def ask_person(asked: FollowQuestion | FeatureQuestion, person: Person) -> Tables:
    """Answer of one synthetic person, for audits."""
    return asked.of(person_rows(person, asked.layout.card))
