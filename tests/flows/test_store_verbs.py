"""Stored rows: a purge takes them and nothing released; a damaged one is refused, and ingesting again mends it."""

import os
import shutil
import stat
from threading import Thread

import polars as pl
import pytest

from flows.config.home import Work, card_at
from flows.jobs import intake
from pipeline.logs.ingest import write_rows
from pipeline.logs.store import snapshots
from pipeline.operator.ingest_report import ingest_report
from reticent import CardError, Store
from tests.flows.nights import Shop, customers
from tests.flows.shop import change, lay_out, rows
from tests.flows.verb import invoke, reticent
from tests.jobs import home_at, ingest_job, ledger_in, ledger_of, purge_job, run_job

pytestmark = pytest.mark.usefixtures("unread")


@pytest.fixture(scope="module")
def made(tmp_path_factory, opened):
    """Two editions, and a run of the first."""
    shop, home = opened(root := tmp_path_factory.mktemp("used"), kind="synthetic")
    run_job(str(shop / "private.toml"), home)
    lay_out(shop, log=rows(500, seed=1))
    ingest_job(str(shop), home)
    return root


@pytest.fixture
def used(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True, symlinks=True)
    return tmp_path / "shop", home_at(tmp_path / "home")


def tree(folder):
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and ".releasing" not in p.name)
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def test_old_snapshots_go_and_ledger_releases_and_runs_stay(used):
    shop, home = used
    before = tree(home.store)
    r = purge_job(str(shop), home, yes=False)
    assert r["snapshots"] == [1, 2] and not r["purged"] and r["bytes"] > 0
    assert tree(home.store) == before, "nobody said yes"
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


def test_a_purge_that_died_blocks_no_later_one_and_is_noted_once(shop, home, dies_at):
    """What it had renamed stood in the way of the next refused log: 'Directory not empty', every time."""
    lineage = home.store / "shop"

    def refused():
        (lineage / "refused").mkdir()
        (lineage / "refused" / "quarantine-0000.parquet").write_bytes(b"rows")

    refused()
    noted = []
    for _ in range(2):
        with dies_at("shutil.rmtree"):
            purge_job(str(shop), home, keep=1, yes=True)
        noted.append(len(ledger_of(home).entries("shop")))
    assert noted[0] == noted[1]
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


@pytest.fixture
def people(tmp_path, opened):
    return opened(tmp_path, cap=2.0)


def spent(folder):
    return ledger_in(folder).account("shop").spent


def part(home, number=1):
    return home.store / "shop" / f"snapshot-{number:04d}" / "part-0000.parquet"


def assert_refused(folder, home, why):
    """With exit 4, and for nothing."""
    done = reticent("run", folder / "private.toml", "--home", home.root, cwd=folder)
    assert done.returncode == 4 and why in done.stderr and spent(folder) == 0


def more_of_somebody(file):
    """One person's three rows, a thousand times: every sensitivity rests on their being there once."""
    rows = pl.read_parquet(file)
    one = rows.filter(pl.col("user_id") == rows["user_id"][0])
    write_rows(pl.concat([rows, *[one] * 1000]), file)


def flip(file):
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)


DAMAGE = {
    "more of somebody": more_of_somebody,
    "a flipped bit": flip,
    "cut off": lambda file: os.truncate(file, 100),
    "gone": lambda file: file.unlink(),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize(
    "damage", [pytest.param(d, marks=() if d in ("more of somebody", "gone") else pytest.mark.slow) for d in DAMAGE]
)
def test_a_damaged_snapshot_is_refused_uncharged_and_ingesting_again_mends_it(people, damage):
    folder, home = people
    store = Store(home.root)
    DAMAGE[damage](part(home))
    for _ in range(3):
        assert_refused(folder, home, "ingest the log again")
    assert not store.verify(folder)["ok"]
    assert store.ingest(folder)["snapshot"] == 2
    assert not run_job(str(folder / "private.toml"), home)["replayed"] and spent(folder) == 1
    assert [one["problem"] is None for one in store.verify(folder)["snapshots"]] == [False, True]


def test_a_damaged_manifest_is_no_hindrance_to_ingest(people):
    folder, home = people
    (part(home).parent / "manifest.json").write_text("{}")
    assert_refused(folder, home, "missing or damaged")
    assert Store(home.root).ingest(folder)["snapshot"] == 2 and spent(folder) == 0
    run_job(str(folder / "private.toml"), home)


def test_what_is_committed_is_replayed_whatever_became_of_its_rows(people):
    folder, home = people
    run_job(str(folder / "private.toml"), home)
    flip(part(home))
    assert run_job(str(folder / "private.toml"), home)["replayed"]


def test_store_verify_says_which_snapshot_and_ends_with_4(people):
    folder, home = people
    command = ["--home", home.root, "store", "verify", folder]
    assert invoke(*command).stdout.split() == ["snapshot", "1:", "ok"]
    flip(part(home))
    done = invoke(*command)
    assert done.exit_code == 4 and "snapshot 1 : its part" not in done.stdout and "not those that ingest" in done.stdout


def test_a_night_of_a_damaged_snapshot_is_refused_until_it_is_ingested_again(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch)
    shop.append(1, customers(0, 60))
    before = sum(e.kind == "INTENT" for e in shop.ledger.entries())
    shop.on(2)
    shop.deliver(customers(60, 60))
    flip(part(shop.home, 2))
    done = reticent("run", shop.recipe, "--home", shop.home.root, cwd=tmp_path)
    assert done.returncode == 4 and "snapshot 2" in done.stderr
    assert sum(e.kind == "INTENT" for e in shop.ledger.entries()) == before
    shop.deliver(customers(60, 60))
    counter = shop.append(2).release.counter
    assert counter is not None and counter["night"] == 2


@pytest.mark.parametrize(("old", "edited"), [('"sale"', '"left"'), ('["log.csv"]', '["log.csv", "more.csv"]')])
def test_a_source_that_was_edited_after_ingest_is_noticed(people, old, edited):
    folder, home = people
    text = (folder / "card.toml").read_text()
    change(folder / "card.toml", old, edited)
    for _ in range(2):
        with pytest.raises(CardError, match=r"\[source\] was edited"):
            run_job(str(folder / "private.toml"), home)
    assert spent(folder) == 0
    (folder / "card.toml").write_text(text)
    run_job(str(folder / "private.toml"), home)
