"""Scores of people and their sums, which are released: canonical rows -> exact int64 sums.

A person's score is computed from that person's rows and from values fixed before a row was read.
:mod:`pipeline.statistics.moment_layout` bounds these sums.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl

from pipeline.arrays import Array, Integers
from pipeline.declaration.card import Card
from pipeline.logs import aggregate, contribution_bounding, elsewhere, store
from pipeline.logs.summing import HERE, Resources, Sums, sum_snapshot
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.moment_layout import MomentLayout


class PeopleSums(ABC):
    """Sums over whole people, a batch of them in memory at a time."""

    together = 1

    @property
    @abstractmethod
    def people_of(self) -> Card:
        """Card that declares the columns."""

    @property
    def columns(self) -> list[str]:
        """Columns that are read."""
        return aggregate.needed(self.people_of)

    @abstractmethod
    def zero(self) -> dict[str, Integers]:
        """Tables of zeros."""

    @abstractmethod
    def add_rows(self, sums: Sums, rows: pl.DataFrame) -> None:
        """Add the rows of whole people, sorted by person, episode and step."""

    def add(self, sums: Sums, parts: Sequence[Path], seen: elsewhere.Seen) -> None:
        """Add the rows of part files, each of which holds whole users in order."""
        card = self.people_of
        for users in contribution_bounding.group_users(aggregate.read_parts(parts, card, [pl.col(self.columns)])):
            self.add_rows(sums, users)
            seen(len(users))

    def sum_people(self, people: Iterable[pl.DataFrame]) -> dict[str, Integers]:
        """Sums of synthetic people: canonical rows, whole people in each frame."""
        sums = self.zero()
        for rows in people:
            self.add_rows(sums, rows)
        return sums


class Scores(Protocol):
    """Scoring rule of people: a small value, which may be sent to a worker on another machine."""

    def of(self, card: Card, rows: pl.DataFrame) -> Array:
        """Scores ``(n, J)`` in parts of their clips, of n people in the order of the rows.

        ``rows``: canonical rows of whole people, sorted by person, episode and step; at least one.
        """
        ...


@dataclass(frozen=True)
class ScoreSums(PeopleSums):
    """Sums of scores, as the tables of a :class:`MomentLayout`."""

    card: Card = field(repr=False)
    layout: MomentLayout
    scores: Scores = field(repr=False)

    @property
    def people_of(self) -> Card:
        """The card."""
        return self.card

    @property
    def columns(self) -> list[str]:
        """Columns of counts, and the behaviour probability if the card maps it: a score may use it."""
        extra = [] if self.card.source.columns.behavior_prob is None else ["behavior_prob"]
        return aggregate.needed(self.card) + extra

    def zero(self) -> dict[str, Integers]:
        """Tables of zeros."""
        return self.layout.add_up(np.zeros((0, self.layout.scores)))

    def add_rows(self, sums: Sums, rows: pl.DataFrame) -> None:
        """Add the scores of whole people."""
        if not rows.is_empty():
            # NaN has no bound: it counts as the middle of its clip
            scores = np.nan_to_num(self.scores.of(self.card, rows), nan=0.0, posinf=1.0, neginf=-1.0)
            for name, table in self.layout.add_up(scores).items():
                sums[name][:] += table


def sum_scores(
    snapshot: store.Snapshot, card: Card, layout: MomentLayout, scores: Scores, resources: Resources = HERE
) -> ExactSums:
    """Score the people of a snapshot and add up, a batch of people in memory at a time.

    Returns exact tables; secret, a private sum's input.
    """
    sums = sum_snapshot(ScoreSums(card, layout, scores), snapshot, resources)
    return ExactSums(layout.dataset, snapshot.kind, layout.dynamics, sums)
