"""What the committed campaign of worker kills says, and that its checks can fail."""

from __future__ import annotations

import json
from fractions import Fraction
from types import SimpleNamespace

import pytest

from flows.config.home import Home
from pipeline.ledger.ledger import open_ledger
from tests.campaigns import worker_kills
from tests.campaigns.worker_kills import KILLS, RESULTS, World


def test_the_committed_campaign_is_whole_and_its_total_is_the_sum_of_its_intents():
    found = json.loads(RESULTS.read_text())
    assert found["kills"] == len(found["rows"]) >= KILLS and found["violations"] == 0
    assert found["ledger_total"] == found["sum_of_intents"] and Fraction(found["ledger_total"]) == found["intents"]
    assert found["intents"] - found["commits"] == found["charged_again"] and found["charged_again"] > 0
    assert found["commits"] <= found["logs"]
    assert all(r["intents"] - r["commits"] >= 0 for r in found["rows"])
    assert not [r for r in found["rows"] if r["violations"]]


@pytest.fixture
def world(tmp_path, make_card, monkeypatch):
    """A world without its server: ledger, store and runs of one night."""
    found = object.__new__(World)
    found.shop, found.home, found.nights = tmp_path, Home(tmp_path / "home"), 1
    book = open_ledger(tmp_path / "ledger.db", create=True)
    book.register(make_card(name="shop"))
    book.commit(book.intent("shop", "a" * 64, Fraction(1), {}), {"release_sha256": "0" * 64})
    draw(found, "a")
    (found.home.runs / "private-1").mkdir()
    (found.home.runs / "private-1" / "report.json").write_text('{"dataset": {"snapshot": 1}}')
    newest = SimpleNamespace(number=1)
    monkeypatch.setattr(worker_kills, "latest", lambda *_: newest)
    found.newest = newest
    return found


def draw(world: World, letter: str) -> None:
    folder = world.home.store / "shop" / "releases" / (letter * 24)
    folder.mkdir(parents=True)
    (folder / "attempt.json").write_text("{}")


def test_a_sound_night_has_no_violation(world):
    assert world.violations() == [] and world.settled() == []


def test_a_release_without_its_intent_is_seen(world):
    draw(world, "b")
    assert world.violations() == ["a release was drawn without an INTENT"]
    assert world.settled() == ["store and COMMITs differ"]


def test_a_night_that_was_not_finished_is_seen(world):
    world.newest.number = 2
    assert world.settled() == ["the newest log has no run"]


def test_a_draw_that_was_left_over_is_seen(world):
    (world.home.store / "shop" / "releases" / f"{'a' * 24}.attempt-2").mkdir()
    assert world.settled() == [f"left over: {'a' * 24}.attempt-2"]
