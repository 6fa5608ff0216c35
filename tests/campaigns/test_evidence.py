"""The manifest of evidence is whole, pages print its rows, and a number that moved is said."""

import importlib.util
import re
import subprocess
import sys
from dataclasses import replace
from threading import Barrier

import pytest

from tests.campaigns import evidence
from tests.campaigns.evidence import LAB, Table, budget_of, campaign, due, make, moved, tables
from tests.campaigns.rows import RESULTS, ROOT, as_rows, drawn, pages, place, read, status

TABLES = tables()
SHOWN = {name for page in pages() for name in re.findall(r"<!-- figure: (\S+)", page.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("page", pages(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_a_page_is_what_the_rows_say(page):
    text = page.read_text(encoding="utf-8")
    assert text == drawn(text), "make figures writes the pages anew"


def test_tables_are_few_small_shown_and_made_by_a_command_that_is_there():
    assert len(TABLES) <= 25
    files = [name for t in TABLES.values() for name in t.files]
    assert len(set(files)) == len(files) and {place(f) for f in files} >= {
        *RESULTS.iterdir(),
        *(p for p, _ in status().values()),
    }
    assert max(place(f).stat().st_size for f in files) < 100_000
    # what a run reads is counted from what a page shows
    assert {*files} - SHOWN <= {"coverage_one_step"}
    for t in TABLES.values():
        for words in t.commands:
            module = re.match(r"python -P -m (\S+)", words)
            assert module and importlib.util.find_spec(module[1]), words
        page, _, anchor = t.page.partition("#")
        text = (LAB / page).read_text(encoding="utf-8")
        heads = [re.sub(r"[^\w]+", "-", h.lower()).strip("-") for h in re.findall(r"(?m)^#+ (.*)$", text)]
        assert anchor in heads, t.page


def test_the_laboratory_is_read_in_an_hour():
    words = [w for page in LAB.iterdir() for w in page.read_text(encoding="utf-8").split() if re.search(r"\w", w)]
    assert len(words) <= 10_000


@pytest.mark.slow
@pytest.mark.parametrize("table", [t for t in TABLES.values() if t.suite], ids=lambda t: t.name)
def test_a_cheap_table_is_what_its_command_prints(table):
    [words] = table.commands
    told = subprocess.run([sys.executable, *words.split()[1:]], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    assert as_rows(told.stdout) == read(table.name)


ROW = Table("t", "it", "speed.md", ("python -P -c 'print(1)'",), 1, "none", keys=("who",), tolerance=0.1, prints=True)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ({"who": "a", "n": "100"}, {"who": "a", "n": "109"}, []),
        ({"who": "a", "n": "1,000 ± 3"}, {"who": "a", "n": "1,001 ± 9"}, ["a, n: 1,000 ± 3 → 1,001 ± 9"]),
        ({"who": "a", "n": "0.5"}, {"who": "a", "n": "-0.5"}, ["a, n: 0.5 → -0.5"]),
        ({"who": "a", "n": "yes"}, {"who": "a", "n": "no"}, ["a, n: yes → no"]),
        ({"who": "a", "n": "1"}, {"who": "b", "n": "1"}, ["b: a new row", "a: gone"]),
        ({"who": "a", "n": "1, 2"}, {"who": "a", "n": "1"}, ["a, n: 1, 2 → 1"]),
        ({"who": "a", "n": f"{'x' * 40} 1 20"}, {"who": "a", "n": f"{'x' * 40} 1.2 40"}, ["a, n: 20 → 40"]),
    ],
)
def test_what_moved_beyond_the_tolerance_is_said(old, new, said):
    assert moved(ROW, [old], [new]) == said
    assert moved(replace(ROW, free=("n",), keys=()), [old], [{**new, "who": old["who"]}]) == []


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A laboratory of its own."""
    monkeypatch.setattr(evidence, "LAB", tmp_path)
    monkeypatch.setattr("tests.campaigns.rows.RESULTS", tmp_path)
    (tmp_path / "made.csv").write_text("table,date,seconds,load,outcome\nt,2026-01-01,40,1.0,as before\n")
    monkeypatch.setattr(evidence, "draw_pages", lambda: None)
    return tmp_path


def test_a_table_is_made_compared_and_left_alone_by_a_command_that_fails(lab):
    assert make(ROW)["outcome"] == "first time"
    assert make(ROW)["outcome"] == "as before"
    assert make(replace(ROW, commands=("python -P -c 'print(2)'",)))["outcome"].startswith("1 moved; first: row 1")
    line = make(replace(ROW, commands=("python -P -c 'print(3); raise SystemExit(1)'",)))
    assert line["outcome"].startswith("failed") and read("t") == [{"printed": "2"}]


def test_a_table_takes_what_it_took_unless_the_machine_was_busy():
    assert evidence.seconds(ROW, {"t": {"seconds": "40", "load": "1.0"}}) == 40
    assert evidence.seconds(ROW, {"t": {"seconds": "4000", "load": "9.6"}}) == ROW.seconds
    assert evidence.seconds(ROW, {"t": {"seconds": "", "load": ""}}) == evidence.seconds(ROW, {}) == ROW.seconds


def test_the_oldest_goes_first_and_none_that_would_not_end_in_time(lab, monkeypatch, capsys):
    old, new, long = (replace(ROW, name=name, alone=True) for name in ("t", "new", "long"))
    found = {t.name: t for t in (old, replace(long, seconds=3600), new)}
    assert [t.name for t in due(found, evidence.made())] == ["new", "long", "t"]
    monkeypatch.setattr(evidence, "tables", lambda: found)
    done = []

    def do(table):
        done.append(table.name)
        return {"table": table.name, "date": "2026-01-02", "seconds": "1", "load": "0.1", "outcome": "as before"}

    assert campaign([], budget_of("2m"), do) == 0 and done == ["new", "t"]
    assert "long: not begun, 60 minutes are not left" in capsys.readouterr().out
    assert [line["date"] for line in evidence.made().values()] == ["2026-01-02", "2026-01-02"]
    # what was stopped goes on with what is older
    assert campaign([], budget_of("2h"), do) == 0 and done[2:] == ["long", "t", "new"]


def test_two_are_made_at_once_and_what_needs_the_machine_alone_comes_last(lab, monkeypatch):
    found = {name: replace(ROW, name=name, alone=name == "clock") for name in ("clock", "a", "b")}
    monkeypatch.setattr(evidence, "tables", lambda: found)
    both, done = Barrier(2, timeout=30), []

    def do(table):
        if not table.alone:
            both.wait()
        done.append(table.name)
        outcome = "1 moved" if table.name == "b" else "as before"
        return {"table": table.name, "date": "2026-01-02", "seconds": "1", "load": "0.1", "outcome": outcome}

    assert campaign([], budget_of("1h"), do) == 1 and done[2:] == ["clock"]
    assert {*evidence.made()} == {*found}
    # a table that moved long ago says nothing of those made now
    assert campaign(["a"], budget_of("1h"), lambda table: evidence.made()["a"]) == 0
