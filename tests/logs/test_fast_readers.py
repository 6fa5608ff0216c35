"""The quick ways of NDJSON and Arrow against slow ones: one line at a time, polars' general door, one cell at a time.

Every corpus is seeded; beside each comparison a broken twin, which the comparison must notice.
"""

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
from pipeline.logs.readers import arrow, lines
from pipeline.logs.readers import lines as ndjson
from pipeline.logs.readers.batch import RECORD_BYTES, cell_type, readable_times
from reticent import LogError


def odd_lines(rng: np.random.Generator, many: int) -> list[bytes]:
    """Lines of a few shapes, and now and then one that is odd."""
    keys, blanks = ["a", "b", "é", "a_key_of_twenty_lett", "a_key_of_twenty_letT"], ["", " ", "\t", "  "]
    values: list[Callable[[], str]] = [
        lambda: str(rng.integers(-9, 10**9)),
        lambda: str(rng.normal()),
        lambda: "9" * 40,
        lambda: "1E400",
        lambda: "-0.0",
        lambda: str(rng.choice(["null", "NaN", "Infinity", "-Infinity", "true", "false"])),
        lambda: str(rng.choice(['"NaN"', '""', '" x "', '"{:,}"', '"é"', '"\\u00e9"', '"\\ud800"', '"\\"', '"null"'])),
        lambda: str(rng.choice(["[1, 2.50]", "[]", "{}", '{"a":1}', "01", "+1", ".5", "nul", "NaNs", "'x'", "1 2"])),
    ]
    odd = [b"", b"  ", b"{}", b"[]", b"3", b"{", b'{"a":1}{"a":2}', b'{"a":1,}',
           b'\xef\xbb\xbf{"a":1}', b'{"a":"\xff"}',
           b'{"a":"\0"}', b'{"a":1}\r', b'{"a":"' + b"x" * RECORD_BYTES + b'"}', b'{"a"\r:1}', b"[" * 5000]  # fmt: skip
    shapes = [rng.choice(keys, rng.integers(1, 5), replace=i == 0).tolist() for i in range(4)]
    told: list[bytes] = []
    for i in range(many):
        if rng.random() < 0.1:
            told.append(odd[i % len(odd)])
            continue
        names, blank = shapes[rng.integers(len(shapes))], blanks[rng.choice(4, p=[0.9, 0.05, 0.03, 0.02])]
        usual = len(values) if rng.random() < 0.4 else 2
        inside = ",".join(f'{blank}"{k}"{blank}:{blank}{values[rng.integers(usual)]()}{blank}' for k in names)
        told.append(f"{blank}{{{inside}}}{blank}".encode())
    return told


def line_by_line(told: list[bytes], columns: list[str], lists: frozenset[str]) -> tuple[dict[int, Any], list[int]]:
    """The standard parser, which sees one line at a time: rows by number, and numbers of what is malformed."""
    read, bad = dict[int, Any](), list[int]()
    for number, line in enumerate(told, 1):
        if not line.removesuffix(b"\r"):
            continue
        try:
            text = line.decode().lstrip("\ufeff")
        except UnicodeDecodeError:
            bad.append(number)
            continue
        cells = None if len(line) > RECORD_BYTES or "\0" in text else ndjson._object(text, columns, lists)
        if cells is None:
            bad.append(number)
        else:
            read[number] = tuple(cells)
    return read, bad


BROKEN_LINES: dict[str, Any] = {
    "": None,
    "_FLAT": ndjson._FLAT.replace(r'"[^"\\\x00-\x1f]*"', r'"(?:[^"\\\x00-\x1f]|\\.)*"'),
    "_NULL": np.isin(np.arange(256), list(b"n")),
    "_BLANK": np.isin(np.arange(256), list(b" ")),
    "_CUTS": np.isin(np.arange(256), list(b"{:}")),
}


@pytest.mark.parametrize("broken", list(BROKEN_LINES))
def test_many_lines_together_are_read_as_each_alone(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if broken:
        monkeypatch.setattr(ndjson, broken, BROKEN_LINES[broken])
    columns, lists, same = ["a", "é", "a_key_of_twenty_lett"], frozenset({"é"}), True
    for seed, (block, piece, shapes) in enumerate([(1 << 24, 1 << 21, 8), (1 << 12, 512, 2), (1 << 16, 3000, 1)]):
        rng = np.random.default_rng(seed)
        told = odd_lines(rng, 400)
        for name, value in (("BLOCK_BYTES", block), ("_PIECE", piece), ("_SHAPES", shapes)):
            monkeypatch.setattr(lines if name == "BLOCK_BYTES" else ndjson, name, value)
        end = [b"", b"\n", b"\r\n"][seed]
        (tmp_path / "x.ndjson").write_bytes(b"\xef\xbb\xbf" * (seed > 0) + b"\n".join(told) + end)
        told[-1] += b"\r" if end == b"\r\n" else b""
        try:
            batches = list(ndjson.read_ndjson(tmp_path / "x.ndjson", columns, lists))
        except Exception:
            assert broken
            return
        read = {int(n): row for b in batches for n, row in zip(b.lines, b.frame.rows(), strict=True)}
        bad = [n for b in batches for n in b.malformed["line"].to_list()]
        alone = line_by_line(told, columns, lists)
        assert broken or (len(alone[0]) > 100 and len(alone[1]) > 20)
        same &= (read, bad) == alone and list(read) == sorted(read)
    assert same != bool(broken)


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
    file: bool, small: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "_SMALL", small)
    table, sink = pa.table(ARROW), io.BytesIO()
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
        writer.write_table(table.slice(1, 3).combine_chunks())
        writer.write_table(table.slice(4, 0))
    (tmp_path / "x.arrow").write_bytes(sink.getvalue())
    wanted = slowly(pa.concat_tables([table, table.slice(1, 3)]))
    for columns in (list(ARROW), list(reversed(ARROW)), ["vector", "bool"], ["dictionary"]):
        batches = list(arrow.read_ipc(tmp_path / "x.arrow", columns))
        found = pl.concat([batch.frame for batch in batches])
        assert found.schema == wanted.select(columns).schema
        assert found.equals(wanted.select(columns)) and not any(len(batch.malformed) for batch in batches)
    assert arrow.ipc_types(tmp_path / "x.arrow") == dict(wanted.schema)


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
        list(arrow.read_ipc(path, ["a", "c"]))
