"""Retention: raw rows go, what was spent and released stays, and the purge is on record."""

from __future__ import annotations

import shutil
import stat
from threading import Thread

import polars as pl
import pytest

from flows.config.home import Work, card_at
from flows.jobs import intake
from pipeline.logs.store import snapshots
from pipeline.operator.ingest_report import ingest_report
from reticent import CardError
from tests.flows.shop import lay_out, rows
from tests.jobs import home_at, ingest_job, ledger_of, purge_job, run_job

pytestmark = pytest.mark.usefixtures("unread")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two editions, and a run of the first."""
    root = tmp_path_factory.mktemp("used")
    shop, home = lay_out(root / "shop"), home_at(root / "home")
    ingest_job(str(shop), home)
    run_job(str(shop / "private.toml"), home)
    lay_out(shop, log=rows(500, seed=1))
    ingest_job(str(shop), home)
    return root


@pytest.fixture
def used(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True, symlinks=True)
    return tmp_path / "shop", home_at(tmp_path / "home")


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_without_yes_nothing_goes(used):
    shop, home = used
    before = tree(home.root)
    r = purge_job(str(shop), home, yes=False)
    assert r["snapshots"] == [1, 2] and not r["purged"] and r["bytes"] > 0
    after = tree(home.root)
    assert {k: v for k, v in after.items() if "store" in k and ".releasing" not in k} == {
        k: v for k, v in before.items() if "store" in k and ".releasing" not in k
    }


def test_old_snapshots_go_and_ledger_releases_and_runs_stay(used):
    shop, home = used
    kept = tree(home.store / "shop" / "releases"), tree(home.runs)
    spent = ledger_of(home).account("shop").spent
    r = purge_job(str(shop), home, keep=1, yes=True)
    assert r["purged"] and r["snapshots"] == [1]
    assert [p.name for p in (home.store / "shop").glob("snapshot-*")] == ["snapshot-0002"]
    assert (tree(home.store / "shop" / "releases"), tree(home.runs)) == kept
    ledger = ledger_of(home)
    assert ledger.account("shop").spent == spent and ledger.problem() is None
    assert [e.body["snapshots"] for e in ledger.entries("shop") if e.kind == "PURGE"] == [[1]]
    assert len(r["not_undone"]) == 3
    assert not run_job(str(shop / "private.toml"), home)["replayed"]


def test_a_purge_of_everything_leaves_the_next_ingest_a_new_number(used):
    shop, home = used
    purge_job(str(shop), home, yes=True)
    with pytest.raises(CardError, match="ingest"):
        run_job(str(shop / "private.toml"), home)
    assert ingest_job(str(shop), home)["snapshot"] == 3


def purge_that_dies(shop, home, monkeypatch):
    def dies(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", dies)
        with pytest.raises(KeyboardInterrupt):
            purge_job(str(shop), home, keep=1, yes=True)


def test_a_purge_takes_what_killed_ingests_and_sums_left_and_keeps_the_snapshots(used):
    shop, home = used
    lineage, there = home.store / "shop", [s.number for s in snapshots(home.store, "shop")]
    (lineage / ".ingest").mkdir()
    for left in (lineage / ".ingest/spill-0000.arrow", lineage / "snapshot-0001/.sums"):
        left.write_bytes(b"rows")
    told = purge_job(str(shop), home, keep=len(there), yes=True)
    assert (told["snapshots"], told["paths"]) == ([], [".ingest", "snapshot-0001/.sums"])
    assert not list(lineage.rglob(".sums")) and not (lineage / ".ingest").exists()
    assert [s.number for s in snapshots(home.store, "shop")] == there


def test_a_purge_that_died_blocks_no_later_one_and_is_noted_once(tmp_path, monkeypatch):
    """What it had renamed stood in the way of the next refused log: 'Directory not empty', every time."""
    shop, home = lay_out(tmp_path / "shop"), home_at(tmp_path / "home")
    ingest_job(str(shop), home)
    lineage = home.store / "shop"

    def refused():
        (lineage / "refused").mkdir()
        (lineage / "refused" / "quarantine-0000.parquet").write_bytes(b"rows")

    refused()
    purge_that_dies(shop, home, monkeypatch)
    ledger = ledger_of(home)
    before = len(ledger.entries("shop"))
    purge_that_dies(shop, home, monkeypatch)
    assert len(ledger.entries("shop")) == before
    refused()
    assert purge_job(str(shop), home, keep=1, yes=True)["purged"]
    assert not list(lineage.glob(".purging-*")) and not (lineage / "refused").exists()
    assert not purge_job(str(shop), home, keep=1, yes=True)["purged"]


class Purge(Thread):
    """Begins beside what a test does, at the first call."""

    def __init__(self, shop, home):
        super().__init__(target=purge_job, args=(str(shop), home), kwargs={"yes": True})

    def __call__(self, *_):
        if self.ident is None:
            self.start()
            self.join(0.5)
            assert self.is_alive()


def test_a_purge_waits_for_an_ingest_and_takes_what_it_published(tmp_path):
    """It once took the work in progress from under the ingest, which then died half-way."""
    shop, home = lay_out(tmp_path / "shop"), home_at(tmp_path / "home")
    purge = Purge(shop, home)
    intake.ingest_job(str(shop), home, Work(progress=purge))
    purge.join()
    assert not list((home.store / "shop").glob("snapshot-*"))


def test_no_purge_takes_the_files_that_a_report_has_just_listed(used, monkeypatch):
    """The verb that ingested died of it, once in a few hundred times."""
    shop, home = used
    lay_out(shop, log=[*rows(500, seed=1), ("someone", 0, 0, "cold", "unheard of", 0, False)])
    ingest_job(str(shop), home)
    snapshot, scan, purge = snapshots(home.store, "shop")[-1], pl.scan_parquet, Purge(shop, home)
    monkeypatch.setattr(pl, "scan_parquet", lambda path: purge() or scan(path))
    assert ingest_report(snapshot, card_at(str(shop), home.shelf))["people_kept"] == snapshot.users
    purge.join()
    assert not list((home.store / "shop").glob("snapshot-*"))


def test_quarantine_alone_can_go(used):
    shop, home = used
    r = purge_job(str(shop), home, quarantine_only=True, yes=True)
    assert r["snapshots"] == [] and r["paths"]
    assert not list((home.store / "shop").rglob("quarantine-*"))
    run_job(str(shop / "private.toml"), home)
    assert not purge_job(str(shop), home, quarantine_only=True, yes=True)["purged"]


def test_the_store_and_all_in_it_are_the_owners_alone(used):
    _, home = used
    for path in [home.store, *home.store.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))
    assert stat.S_IMODE((home.root / "ledger.db").stat().st_mode) == 0o600
