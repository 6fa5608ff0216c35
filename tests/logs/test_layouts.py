"""The layouts that people hold, MEDS among them, and readers of their own: one log, the same transitions."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.ledger.certificate import Route, assumptions
from pipeline.logs.readers.batch import NO_LINES, Batch, field, lines_from, row_count
from pipeline.logs.readers.batch import take_fields as inside
from pipeline.logs.sources import Reader
from reticent import CardError, LogError, Store, load_card
from tests.conftest import slow
from tests.documents import blocks
from tests.logs.conftest import Edition, canonical, ingest
from tests.logs.layouts import (
    FORMATS,
    WRITERS,
    card_of,
    cards,
    changed,
    expected,
    taken,
    transitions,
    write_d4rl,
    write_flat,
    write_meds,
    write_minari_hdf5,
)

TABULAR = [head for head in WRITERS if head not in ("Minari in Arrow", "obp")]
# in these a cut-off episode does not say where its last step led
UNTOLD = ("LeRobot", "MEDS")


@pytest.mark.parametrize("head", list(WRITERS))
def test_one_log_gives_the_same_transitions_in_every_layout_and_in_small_batches(head, tmp_path, constants):
    WRITERS[head](tmp_path)
    whole = taken(head, tmp_path)
    if head in TABULAR:
        assert transitions(whole) == expected(untold=head in UNTOLD)
        assert (whole.users, whole.episodes, whole.quarantined) == (4, 4, {})
    constants(batch=3, block=70)
    assert canonical(taken(head, tmp_path, home="again")).equals(canonical(whole))


def test_every_row_of_the_page_has_a_card_and_every_card_a_row():
    table = FORMATS.partition("| `format` |")[2].partition("\n\n")[0]
    listed = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}
    # a reader of one's own has its card in tests/test_extend.py
    assert listed - {"module:object"} == {values["source"]["format"] for values in cards().values()}
    assert list(cards()) == list(WRITERS)


def test_an_hdf5_file_in_a_plain_card_is_told_its_formats(tmp_path):
    write_d4rl(tmp_path)
    values = changed("D4RL")
    del values["source"]["format"]
    with pytest.raises(LogError, match=r"read with source\.format = 'minari' or 'd4rl'"):
        ingest(card_of(values, tmp_path), tmp_path / "home")


@pytest.mark.parametrize("head", ["Minari in Arrow", "RLDS", "LeRobot", "obp", "MEDS"])
def test_a_plain_card_over_a_known_layout_is_told_its_format(head, tmp_path):
    WRITERS[head](tmp_path)
    form, files = cards()[head]["source"]["format"], cards()[head]["source"]["files"]
    values = cards()["Flat transitions"] | {"domain": cards()["Flat transitions"]["domain"] | {"horizon": 1}}
    columns = {"user_id": "patient", "reward": "r"}
    with pytest.raises(LogError, match=rf"it looks like source.format = '{form}'"):
        ingest(card_of(values | {"source": {"files": files, "columns": columns}}, tmp_path), tmp_path / "home")


def test_a_csv_without_a_header_quotes_nobodys_row(tmp_path):
    path = write_flat(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines()
    for text, told in (("\n".join(lines[1:]), ""), (lines[0].replace("patient", "patiemt"), "did you mean 'patiemt'")):
        path.write_text(text + "\n", encoding="utf-8")
        with pytest.raises(LogError, match=rf"missing_column: .*{told}") as caught:
            taken("Flat transitions", tmp_path)
        assert "p0" not in str(caught.value) and "0.5" not in str(caught.value)


@pytest.mark.parametrize("head", ["pa\rtient,s", "x" * 140_000])
def test_a_first_line_that_is_no_line_of_a_csv_is_told(head, tmp_path):
    (tmp_path / "log.csv").write_bytes(head.encode() + b"\n")
    with pytest.raises(LogError, match=r"log.csv: line 1: not a line of a CSV"):
        taken("Flat transitions", tmp_path)


def test_what_the_states_hide_is_looked_for_in_every_layout(tmp_path):
    write_flat(tmp_path)
    taken("Flat transitions", tmp_path)
    found = Store(tmp_path / "home").inspect(card_of(cards()["Flat transitions"], tmp_path))["hidden_state"]
    assert found["why_not"] == "no state was seen with two values of a column often enough"


def test_what_stands_inside_a_cell_is_a_column(tmp_path):
    frame = pl.DataFrame({"o": [{"v": [1.0, 2.0], "w": 3}], "o/w": [4], "l": [[5]]}).with_columns(
        a=pl.Series([[6, 7]], dtype=pl.Array(pl.Int64, 2))
    )
    names = ["o/v[1]", "o/w", "l[0]", "l[1]", "a[1]"]
    assert frame.select(inside(names, frame.schema)).rows() == [(2.0, 4, 5, None, 7)]
    assert [field(name, frame.schema) for name in ("a[2]", "o/x", "o/v/x", "x[0]", "o[0]")] == [None] * 5


def test_a_parquet_with_no_rows_is_an_empty_log(tmp_path):
    path = write_meds(tmp_path)
    pl.read_parquet(path).clear().write_parquet(path)
    assert row_count(path) == 0
    assert taken("MEDS", tmp_path).source_rows == 0


def test_metadata_that_is_no_json_object_refuses_the_log(tmp_path):
    write_minari_hdf5(tmp_path)
    for text in ("{", "[]", json.dumps("x")):
        (tmp_path / "data" / "metadata.json").write_text(text)
        with pytest.raises(LogError, match=r"data/metadata.json: no JSON object"):
            taken("Minari in HDF5", tmp_path)


def window(rows: list[tuple[Any, ...]], folder: Path, **reading: Any) -> tuple[list[float], Edition]:
    """What a reading says of the windows of some events ``(hour, code, number)`` of subject 1; 9.5: nothing."""
    events = [(1, int(h * 60), c, x) for h, c, x in rows]
    frame = pl.DataFrame(events, orient="row", schema=["subject_id", "m", "code", "numeric_value"])
    times = (pl.col("m") * 60_000_000).cast(pl.Datetime("us"))
    frame = frame.select("subject_id", times.alias("time"), "code", pl.col("numeric_value").cast(pl.Float32))
    frame.write_parquet(folder / "0.parquet")
    meds = cards()["MEDS"]["source"]["meds"]
    readings = {
        "lab": {"codes": ["LAB"]},
        "dose": {"codes": ["DOSE"], "empty": 0},
        "reward": {"codes": ["L"]} | reading,
    }
    made = taken(
        "MEDS", folder, source={"files": ["0.parquet"], "meds": meds | {"readings": readings}},
        reward={"range": [0.0, 10.0], "steps": 20, "empty": 9.5}, unit={"episodes_per_user": 2},
        domain={"states": {**cards()["MEDS"]["domain"]["states"], "other": True}},
    )  # fmt: skip
    return canonical(made)["reward"].to_list(), made


START = (0.0, "HOSPITAL_ADMISSION", None)


def test_windows_begin_at_the_opening_event_and_close_at_the_end(tmp_path):
    events = [(-5, "L", 9.0), START, (3.99, "L", 1.0), (4, "L", 2.0), (8, "MEDS_DEATH", None), (8, "L", 3.0)]
    found, made = window([*events, (9, "L", 7.0)], tmp_path)
    assert found == [1.0, 3.0] and canonical(made)["terminated"].to_list() == [False, True]


def test_a_value_known_at_the_start_never_looks_into_its_window(tmp_path):
    events = [(-5, "L", 9.0), START, (1, "L", 1.0), (4, "L", 2.0), (5, "L", 3.0), (13, "X", None)]
    assert window(events, tmp_path, at="start")[0] == [9.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("take", "found"),
    [("first", [1, 9.5]), ("mean", [2.5, 9.5]), ("sum", [5, 9.5]), ("min", [1, 9.5]), ("max", [4, 9.5]),
     ("count", [4, 0]), ("any", [1, 0]), ("binned", [2, 0])],
)  # fmt: skip
def test_readings_take_what_they_are_told(take, found, tmp_path):
    events = [START, (1, "D//a", 1.0), (2, "D//b", 4.0), (3, "D//a", None), (3.5, "D//c", float("nan")), (6, "X", None)]
    told = {"take": "sum", "empty": 0, "edges": [1, 5]} if take == "binned" else {"take": take}
    assert window(events, tmp_path, codes=["D//*"], **told)[0] == found


def test_a_second_admission_is_a_second_episode(tmp_path):
    events = [START, (2, "L", 1.0), (30, "HOSPITAL_ADMISSION", None), (31, "L", 2.0)]
    found, made = window(events, tmp_path)
    assert sorted(found) == [1.0, 2.0] and made.episodes == 2


def test_a_date_far_off_makes_no_more_windows_than_the_horizon_and_one(tmp_path):
    _, made = window([START, (24 * 365 * 900, "L", 1.0)], tmp_path)
    assert (made.rows, made.source_rows, made.quarantined["beyond_horizon"]) == (4, 5, 1)


@pytest.mark.parametrize("batch", [slow(1), 5, 1 << 18])
def test_a_subject_whose_rows_are_scattered_has_the_same_windows(batch, tmp_path, constants):
    path = write_meds(tmp_path)
    frame = pl.read_parquet(path)
    alike = canonical(taken("MEDS", tmp_path))
    constants(batch=batch)
    frame.sort(pl.int_range(pl.len()).over("subject_id"), maintain_order=True).write_parquet(path)
    assert canonical(taken("MEDS", tmp_path, home="again")).equals(alike)


def test_a_reading_that_means_nothing_is_a_wrong_card(tmp_path):
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"codes": []}, "codes"),
        ({"codes": ["a"], "take": "sum", "at": "start"}, "take must be 'last'"),
        ({"codes": ["a"], "edges": [2, 1]}, "increasing"),
    ]
    for reading, what in wrong:
        declared = cards()["MEDS"]["source"]["meds"] | {"readings": {"lab": reading}}
        with pytest.raises(ValueError, match=what):
            card_of(changed("MEDS", source={"meds": declared}), tmp_path)


@pytest.mark.parametrize(("unit", "zone"), [("us", None), ("us", "UTC"), slow("ms", "Europe/Berlin"), slow("ns", None)])
@pytest.mark.parametrize("odd", [2**63 - 1, -(2**63)])
def test_a_time_that_no_calendar_holds_moves_nobody_elses_windows(tmp_path, unit, zone, odd):
    """With a zone, or in milliseconds, it once ended the process or wrapped around."""
    here = write_meds(tmp_path)
    card, usual = card_of(cards()["MEDS"], tmp_path), pl.read_parquet(here)
    time = pl.col("time").dt.cast_time_unit(unit).dt.replace_time_zone(zone)
    usual = usual.with_columns(time)

    def windows(events: pl.DataFrame, store: str) -> list[tuple[Any, ...]]:
        events.write_parquet(here)
        return canonical(ingest(card, tmp_path / store)).filter(pl.col("user_id") != 77).rows()

    stray = pl.DataFrame({"subject_id": [77], "code": ["HOSPITAL_ADMISSION"], "numeric_value": [0.0], "time": [odd]})
    stray = stray.with_columns(pl.col("time").cast(usual.schema["time"])).select(usual.columns)
    stray = stray.with_columns(pl.col("numeric_value").cast(pl.Float32))
    assert windows(pl.concat([usual, stray]), "b") == windows(usual, "a") != []


FILES = ("diary.py", "diary.toml", "visits.diary")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The page's files, its module importable and forgotten afterwards."""
    for name, text in blocks("extend.md"):
        if name in FILES:
            (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("diary", None)
    importlib.invalidate_caches()


def test_the_reader_of_the_page_reads_its_log(folder):
    card = load_card(folder / "diary.toml")
    made = ingest(card, folder / "home")
    rows = pl.read_parquet(made.part_files).sort("user_id", "step")
    assert (made.users, made.rows, made.quarantined) == (3, 6, {})
    assert rows["state"].to_list() == [0, 1, 0, 0, 1, 1] and rows["reward"].to_list() == [0, 1, 0, 1, 1, 1]
    assert ingest(card, folder / "home").source_digest == made.source_digest


def test_an_edited_reader_reads_the_same_files_anew(folder):
    card = load_card(folder / "diary.toml")
    first = ingest(card, folder / "home")
    module = folder / "diary.py"
    module.write_text(module.read_text(encoding="utf-8") + "\n# edited\n", encoding="utf-8")
    assert ingest(card, folder / "home").source_digest != first.source_digest


def test_what_is_no_row_is_filed_alone(folder):
    with (folder / "visits.diary").open("ab") as file:
        file.write(b"dora|0|low\nd\xff|0|low|walk|0\n")
    made = ingest(load_card(folder / "diary.toml"), folder / "home")
    assert (made.users, made.rows, made.quarantined) == (3, 6, {"malformed_line": 2})


def own(batch: Any = None, **changed: Any) -> Reader:
    def read(path: Path, asked: Any) -> Iterator[Any]:
        if isinstance(batch, Exception):
            raise batch
        yield batch

    types = dict.fromkeys(("patient", "visit", "feels", "did", "points"), pl.String())
    return Reader(**{"types": lambda path, asked: types, "read": read, "suffixes": (".diary",)} | changed)


SHORT = Batch(pl.DataFrame({"patient": ["a"]}), lines_from(1, 1), NO_LINES)


@pytest.mark.parametrize(
    ("made", "error", "says"),
    [
        (lambda: own(), CardError, "diary:diary: is a function, not of type Reader"),
        (own(suffixes=()), CardError, "names its suffixes and the types of its columns"),
        (own(types=None), CardError, "names its suffixes and the types of its columns"),
        (own("row"), LogError, r"visits\.diary: reader diary:diary yields a str, not a Batch"),
        (own(SHORT), LogError, r"yields the columns \['patient'\] with 1 line numbers for 1 rows; asked was"),
        (own(ValueError("anna is low")), LogError, r"reader diary:diary failed \(ValueError\)"),
        (own(suffixes=(".log",)), LogError, "visits.diary: .diary: not of format 'diary:diary'; give files of .log"),
    ],
)
def test_what_is_no_reader_is_said(folder, monkeypatch, made, error, says):
    monkeypatch.setattr(importlib.import_module("diary"), "diary", made)
    with pytest.raises(error, match=says) as refused:
        ingest(load_card(folder / "diary.toml"), folder / "home")
    assert "anna" not in str(refused.value) and refused.value.__cause__ is None


def test_a_format_that_is_neither_is_refused_with_the_card(folder):
    path = folder / "diary.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("diary:diary", "diaries"), encoding="utf-8")
    with pytest.raises(CardError, match=r"source\.format: .*'table', .* or 'module:object'; found 'diaries'"):
        load_card(path)


def test_the_assumptions_say_whose_code_read_the_log(folder):
    card = load_card(folder / "diary.toml")
    lines = [line for line in assumptions(card, [], Route("hand")) if "diary:diary" in line]
    assert len(lines) == 1 and "not code of Reticent" in lines[0]
