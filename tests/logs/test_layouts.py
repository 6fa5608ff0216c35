"""The layouts that people hold: one log, the same transitions; and what the card and the house say of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from pipeline.logs.readers.batch import field, row_count
from pipeline.logs.readers.batch import take_fields as inside
from reticent import LogError, Store

from .conftest import canonical, ingest
from .layout_ingest import changed, expected, taken, transitions
from .layouts import FORMATS, WRITERS, card_of, cards, write_d4rl, write_flat, write_meds, write_minari_hdf5

TABULAR = [head for head in WRITERS if head not in ("Minari in Arrow", "obp")]
# in these a cut-off episode does not say where its last step led
UNTOLD = ("LeRobot", "MEDS")


@pytest.mark.parametrize("head", list(WRITERS))
def test_one_log_gives_the_same_transitions_in_every_layout_and_in_small_batches(
    head: str, tmp_path: Path, constants: Callable[..., None]
) -> None:
    WRITERS[head](tmp_path)
    whole = taken(head, tmp_path)
    if head in TABULAR:
        assert transitions(whole) == expected(untold=head in UNTOLD)
        assert (whole.users, whole.episodes, whole.quarantined) == (4, 4, {})
    constants(batch=3, block=70)
    again = ingest(card_of(cards()[head], tmp_path), tmp_path / "again")
    assert canonical(again).equals(canonical(whole))


def test_every_row_of_the_page_has_a_card_and_every_card_a_row() -> None:
    table = FORMATS.partition("| `format` |")[2].partition("\n\n")[0]
    listed = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}
    # a reader of one's own has its card in tests/test_extend.py
    assert listed - {"module:object"} == {values["source"]["format"] for values in cards().values()}
    assert list(cards()) == list(WRITERS)


@pytest.mark.parametrize(("head", "name"), [("D4RL", "log.csv"), ("LeRobot", "data/c/x.csv"), ("obp", "log.parquet")])
def test_a_file_of_another_format_names_the_suffixes_that_fit(head: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("a\n")
    with pytest.raises(LogError, match=rf"not of format '{cards()[head]['source']['format']}'; give files of "):
        taken(head, tmp_path, source={"files": [name]})


def test_an_hdf5_file_in_a_plain_card_is_told_its_formats(tmp_path: Path) -> None:
    write_d4rl(tmp_path)
    values = changed("D4RL")
    del values["source"]["format"]
    with pytest.raises(LogError, match=r"read with source\.format = 'minari' or 'd4rl'"):
        ingest(card_of(values, tmp_path), tmp_path / "home")


@pytest.mark.parametrize("head", ["Minari in Arrow", "RLDS", "LeRobot", "obp", "MEDS"])
def test_a_plain_card_over_a_known_layout_is_told_its_format(head: str, tmp_path: Path) -> None:
    WRITERS[head](tmp_path)
    form, files = cards()[head]["source"]["format"], cards()[head]["source"]["files"]
    values = cards()["Flat transitions"] | {"domain": cards()["Flat transitions"]["domain"] | {"horizon": 1}}
    columns = {"user_id": "patient", "reward": "r"}
    with pytest.raises(LogError, match=rf"it looks like source.format = '{form}'"):
        ingest(card_of(values | {"source": {"files": files, "columns": columns}}, tmp_path), tmp_path / "home")


def test_a_card_without_a_format_keeps_its_digest() -> None:
    plain = {"files": ["a.csv"], "columns": {"user_id": "impression", "reward": "click"}}
    source = card_of({**changed("obp"), "source": plain}, Path()).source
    assert sorted(source.model_dump(mode="json")) == ["columns", "files", "first_step", "layout"]


def test_a_csv_without_a_header_quotes_nobodys_row(tmp_path: Path) -> None:
    path = write_flat(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines()
    for text, told in (("\n".join(lines[1:]), ""), (lines[0].replace("patient", "patiemt"), "did you mean 'patiemt'")):
        path.write_text(text + "\n", encoding="utf-8")
        with pytest.raises(LogError, match=rf"missing_column: .*{told}") as caught:
            taken("Flat transitions", tmp_path)
        assert "p0" not in str(caught.value) and "0.5" not in str(caught.value)


@pytest.mark.parametrize("head", ["pa\rtient,s", "x" * 140_000])
def test_a_first_line_that_is_no_line_of_a_csv_is_told(head: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(head.encode() + b"\n")
    with pytest.raises(LogError, match=r"log.csv: line 1: not a line of a CSV"):
        taken("Flat transitions", tmp_path)


def test_a_span_of_time_is_no_cell(tmp_path: Path) -> None:
    frame = pl.read_csv(write_flat(tmp_path)).with_columns(s=pl.duration(days="s"))
    frame.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(LogError, match=r"column 's' is Duration.*write it as numbers, booleans or text"):
        taken("Flat transitions", tmp_path, source={"files": ["log.parquet"]})


def test_what_the_states_hide_is_looked_for_in_every_layout(tmp_path: Path) -> None:
    write_flat(tmp_path)
    taken("Flat transitions", tmp_path)
    found = Store(tmp_path / "home").inspect(card_of(cards()["Flat transitions"], tmp_path))["hidden_state"]
    assert found["why_not"] == "no state was seen with two values of a column often enough"


def test_what_stands_inside_a_cell_is_a_column(tmp_path: Path) -> None:
    frame = pl.DataFrame({"o": [{"v": [1.0, 2.0], "w": 3}], "o/w": [4], "l": [[5]]}).with_columns(
        a=pl.Series([[6, 7]], dtype=pl.Array(pl.Int64, 2))
    )
    names = ["o/v[1]", "o/w", "l[0]", "l[1]", "a[1]"]
    assert frame.select(inside(names, frame.schema)).rows() == [(2.0, 4, 5, None, 7)]
    assert [field(name, frame.schema) for name in ("a[2]", "o/x", "o/v/x", "x[0]", "o[0]")] == [None] * 5


def test_a_parquet_with_no_rows_is_an_empty_log(tmp_path: Path) -> None:
    path = write_meds(tmp_path)
    pl.read_parquet(path).clear().write_parquet(path)
    assert row_count(path) == 0
    assert taken("MEDS", tmp_path).source_rows == 0


def test_metadata_that_is_no_json_object_refuses_the_log(tmp_path: Path) -> None:
    write_minari_hdf5(tmp_path)
    for text in ("{", "[]", json.dumps("x")):
        (tmp_path / "data" / "metadata.json").write_text(text)
        with pytest.raises(LogError, match=r"data/metadata.json: no JSON object"):
            taken("Minari in HDF5", tmp_path)
