"""Samples of the campaigns of crashes, faults, killed nights and power cuts, and that their checks can fail."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from flows.config.home import Home
from pipeline.ledger.ledger import open_ledger
from tests.campaigns.crash_world import STEPS, violations
from tests.campaigns.power_cuts import ALL, REASONS
from tests.campaigns.rows import ROOT


def printed(*words: str) -> str:
    """By a process without threads, which may be forked: a lock that one of them holds would never be given back."""
    done = subprocess.run([sys.executable, "-P", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_step_that_is_wrapped_is_there_under_its_name():
    assert not [name for owner, name in STEPS if not callable(getattr(owner, name, None))]


@pytest.mark.slow
@pytest.mark.parametrize(("campaign", "sample", "count"), [("crashes", 5, "steps"), ("faults", 4, "tried")])
def test_a_few_kills_and_faults_break_no_promise(campaign, sample, count):
    rows = json.loads(printed("-m", f"tests.campaigns.{campaign}", "--sample", str(sample)))
    assert sum(row[count] for row in rows) == sample


@pytest.mark.slow
def test_killed_nights_break_no_promise():
    printed("-m", "tests.campaigns.night_crashes", "--sample", "2")


@pytest.fixture
def world(tmp_path, make_card):
    book = open_ledger(tmp_path / "ledger.db", create=True)
    book.register(make_card(name="shop"))
    intent = book.intent("shop", "k" * 64, Fraction(1), {})
    book.commit(intent, {"release_sha256": "0" * 64})
    drawn = [Fraction(1)]
    return SimpleNamespace(ledger=lambda: book, home=Home(tmp_path), drawn=lambda: sum(drawn), spends=drawn.append)


def test_a_sound_state_has_no_violation(world):
    assert violations(world) == []


def test_a_draw_before_its_intent_is_seen(world):
    world.spends(Fraction(1, 10**9))
    assert violations(world) == ["more was drawn than charged"]


def test_an_uncommitted_release_that_is_published_is_seen(world):
    run = world.home.runs / "run"
    run.mkdir()
    (run / "release.parquet").write_bytes(b"other numbers")
    assert violations(world) == ["an uncommitted release is published"]


def test_a_second_commit_is_seen(world):
    book = world.ledger()
    with book._chain.open() as page:
        page.append("shop", "COMMIT", dict(page.entries[-1].body))
    assert violations(world) == ["a key has two COMMITs"]


_PROCESS = """
import json, sys
from pathlib import Path
import pytest
from tests.campaigns import power_cuts
from tests.campaigns.power_cuts import ALL, benches, trials

# with all syncs in place; what each of them is good for is the whole campaign's to measure
power_cuts.resumed = lambda _, keys, do: [do(key) if key.endswith(ALL) else {} for key in keys]
asked, rows = set(), []
for bench in benches(Path(sys.argv[1]), pytest.MonkeyPatch()):
    bench.restore()
    asked |= {o.by for o in bench.record().operations if o.kind == "sync"}
    rows += trials(bench, 15) if bench.name in ("promote", "purge") else ()
print(json.dumps([sorted(asked), rows]))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[dict[str, Any]]]:
    """Who asks for syncs in any verb, and what a few cuts of two verbs left."""
    return json.loads(printed("-c", _PROCESS, str(tmp_path_factory.mktemp("cuts"))).splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["promote", "purge"])
def test_a_few_cuts_break_no_promise(found: tuple[list[str], list[dict[str, Any]]], verb: str) -> None:
    [row] = [row for row in found[1] if row["verb"] == verb and row["taken out"] == ALL]
    assert row["laid down"] > 5 and row["broken"] == 0, row


# what forces something to disk, wherever it is called
FORCING = ("sync", "sync_all", "put_in_place", "whole_file", "whole_folder", "make_folder", "private_folder")


def forcing(node: ast.AST, within: str) -> Iterator[str]:
    """Functions that call one of these, by their names below ``pipeline``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            name = getattr(child.func, "attr", getattr(child.func, "id", ""))
            if name in FORCING:
                yield within
        inner = f"{within.rpartition('.')[0]}.{child.name}" if isinstance(child, ast.FunctionDef) else within
        yield from forcing(child, inner)


@pytest.mark.slow
def test_every_function_that_forces_is_recorded_or_named(found: tuple[list[str], list[dict[str, Any]]]) -> None:
    there = set[str]()
    for file in (f for room in ("pipeline", "flows", "reports") for f in (ROOT / room).rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removeprefix("pipeline.")
        if module not in ("disk", "files"):
            there |= set(forcing(ast.parse(file.read_text(encoding="utf-8")), f"{module}."))
    recorded = {by.partition("< ")[2].rpartition(":")[0] for by in found[0]}
    named = set(REASONS["elsewhere"])
    assert there - recorded == named, (there - recorded - named, named - (there - recorded))
