"""Stored data is what it was: every byte is read before anything is charged, and ingesting again mends what is not."""

from __future__ import annotations

import os

import polars as pl
import pytest

from pipeline.logs.ingest import write_rows
from reticent import CardError, Store
from tests.flows.nights import Shop, customers
from tests.flows.verb import invoke, reticent
from tests.jobs import ledger_in, run_job

pytestmark = pytest.mark.usefixtures("unread")


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
    command = ["--home", str(home.root), "store", "verify", str(folder)]
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
    card = folder / "card.toml"
    text = card.read_text()
    card.write_text(text.replace(old, edited))
    for _ in range(2):
        with pytest.raises(CardError, match=r"\[source\] was edited"):
            run_job(str(folder / "private.toml"), home)
    assert spent(folder) == 0
    card.write_text(text)
    run_job(str(folder / "private.toml"), home)
