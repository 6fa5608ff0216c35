"""NDJSON and Arrow: the same log in four formats, odd lines, damage."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.logs.readers import arrow, lines
from pipeline.logs.readers import batch as framing
from pipeline.logs.readers import lines as ndjson
from reticent import LogError

from .conftest import Edition, canonical, check_delivery, ingest, make_card, quarantine

HEAD = ["user", "episode", "t", "s", "a", "r"]
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


def test_four_formats_of_one_log_give_the_same_canonical_bytes(tmp_path: Path) -> None:
    names = ["a.csv", "a.parquet", "a.arrow", "a.feather", "a.ipc", "a.arrows", "a.ndjson", "a.jsonl"]
    found: dict[str, Edition] = {}
    for name in names:
        write(tmp_path, name)
        found[name] = snapshot_of(tmp_path, name)
    assert len({s.data_digest for s in found.values()}) == 1
    assert len({s.part_files[0].read_bytes() for s in found.values()}) == 1
    assert {str(s.quarantined) for s in found.values()} == {str(found["a.csv"].quarantined)}
    assert found["a.csv"].rows > 0


def test_files_of_all_formats_make_one_log(tmp_path: Path) -> None:
    for i, name in enumerate(["a.csv", "b.parquet", "c.arrow", "d.ndjson"]):
        write(tmp_path, name, FRAME.head(1).with_columns(user=pl.lit(f"u{i}")))
    snapshot = ingest(make_card(tmp_path, ["*.*"]), tmp_path / "home")
    assert canonical(snapshot)["user_id"].to_list() == ["u0", "u1", "u2", "u3"]


def read_lines(lines: list[str], tmp_path: Path, columns: tuple[str, ...] = ("a", "b")) -> Any:
    (tmp_path / "x.ndjson").write_text("\n".join(lines), encoding="utf-8")
    batches = list(ndjson.read_ndjson(tmp_path / "x.ndjson", list(columns)))
    rows = {int(line): row for b in batches for line, row in zip(b.lines, b.frame.rows(), strict=True)}
    return rows, [line for b in batches for line in b.malformed["line"]]


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


def test_a_line_is_one_object_or_malformed_whatever_stands_around_it(tmp_path: Path) -> None:
    rows, malformed = read_lines([line for line, _ in LINES], tmp_path)
    assert malformed == [i for i, (_, cells) in enumerate(LINES, 1) if cells == "malformed"]
    assert rows == {i: cells for i, (_, cells) in enumerate(LINES, 1) if cells != "malformed"}


def test_byte_order_mark_carriage_returns_blank_lines_and_small_blocks_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", 64)
    told = [f'{{"a":{i},"b":"{"x" * (i % 7)}"}}' for i in range(30)]
    (tmp_path / "x.ndjson").write_bytes(b"\xef\xbb\xbf" + "\r\n\n".join(told).encode())
    batches = list(ndjson.read_ndjson(tmp_path / "x.ndjson", ["a"]))
    assert len(batches) > 5
    assert [x for b in batches for x in b.frame["a"]] == [str(i) for i in range(30)]
    assert [x for b in batches for x in b.lines] == [1 + 2 * i for i in range(30)]


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("abc"), inner, max_size=2)),
    max_leaves=3,
)


@given(st.lists(st.tuples(st.sampled_from("abcé"), JSON), max_size=4), st.booleans(), st.sampled_from(["", " "]))
def test_the_flat_reader_and_the_parser_read_a_line_alike(pairs: Any, ascii_only: bool, gap: str) -> None:
    inside = ",".join(f"{gap}{json.dumps(k)}{gap}:{json.dumps(v, ensure_ascii=ascii_only)}{gap}" for k, v in pairs)
    line = f"{{{inside}}}"
    try:
        data = line.encode() + b"\n"
    except UnicodeEncodeError:
        return
    batch = ndjson._batch(lines.frame_block(data, 1), ["a", "é"])
    alone = ndjson._object(line, ["a", "é"])
    assert batch.frame.rows() == ([] if alone is None else [tuple(alone)])
    assert len(batch.malformed) == (alone is None)


@pytest.mark.parametrize("piece", [1, 20, 1 << 21])
@pytest.mark.parametrize("shapes", [1, 2, 8])
def test_lines_of_many_shapes_stay_in_their_order(shapes: int, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ndjson, "_SHAPES", shapes)
    monkeypatch.setattr(ndjson, "_PIECE", piece)
    told = [
        '{"a":1,"b":2}',
        '{"b":3,"a":4}',
        "{}",
        '{"c":0}',
        '{"a":"é\\n"}',
        '{"a" :"x", "b":null}',
        '{"a":1,"a":2}',
        "[]",
    ]
    batch = ndjson._batch(lines.frame_block("\n".join([*told, *told, ""]).encode(), 1), ["a", "b"])
    alone = [cells for line in told if (cells := ndjson._object(line, ["a", "b"])) is not None]
    assert [list(row) for row in batch.frame.rows()] == alone * 2 and batch.malformed["line"].to_list() == [
        7,
        8,
        15,
        16,
    ]
    assert batch.lines.tolist() == [1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14]


def test_what_one_row_holds_never_changes_what_another_means(tmp_path: Path) -> None:
    rows = [{"user": "u", "episode": 1, "t": 0, "s": "x", "a": 1, "r": 1}]
    for other in ({"a": 1.0, "r": "1"}, {"a": "one", "r": True}, {"a": None, "episode": "seven", "t": "0"}):
        path = tmp_path / "m.ndjson"
        path.write_text("".join(json.dumps(r) + "\n" for r in [*rows, {**rows[0], "user": "v", **other}]))
        table = canonical(snapshot_of(tmp_path, "m.ndjson", domain={"horizon": 3}))
        assert table.filter(pl.col("user_id") == "u").rows()[0][:6] == ("u", 1, 0, 0, 1, 1.0)


def test_a_malformed_line_is_filed_with_its_number_and_text(tmp_path: Path) -> None:
    good = '{"user":"u","episode":1,"t":0,"s":"x","a":1,"r":1}'
    (tmp_path / "m.ndjson").write_text(f'{good}\n{{"user":"v"\n[]\n', encoding="utf-8")
    filed = quarantine(snapshot_of(tmp_path, "m.ndjson").folder)
    assert filed.select("line", "rule", "text").rows() == [
        (2, "malformed_line", '{"user":"v"'), (3, "malformed_line", "[]"),
    ]  # fmt: skip


def test_lines_that_are_no_text_or_nobodys_are_set_aside_alone(tmp_path: Path) -> None:
    good = b'{"user":"u","episode":1,"t":0,"s":"x","a":1,"r":1}'
    odd = [b'{"user":"v\xff"}', b'{"user":"v\0"}', b'{"episode":1}', b'{"user":" "}']
    (tmp_path / "b.ndjson").write_bytes(b"\n".join([*odd, good]))
    snapshot = snapshot_of(tmp_path, "b.ndjson")
    assert snapshot.rows == 1 and snapshot.quarantined == {"malformed_line": 2, "null_user": 2}
    assert quarantine(snapshot.folder)["line"].to_list() == [1, 2, 3, 4]


def test_objects_without_keys_are_rows_of_nobody_and_the_operator_hears_of_it(tmp_path: Path) -> None:
    (tmp_path / "b.ndjson").write_text("{}\n{}\n", encoding="utf-8")
    snapshot = snapshot_of(tmp_path, "b.ndjson")
    with pytest.raises(LogError, match=r"not one of 2 rows is left \(most broke null_user\)"):
        check_delivery(snapshot)


def stream_bytes(table: Any, *, file: bool) -> bytes:
    sink = io.BytesIO()
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(sink, table.schema) as writer:
        for batch in table.to_batches(max_chunksize=2):
            writer.write_batch(batch)
    return sink.getvalue()


@pytest.mark.parametrize("file", [True, False])
def test_dictionary_columns_and_several_batches_are_plain_columns(tmp_path: Path, file: bool) -> None:
    table = FRAME.to_arrow()
    for name in ["user", "episode", "t", "s", "a"]:
        column = table[name].combine_chunks().dictionary_encode()
        table = table.set_column(table.schema.names.index(name), name, column)
    (tmp_path / "d.arrow").write_bytes(stream_bytes(table, file=file))
    write(tmp_path, "d.csv")
    assert snapshot_of(tmp_path, "d.arrow").data_digest == snapshot_of(tmp_path, "d.csv").data_digest


def test_large_record_batches_come_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "BATCH_ROWS", 2)
    write(tmp_path, "d.arrow")
    batches = list(arrow.read_ipc(tmp_path / "d.arrow", ["r", "user"]))
    assert [b.lines.tolist() for b in batches] == [[1, 2], [3, 4], [5]]
    assert [b.frame.columns for b in batches] == [["r", "user"]] * 3


@pytest.mark.parametrize("small", [0, 1 << 16])
def test_every_cut_of_an_arrow_file_or_stream_is_noticed(
    small: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "_SMALL", small)
    path = tmp_path / "cut.arrow"
    for file in (True, False):
        whole = stream_bytes(FRAME.to_arrow(), file=file)
        for cut in range(0, len(whole), 8):
            path.write_bytes(whole[:cut])
            with pytest.raises(LogError, match=r"cut.arrow: not a whole Arrow file"):
                list(arrow.read_ipc(path, HEAD))
        path.write_bytes(whole)
        assert sum(len(b.frame) for b in arrow.read_ipc(path, HEAD)) == len(FRAME)


@pytest.mark.parametrize("changed", range(20))
def test_a_key_that_differs_by_one_letter_is_another(changed: int) -> None:
    key = "a_key_of_twenty_lett"
    other = key[:changed] + "X" + key[changed + 1 :]
    data = f'{{"{key}":1}}\n{{"{other}":2}}\n{{"{key}":3}}\n'.encode()
    batch = ndjson._batch(lines.frame_block(data, 1), [key])
    assert batch.frame[key].to_list() == ["1", None, "3"]


def test_a_column_that_nobody_asked_for_may_be_damaged(tmp_path: Path) -> None:
    table = pa.table({"s": [1, 2], "note": ["a" * 40, "b" * 40]})
    for file in (True, False):
        whole = stream_bytes(table, file=file)
        at = whole.index(b"a" * 40)
        (tmp_path / "n.arrow").write_bytes(whole[:at] + b"\xff" * 40 + whole[at + 40 :])
        assert [b.frame["s"].to_list() for b in arrow.read_ipc(tmp_path / "n.arrow", ["s"])] == [[1, 2]]
        (batch,) = arrow.read_ipc(tmp_path / "n.arrow", ["note", "s"])
        assert batch.frame["s"].to_list() == [2] and batch.malformed["line"].to_list() == [1]


def test_two_streams_glued_together_are_not_read_as_one(tmp_path: Path) -> None:
    (tmp_path / "two.arrows").write_bytes(stream_bytes(FRAME.to_arrow(), file=False) * 2)
    with pytest.raises(LogError, match="not a whole Arrow file"):
        list(arrow.read_ipc(tmp_path / "two.arrows", HEAD))


def test_damaged_offsets_are_found_before_they_are_followed(tmp_path: Path) -> None:
    whole = stream_bytes(FRAME.select(HEAD).cast({"user": pl.String}).to_arrow(), file=False)
    hits = 0
    for at in range(400, len(whole) - 16, 24):
        (tmp_path / "bent.arrows").write_bytes(whole[:at] + b"\xfe" * 8 + whole[at + 8 :])
        try:
            list(arrow.read_ipc(tmp_path / "bent.arrows", HEAD))
        except LogError:
            hits += 1
    assert hits > 0


def test_the_first_feather_is_refused_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "old.feather").write_bytes(b"FEA1" + b"\0" * 60)
    with pytest.raises(LogError, match=r"old.feather: Feather version 1; write it as version 2"):
        snapshot_of(tmp_path, "old.feather")
