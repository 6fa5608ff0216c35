"""Retention: raw rows go, what was spent and released stays, and the purge is on record."""

from __future__ import annotations

import stat
from threading import Thread

import polars as pl
import pytest

from flows.config.home import Home, card_at
from flows.config.setting import Work
from flows.jobs.intake import ingest_job
from flows.jobs.snapshots import export_job, purge_job
from pipeline.declaration.card import CardError
from pipeline.ledger.ledger import open_ledger
from pipeline.logs.store import snapshots
from pipeline.operator.ingest_report import ingest_report
from tests.flows.shop import lay_out, rows
from tests.jobs import run_job


@pytest.fixture
def used(tmp_path):
    shop, home = lay_out(tmp_path / "shop"), Home(tmp_path / "home")
    ingest_job(str(shop), home)
    run_job(str(shop / "private.toml"), home)
    lay_out(shop, log=rows(500, seed=1))
    ingest_job(str(shop), home)
    return shop, home


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
    spent = open_ledger(home.root / "ledger.db", create=False).account("shop").spent
    r = purge_job(str(shop), home, keep=1, yes=True)
    assert r["purged"] and r["snapshots"] == [1]
    assert [p.name for p in (home.store / "shop").glob("snapshot-*")] == ["snapshot-0002"]
    assert (tree(home.store / "shop" / "releases"), tree(home.runs)) == kept
    ledger = open_ledger(home.root / "ledger.db", create=False)
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


def test_a_purge_that_died_blocks_no_later_one_and_is_noted_once(tmp_path, monkeypatch):
    """What it had renamed stood in the way of the next refused log: 'Directory not empty', every time."""
    shop, home = lay_out(tmp_path / "shop"), Home(tmp_path / "home")
    ingest_job(str(shop), home)
    lineage = home.store / "shop"

    def refused():
        (lineage / "refused").mkdir()
        (lineage / "refused" / "quarantine-0000.parquet").write_bytes(b"rows")

    refused()
    purge_that_dies(shop, home, monkeypatch)
    ledger = open_ledger(home.root / "ledger.db", create=False)
    before = len(ledger.entries("shop"))
    purge_that_dies(shop, home, monkeypatch)
    assert len(ledger.entries("shop")) == before
    refused()
    assert purge_job(str(shop), home, keep=1, yes=True)["purged"]
    assert not list(lineage.glob(".purging-*")) and not (lineage / "refused").exists()
    assert not purge_job(str(shop), home, keep=1, yes=True)["purged"]


def test_what_a_purge_that_died_had_renamed_goes_with_the_next(used, monkeypatch):
    shop, home = used

    purge_that_dies(shop, home, monkeypatch)
    lineage = home.store / "shop"
    assert list(lineage.glob(".purging-*/part-*.parquet"))
    assert purge_job(str(shop), home, keep=1, yes=True)["purged"]
    assert not list(lineage.glob(".purging-*"))
    assert [p.name for p in lineage.glob("snapshot-*")] == ["snapshot-0002"]


def test_a_purge_waits_for_an_ingest_and_takes_what_it_published(tmp_path):
    """It once took the work in progress from under the ingest, which then died half-way."""
    shop, home = lay_out(tmp_path / "shop"), Home(tmp_path / "home")
    purges = []

    def bar(done, total):
        if not purges:
            purges.append(Thread(target=purge_job, args=(str(shop), home), kwargs={"yes": True}))
            purges[0].start()
            purges[0].join(0.5)
            assert purges[0].is_alive()

    ingest_job(str(shop), home, Work(progress=bar))
    purges[0].join()
    assert not list((home.store / "shop").glob("snapshot-*"))


def test_no_purge_takes_the_files_that_a_report_has_just_listed(used, monkeypatch):
    """The verb that ingested died of it, once in a few hundred times."""
    shop, home = used
    snapshot, scan, purges = snapshots(home.store, "shop")[-1], pl.scan_parquet, []

    def first_file(path):
        if not purges:
            purges.append(Thread(target=purge_job, args=(str(shop), home), kwargs={"yes": True}))
            purges[0].start()
            purges[0].join(0.5)
        return scan(path)

    monkeypatch.setattr(pl, "scan_parquet", first_file)
    assert ingest_report(snapshot, card_at(str(shop), home.shelf))["people_kept"] == snapshot.users
    purges[0].join()
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


def test_an_export_is_a_look_and_never_goes_where_runs_are_published(used):
    shop, home = used
    with pytest.raises(CardError, match="below runs/"):
        export_job(str(shop), home, home.runs / "raw")
    r = export_job(str(shop), home, home.root / "out")
    looks = open_ledger(home.root / "ledger.db", create=False).inspections("shop")
    assert [e.seq for e in looks] == [r["ledger_entry"]]
    assert r["minari"] == "shop-v2" and r["episodes"] == 500 and r["steps"] > 0
    assert not [p for p in tree(home.runs) if "hdf5" in p]
