"""Nights exist whatever is delivered: nothing new, no rows, no file, a log that is refused; and who hears of it."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction

import numpy as np
import pytest

from flows.config.home import plain_step
from flows.jobs import nightly
from reticent import CardError, LogError
from tests.flows.nights import Shop, customers
from tests.flows.test_nights import seen
from tests.flows.test_side_outputs import RECORDS
from tests.flows.verb import invoke
from tests.jobs import check_night, ingest_job, nightly_job, register_job, run_job
from tests.ledger.disjoint import disjoint

pytestmark = pytest.mark.usefixtures("unread")

STRICT = "[tolerance]\nunknown_label = 0.0\n"


def leaves(shop):
    return [np.load(p).shape[1] > 0 for p in sorted(shop.kept.glob("leaf-*"))]


def test_no_rows_are_an_empty_leaf(tmp_path, monkeypatch):
    shop, said = Shop(tmp_path, monkeypatch), []
    shop.job(1, customers(0, 60))
    assert shop.job(2, [], say=said.append)["exit"] == 0
    (shop.folder / "log.csv").write_bytes(b"")
    assert shop.job(3, say=said.append)["exit"] == 0
    shop.job(4, customers(60, 60))
    assert leaves(shop) == [True, False, False, True]
    assert not any("alert" in s for s in said)
    assert sum(e.kind == "INTENT" for e in shop.ledger.entries()) == 4


def test_a_log_without_rows_is_an_edition_and_its_operator_hears_of_it(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch)
    for number, content in enumerate((b"", b"customer,visit,t,mood,offer,sale,left\n"), 1):
        (shop.folder / "log.csv").write_bytes(content)
        done = invoke("--home", shop.home.root, "ingest", shop.folder)
        assert done.exit_code == 3 and "the files hold no rows" in done.stderr
        assert shop.newest.number == number


def test_without_any_edition_a_night_whose_files_cannot_be_read_fails_and_charges_nothing(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch)
    (shop.folder / "log.csv").write_bytes(b"nobody,knows,these\n")
    for recipe in (shop.recipe, str(shop.folder / "private.toml")):
        with pytest.raises(LogError):
            nightly_job(recipe, shop.home)
    assert shop.newest is None and not [e for e in shop.ledger.entries() if e.kind == "INTENT"]
    with pytest.raises(CardError, match="no snapshot"):
        run_job(shop.recipe, shop.home)


def test_an_empty_file_beside_others_takes_nothing_from_them(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch)
    card = shop.folder / "card.toml"
    card.write_text(card.read_text().replace('["log.csv"]', '["log.csv", "more*.csv"]'))
    (shop.folder / "more-1.csv").write_text((shop.folder / "log.csv").read_text().splitlines()[0] + "\n")
    shop.job(1, customers(0, 60))
    (shop.folder / "more-1.csv").write_bytes(b"")
    shop.job(2, customers(60, 50))
    assert shop.newest.users == 50 and leaves(shop) == [True, True]


BROKEN = {
    # how many people each leaf counts; the third night brings it mended
    "beyond its tolerance": [60, 60, 1],
    "gone": [60, 0, 61],
    "unreadable": [60, 0, 61],
}


@pytest.mark.parametrize("how", [pytest.param(h, marks=() if h != "gone" else pytest.mark.slow) for h in BROKEN])
def test_a_log_that_breaks_its_card_stops_no_night_of_a_counter_and_the_operator_hears_of_it(
    tmp_path, monkeypatch, how
):
    shop, said = Shop(tmp_path, monkeypatch, budget=STRICT), []
    shop.job(1, customers(0, 60))
    shop.lay([*customers(60, 60), *RECORDS["labels outside the domain"]])
    if how == "gone":
        (shop.folder / "log.csv").unlink()
    if how == "unreadable":
        (shop.folder / "log.csv").write_bytes(b"customer,visit\n1,0\n")
    found = shop.job(2, say=said.append)
    assert (found["exit"], found["counter"]["night"]) == (3, 2)
    told = "the log of night breaks its card (LogError, exit 3); tonight has what can be read of it"
    assert said[-1] == f"alert: {told}"
    assert check_night(shop.recipe, shop.home)["problem"] == "the last night of night failed (LogError, exit 3)"
    done = invoke("--home", shop.home.root, "nightly", shop.recipe, "--json")
    assert done.exit_code == 3 and json.loads(done.stdout[done.stdout.index("{") :])["exit"] == 3
    assert shop.job(3, [*customers(60, 60), *RECORDS["one step"]])["exit"] == 0
    assert seen(shop) == BROKEN[how]
    assert check_night(shop.recipe, shop.home)["problem"] is None


def damage_what_is_set_aside(monkeypatch):
    """The next ingest's quarantine is cut short before anybody reads it."""
    made = nightly.ingest_edition

    def damaged(*args, **more):
        found = made(*args, **more)
        for file in found.folder.glob("quarantine-*.parquet"):
            file.write_bytes(file.read_bytes()[:-20])
        return found

    monkeypatch.setattr(nightly, "ingest_edition", damaged)


def test_a_damaged_quarantine_fails_no_night_that_is_published_and_its_operator_hears_of_it(tmp_path, monkeypatch):
    shop, said = Shop(tmp_path, monkeypatch, budget=STRICT), []
    shop.job(1, customers(0, 60))
    with monkeypatch.context() as patch:
        damage_what_is_set_aside(patch)
        log = [*customers(60, 60), *RECORDS["labels outside the domain"]]
        found = shop.job(2, log, say=said.append)
    assert (found["exit"], found["counter"]["night"]) == (4, 2)
    assert said[-1] == (
        "alert: the log of night cannot be judged (DamagedError, exit 4); tonight has what can be read of it"
    )
    assert check_night(shop.recipe, shop.home)["problem"] == "the last night of night failed (DamagedError, exit 4)"
    last = check_night(shop.recipe, shop.home)["last"]
    assert "damaged" in last["text"] and last["run"] == found["run"]
    assert shop.job(3, customers(120, 60))["exit"] == 0 and check_night(shop.recipe, shop.home)["problem"] is None


def test_a_server_shows_a_completed_run_whatever_became_of_the_log(tmp_path, monkeypatch):
    from flows.server import deployments

    shop, shown = Shop(tmp_path, monkeypatch, budget=STRICT), []
    monkeypatch.setattr(deployments, "task_step", plain_step)
    monkeypatch.setattr(deployments, "publish", shown.append)
    monkeypatch.setenv("RETICENT_HOME", str(shop.home.root))
    (shop.home.root / "allowed.toml").write_text(f'recipes = ["{shop.folder}"]\n')
    for night, log in ((1, customers(0, 60)), (2, RECORDS["labels outside the domain"])):
        shop.on(night)
        shop.lay(log)
        deployments.nightly.fn(shop.recipe)
    assert [page.key for page in shown] == ["night-night", "night-night"]
    assert "night 2 of 8" in shown[1].markdown and "breaks" not in shown[1].markdown


def another(shop, tmp_path):
    """The same people's log as a lineage of another name in the same ledger."""
    other = tmp_path / "other"
    shutil.copytree(shop.folder, other)
    card = other / "card.toml"
    text = card.read_text().replace('name = "shop"', 'name = "other"')
    card.write_text(text.replace('"ledger.db"', '"../shop/ledger.db"'))
    register_job(str(other), shop.home)
    return other


def test_a_night_on_which_nothing_came_in_keeps_a_dataset_that_was_declared_apart(tmp_path, monkeypatch):
    """Nobody's rows were read then, so the ledger knows of all whose were."""
    shop = Shop(tmp_path, monkeypatch)
    another(shop, tmp_path)
    disjoint(shop.ledger, "other", "shop")
    shop.append(1, [])
    shop.append(2)
    shop.append(3, customers(100, 40))
    # whoever leaves the counter and joins the other is charged as if replaced in it: never too little
    paid = [e.body for e in shop.ledger.entries("shop") if e.kind == "INTENT"]
    assert not any("rho_add_remove" in body for body in paid)
    shop.ledger.intent("other", "a" * 64, Fraction(1), {"rho_add_remove": "1/2", "claimed": True})
    assert shop.ledger.account("other").lost == sum(Fraction(body["rho"]) for body in paid) + Fraction(1, 2)


def test_no_night_reads_what_came_in_before_its_dataset_was_declared_disjoint(tmp_path, monkeypatch):
    """Two deliveries wait: of the first nobody asked who is in the other dataset too."""
    shop = Shop(tmp_path, monkeypatch)
    ingest_job(str(another(shop, tmp_path)), shop.home)
    shop.deliver(customers(0, 40))
    disjoint(shop.ledger, "shop", "other")
    shop.on(2)
    shop.deliver(customers(1000, 40))
    with pytest.raises(CardError, match=r"before it was declared disjoint from other.*ingest again"):
        shop.append(2)
    assert shop.ledger.account("shop").spent == 0
