"""A sample of the crash campaign, and that its checks can fail."""

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
from tests.campaigns.rows import ROOT
from tests.campaigns.verbs import violations


def test_every_step_that_is_wrapped_is_there_under_its_name():
    assert not [name for owner, name in STEPS if not callable(getattr(owner, name, None))]


@pytest.mark.slow
def test_five_kills_break_no_promise():
    command = [sys.executable, "-P", "-m", "tests.campaigns.crashes", "--sample", "5"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(row["steps"] for row in json.loads(done.stdout)) == 5


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
def test_four_faults_of_the_disk_break_no_promise():
    command = [sys.executable, "-P", "-m", "tests.campaigns.faults", "--sample", "4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sum(row["tried"] for row in json.loads(done.stdout)) == 4
