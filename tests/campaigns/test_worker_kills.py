"""What the committed campaign of worker kills says, and that its checks can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from fractions import Fraction
from types import SimpleNamespace

import pytest

from flows.config.home import Home
from flows.config.setting import setting
from flows.jobs.run import register_job
from pipeline.ledger.ledger import open_ledger
from tests.campaigns import worker_kills
from tests.campaigns.executed import executed, unexplained
from tests.campaigns.rows import ROOT, listed, read
from tests.campaigns.worker_kills import CAP, DEADLY, KILLS, TICKS, World
from tests.flows.shop import lay_out
from tests.jobs import nightly_job


def test_the_committed_campaign_is_whole_and_paid_again_for_what_a_kill_had_lost():
    found = read("worker_kills")
    assert len(found) >= KILLS and not [r for r in found if r["broken"]]
    assert all(int(r["INTENTs"]) >= int(r["COMMITs"]) for r in found)
    assert int(found[-1]["INTENTs"]) > int(found[-1]["COMMITs"])


def test_what_a_night_executes_is_what_its_kills_depend_on_or_is_named(tmp_path):
    """A new log of a registered shop of people, as the worker has it; Prefect's own part is wholly listed."""
    shop, home = tmp_path / "shop", Home(tmp_path / "home")
    lay_out(shop, kind="real", ledger="ledger.db", cap=CAP)
    register_job(str(shop), home)
    with executed() as modules:
        nightly_job(str(shop / "private.toml"), home)
    assert {"pipeline.ledger.ledger", "pipeline.transaction.transaction", "flows.jobs.publish"} <= modules
    assert unexplained("worker_kills", "worker_kills", modules) == []
    assert listed("worker_kills") == listed("worker_ticks")
    # a list that forgets a module, or a reason for nothing, is seen
    assert unexplained("worker_kills", "races", modules) != [] != unexplained("worker_kills", "worker_kills", set())


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


def test_every_log_of_the_campaign_has_a_release_of_its_own(tmp_path):
    """Else a replay would be killed, and draws of one release that died would stop the nights."""
    found, asked = object.__new__(World), set[str]()
    found.shop, found.nights = tmp_path, 0
    for _ in range(4 * (KILLS + TICKS)):
        found.new_log()
        asked.add(str(setting(str(tmp_path / "private.toml"), Home(tmp_path / "home")).plan.spec()))
    assert len(asked) == found.nights


@pytest.mark.slow
@pytest.mark.parametrize("order", ["count", "step 1", "after"])
def test_the_order_is_taken_though_registration_has_made_the_store(tmp_path, order):
    lay_out(tmp_path / "shop", kind="real", ledger="ledger.db", cap=CAP)
    register_job(str(tmp_path / "shop"), Home(tmp_path / "home"))
    (tmp_path / "order").write_text(order)
    more = {"DEADLY_ORDER": str(tmp_path / "order"), "PYTHONPATH": f"{DEADLY}:{ROOT}"}
    words = ["--home", str(tmp_path / "home"), "nightly", str(tmp_path / "shop" / "private.toml")]
    # the worker: it dies with its run
    worker = f"import subprocess, sys; subprocess.call([sys.executable, '-m', 'flows.cli', *{words}])"
    done = subprocess.run([sys.executable, "-c", worker], env=os.environ | more, capture_output=True, check=False)
    assert not (tmp_path / "order").exists() and done.returncode == (0 if order == "count" else -9), done.stderr
    assert (tmp_path / "counted").exists() == (order == "count")
