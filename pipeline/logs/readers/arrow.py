"""Arrow schemas and record batches as polars sees them; shared by the Parquet and the Arrow IPC reader."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa

BATCH_ROWS = 1 << 18
_USUAL_COLUMNS = 12


def batch_rows(columns: list[str]) -> int:
    """Rows of a batch: fewer where the rows are wide, so that memory does not grow with the horizon."""
    return max(1, BATCH_ROWS * _USUAL_COLUMNS // max(_USUAL_COLUMNS, len(columns)))


def types_of(schema: Any) -> dict[str, pl.DataType]:
    """Column name -> type as the schema declares it (a dictionary is its values); repeated names are left out."""
    names = list(schema.names)
    return {name: _type_of(schema.field(name).type) for name in names if names.count(name) == 1}


def frame_of(batch: Any, columns: list[str]) -> pl.DataFrame:
    """The columns of a record batch or table, dictionaries decoded."""
    arrays = [batch.column(name) for name in columns]
    plain = [a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in arrays]
    return pl.DataFrame(pl.from_arrow(pa.table(plain, names=columns)))


def _type_of(arrow: Any) -> pl.DataType:
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    try:
        return pl.DataFrame(pl.from_arrow(pa.table({"x": pa.array([], type=arrow)})))["x"].dtype
    except (pa.ArrowException, pl.exceptions.PolarsError, BaseExceptionGroup, ValueError):
        return pl.Object()
