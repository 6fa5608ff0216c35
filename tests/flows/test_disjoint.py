"""Whom a ledger knows: lineages charged together or declared disjoint, and the key by which it knows people."""

import json
import shutil
from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest

from flows.config.recipe import setting
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.people import mark_of
from reticent import BudgetError, CardError
from tests.flows.nights import Shop, customers
from tests.flows.shop import HELD, add, lay_out, rows, write_recipe
from tests.goldens.adapter import reticent as golden
from tests.goldens.places import SECOND, copied
from tests.jobs import home_at, ingest_job, ledger_in, plan_job, register_job, run_job
from tests.learners.linear_shop import RECIPE as LINEAR
from tests.learners.linear_shop import lay_out_linear
from tests.ledger.disjoint import disjoint

pytestmark = pytest.mark.usefixtures("unread")


@pytest.fixture
def ward(tmp_path):
    """Makes a lineage of a name in one ledger, of some customers."""
    home = home_at(tmp_path / "home")

    def make(name, first, count, *, cap=1.0, apart=()):
        log = [(f"c{first + int(u[1:])}", *rest) for u, *rest in rows(count)]
        folder = lay_out(tmp_path / name, name=name, kind="real", ledger="../ledger.db", cap=cap, log=log)
        register_job(str(folder), home)
        if apart:
            disjoint(ledger_in(tmp_path), name, *apart)
        return folder, home

    return make


def edition(home, name):
    """Folder and manifest of the newest one."""
    folder = max((home.store / name).glob("snapshot-*"))
    return folder, json.loads((folder / "manifest.json").read_text())


def people(folder, home):
    where, told = edition(home, folder.name)
    parts = pl.concat([pl.read_parquet(p) for p in where.glob("part-*.parquet")])
    return set(parts["user_id"]), told["quarantined"].get("elsewhere", 0)


def run(folder, home):
    return run_job(str(folder / "private.toml"), home)


def test_a_copied_card_under_another_name_spends_the_same_budget(ward):
    folder, home = ward("a", 0, 300)
    ingest_job(str(folder), home)
    run(folder, home)
    renamed, _ = ward("b", 0, 300, cap=10.0)
    ingest_job(str(renamed), home)
    with pytest.raises(BudgetError, match=r"of a, whose people may be the same"):
        run(renamed, home)


def test_disjoint_lineages_count_nobody_twice(ward, tmp_path):
    a, home = ward("a", 0, 300)
    b, _ = ward("b", 250, 300, apart=["a"])
    for folder in (a, b):
        ingest_job(str(folder), home)
    (in_a, none), (in_b, aside) = people(a, home), people(b, home)
    assert none == 0 and aside > 0 and not in_a & in_b
    assert {int(u[1:]) for u in in_a} == set(range(300)) and {int(u[1:]) for u in in_b} == set(range(300, 550))
    for folder in (a, b):
        run(folder, home)
    book = ledger_in(tmp_path)
    entries = [e for e in book.entries() if e.kind == "INTENT"]
    assert all(e.body["claimed"] for e in entries)
    # one who leaves the one and joins the other loses no more than either's own people
    joined = sum(Fraction(e.body["rho_add_remove"]) for e in entries)
    assert joined <= 1 and book.account("a").lost == max(book.account("a").spent, joined)


def test_whoever_is_declared_disjoint_from_one_more_ingests_again(ward, tmp_path):
    """The people of the other were not looked up at its ingest, although its ledger has no entry since."""
    a, home = ward("a", 0, 300)
    ingest_job(str(a), home)
    c, _ = ward("c", 500, 300, apart=["a"])
    b, _ = ward("b", 300, 300, apart=["a"])
    for folder in (b, c):
        ingest_job(str(folder), home)
    disjoint(ledger_in(tmp_path), "b", "c")
    # and so does one that was declared by the others, if nobody was looked up at its ingest
    for folder, others in ((b, "a, c"), (a, "b, c")):
        with pytest.raises(CardError, match=rf"before it was declared disjoint from {others}.*ingest again"):
            run(folder, home)
    ingest_job(str(b), home)
    assert not people(b, home)[0] & people(c, home)[0] and run(b, home)


def test_where_nobody_was_declared_disjoint_the_ledger_knows_nobody(ward, tmp_path):
    """So whatever an older version of the program declares, it finds entries of people whom it does not know."""
    a, home = ward("a", 0, 300)
    ingest_job(str(a), home)
    run(a, home)
    book = ledger_in(tmp_path)
    assert not book.knows_people() and not edition(home, "a")[1].get("claimed")
    assert not any("claimed" in e.body for e in book.entries())


def test_what_was_charged_for_people_whom_nobody_looked_up_is_charged_together_and_the_plan_says_so(ward, tmp_path):
    """The attack: a version that knows of no claims releases beside a lineage that was declared disjoint."""
    a, home = ward("a", 0, 300)
    ingest_job(str(a), home)
    run(a, home)
    b, _ = ward("b", 0, 300, apart=["a"])
    ingest_job(str(b), home)
    assert people(b, home) == (people(a, home)[0], 0), "all are in both"
    with pytest.raises(BudgetError, match="left 0 of 1"):
        run(b, home)
    told = plan_job(str(b / "private.toml"), home)
    assert told["together"] == ["a"] and not told["allowed"] and told["spent_before"] == 1


@pytest.mark.parametrize("name", ["linear", "halves", "once", "one_step"])
def test_every_agent_says_what_it_costs_who_joins(tmp_path, name):
    """Where lineages are disjoint, one who leaves the one and joins the other pays this, and not twice the whole."""
    shop = lay_out_linear(tmp_path / "shop", kind="real")
    text = LINEAR.format(name="one_step", agent="dp-one-step", rest="[privacy]\nrho = 1.0\n")
    (shop / "one_step.toml").write_text(text)
    rho, told = setting(str(shop / f"{name}.toml"), home_at(tmp_path / "home")).plan.charge()
    assert rho / 4 <= Fraction(told["rho_add_remove"]) < rho * Fraction(3, 4)


def lay_out_clinic(root: Path, kind: str) -> None:
    """A log whose people evaluate, ingested."""
    folder = lay_out(root / "shop", kind=kind, cap=9.0, people=2000, log=rows(600))
    write_recipe(folder, "judged", privacy=f"[privacy]\nrho = 1.0\n{HELD}")
    home = home_at(root / "home")
    register_job(str(folder), home)
    ingest_job(str(folder), home)


def write_key(key: Path, text: bytes) -> None:
    key.write_bytes(text)
    key.chmod(0o600)


class Clinic:
    """What lies there, and a second delivery of it."""

    def __init__(self, root: Path) -> None:
        self.folder, self.home = root / "shop", home_at(root / "home")
        self.recipe = self.folder / "judged.toml"
        [self.where] = root.glob("*/ledger.db")
        self.key = self.where.with_name("ledger.db.people-key")

    def run(self):
        return golden("run", self.recipe, home=self.home.root)

    def deliver(self) -> None:
        """The same log and one more row: another edition."""
        add(self.folder / "log.csv", "c9999,0,0,cold,none,0,true\n")
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
    real = clinic.where.parent == clinic.folder
    if real:
        # so that ingest is not what refuses
        clinic.deliver()
    clinic.key.unlink()
    if what != "lost":
        write_key(clinic.key, b"ab" * 32)
    if not real:
        clinic.deliver()
    before = clinic.entries()
    done = clinic.run()
    words = "is lost" if what == "lost" else "is another key than the ledger's"
    assert done.code == 4 and words in done.err and "Copy it back" in done.err
    assert clinic.entries() == before and clinic.key.exists() == (what != "lost")
    # what to do, as it says
    write_key(clinic.key, there)
    assert clinic.run().code == 0


def test_the_intent_keeps_the_mark_and_nothing_else_of_the_key(clinic):
    run_job(str(clinic.folder / "private.toml"), clinic.home)
    key = bytes.fromhex(clinic.key.read_text())
    told = [e.body.get("people_key") for e in clinic.entries() if e.kind == "INTENT"]
    assert told.count(mark_of(key)) == 1 and key.hex().encode() not in clinic.where.read_bytes()
    # who splits nobody names no key
    assert told[-1] is None


def test_whoever_splits_nobody_needs_no_key(clinic):
    clinic.key.unlink()
    assert golden("run", clinic.folder / "private.toml", home=clinic.home.root).code == 0
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
    write_key(key, there)
    assert shop.night(2)["counter"]["night"] == 2


def test_an_ingest_into_a_ledger_that_knows_people_makes_no_other_key(tmp_path, monkeypatch):
    """As those of earlier versions do."""
    monkeypatch.setattr(Ledger, "knows_people", lambda _: True)
    lay_out_clinic(tmp_path, "real")
    clinic = Clinic(tmp_path)
    monkeypatch.undo()
    clinic.key.unlink()
    with pytest.raises(BudgetError, match="is lost"):
        clinic.deliver()
    assert not clinic.key.exists()


@pytest.mark.parametrize("verb", [["run", "clinic/judged.toml"], ["ingest", "ward_b"]])
def test_a_home_of_an_older_version_kept_no_mark_and_refuses_all_the_same(tmp_path, verb):
    """Its INTENTs say that people were split, or its ledger whom it knows: so a key was there."""
    home = copied(tmp_path / "home", SECOND)
    for key in home.rglob("*.people-key"):
        key.unlink()
    word, path = verb
    folder = home / "shelf" / path.split("/")[0]
    add(folder / "log.csv", "u5000,0,0,low,wait,0.0,true\n")
    assert word == "ingest" or golden("ingest", folder, home=home, shelf=home / "shelf").code == 0
    done = golden(word, home / "shelf" / path, home=home, shelf=home / "shelf")
    assert done.code == 4 and "is lost" in done.err and not list(home.rglob("*.people-key"))
