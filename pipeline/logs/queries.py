"""States to decide in, many at once: CSV or NDJSON with ``state`` and ``step``; other columns are ignored."""

from __future__ import annotations

import io

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pc
from numpy.typing import NDArray

from pipeline.declaration.card import CardError

_COLUMNS = {"state": pl.String, "step": pl.Int64}


def read_queries(content: bytes, name: str) -> tuple[list[str | None], NDArray[np.int64]]:
    """States as text (None where empty) and steps, in the order of the file.

    Parameters
    ----------
    content
        UTF-8.  NDJSON if the first character is a brace, else CSV with a header.
    name
        What messages call the file.

    Raises
    ------
    CardError
        If it is neither, or a step is missing or no integer; records are named by number, never by value.
    """
    try:
        if content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
            rows = pl.read_ndjson(io.BytesIO(content.removeprefix(b"\xef\xbb\xbf")), schema=_COLUMNS)
        else:
            rows = _csv(content)
    except (pl.exceptions.PolarsError, pa.ArrowException, KeyError):
        raise CardError(
            f"{name}: not readable; give CSV with the columns state and step (an integer), or one JSON object "
            'a line such as {"state": "…", "step": 0}'
        ) from None
    if missing := (rows["step"].is_null().arg_true() + 1).head(5).to_list():
        raise CardError(f"{name}: record {', '.join(map(str, missing))}: no step; give each record one")
    return rows["state"].to_list(), rows["step"].to_numpy()


def _csv(content: bytes) -> pl.DataFrame:
    convert = pc.ConvertOptions(
        column_types={"state": pa.string(), "step": pa.int64()},
        include_columns=list(_COLUMNS),
        strings_can_be_null=True,
        null_values=[""],
    )
    table = pc.read_csv(
        io.BytesIO(content), parse_options=pc.ParseOptions(newlines_in_values=True), convert_options=convert
    )
    return pl.DataFrame({name: pl.Series(name, table[name].to_numpy(), dtype=t) for name, t in _COLUMNS.items()})
