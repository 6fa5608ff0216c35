"""The key by which a ledger knows and splits people: lost or replaced, it is refused, and never made anew."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipeline.ledger.ledger import Ledger
from reticent import BudgetError
from tests.flows.nights import Shop, customers
from tests.flows.shop import RECIPE, lay_out, rows
from tests.goldens.adapter import reticent
from tests.goldens.places import SECOND, copied
from tests.jobs import home_at, ingest_job, ledger_in, register_job, run_job

pytestmark = pytest.mark.usefixtures("unread")

JUDGED = "[privacy]\nrho = 1.0\n[evaluate]\npeople = 0.3\n"


def lay_out_clinic(root: Path, kind: str) -> None:
    """A log whose people evaluate, ingested."""
    ledger = "ledger.db" if kind == "real" else "home"
    folder, home = lay_out(root / "shop", kind=kind, ledger=ledger, cap=9.0, log=rows(600)), home_at(root / "home")
    card = folder / "card.toml"
    card.write_text(card.read_text().replace("users_public = 400", "users_public = 2000"))
    (folder / "judged.toml").write_text(RECIPE.format(name="judged", agent="dp-apvi", privacy=JUDGED))
    register_job(str(folder), home)
    ingest_job(str(folder), home)


class Clinic:
    """What lies there, and a second delivery of it."""

    def __init__(self, root: Path) -> None:
        self.folder, self.home = root / "shop", home_at(root / "home")
        self.recipe = self.folder / "judged.toml"
        [self.where] = root.glob("*/ledger.db")
        self.key = self.where.with_name("ledger.db.people-key")

    def run(self):
        return reticent("run", self.recipe, home=self.home.root)

    def deliver(self) -> None:
        """The same log and one more row: another edition."""
        log = self.folder / "log.csv"
        log.write_text(log.read_text() + "c9999,0,0,cold,none,0,true\n")
        ingest_job(str(self.folder), self.home)

    def entries(self):
        return ledger_in(self.where.parent).entries()


@pytest.fixture(scope="module", params=["synthetic", "real"])
def ran(request, tmp_path_factory) -> Path:
    """A clinic whose recipe was run."""
    lay_out_clinic(root := tmp_path_factory.mktemp(request.param), request.param)
    assert Clinic(root).run().code == 0
    return root


@pytest.fixture
def clinic(ran, tmp_path) -> Clinic:
    return Clinic(shutil.copytree(ran, tmp_path, dirs_exist_ok=True, symlinks=True))


@pytest.mark.parametrize("what", ["lost", "another"])
def test_a_key_that_is_not_the_ledgers_is_refused_before_anything_is_charged(clinic, what):
    there = clinic.key.read_bytes()
    if clinic.folder.joinpath("ledger.db").exists():
        # so that ingest is not what refuses
        clinic.deliver()
        _lose(clinic.key, what)
    else:
        _lose(clinic.key, what)
        clinic.deliver()
    before = clinic.entries()
    done = clinic.run()
    words = "is lost" if what == "lost" else "is another key than the ledger's"
    assert done.code == 4 and words in done.err and "Copy it back" in done.err
    assert clinic.entries() == before and clinic.key.exists() == (what != "lost")
    # what to do, as it says
    clinic.key.write_bytes(there)
    clinic.key.chmod(0o600)
    assert clinic.run().code == 0


def _lose(key: Path, what: str) -> None:
    key.unlink()
    if what != "lost":
        key.write_text("ab" * 32)
        key.chmod(0o600)


def test_the_intent_keeps_the_mark_and_nothing_else_of_the_key(clinic):
    from pipeline.ledger.people import mark_of

    run_job(str(clinic.folder / "private.toml"), clinic.home)
    key = bytes.fromhex(clinic.key.read_text())
    told = [e.body.get("people_key") for e in clinic.entries() if e.kind == "INTENT"]
    assert told.count(mark_of(key)) == 1 and key.hex().encode() not in clinic.where.read_bytes()
    # who splits nobody names no key
    assert told[-1] is None


def test_whoever_splits_nobody_needs_no_key(clinic):
    clinic.key.unlink()
    assert reticent("run", clinic.folder / "private.toml", home=clinic.home.root).code == 0
    # and what was committed is replayed
    assert clinic.run().code == 0 and not clinic.key.exists()


def test_a_key_that_every_account_may_read_is_refused_with_what_to_do(clinic):
    clinic.deliver()
    clinic.key.chmod(0o644)
    before = clinic.entries()
    told = clinic.run()
    assert told.code == 4 and "mode 644" in told.err and "chmod 600" in told.err and clinic.entries() == before
    # a group of operators is theirs to make
    clinic.key.chmod(0o640)
    assert clinic.run().code == 0


def test_a_counter_does_not_go_on_under_another_key(tmp_path, monkeypatch):
    shop = Shop(tmp_path, monkeypatch, reserve=0.3)
    shop.night(1, customers(0, 300))
    key = shop.folder / "ledger.db.people-key"
    there = key.read_bytes()
    key.unlink()
    before = shop.ledger.entries()
    with pytest.raises(BudgetError, match="is lost"):
        shop.night(2, customers(300, 300))
    assert shop.ledger.entries() == before and not key.exists()
    key.write_bytes(there)
    key.chmod(0o600)
    assert shop.night(2)["counter"]["night"] == 2


def test_an_ingest_into_a_ledger_that_knows_people_makes_no_other_key(tmp_path, monkeypatch):
    """As those of earlier versions do."""
    monkeypatch.setattr(Ledger, "knows_people", lambda _: True)
    lay_out_clinic(tmp_path, "real")
    clinic = Clinic(tmp_path)
    monkeypatch.undo()
    clinic.key.unlink()
    log = clinic.folder / "log.csv"
    log.write_text(log.read_text() + "c9999,0,0,cold,none,0,true\n")
    with pytest.raises(BudgetError, match="is lost"):
        ingest_job(str(clinic.folder), clinic.home)
    assert not clinic.key.exists()


@pytest.mark.parametrize("verb", [["run", "clinic/judged.toml"], ["ingest", "ward_b"]])
def test_a_home_of_an_older_version_kept_no_mark_and_refuses_all_the_same(tmp_path, verb):
    """Its INTENTs say that people were split, or its ledger whom it knows: so a key was there."""
    home = copied(tmp_path / "home", SECOND)
    for key in home.rglob("*.people-key"):
        key.unlink()
    word, path = verb
    folder = home / "shelf" / path.split("/")[0]
    (folder / "log.csv").write_text((folder / "log.csv").read_text() + "u5000,0,0,low,wait,0.0,true\n")
    assert word == "ingest" or reticent("ingest", folder, home=home, shelf=home / "shelf").code == 0
    done = reticent(word, home / "shelf" / path, home=home, shelf=home / "shelf")
    assert done.code == 4 and "is lost" in done.err and not list(home.rglob("*.people-key"))
