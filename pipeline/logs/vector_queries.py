"""Observations to control at, many at once: CSV (a column a coordinate) or NDJSON (a list), each with a step."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import CardError


def read_observations(content: bytes, name: str, names: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Observations ``(N, n)`` and steps ``(N,)``, in the order of the file; other columns are ignored.

    Parameters
    ----------
    content
        UTF-8.  NDJSON if the first character is a brace, else CSV with a header.
    name
        What messages call the file.
    names
        Of the n coordinates: the columns of a CSV.

    Raises
    ------
    CardError
        If it is neither, or a record has no step or not n numbers; records are named by number, never by value.
    """
    n = len(names)
    try:
        if content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
            schema = {"observation": pl.List(pl.Float64), "step": pl.Int64}
            rows = pl.read_ndjson(io.BytesIO(content.removeprefix(b"\xef\xbb\xbf")), schema=schema)
        else:
            texts = pl.read_csv(io.BytesIO(content), infer_schema=False, columns=[*names, "step"])
            numbers = [pl.col(c).str.strip_chars().cast(pl.Float64, strict=False) for c in names]
            step = pl.col("step").str.strip_chars().cast(pl.Int64, strict=False)
            rows = texts.select(pl.concat_list(numbers).alias("observation"), step.alias("step"))
    except pl.exceptions.PolarsError:
        raise CardError(
            f"{name}: not readable; give CSV with the columns {', '.join(names)} and step, or one JSON object a line "
            f'such as {{"observation": [{", ".join(["0.0"] * n)}], "step": 0}}'
        ) from None
    wrong = (rows["observation"].list.len() != n) | rows["observation"].list.eval(pl.element().is_null()).list.any()
    bad = (rows["step"].is_null() | wrong.fill_null(value=True)).arg_true() + 1
    if len(bad):
        at = ", ".join(map(str, bad.head(5).to_list()))
        raise CardError(f"{name}: record {at}: give each a step and {n} numbers ({', '.join(names)})")
    return np.array(rows["observation"].to_list(), dtype=np.float64).reshape(-1, n), rows["step"].to_numpy()
