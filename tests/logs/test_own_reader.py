"""A log reader by ``module:object``: that of docs/extend.md, what is said of others, and what the guarantee says."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.ledger.certificate import Route, assumptions
from pipeline.logs.readers.batch import NO_LINES, Batch, lines_from
from pipeline.logs.sources import Reader
from reticent import Card, CardError, LogError, load_card
from tests.documents import blocks

from .conftest import ingest

FILES = ("diary.py", "diary.toml", "visits.diary")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's files, its module importable and forgotten afterwards."""
    for name, text in blocks("extend.md"):
        if name in FILES:
            (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("diary", None)
    importlib.invalidate_caches()


def test_the_reader_of_the_page_reads_its_log(folder: Path) -> None:
    card = load_card(folder / "diary.toml")
    made = ingest(card, folder / "home")
    rows = pl.read_parquet(made.part_files).sort("user_id", "step")
    assert (made.users, made.rows, made.quarantined) == (3, 6, {})
    assert rows["state"].to_list() == [0, 1, 0, 0, 1, 1] and rows["reward"].to_list() == [0, 1, 0, 1, 1, 1]
    assert ingest(card, folder / "home").source_digest == made.source_digest


def test_an_edited_reader_reads_the_same_files_anew(folder: Path) -> None:
    card = load_card(folder / "diary.toml")
    first = ingest(card, folder / "home")
    module = folder / "diary.py"
    module.write_text(module.read_text(encoding="utf-8") + "\n# edited\n", encoding="utf-8")
    assert ingest(card, folder / "home").source_digest != first.source_digest


def test_what_is_no_row_is_filed_alone(folder: Path) -> None:
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
        (dict, CardError, "diary:diary: is a type, not of type Reader"),
        (lambda: own(), CardError, "diary:diary: is a function, not of type Reader"),
        (own(suffixes=()), CardError, "names its suffixes and the types of its columns"),
        (own(types=None), CardError, "names its suffixes and the types of its columns"),
        (own("row"), LogError, r"visits\.diary: reader diary:diary yields a str, not a Batch"),
        (own(SHORT), LogError, r"yields the columns \['patient'\] with 1 line numbers for 1 rows; asked was"),
        (own(ValueError("anna is low")), LogError, r"reader diary:diary failed \(ValueError\)"),
        (
            own(suffixes=(".log",)),
            LogError,
            "visits.diary: .diary: not of format 'diary:diary'; give files of .log",
        ),
    ],
)
def test_what_is_no_reader_is_said(folder: Path, monkeypatch: Any, made: Any, error: type, says: str) -> None:
    monkeypatch.setattr(importlib.import_module("diary"), "diary", made)
    with pytest.raises(error, match=says) as refused:
        ingest(load_card(folder / "diary.toml"), folder / "home")
    assert "anna" not in str(refused.value) and refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("name", "says"), [("no_such:reader", "finds no module"), ("math:no_such", "has no 'no_such'")]
)
def test_a_reader_that_cannot_be_found_is_said(folder: Path, name: str, says: str) -> None:
    card = changed(folder, name)
    with pytest.raises(CardError, match=says):
        ingest(card, folder / "home")


def test_a_format_that_is_neither_is_refused_with_the_card(folder: Path) -> None:
    with pytest.raises(CardError, match=r"source\.format: .*'table', .* or 'module:object'; found 'diaries'"):
        changed(folder, "diaries")


def changed(folder: Path, form: str) -> Card:
    path = folder / "diary.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("diary:diary", form), encoding="utf-8")
    return load_card(path)


def test_the_assumptions_say_whose_code_read_the_log(folder: Path) -> None:
    card = load_card(folder / "diary.toml")
    lines = [line for line in assumptions(card, [], Route("hand")) if "diary:diary" in line]
    assert len(lines) == 1 and "not code of Reticent" in lines[0]
