"""The page over all papers, and errata that say the same wherever they are printed."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

from flows.config.home import Home
from flows.config.setting import Work
from flows.jobs.reproduce import reproduce_job
from pipeline.studies import paper_003
from reports.studies import all_papers
from reports.studies.all_papers import STUDIES, Entry, errata, plain
from reports.studies.page_003 import study_003

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")


def test_the_page_of_errata_holds_the_very_rows_and_no_other():
    rows = [line for line in PAGE.split("\n## Paper")[0].splitlines() if line.startswith("|")][2:]
    assert rows == [e.row() for e in errata()]


def test_every_test_command_and_page_that_errata_name_exists():
    text = PAGE + " ".join(e.shown for e in errata())
    for path, name in re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", text):
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert not name or name in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}, (path, name)
    for name in re.findall(r"reticent reproduce ([\w-]+)", text):
        assert name in (*STUDIES, "all"), name
    for folder in re.findall(r"`((?:pipeline|flows|reports|tests)/[\w/.]+)`", text):
        assert (ROOT / folder).exists(), folder
    for page in re.findall(r"\]\(([\w/.-]+\.md)", text):
        assert (ROOT / "docs" / page).is_file(), page


def test_one_page_holds_every_study_with_its_paper_and_its_errata(tmp_path, monkeypatch):
    cells = lambda: paper_003.grid(episodes=(20, 1000), budgets=(1.0, 25.0), worlds=(0,), runs=1)  # noqa: E731
    study = replace(paper_003.STUDY, name="tiny", cells=cells, cells_a_process=10**6)
    names = ("003-figure-1a", "003-figure-1b")
    monkeypatch.setattr(all_papers, "STUDIES", {n: Entry(study, study_003) for n in names})
    said = []
    first = reproduce_job("all", Home(tmp_path), Work(say=said.append))
    page = (tmp_path / "reproductions" / "all" / "page.html").read_text(encoding="utf-8")
    assert first["cells"] == {"all": len(cells()), "kept": 0} and "0 kept from before" in said[0]
    for words in ("Figure 1(a) of paper 003 shows the loss of DP-VAPVI", "spends 22.6", "Errata", "Gram"):
        assert words in page
    assert page.count("<svg") >= 2 and 'href="http' not in page and "none measured now" not in page
    assert first["files"][0].endswith("all/page.html")
    again = reproduce_job("all", Home(tmp_path))
    assert again["cells"]["kept"] == len(cells())
    page = (tmp_path / "reproductions" / "all" / "page.md").read_text(encoding="utf-8")
    assert "none measured now" in page


def test_marks_of_markdown_are_taken_off():
    assert plain("`a.py`; the twin *x* of [audit.md](audit.md), and [b](c)") == "a.py; the twin x of audit.md, and b"
