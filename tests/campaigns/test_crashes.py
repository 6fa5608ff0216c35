"""A sample of the crash campaign, what its committed result says, and that its checks can fail."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from types import SimpleNamespace

import pytest

from flows.config.home import Home
from pipeline.ledger.ledger import open_ledger
from tests.campaigns.kill_points import STEPS
from tests.campaigns.rows import ROOT, out_of_date, read
from tests.campaigns.verbs import violations
from tests.disk import FAULTS

_KILL_ONE = """
import json, sys
from pathlib import Path
from tests.campaigns.crashes import kill, places
from tests.campaigns.resumed import tally
from tests.campaigns.verbs import Shop

shop = Shop(Path(sys.argv[1]), None, anew=False)
steps = [at for at in places(shop) if list(at[:2]) == sys.argv[2:]]
print(json.dumps(tally([kill(shop, *at) for at in steps], "engine", "verb", "from")))
"""


def test_every_step_that_is_wrapped_is_there_under_its_name():
    assert not [name for owner, name in STEPS if not callable(getattr(owner, name, None))]


@pytest.mark.slow
def test_ten_kills_break_no_promise():
    command = [sys.executable, "-P", "-m", "tests.campaigns.crashes", "--sample", "10"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(row["steps"] for row in json.loads(done.stdout)) == 10


@pytest.mark.slow
def test_every_kill_of_one_verb_is_what_the_committed_row_says(tmp_path):
    """The verb with fewest steps, each of them killed twice once more; a row that is out of date need not agree."""
    committed = min((r for r in read("crashes") if r["engine"] == "sqlite"), key=lambda r: int(r["steps"]))
    # a process that has threads must not be forked: a lock that one of them holds is never given back
    command = [sys.executable, "-P", "-c", _KILL_ONE, str(tmp_path), committed["verb"], committed["from"]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    [found] = json.loads(done.stdout.splitlines()[-1])
    assert found["violations"] == 0 and found["kills"] > found["steps"] > 0
    if not out_of_date("crashes", committed):
        assert {k: str(v) for k, v in found.items() if k in committed}.items() <= committed.items()


def test_the_committed_campaigns_are_whole_and_broke_no_promise():
    kills = {r["engine"]: 0 for r in read("crashes")}
    for r in read("crashes"):
        kills[r["engine"]] += int(r["kills"])
        assert r["violations"] == "0", r
    assert set(kills) == {"sqlite", "postgresql"} and min(kills.values()) >= 100
    for r in read("races"):
        assert int(r["exactly one winner"]) == int(r["rounds"]) >= 50


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


@pytest.mark.slow
def test_eight_faults_of_the_disk_break_no_promise():
    command = [sys.executable, "-P", "-m", "tests.campaigns.faults", "--sample", "8"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(row["tried"] for row in json.loads(done.stdout)) == 8


def test_the_committed_faults_broke_no_promise():
    found = read("faults")
    assert sum(int(r["tried"]) for r in found) >= 1000 and {r["fault"] for r in found} == set(FAULTS)
    assert not [r for r in found if r["violations"] != "0"]
