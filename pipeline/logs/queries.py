"""States and observations to decide in, many at once, from outside of a log.

CSV or NDJSON with a ``step`` and a ``state``, or the coordinates of an observation (NDJSON: one list); other columns
are ignored.  Raw values become declared states by the very rules that ``ingest`` decodes a log with.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pc
from numpy.typing import NDArray

from pipeline.declaration.card import CardError
from pipeline.declaration.domain import States
from pipeline.logs.decode import state_index

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
        rows = _objects(content, _COLUMNS) if _is_ndjson(content) else _csv(content)
    except (pl.exceptions.PolarsError, pa.ArrowException, KeyError):
        raise CardError(
            f"{name}: not readable; give CSV with the columns state and step (an integer), or one JSON object "
            'a line such as {"state": "…", "step": 0}'
        ) from None
    if missing := (rows["step"].is_null().arg_true() + 1).head(5).to_list():
        raise CardError(f"{name}: record {', '.join(map(str, missing))}: no step; give each record one")
    return rows["state"].to_list(), rows["step"].to_numpy()


def _is_ndjson(content: bytes) -> bool:
    return content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")


def _objects(content: bytes, schema: Mapping[str, Any]) -> pl.DataFrame:
    return pl.read_ndjson(io.BytesIO(content.removeprefix(b"\xef\xbb\xbf")), schema=schema)


def _csv(content: bytes) -> pl.DataFrame:
    types = {"state": pa.string(), "step": pa.int64()}
    cells = pc.ConvertOptions(column_types=types, include_columns=[*types], strings_can_be_null=True, null_values=[""])
    table = pc.read_csv(io.BytesIO(content), None, pc.ParseOptions(newlines_in_values=True), cells)
    return pl.DataFrame({name: pl.Series(name, table[name].to_numpy(), dtype=t) for name, t in _COLUMNS.items()})


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
        if _is_ndjson(content):
            rows = _objects(content, {"observation": pl.List(pl.Float64), "step": pl.Int64})
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


# what is no index of a state
UNREADABLE, UNDECLARED = -1, -2


def index_states(values: Sequence[str | None], states: States) -> NDArray[np.int64]:
    """Index of each raw value among live states and ends.

    Parameters
    ----------
    values
        Cells as text, None for an empty one: of the binned column (or the name of an end) where states are bins, of
        the state column otherwise.
    states
        As the card of the policy declared them.

    Returns
    -------
    ``(N,)``; ``UNREADABLE`` for a word where a number belongs, ``UNDECLARED`` for a value that ``ingest`` would drop
    because no OTHER takes it in.
    """
    roles = (["state"] if states.bins is None or states.ends else []) + (["bin"] if states.bins else [])
    text = pl.Series(values, dtype=pl.String)
    raw = pl.DataFrame([text.alias(f"raw_{role}") for role in roles])
    index, _, unread = state_index("state", "bin", dict.fromkeys(roles, pl.String()), states)
    found = pl.coalesce(index, states.other_index).fill_null(UNDECLARED)
    return raw.select(pl.when(unread).then(UNREADABLE).otherwise(found).cast(pl.Int64)).to_series().to_numpy()
