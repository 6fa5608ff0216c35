"""NDJSON and Arrow: the same log in four formats, odd lines, damage; quick ways of reading against slow ones."""

import datetime
import io
import json
import math
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from pipeline.logs import sources
from pipeline.logs.decode import NUMBERS
from pipeline.logs.readers import batch, lines
from pipeline.logs.readers import batch as framing
from pipeline.logs.readers.batch import RECORD_BYTES, cell_type, readable_times
from reticent import LogError
from tests.conftest import slow
from tests.logs.conftest import HEAD, Edition, ingest, make_card, quarantine, write_arrow

FRAME = pl.DataFrame(
    {
        "user": ["u", "u", "ü", "w", "w"],
        "episode": [1, 1, 2, 3, 3],
        "t": [0, 1, 0, 0, 1],
        "s": ["x", "died", "?", None, "y"],
        "a": [1, None, 0, 7, 0],
        "r": [1.0, None, 0.25, float("nan"), 1e-3],
        "note": ["a", "b", "c", "d", "e"],
    }
)


def snapshot_of(folder: Path, name: str, **card: Any) -> Edition:
    return ingest(make_card(folder, [name], **card), folder / f"store-{name}")


def write(folder: Path, name: str, frame: pl.DataFrame = FRAME) -> None:
    path = folder / name
    match path.suffix:
        case ".csv":
            frame.write_csv(path)
        case ".parquet":
            frame.write_parquet(path)
        case ".ndjson" | ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in frame.iter_rows(named=True)), encoding="utf-8")
        case ".arrows":
            frame.write_ipc_stream(path)
        case _:
            frame.write_ipc(path, compression="zstd")


def test_four_formats_of_one_log_give_the_same_canonical_bytes(tmp_path):
    names = ["a.csv", "a.parquet", "a.arrow", "a.feather", "a.ipc", "a.arrows", "a.ndjson", "a.jsonl"]
    found: dict[str, Edition] = {}
    for name in names:
        write(tmp_path, name)
        found[name] = snapshot_of(tmp_path, name)
    assert len({s.data_digest for s in found.values()}) == 1
    assert len({s.part_files[0].read_bytes() for s in found.values()}) == 1
    assert {str(s.quarantined) for s in found.values()} == {str(found["a.csv"].quarantined)}
    assert found["a.csv"].rows > 0


ROLES = ("states", "actions")


def cells_of(folder: Path, told: list[Any], columns: tuple[str, str] = ("a", "b")) -> tuple[dict[int, Any], list[int]]:
    """Cells of two columns by line, as the quarantine shows rows of nobody, and the lines that are no rows."""
    (folder / "x.ndjson").write_bytes(b"\n".join(line.encode() if isinstance(line, str) else line for line in told))
    domain = {what: {"column": c, "labels": 2, "other": True} for what, c in zip(ROLES, columns, strict=True)}
    filed = quarantine(snapshot_of(folder, "x.ndjson", domain=domain).folder)
    rows = filed.filter(rule="null_user").select("line", "source").rows()
    bad = filed.filter(rule="malformed_line")["line"].to_list()
    assert len(rows) + len(bad) == len(filed)
    return {line: tuple(cells[c] for c in columns) for line, cells in rows}, bad


LINES: list[tuple[str, Any]] = [
    ('{"a":1,"b":"x"}', ("1", "x")),
    (' { "b" : true ,\t"a" : null } ', (None, "true")),
    ("{}", (None, None)),
    ('{"a":12345678901234567890123,"b":1.50}', ("12345678901234567890123", "1.50")),
    ('{"a":NaN,"b":-Infinity}', (None, "-Infinity")),
    ('{"a":"NaN","b":"null"}', ("NaN", "null")),
    ('{"a":"{\\"b\\":1}","b":"\\u00e9\\n"}', ('{"b":1}', "é\n")),
    ('{"a":"x:1,{}","b":"}"}', ("x:1,{}", "}")),
    ('{"c":[1,{"a":2}],"a":1}', ("1", None)),
    ('{"c":1,"c":2,"a":1}', ("1", None)),
    ('{"a":1,"a":1}', "malformed"),
    ('{"\\u0061":1,"a":1}', "malformed"),
    ('{"a":[1]}', "malformed"),
    ('{"a":{}}', "malformed"),
    ("[1]", "malformed"),
    ("3", "malformed"),
    ('{"a":1', "malformed"),
    ('{"a":"1}', "malformed"),
    ('{"a":01}', "malformed"),
    ('{"a":1}{"a":2}', "malformed"),
    ("{'a':1}", "malformed"),
    ('{"a":"\\ud800"}', "malformed"),
    ('{"a":"\t"}', "malformed"),
    ("[" * 100_000, "malformed"),
]


def test_a_line_is_one_object_or_malformed_whatever_stands_around_it(tmp_path):
    rows, malformed = cells_of(tmp_path, [line for line, _ in LINES])
    assert malformed == [i for i, (_, cells) in enumerate(LINES, 1) if cells == "malformed"]
    assert rows == {i: cells for i, (_, cells) in enumerate(LINES, 1) if cells != "malformed"}


RAW = ["9" * 40, "1E400", "-0.0", '"\\ud800"', "01", "+1", ".5", "nul", "NaNs", "'x'", "1 2", '"\\"', "-Infinity"]
ODD = [b"", b"\r", b"  ", b"[]", b"3", b"{", b'{"a":1}{"a":2}', b'{"a":1,}', b'\xef\xbb\xbf{"a":1}', b'{"a":"\xff"}',
       b'{"a":"\0"}', b'{"a":1}\r', b'{"a":"' + b"x" * RECORD_BYTES + b'"}', b'{"a"\r:1}', b"[" * 5000]  # fmt: skip


def odd_lines(rng: random.Random, many: int) -> list[bytes]:
    """Objects of up to four pairs, in escapes or not, keys again and again, most with numbers alone; and odd lines."""
    found = ODD * 3
    for _ in range(many):
        text = "".join(rng.choices('aé"\\\n\t\x7f\u2028\U0001f600{}[],: 0', k=rng.randrange(4)))
        plain, gap = rng.random() < 0.5, rng.choice(["", "", " ", "\t"])
        scalars = [text, text, None, True, False, math.nan, {"a": text}, [text, 1]] if rng.random() < 0.6 else [1]
        values = [rng.choice([*scalars, rng.randrange(10**9), rng.gauss(0, 1e9)]) for _ in range(rng.randrange(5))]
        told = [rng.choice(RAW) if rng.random() < 0.05 else json.dumps(v, ensure_ascii=plain) for v in values]
        pairs = ",".join(f'{gap}"{rng.choice("abcé")}"{gap}:{gap}{value}{gap}' for value in told)
        found.append(f"{{{pairs}}}".encode())
    rng.shuffle(found)
    return found


def parsed(line: bytes, columns: tuple[str, str]) -> tuple[Any, ...] | None:
    """What the standard parser says of a line; None: it is no row."""

    def constant(name: str) -> str | None:
        return None if name == "NaN" else name

    try:
        text = line.decode().lstrip("\ufeff")
        pairs = json.loads(text, object_pairs_hook=tuple, parse_int=str, parse_float=str, parse_constant=constant)
        held = [[v for k, v in pairs if k == column] for column in columns] if isinstance(pairs, tuple) else [[1, 1]]
        "".join(str(v) for one in held for v in one).encode()
    except (ValueError, RecursionError):
        return None
    if len(line) > RECORD_BYTES or any(len(one) > 1 or isinstance(v, tuple | list) for one in held for v in one):
        return None
    return tuple(str(v).lower() if isinstance(v, bool) else v or None for one in held for v in (one or [None]))


BROKEN: dict[str, Any] = {
    "_FLAT": lines._FLAT.replace(r'"[^"\\\x00-\x1f]*"', r'"(?:[^"\\\x00-\x1f]|\\.)*"'),
    "_NULL": np.isin(np.arange(256), list(b"n")),
    "_BLANK": np.isin(np.arange(256), list(b" ")),
    "_CUTS": np.isin(np.arange(256), list(b"{:}")),
}


@pytest.mark.parametrize(
    ("block", "piece", "shapes", "broken"),
    [
        (1 << 24, 1 << 21, 8, ""),
        slow(1 << 12, 512, 2, ""),
        slow(1 << 16, 3000, 1, ""),
        *((1 << 16, 3000, 8, x) for x in BROKEN),
    ],
)
def test_lines_are_read_as_the_standard_parser_reads_each(block, piece, shapes, broken, tmp_path, monkeypatch):
    for name, value in {"BLOCK_BYTES": block, "_PIECE": piece, "_SHAPES": shapes, broken: BROKEN.get(broken)}.items():
        monkeypatch.setattr(lines, name, value, raising=False)
    told, columns = odd_lines(random.Random(block), 1000), ("a", "é")
    alone = {i: parsed(line, columns) for i, line in enumerate(told, 1) if line.strip(b"\r")}
    try:
        rows, malformed = cells_of(tmp_path, told, columns)
    except Exception:
        assert broken
        return
    same = malformed == [i for i, cells in alone.items() if cells is None]
    same &= rows == {i: cells for i, cells in alone.items() if cells is not None}
    assert same != bool(broken) and 100 < len(malformed) < 500


@pytest.mark.parametrize("small", [0, slow(1 << 16)])
def test_every_cut_of_an_arrow_file_or_stream_is_noticed(small, tmp_path, constants):
    constants(fast=small)
    path = tmp_path / "cut.arrow"
    for file in (True, False):
        write_arrow(path, FRAME.to_arrow(), file=file, rows=2)
        whole = path.read_bytes()
        for cut in range(0, len(whole), 8):
            path.write_bytes(whole[:cut])
            with pytest.raises(LogError, match=r"cut.arrow: not a whole Arrow file"):
                list(framing.read_ipc(path, HEAD))
        path.write_bytes(whole)
        assert sum(len(b.frame) for b in framing.read_ipc(path, HEAD)) == len(FRAME)


def test_a_key_that_differs_by_one_letter_is_another(tmp_path):
    key = "a_key_of_twenty_lett"
    others = [key[:i] + "X" + key[i + 1 :] for i in range(20)]
    told = [f'{{"{name}":{i}}}' for i, other in enumerate(others) for name in (key, other)]
    rows, _ = cells_of(tmp_path, told, (key, "b"))
    assert [a for a, _ in rows.values()] == [cell for i in range(20) for cell in (str(i), None)]


def test_a_column_that_nobody_asked_for_may_be_damaged(tmp_path):
    table = FRAME.head(2).with_columns(note=pl.Series(["a" * 40, "b" * 40]), s=pl.lit("x"), a=0, r=1.0).to_arrow()
    for file in (True, False):
        write_arrow(tmp_path / "n.arrow", table, file=file, rows=2)
        whole = (tmp_path / "n.arrow").read_bytes()
        at = whole.index(b"a" * 40)
        (tmp_path / "n.arrow").write_bytes(whole[:at] + b"\xff" * 40 + whole[at + 40 :])
        unread = snapshot_of(tmp_path, "n.arrow")
        assert (unread.rows, unread.quarantined) == (2, {})
        asked = {"actions": {"column": "note", "labels": ["b" * 40]}}
        filed = quarantine(snapshot_of(tmp_path, "n.arrow", domain=asked).folder)
        assert filed.select("line", "rule").rows() == [(1, "malformed_line"), (2, "gap")]


def test_two_streams_glued_together_are_not_read_as_one(tmp_path):
    path = tmp_path / "two.arrows"
    write_arrow(path, FRAME.to_arrow(), file=False, rows=2)
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(LogError, match="not a whole Arrow file"):
        snapshot_of(tmp_path, "two.arrows")


def test_damaged_offsets_are_found_before_they_are_followed(tmp_path):
    path, hits = tmp_path / "bent.arrows", 0
    write_arrow(path, FRAME.select(HEAD).cast({"user": pl.String}).to_arrow(), file=False, rows=2)
    whole = path.read_bytes()
    for at in range(400, len(whole) - 16, 24):
        path.write_bytes(whole[:at] + b"\xfe" * 8 + whole[at + 8 :])
        try:
            list(framing.read_ipc(path, HEAD))
        except LogError:
            hits += 1
    assert hits > 0


def test_the_first_feather_is_refused_with_a_way_out(tmp_path):
    (tmp_path / "old.feather").write_bytes(b"FEA1" + b"\0" * 60)
    with pytest.raises(LogError, match=r"old.feather: Feather version 1; write it as version 2"):
        snapshot_of(tmp_path, "old.feather")


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
def test_arrow_is_read_as_polars_general_door_reads_it(file, small, tmp_path, constants):
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
def test_cells_of_a_role_are_the_same_step_by_step(broken, monkeypatch):
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


def test_a_column_that_is_gone_when_the_rows_are_read_is_damage(tmp_path):
    path = tmp_path / "x.arrow"
    pl.DataFrame({"a": [1], "b": [2]}).write_ipc(path)
    with pytest.raises(LogError, match="not a whole Arrow file"):
        list(batch.read_ipc(path, ["a", "c"]))
