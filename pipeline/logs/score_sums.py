"""Scores of people, and the sums over people that are released of them: canonical rows -> exact int64 sums.

A score of a person is computed from that person's rows and from what was known before a row was read.  What is summed
here is what :mod:`pipeline.statistics.moment_layout` bounds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl

from pipeline.arrays import Array, Integers
from pipeline.declaration.card import Card
from pipeline.logs.aggregate import BATCH_ROWS, needed, read_parts
from pipeline.logs.contribution_bounding import group_users
from pipeline.logs.elsewhere import Seen
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import HERE, Resources, Sums, sum_snapshot
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.moment_layout import MomentLayout


class PeopleSums(ABC):
    """What whole people add, a batch of them in memory at a time."""

    together = 1

    @property
    @abstractmethod
    def people_of(self) -> Card:
        """Declares the columns that are read."""

    @property
    def columns(self) -> list[str]:
        """Those that are read."""
        return needed(self.people_of)

    @abstractmethod
    def zero(self) -> dict[str, Integers]:
        """What nobody adds up to."""

    @abstractmethod
    def add_rows(self, sums: Sums, rows: pl.DataFrame) -> None:
        """Add the rows of whole people, sorted by person, episode and step."""

    def add(self, sums: Sums, parts: Sequence[Path], seen: Seen) -> None:
        """Users are sorted within a part only, and put together there."""
        card = self.people_of
        for users in group_users(read_parts(parts, card, [pl.col(self.columns)], BATCH_ROWS)):
            self.add_rows(sums, users)
            seen(len(users))

    def of_nobody(self, people: Iterable[pl.DataFrame]) -> dict[str, Integers]:
        """The sums of people who do not exist: canonical rows, whole people in each frame."""
        sums = self.zero()
        for rows in people:
            self.add_rows(sums, rows)
        return sums


class Scores(Protocol):
    """How people are scored: a small value, which may be sent to a worker on another machine."""

    def depends_on(self) -> Any:
        """Plain values that decide the scores, beside the rows and the code."""
        ...

    def of(self, card: Card, rows: pl.DataFrame) -> Array:
        """Scores ``(n, J)`` in parts of their clips, of n people in the order of the rows.

        ``rows``: canonical rows of whole people, sorted by person, episode and step; at least one.
        """
        ...


@dataclass(frozen=True)
class ScoreSums(PeopleSums):
    """The tables of a :class:`MomentLayout`."""

    card: Card = field(repr=False)
    layout: MomentLayout
    scores: Scores = field(repr=False)

    @property
    def people_of(self) -> Card:
        """The card."""
        return self.card

    @property
    def columns(self) -> list[str]:
        """Also what rows tell of practice, where the card maps it: a score may rest on that."""
        told = [] if self.card.source.columns.behavior_prob is None else ["behavior_prob"]
        return needed(self.card) + told

    def depends_on(self) -> Any:
        """The whole card, and what decides the scores."""
        return ["scores", self.card.model_dump(mode="json"), self.layout.joint(), self.scores.depends_on()]

    def zero(self) -> dict[str, Integers]:
        """What nobody adds up to."""
        return self.layout.add_up(np.zeros((0, self.layout.scores)))

    def add_rows(self, sums: Sums, rows: pl.DataFrame) -> None:
        """Add the scores of whole people."""
        if not rows.is_empty():
            # a score that is no number has no bound: it counts as the middle of its clip
            scores = np.nan_to_num(self.scores.of(self.card, rows), nan=0.0, posinf=1.0, neginf=-1.0)
            for name, table in self.layout.add_up(scores).items():
                sums[name][:] += table


def sum_scores(
    snapshot: Snapshot, card: Card, layout: MomentLayout, scores: Scores, resources: Resources = HERE
) -> ExactSums:
    """Score the people of a snapshot and add up, a batch of people in memory at a time.

    Returns exact tables; secret, a private sum's input.
    """
    sums = sum_snapshot(ScoreSums(card, layout, scores), snapshot, resources)
    return ExactSums(layout.dataset, snapshot.kind, layout.dynamics, sums)
