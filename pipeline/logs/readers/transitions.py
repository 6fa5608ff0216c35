"""Flat (s, a, r, s') rows of any table format, in the order they were logged, without episodes and steps.

The reader makes the columns ``episode`` and ``step``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl

from pipeline.logs.errors import LogError
from pipeline.logs.readers.batch import NO_LINES, Asked, Batch
from pipeline.logs.readers.cut import MADE, Cut, Cutter

Types = Callable[[Path, Asked], dict[str, pl.DataType]]
Read = Callable[[Path, Asked], Iterator[Batch]]


def column_types(path: Path, asked: Asked, inner: Types) -> dict[str, pl.DataType]:
    """The table's columns and the two that are made.

    Raises
    ------
    LogError
        If the table has an ``episode`` or ``step`` of its own.
    """
    types = inner(path, replace(asked, columns=asked.but(*MADE)))
    if own := [name for name in MADE if name in types]:
        raise LogError(f"{path.name}: has a column {own[0]!r} of its own; use source.format = 'table', or rename it")
    return types | {"episode": pl.String(), "step": pl.Int64()}


def read(path: Path, asked: Asked, inner: Read, cut: Cut) -> Iterator[Batch]:
    """Yield the table's batches, rows numbered.

    Raises
    ------
    LogError
        If a line is malformed or a flag cannot be read.
    """
    cutter = Cutter(cut, path, asked.mark)
    for batch in inner(path, replace(asked, columns=asked.but(*MADE))):
        yield Batch(cutter.numbered(batch).select(asked.columns), batch.lines, NO_LINES)
