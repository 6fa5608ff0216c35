"""An older ledger and an older store, restored together, agree with each other; the published runs know better."""

from __future__ import annotations

import shutil

import pytest

from flows.jobs.registration import refuse_forgotten_runs
from pipeline.ledger.ledger import open_ledger
from reticent import BudgetError, Store
from tests.flows.nights import Shop, customers
from tests.flows.shop import lay_out, rows
from tests.jobs import home_at, ledger_of, nightly_job, run_job

pytestmark = pytest.mark.usefixtures("unread")


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """Two nights, and store and ledger as they were after the first."""
    shop = Shop(tmp_path, monkeypatch)
    shop.night(1, customers(0, 60))
    copy = tmp_path / "copy"
    shutil.copytree(shop.home.store, copy / "store")
    shutil.copy2(shop.folder / "ledger.db", copy / "ledger.db")
    shop.night(2, customers(60, 60))
    shutil.rmtree(shop.home.store)
    shutil.copytree(copy / "store", shop.home.root / "store")
    shutil.copy2(copy / "ledger.db", shop.folder / "ledger.db")
    return shop


def test_a_ledger_that_lacks_the_entry_of_a_run_is_refused_before_anything_is_read(shop):
    before = shop.ledger.entries()
    for job in (run_job, nightly_job):
        with pytest.raises(BudgetError, match=r"lacks entry 9, of which run night-\w+ was made"):
            job(shop.recipe, shop.home)
    assert shop.ledger.entries() == before
    found = Store(shop.home.root).ledger(shop.folder).verify()
    assert not found["ok"] and "lacks entry 9" in found["problem"]


def test_a_published_release_is_never_replaced_by_another_draw_of_it(shop):
    [night] = [p for p in shop.home.runs.glob("night-*") if '"night": 2' in (p / "certificate.json").read_text()]
    # without its certificate a run is no witness
    (night / "certificate.json").unlink()
    kept = {p.name: p.read_bytes() for p in night.iterdir()}
    with pytest.raises(BudgetError, match="holds another release than entry 9 committed"):
        shop.night(2, customers(60, 60))
    assert {p.name: p.read_bytes() for p in night.iterdir()} == kept
    # out of the way, the draw that was paid for is published
    night.rename(shop.folder / "aside")
    assert shop.night(2)["run"] == night.name


def test_runs_of_other_lineages_and_runs_without_a_charge_are_no_witnesses(tmp_path):
    shop, home = lay_out(tmp_path / "shop", log=rows(60)), home_at(tmp_path / "home")
    nightly_job(str(shop / "private.toml"), home)
    run_job(str(shop / "exact.toml"), home)
    ledger = ledger_of(home)
    refuse_forgotten_runs("shop", ledger, home.runs)
    (home.root / "ledger.db").unlink()
    fresh = open_ledger(home.root / "ledger.db", create=True)
    refuse_forgotten_runs("another", fresh, home.runs)
    with pytest.raises(BudgetError, match="or the run is another ledger's"):
        refuse_forgotten_runs("shop", fresh, home.runs)
