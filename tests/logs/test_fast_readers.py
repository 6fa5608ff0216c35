"""The quick ways of Arrow and of cells against slow ones: polars' general door, one cell at a time."""

from __future__ import annotations

import datetime
import io
import math
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from pipeline.logs import sources
from pipeline.logs.decode import NUMBERS
from pipeline.logs.readers import batch
from pipeline.logs.readers.batch import cell_type, readable_times
from reticent import LogError

DAY = datetime.datetime(2026, 11, 23, 1, 2, 3, 456789)
ARROW: dict[str, Any] = {
    **{str(kind): pa.array([1, None, 0, 127], kind) for kind in (pa.int8(), pa.uint16(), pa.int32(), pa.uint64())},
    **{str(kind): pa.array([math.nan, None, -0.0, math.inf], kind) for kind in (pa.float32(), pa.float64())},
    **{str(kind): pa.array(["", None, "é", "x" * 40], kind)
       for kind in (pa.string(), pa.large_string(), pa.string_view())},
    **{f"{unit} {zone}": pa.array([DAY.replace(microsecond=0)] * 3 + [None], pa.timestamp(unit, zone))
       for unit in ("s", "ms", "us", "ns") for zone in (None, "Europe/Zurich")},
    "half": pa.array([np.float16(1.5), None, np.float16(0), None], pa.float16()),
    "bool": pa.array([True, None, False, True]),
    "null": pa.nulls(4),
    "day": pa.array([DAY.date()] * 4, pa.date32()),
    "date64": pa.array([DAY.date()] * 4, pa.date64()),
    "clock": pa.array([DAY.time()] * 4, pa.time64("ns")),
    "clock 32": pa.array([DAY.time().replace(microsecond=0)] * 4, pa.time32("s")),
    "decimal": pa.array([Decimal("1.50"), None, Decimal("-2.25"), Decimal("0.00")], pa.decimal128(9, 2)),
    "list": pa.array([[1.0, None], [], None, [math.nan]], pa.list_(pa.float64())),
    "large list": pa.array([[1], [], None, [2, 3]], pa.large_list(pa.int16())),
    "vector": pa.array([[1.0, 2.0], None, [0.0, -0.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
    "struct": pa.array([{"x": 1, "y": "é"}, None, {"x": None, "y": ""}, {"x": 2, "y": None}]),
    "dictionary": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    "dictionary of numbers": pa.array([1.5, None, 2.5, 1.5]).dictionary_encode(),
}  # fmt: skip


def slowly(table: Any) -> pl.DataFrame:
    """Through polars' general door, dictionaries decoded first."""
    plain = [c.combine_chunks() for c in table.columns]
    plain = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in plain]
    return pl.DataFrame(pl.from_arrow(pa.table(plain, names=table.column_names)))


@pytest.mark.parametrize("file", [True, False])
@pytest.mark.parametrize("small", [0, 1 << 20])
def test_arrow_is_read_as_polars_general_door_reads_it(
    file: bool, small: int, tmp_path: Path, constants: Callable[..., None]
) -> None:
    constants(fast=small)
    table, sink = pa.table(ARROW), io.BytesIO()
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
        writer.write_table(table.slice(1, 3).combine_chunks())
        writer.write_table(table.slice(4, 0))
    (tmp_path / "x.arrow").write_bytes(sink.getvalue())
    wanted = slowly(pa.concat_tables([table, table.slice(1, 3)]))
    for columns in (list(ARROW), list(reversed(ARROW)), ["vector", "bool"], ["dictionary"]):
        batches = list(batch.read_ipc(tmp_path / "x.arrow", columns))
        found = pl.concat([batch.frame for batch in batches])
        assert found.schema == wanted.select(columns).schema
        assert found.equals(wanted.select(columns)) and not any(len(batch.malformed) for batch in batches)
    assert batch.ipc_types(tmp_path / "x.arrow") == dict(wanted.schema)


def one_by_one(cell: pl.Series, wanted: pl.DataType) -> pl.Series:
    """What a cell of a role is, each step asked anew."""
    cell = readable_times(cell)
    if cell.dtype.is_nested():
        return cell.cast(NUMBERS)
    if isinstance(cell.dtype, pl.Datetime):
        texts = [None if x is None else re.split("([+-][0-9:]+)$", x) for x in cell.cast(pl.String)]
        short = [x and "".join([x[0].rstrip("0").rstrip("."), *x[1:]]) for x in texts]
        return pl.Series([x and x.removesuffix(" 00:00:00") for x in short], dtype=pl.String)
    cell = cell.cast(cell_type(cell.dtype) or wanted)
    if wanted == pl.String():
        return pl.Series([None if x is None or x == "" or x != x else pl.Series([x]).cast(pl.String)[0] for x in cell])
    return cell.cast(wanted)


@pytest.mark.parametrize("broken", [False, True])
def test_cells_of_a_role_are_the_same_step_by_step(broken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sources._steps.cache_clear()
    if broken:
        monkeypatch.setattr(sources, "_MISSING", {pl.String(): ""})
    frame, same = slowly(pa.table(ARROW)), True
    far = pl.Series("far", [2**62, None, -(2**62), 0]).cast(pl.Datetime("us"))
    for column in [*frame.iter_columns(), far, far.cast(pl.Int64).cast(pl.Datetime("ns"))]:
        if isinstance(column.dtype, pl.Struct):
            continue
        kind = cell_type(column.dtype, lists=column.dtype.is_nested())
        for wanted in [kind] if kind in (None, NUMBERS) else [kind, pl.String()]:
            assert wanted is not None
            found = sources._cell(column, wanted)
            # as text: NaN is itself, and -0.0 is not 0.0
            same &= found.dtype == wanted and str(found.to_list()) == str(one_by_one(column, wanted).to_list())
    sources._steps.cache_clear()
    assert same != broken


def test_a_column_that_is_gone_when_the_rows_are_read_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    pl.DataFrame({"a": [1], "b": [2]}).write_ipc(path)
    with pytest.raises(LogError, match="not a whole Arrow file"):
        list(batch.read_ipc(path, ["a", "c"]))
