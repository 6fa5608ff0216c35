"""What every reader yields."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray


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


NO_LINES = pl.DataFrame(schema={"line": pl.Int64, "text": pl.String})
