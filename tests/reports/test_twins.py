"""``report.html``, ``report.md`` and ``report.json`` of one run agree, for every family."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.facts.learnt import Baseline
from reports.page import about, clean, interval, number
from tests.reports.pages import reports
from tests.reports.sample import Page

FAMILIES = ("counts", "baseline", "linear", "one shot", "lq", "hostile")
# what pages show rounded: losses up, what is left down
_UP = ("rho", "epsilon", "delta", "spent_rho")
_DOWN = ("remaining_rho",)


def plain(text: str) -> str:
    shown = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return re.sub(r"\\([\\`*\[\]|~$!_#+.)-])", r"\1", shown)


def markdown_tables(text: str) -> list[list[list[str]]]:
    found: list[list[list[str]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [
            re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines() if not re.match(r"\|( -+:? \|)+$", line)
        ]
        found.append([[plain(cell.strip()) for cell in row] for row in rows])
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return reports(tmp_path_factory.mktemp("twins"))


def read(folder: Path) -> tuple[Page, str, dict[str, Any]]:
    html, text = ((folder / f"report.{kind}").read_text(encoding="utf-8") for kind in ("html", "md"))
    return Page(html), text, json.loads((folder / "report.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", FAMILIES)
def test_page_and_markdown_hold_the_same_tables_cell_by_cell(made, name):
    page, text, _ = read(made[name].parent)
    assert made[name].stat().st_size < 300_000
    # a table of pairs has no head in HTML
    other = [rows[1:] if len(rows[0]) == 2 else rows for rows in markdown_tables(text)]
    own = [[[" ".join(cell.split()) for cell in row] for row in rows] for rows in page.tables]
    assert len(own) > 8 and own == [[[" ".join(c.split()) for c in row] for row in rows] for rows in other]


def told(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What both pages must print: name and text."""
    for part, keys in (
        ("guarantee", ("rho", "epsilon", "delta")),
        ("value", ("upper_trivial",) if "zero" not in facts["model_baselines"] else ("estimate",)),
        ("ledger", ("cap_rho", "spent_rho", "remaining_rho", "entry", "hash")),
    ):
        for key in keys:
            value = (facts[part] or {}).get(key)
            if value is not None:
                toward = "up" if key in _UP else "down" if key in _DOWN else "nearest"
                yield f"{part}.{key}", number(value, toward=toward)
    if "zero" not in facts["model_baselines"]:
        yield "value", interval(facts["value"]["lower"], facts["value"]["upper"])
    for role in ("policy", "bounds"):
        for key, value in (facts["constants"].get(role) or {"values": {}})["values"].items():
            yield f"constants.{role}.{key}", clean(key)
            yield f"constants.{role}.{key}", number(value)
    for key, value in facts.get("truth", {}).items():
        exact = "zero" in facts["model_baselines"]
        yield f"truth.{key}", number(value, 4 if exact else 2 if key == "suboptimality" else 3)
    for key in ("assumptions", "not_covered"):
        for words in facts[key]:
            yield key, words
    yield "guarantee.sentence", facts["guarantee"]["sentence"]
    # the best constant is no policy that a page compares with: its estimate misled
    for name, baseline in facts["model_baselines"].items():
        if name not in ("practice", "uniform", "zero") or (name == "practice" and "evaluation" in facts):
            continue
        low, high = baseline.get("lower"), baseline.get("upper")
        # an interval that is nearly the whole range stands on no page
        whole = Baseline.model_validate(baseline).trivial
        if baseline.get("estimate") is not None and (low is None or not whole):
            told = low is not None and high is not None
            yield "model_baselines", about(baseline["estimate"], low, high) if told else number(baseline["estimate"], 3)
    for m in facts["mechanisms"]:
        yield "mechanisms.scale", number(m["scale"])


@pytest.mark.parametrize("name", FAMILIES)
def test_both_pages_print_what_report_json_says(made, name):
    page, text, facts = read(made[name].parent)
    shown, found = "".join(page.text), list(told(facts))
    grouped = len(facts["mechanisms"]) > 24
    for key, words in found:
        if grouped and key == "mechanisms.scale":
            continue
        assert words in shown, key
        assert words in plain(text), key
    assert len(found) > 12


def test_a_number_changed_in_one_twin_is_noticed(made):
    page, text, facts = read(made["counts"].parent)
    facts["value"]["lower"] += 0.7
    wrong = [key for key, words in told(facts) if words not in "".join(page.text)]
    assert wrong == ["value"]
    rows = markdown_tables(text.replace("| Interval |", "| Interval  x |"))
    assert rows != markdown_tables(text)
