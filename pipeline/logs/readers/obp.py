"""Open Bandit data: a CSV of impressions, each an episode of one step.

Columns are the file's (``item_id``, ``position``, ``click``, ``propensity_score``, ``user_feature_0``, …), beside
``impression``: the line as an id.  There are no user ids, so the impression is all that can be protected.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from pipeline.logs.readers import csv
from pipeline.logs.readers.batch import Asked, Batch, marked

MADE = "impression"


def column_types(path: Path) -> dict[str, pl.DataType]:
    """The header's columns and ``impression``; all are text."""
    return {**csv.column_types(path), MADE: pl.String()}


def read(path: Path, asked: Asked) -> Iterator[Batch]:
    """Yield the rows; errors as of :func:`~pipeline.logs.readers.csv.read_csv`."""
    for batch in csv.read_csv(path, asked.but(MADE)):
        numbers = pl.Series(MADE, batch.lines)
        frame = batch.frame.with_columns(numbers).with_columns(marked(asked.mark, pl.col(MADE)).alias(MADE))
        yield Batch(frame.select(asked.columns), batch.lines, batch.malformed)
