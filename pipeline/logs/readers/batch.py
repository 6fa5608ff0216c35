"""What every reader yields."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray


@dataclass(frozen=True)
class Asked:
    """What is wanted of one file.

    Parameters
    ----------
    columns
        Source columns, each once.
    lists
        Those among them whose cells are lists of numbers.
    mark
        What stands before the numbers that a reader gives to records, so that those of two files differ.
    """

    columns: list[str]
    lists: frozenset[str] = frozenset()
    mark: str = ""

    def but(self, *made: str) -> list[str]:
        """Columns that the file itself has to hold."""
        return [column for column in self.columns if column not in made]


@dataclass(frozen=True)
class Batch:
    """Some consecutive rows of one file.

    Parameters
    ----------
    frame
        The needed source columns, ``n`` rows.
    lines
        ``(n,)`` int64, 1-based line (CSV, where the header is line 1; NDJSON) or row (Parquet, Arrow) of each row.
    malformed
        Lines that are no rows: columns ``line``, ``text``.
    """

    frame: pl.DataFrame
    lines: NDArray[np.int64]
    malformed: pl.DataFrame


def lines_from(first: int, rows: int) -> NDArray[np.int64]:
    """Numbers of ``rows`` rows from ``first`` on."""
    return np.arange(first, first + rows, dtype=np.int64)


def marked(mark: str, numbers: pl.Expr) -> pl.Expr:
    """Record numbers as ids that no other file gives."""
    return pl.lit(mark) + numbers.cast(pl.String)


NO_LINES = pl.DataFrame(schema={"line": pl.Int64, "text": pl.String})
