"""Sums over people who do not exist."""

from collections.abc import Iterable

import polars as pl

from pipeline.declaration.card import Card
from pipeline.logs.score_sums import Scores, ScoreSums
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.moment_layout import MomentLayout


def add_scores(card: Card, layout: MomentLayout, scores: Scores, people: Iterable[pl.DataFrame]) -> ExactSums:
    """What :func:`~pipeline.logs.score_sums.sum_scores` makes of a snapshot; whole people in each frame."""
    sums = ScoreSums(card, layout, scores).sum_people(people)
    return ExactSums(layout.dataset, "synthetic", layout.dynamics, sums)
