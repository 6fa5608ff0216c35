"""Figures of the pages are those of the committed rows, and a row whose code has changed says so."""

from __future__ import annotations

import random
import re
import shutil
import tomllib
from importlib import import_module

import pytest

from pipeline.declaration.code import imported_by
from tests.campaigns import rows
from tests.campaigns.rows import (
    ROOT,
    STAMP,
    code_of,
    drawn,
    named_in,
    out_of_date,
    pages,
    place,
    places,
    printed_by,
    read,
    state,
)

# printed in seconds, and the same every time
CHEAP = ("audit_paper_noise", "shuffle_bits")
WHOLE = {name: read(name) for name in places()}


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_page_is_what_the_rows_say(page):
    text = page.read_text(encoding="utf-8")
    assert text == drawn(text), "make figures writes the pages anew"


def test_every_table_is_stamped_and_shown_or_used():
    text = "".join(page.read_text(encoding="utf-8") for page in pages())
    shown = set(re.findall(r"<!-- figure: (\S+)", text))
    assert shown <= set(WHOLE)
    assert all(n in shown or f"{n}.csv" in text for n in WHOLE if place(n).parent == rows.RESULTS)
    for name, found in WHOLE.items():
        assert found and set(STAMP) <= set(found[0]), name
        assert all(r["command"] and re.fullmatch(r"\d{4}-\d\d-\d\d", r["date"]) for r in found), name


def again(row):
    """The function that measures a row of this command once more, if its module has one."""
    module = re.search(r"-m (tests\.\S+)", row["command"])
    return getattr(import_module(module[1]), "again", None) if module else None


@pytest.mark.slow
def test_a_random_slice_is_measured_again():
    found = [(name, row) for name, of in WHOLE.items() for row in of if not out_of_date(name, row)]
    names = sorted({name for name, row in found if again(row)})
    for name in random.sample(names, min(6, len(names))):
        row = random.choice([row for at, row in found if at == name])
        new = again(row)(row)
        assert {k: str(v) for k, v in new.items()} == {k: row[k] for k in new}, (name, row)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEAP)
def test_a_cheap_table_is_measured_again_whole(name):
    found = read(name)
    assert printed_by(found[0]["command"]) == [{k: v for k, v in r.items() if k not in STAMP} for r in found]


# what a row of a table names, and what it does not
OF_A_MUTANT = ("pipeline/ledger/limits.py", "tests/ledger/test_schedule.py", "pipeline/ledger/steps.py")


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A table of one command, in a checkout that a test may edit."""
    for file in ("tests/campaigns/races.py", "pipeline/ledger/ledger.py", "pipeline/ledger/chain.py", *OF_A_MUTANT):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "old", "new", "expires"),
    [
        ("tests/campaigns/races.py", "RUNNERS = 8", "RUNNERS = 9", True),
        ("pipeline/ledger/ledger.py", "from __future__", "x = 1\nfrom __future__", True),
        ("pipeline/ledger/chain.py", "from __future__", "x = 1\nfrom __future__", True),
        ("tests/campaigns/races.py", "Who gets", "Who wins", False),
        ("tests/campaigns/races.py", "RUNNERS = 8", "RUNNERS = 8  # eight", False),
    ],
)
def test_code_expires_a_number_and_prose_does_not(checkout, file, old, new, expires):
    of = "python -P -m tests.campaigns.races 50"
    before = code_of("races", of, checkout)
    code_of.cache_clear()
    text = (checkout / file).read_text()
    assert old in text
    (checkout / file).write_text(text.replace(old, new, 1))
    assert (code_of("races", of, checkout) != before) == expires


@pytest.mark.parametrize(("file", "expires"), [*zip(OF_A_MUTANT, (True, True, False), strict=True)])
def test_a_row_that_names_its_files_depends_on_no_other(checkout, file, expires):
    row = {"file": OF_A_MUTANT[0], "tests": f"{OF_A_MUTANT[1]}::test_a {OF_A_MUTANT[1]}::test_b"}
    named = named_in("mutants", row)
    assert named == ("pipeline.ledger.limits", "tests.ledger.test_schedule")
    before = code_of("mutants", "python -P -m tests.mutants.run", checkout, named)
    code_of.cache_clear()
    (checkout / file).write_text(f"x = 1\n{(checkout / file).read_text()}")
    assert (code_of("mutants", "python -P -m tests.mutants.run", checkout, named) != before) == expires


def test_whoever_changes_files_in_these_rooms_is_among_what_crashes_depend_on():
    """Else a campaign of kills would pass for new though another order of writes has taken its place."""
    told = tomllib.loads((ROOT / "tests/campaigns/depends.toml").read_text())["groups"]
    listed = {module for group in ("charging", "nights", "storing") for module in told[group].split()}
    writers = {"pipeline.disk", "pipeline.files", "pipeline.ledger.chain_tables"}
    for room in ("pipeline.ledger", "pipeline.logs", "pipeline.transaction"):
        for path in (ROOT / room.replace(".", "/")).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            writes = imported_by(module, ["pipeline"]) & writers
            assert not writes or module in listed, module


def test_rows_are_stamped_kept_by_their_keys_and_shown_with_what_is_out_of_date(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "RESULTS", tmp_path)
    monkeypatch.setattr(rows, "ROOT", tmp_path)
    monkeypatch.setattr(rows, "command", lambda: "python -P -m tests.campaigns.races 50")
    monkeypatch.setattr(rows, "lock", lambda: "l" * 16)
    monkeypatch.setattr(rows, "code_of", lambda *_, **__: "old")
    rows.write("t", [{"world": "a", "value": 1}, {"world": "b", "value": 2}], "0 .. 9", ["world"])
    assert "out of date" not in state("t")
    monkeypatch.setattr(rows, "code_of", lambda *_, **__: "new")
    rows.write("t", [{"world": "b", "value": 3}], "0 .. 9", ["world"])
    assert [(r["world"], r["value"], r["code"]) for r in rows.read("t")] == [("a", "1", "old"), ("b", "3", "new")]
    assert "1 of 2 rows out of date" in state("t")
    assert rows.plain("t").splitlines()[2:] == ["| a | 1 | out of date |", "| b | 3 |  |"]
