"""Whatever one person's record holds, every other person's rows stay as they are: one property over all formats.

A twin of a log differs in the bytes of one person's records, and in nothing else.  ``FORMATS`` writes such twins.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.logs.readers import batch as framing
from pipeline.logs.readers import lines
from pipeline.logs.readers.batch import RECORD_BYTES, Batch, Request
from reticent import Card, LogError, LqCard
from tests.conftest import slow
from tests.logs.conftest import HEAD, canonical, ingest, make_card, quarantine, write_arrow
from tests.logs.layouts import card_of, cards

# the odd one's records stand among those of three others
OTHERS = [(user, 1, t, "xy"[t % 2], t % 2, 1.0) for user in ("anna", "bert", "cleo") for t in range(3)]
AT = 4
TEXT = pa.string()
Row = list[bytes | None]


@dataclass(frozen=True)
class Format:
    """A file's name, and its bytes: the others' rows and the odd records (six cells each, of any bytes)."""

    name: str
    write: Callable[[list[Row]], bytes]


def _cells(row: tuple[Any, ...]) -> Row:
    return [str(cell).encode() for cell in row]


def _with_odd(odd: list[Row]) -> list[Row]:
    good = [_cells(row) for row in OTHERS]
    return [*good[:AT], *odd, *good[AT:]]


def _csv(odd: list[Row]) -> bytes:
    # a newline would forge another's record: what is framed is a physical line
    told = [b",".join((cell or b"").replace(b"\n", b" ") for cell in row) for row in _with_odd(odd)]
    return b"\n".join([",".join(HEAD).encode(), *told, b""])


def _ndjson(odd: list[Row]) -> bytes:
    good = [json.dumps(dict(zip(HEAD, row, strict=True))).encode() for row in OTHERS]
    told = []
    for row in odd:
        pairs = (
            b'"%s":%s' % (name.encode(), b"null" if cell is None else b'"%s"' % cell)
            for name, cell in zip(HEAD, row, strict=True)
        )
        told.append(b"{%s}" % b",".join(pairs).replace(b"\n", b" "))
    return b"\n".join([*good[:AT], *told, *good[AT:]])


def _table(odd: list[Row], kind: Any = TEXT) -> Any:
    columns = zip(*_with_odd(odd), strict=True)
    as_bytes = {TEXT: pa.binary(), pa.string_view(): pa.binary_view()}
    arrays = [pa.array(cells, as_bytes.get(kind, pa.binary())) for cells in columns]
    if pa.types.is_dictionary(kind):
        coded = [array.dictionary_encode() for array in arrays]
        arrays = [pa.DictionaryArray.from_arrays(a.indices, a.dictionary.view(TEXT)) for a in coded]
    else:
        arrays = [array.view(kind) for array in arrays]
    return pa.table(arrays, names=HEAD)


def _parquet(odd: list[Row]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(_table(odd), sink)
    return sink.getvalue().to_pybytes()


def _arrow(kind: Any, new: Any) -> Callable[[list[Row]], bytes]:
    def write(odd: list[Row]) -> bytes:
        table, sink = _table(odd, kind), pa.BufferOutputStream()
        with new(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=7)
        return sink.getvalue().to_pybytes()

    return write


FORMATS = [
    Format("log.csv", _csv),
    Format("log.ndjson", _ndjson),
    Format("log.parquet", _parquet),
    Format("text.arrow", _arrow(TEXT, pa.ipc.new_file)),
    Format("views.arrow", _arrow(pa.string_view(), pa.ipc.new_file)),
    Format("labels.arrows", _arrow(pa.dictionary(pa.int32(), pa.string()), pa.ipc.new_stream)),
]


def rows_of_others(card: Card | LqCard, store: Path) -> list[tuple[Any, ...]]:
    """Canonical rows of everybody but the odd one."""
    rows = canonical(ingest(card, store))
    return rows.filter(pl.col("user_id").is_in(["anna", "bert", "cleo"])).rows()


def taken(form: Format, odd: list[Row], **changes: Any) -> list[tuple[Any, ...]]:
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / form.name).write_bytes(form.write(odd))
        return rows_of_others(make_card(folder, [form.name], unit={"episodes_per_user": 2}, **changes), folder / "home")
    finally:
        shutil.rmtree(folder)


GOOD = _cells(("odd", 1, 0, "x", 0, 1.0))
NASTY = [
    b"\xff", b"x\xff", b"\0", b'"', b'"x', b"x\n", b"\r", b",,", b"\xed\xa0\x80", b"", b" ", b"nan", b"-inf", b"1e999",
    b"{", b"[" * 200, b"\\ud800", b"\\", b"9" * 400, b"\xef\xbb\xbf", b"true", b"0x10", b"\xe2\x80\xa8", None,
    b"9223372036854775807", b"-9223372036854775808", b"1e300", b"-0",
    b"z" * (RECORD_BYTES + 1),
]  # fmt: skip
CELL = st.one_of(st.sampled_from(NASTY), st.binary(max_size=12))


def odd_ones(most: int = 10) -> st.SearchStrategy[list[Row]]:
    """Records; the id is the odd one's, or nobody's.  An ingest of many costs what one of few does."""
    whose = st.sampled_from([b"odd", b"odd", None, b"", b" ", b"\xff", b"odd\xff", b"\0", b'"', NASTY[-1]])
    return st.lists(st.tuples(whose, *[st.one_of(st.just(good), CELL) for good in GOOD[1:]]).map(list), max_size=most)


REST = taken(FORMATS[0], [])


ODD_ROWS: list[Row] = [
    [b"odd", b"1", b"0", b"x\xff", b"0", b"1"],
    [None, b"1", b"0", b"x", b"0", b"1"],
    [b"odd", b"1", b"0", NASTY[-1], b"0", b"1"],
]


@pytest.mark.parametrize("form", [FORMATS[0], FORMATS[2]], ids=lambda form: form.name)
@settings(max_examples=3, deadline=None)
@example(odd=ODD_ROWS)
@given(odd=odd_ones())
def test_a_twin_of_one_person_moves_nobody_elses_rows(form, odd):
    assert taken(form, odd) == REST


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@settings(max_examples=25, deadline=None)
@example(odd=ODD_ROWS)
@given(odd=odd_ones(20))
def test_many_twins_of_one_person_move_nobody_elses_rows(form, odd):
    assert taken(form, odd) == REST


def test_the_same_rows_in_every_format():
    assert all(taken(form, []) == REST for form in FORMATS)


def _whole_blocks(data: bytes, first: int) -> lines.Lines:
    """A broken twin: one line that is no text takes the block with it."""
    return framed(data if lines.is_text(data) else b"\n", first)


def _joined(path: Path, *, header: bool = False) -> Iterator[lines.Lines]:
    """Another: a newline between quotes joins two lines."""
    data = path.read_bytes()
    opened = np.cumsum(np.frombuffer(data, np.uint8) == ord('"')) % 2 == 1
    glued = bytes(ord(" ") if x == ord("\n") and q else x for x, q in zip(data, opened, strict=True))
    (path.parent / "glued").write_bytes(glued)
    yield from frame_lines(path.parent / "glued", header=header)


def _whole_batches(arrays: list[Any]) -> Any:
    """A third: one cell that is no text takes all rows with it."""
    return np.full(len(arrays[0]), not_text(arrays).any())


framed, frame_lines, not_text = lines.frame_block, lines.frame_lines, framing.find_odd_text
TWINS = [
    (FORMATS[0], "pipeline.logs.readers.lines.frame_block", _whole_blocks, b"x\xff"),
    (FORMATS[1], "pipeline.logs.readers.lines.frame_block", _whole_blocks, b"x\xff"),
    (FORMATS[0], "pipeline.logs.readers.lines.frame_lines", _joined, b'"x'),
    (FORMATS[2], "pipeline.logs.readers.batch.find_odd_text", _whole_batches, b"x\xff"),
    (FORMATS[3], "pipeline.logs.readers.batch.find_odd_text", _whole_batches, b"x\xff"),
]


@pytest.mark.parametrize(("form", "where", "twin", "cell"), TWINS)
def test_a_broken_reader_is_caught(form, where, twin, cell, monkeypatch):
    odd: list[Row] = [[b"odd", b"1", b"0", cell, b"0", b"1"]]
    assert taken(form, odd) == REST
    monkeypatch.setattr(where, twin)
    try:
        found = taken(form, odd)
    except LogError:
        found = []
    assert found != REST


@pytest.mark.parametrize("form", FORMATS[:4], ids=lambda form: form.name)
def test_a_person_of_too_many_rows_keeps_the_first_and_moves_nobody(form, constants, tmp_path):
    """Whoever repeats a row ten million times once took gigabytes."""
    constants(rows=4, batch=3, block=60)
    many = [_cells(("odd", 1, t, "x", 0, 1.0)) for t in [0, 1, 2, 1, 2, 2, 2, 2, 2]]
    (tmp_path / form.name).write_bytes(form.write(many))
    snapshot = ingest(make_card(tmp_path, [form.name], unit={"episodes_per_user": 2}), tmp_path / "home")
    assert snapshot.quarantined == {"repeat": 4, "too_many_rows": 5} and snapshot.source_rows == len(OTHERS) + 9
    filed = quarantine(snapshot.folder).filter(pl.col("rule") == "too_many_rows")
    first = AT + 5 + (form.name == "log.csv")
    assert filed["line"].to_list() == list(range(first, first + 5)) and {
        cells["user"] for cells in filed["source"]
    } == {"odd"}
    assert canonical(snapshot).rows() == REST


def alone(read: Callable[[bytes], list[Batch]], records: list[bytes]) -> tuple[list[Any], list[Any]]:
    """Rows and lost records of a file of these records, each with its place."""
    batches = read(b"".join(records))
    rows = [(int(n), row) for batch in batches for n, row in zip(batch.lines, batch.frame.rows(), strict=True)]
    return rows, [row for batch in batches for row in batch.malformed.rows()]


MARK = b"\xef\xbb\xbf"
ODD_LINE = st.one_of(
    st.sampled_from([b"u,1", b'"u","1"', b'u,"1', b'"a,b",2', b'u"x,1', b"u,1,2", b"", b"\r", b'"a""b",1', b"u,\xff"]),
    st.sampled_from([MARK + b"u,1", MARK + b'{"a":1}', MARK, MARK + MARK + b"u,1", b"u," + MARK, MARK + b'"u",1']),
    st.sampled_from([b'{"a":1,"b":"x"}', b'{"a":"\\u00e9"}', b"{}", b'{"a":1,"a":2}', b'{"a":[1]}', b'{"a":"\xff"}']),
    st.lists(st.sampled_from([b"u", b",", b'"', b"\r", b"\xc3", b"\xa9", b"\0", b"{", b"}", b":", b"1"])).map(b"".join),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(ODD_LINE, max_size=8), st.sampled_from(["csv", "ndjson"]))
def test_a_block_of_lines_reads_as_each_line_alone(told, kind):
    """Bulk first, line by line where that fails: only because both give the same."""

    def read(data: bytes) -> list[Batch]:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "x"
            path.write_bytes((b"a,b\n" if kind == "csv" else b"\n") + data)
            found = (lines.read_csv if kind == "csv" else lines.read_ndjson)(path, Request(["a", "b"]))
            return list(found)

    rows, lost = alone(read, [line + b"\n" for line in told])
    each = [alone(read, [line + b"\n"]) for line in told]
    assert rows == [(n + i, row) for i, (some, _) in enumerate(each) for n, row in some]
    assert lost == [(n + i, text) for i, (_, some) in enumerate(each) for n, text in some]


@pytest.mark.parametrize("form", FORMATS[:2], ids=lambda form: form.name)
@pytest.mark.parametrize("most", [32, slow(1 << 24)])
def test_a_byte_order_mark_means_nothing_wherever_the_line_stands(form, most, constants):
    """Where files were joined, a mark stands before a line: who stood before it once decided whose row it is."""
    constants(block=most)

    def read(first: bytes) -> list[tuple[Any, ...]]:
        def write(odd: list[Row]) -> bytes:
            head, *told = form.write(odd).split(b"\n")
            told = told if form.name == "log.csv" else [head, *told]
            marked = [MARK + line if b"anna" in line else line for line in told]
            more = [first] if first else []
            return b"\n".join([head, *more, *marked] if form.name == "log.csv" else [*more, *marked])

        return taken(Format(form.name, write), [])

    gone, present = b"", {"log.csv": b"odd,1,0,x,0,1", "log.ndjson": b'{"user": "odd"}'}[form.name]
    assert read(gone) == read(present) == REST


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(CELL, st.lists(CELL, max_size=2)), max_size=6))
def test_a_batch_of_rows_reads_as_each_row_alone(told):
    text, texts = pa.array([a for a, _ in told], pa.binary()), pa.array([b for _, b in told], pa.list_(pa.binary()))
    whole = pa.record_batch([text.view(TEXT), texts.view(pa.list_(TEXT))], names=["a", "b"])
    batch = framing.frame_rows(whole, ["a", "b"], 1)
    each = [framing.frame_rows(whole.slice(i, 1).take([0]), ["a", "b"], i + 1) for i in range(len(told))]
    assert batch.frame.rows() == [row for one in each for row in one.frame.rows()]
    assert batch.lines.tolist() == [n for one in each for n in one.lines]
    assert batch.malformed.rows() == [row for one in each for row in one.malformed.rows()]


LABELS = [b"x", b"y", None, b"z\xff"]


def _nested(codes: list[int | None], labels: Any) -> list[Any]:
    """Columns of dictionaries inside lists and structs; ``codes``: two for each row, null for an empty row."""
    first, pairs = codes[::2], pa.array(codes, pa.int32())
    nulls = pa.array([code is None for code in first])
    inner = pa.DictionaryArray.from_arrays(pairs, labels)
    ends = pa.array(range(0, len(codes) + 1, 2), pa.int32())
    struct = pa.StructArray.from_arrays(
        [pa.DictionaryArray.from_arrays(pa.array(first, pa.int32()), labels)], ["k"], mask=nulls
    )
    deep = pa.ListArray.from_arrays(ends, pa.StructArray.from_arrays([inner], ["k"]), mask=nulls)
    return [pa.ListArray.from_arrays(ends, inner, mask=nulls), struct, deep,
            pa.FixedSizeListArray.from_arrays(inner, 2, mask=nulls)]  # fmt: skip


@pytest.mark.parametrize("low", [0, 1, 2])
def test_a_text_in_a_dictionary_inside_a_cell_takes_its_own_row_alone(low):
    """Such a dictionary is that of all rows: they were a file that is not whole."""
    rows = [(0, 1), (1, 3), (None, None), (2, 0), (3, 3), (1, 1)]
    codes = [code for row in rows for code in row]
    odd = [any(code is not None and LABELS[code] == b"z\xff" for code in row) for row in rows]
    labels = pa.array(LABELS, pa.binary()).view(TEXT)
    for column in _nested(codes, labels):
        # of a struct the first code alone
        bad = [row[0] == 3 for row in rows] if pa.types.is_struct(column.type) else odd
        batch = framing.frame_rows(pa.record_batch([column], names=["a"]).slice(low), ["a"], 1)
        assert batch.malformed["line"].to_list() == [i + 1 - low for i, is_bad in enumerate(bad) if is_bad and i >= low]
        kept = [code if code is None or not bad[i // 2] else 0 for i, code in enumerate(codes)]
        plain = _nested(kept, pa.array([b"x", b"y", None, b"z"], pa.binary()).view(TEXT))
        same = next(one for one in plain if one.type == column.type)
        wanted = [cell for i, cell in enumerate(same.to_pylist()) if i >= low and not bad[i]]
        assert batch.frame["a"].to_list() == wanted


def test_an_index_behind_a_dictionary_inside_a_cell_is_damage():
    codes = _held(pa.int32(), [0, 7])
    behind = pa.DictionaryArray.from_arrays(codes, pa.array(["x"]), safe=False)
    column = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), behind)
    with pytest.raises(pa.ArrowException):
        framing.frame_rows(pa.record_batch([column], names=["a"]), ["a"], 1)


def _held(kind: Any, cells: list[int]) -> Any:
    """Cells of a type as the bytes of these integers, whether it can hold them or not."""
    width = kind.bit_width // 8
    data = b"".join(x.to_bytes(width, "little", signed=True) for x in cells)
    return pa.Array.from_buffers(kind, len(cells), [None, pa.py_buffer(data)])


@pytest.mark.parametrize(
    ("kind", "beyond"),
    [
        (pa.time32("s"), 2**31 - 1),
        (pa.time64("us"), -1),
        slow(pa.date64(), 2**63 - 1),
        slow(pa.decimal128(5, 2), 8 * 10**6),
        slow(pa.timestamp("us", "Europe/Berlin"), 2**63 - 1),
    ],
    ids=str,
)
@pytest.mark.parametrize(("column", "name"), [("t", "log.parquet"), ("s", "log.arrow")])
def test_a_cell_that_its_own_type_does_not_hold_moves_nobody_elses_rows(tmp_path, kind, beyond, column, name):
    """A time of day beyond midnight once was a file that is not whole."""

    def rows(place: str, cell: int) -> list[tuple[Any, ...]]:
        told = [*OTHERS[:AT], ("odd", 1, 0, "x", 0, 1.0), *OTHERS[AT:]]
        columns: dict[str, Any] = dict(zip(HEAD, map(pa.array, zip(*told, strict=True)), strict=True))
        cells = [0] * len(told)
        cells[AT] = cell
        table = pa.table(columns | {column: _held(kind, cells)})
        folder = tmp_path / place
        folder.mkdir()
        if name.endswith("parquet"):
            pq.write_table(table, folder / name)
        else:
            write_arrow(folder / name, table)
        return rows_of_others(make_card(folder, [name], unit={"episodes_per_user": 2}), folder / "home")

    assert rows("usual", 0) == rows("beyond", beyond)


WIDE = {
    "domain": {
        "horizon": 2,
        "states": {"column": "s{step}", "labels": ["x", "y"], "ends": ["died", "end"], "other": True},
        "actions": {"column": "a{step}", "labels": 2, "other": True},
    },
    "source": {
        "layout": "wide",
        "files": ["log.csv"],
        "columns": {"user_id": "user", "episode_id": "episode", "reward": "r{step}"},
    },
}
LINE = st.one_of(
    st.lists(CELL.map(lambda cell: cell or b""), min_size=1, max_size=8).map(lambda cells: b",".join([b"odd", *cells])),
    st.binary(max_size=30).map(lambda line: b"odd" + line),
)


@settings(max_examples=3, deadline=None)
@given(st.lists(LINE, max_size=5))
def test_of_wide_rows_too(odd):
    good = [b"%s,1,x,0,1,y,1,0" % user for user in (b"anna", b"bert", b"cleo")]
    found: list[Any] = []
    for some in ([], [line.replace(b"\n", b" ") for line in odd]):
        with tempfile.TemporaryDirectory() as name:
            lines_ = [b"user,episode,s1,a1,r1,s2,a2,r2", good[0], *some, *good[1:], b""]
            (Path(name) / "log.csv").write_bytes(b"\n".join(lines_))
            values = make_card(Path(name), ["log.csv"]).model_dump(exclude_unset=True)
            card = Card.model_validate(values | WIDE).placed(Path(name))
            found.append(rows_of_others(card, Path(name) / "store"))
    assert found[0] == found[1] and len(found[0]) == 6


NUMBER = st.one_of(st.floats(width=32), st.none(), st.just(1e300), st.just(-0.0))
VECTOR = st.one_of(st.none(), st.lists(NUMBER, max_size=4), st.just([0.5] * (RECORD_BYTES // 8 + 1)))


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(st.lists(st.tuples(VECTOR, VECTOR, st.integers(-(2**63), 2**63 - 1)), max_size=5))
def test_of_vectors_too(odd):
    values = cards()["Minari in Arrow"]
    columns = {"user_id": "user", "episode_id": "episode", "step": "t"}
    good = [(user, 1, t, [1.0, 0.5], [0.25]) for user in ("anna", "bert", "cleo") for t in range(3)]
    found: list[Any] = []
    for some in ([], [("odd", step, step, seen, done) for seen, done, step in odd]):
        with tempfile.TemporaryDirectory() as name:
            schema = {"user": pl.String, "episode": pl.Int64, "t": pl.Int64,
                      "observations": pl.List(pl.Float64), "actions": pl.List(pl.Float64)}  # fmt: skip
            frame = pl.DataFrame([*good[:AT], *some, *good[AT:]], schema=schema, orient="row")
            frame.write_parquet(Path(name) / "log.parquet")
            text = [f"[{', '.join(map(str, x))}]" if x is not None else "" for x in frame["observations"].to_list()]
            frame.with_columns(observations=pl.Series(text), actions=pl.col("actions").list.first()).write_csv(
                Path(name) / "log.csv"
            )
            for file in ("log.parquet", "log.csv"):
                source = {"files": [file], "columns": columns}
                card = card_of(values | {"unit": {"user": "user", "users_public": 4}, "source": source}, Path(name))
                found.append(rows_of_others(card, Path(name) / f"store-{file}"))
    assert found[0] == found[1] == found[2] == found[3] and len(found[0]) == 9
