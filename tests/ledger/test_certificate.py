"""What a certificate and its entries say: numbers never below what was spent, looks, makers, practice, the route."""

import hashlib
import json
import math
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.ledger import publication
from pipeline.ledger.account import card_hash, look_fields
from pipeline.ledger.certificate import Route, assumptions
from pipeline.ledger.chain import GENESIS, Entry, entries_of
from pipeline.ledger.looks import recorded_in_time
from pipeline.ledger.publication import NO_FILE, file_digests, maker
from pipeline.ledger.steps import counter_key, same_number
from pipeline.ledger.verify import _charged
from pipeline.privacy.losses import safe_epsilon, spent_budget
from pipeline.privacy.release import HELD_OUT, Mechanism
from pipeline.privacy.release_file import describe_mechanism
from reticent import Store
from tests.conftest import card_dict
from tests.flows.nights import Shop, customers
from tests.flows.shop import lay_out, rows
from tests.jobs import home_at, ingest_job, nightly_job, run_job

TABLE = Mechanism("n_sas", (2, 3), "transition", 4, 4, "2H", variance=40)


@pytest.mark.parametrize("more", [Fraction(1, 10**30), Fraction(0), -Fraction(1, 10**30)])
def test_what_is_said_is_never_less_than_what_was_spent(more):
    """The float nearest to a sum of fractions may be below it."""
    spent = Fraction(0.1) + more
    said = spent_budget((), 1e-6, spent)
    assert said["rho"] is not None and said["epsilon"] is not None
    assert spent <= Fraction(said["rho"]) <= Fraction(math.nextafter(0.1, 1))
    assert said["epsilon"] == safe_epsilon(said["rho"], 1e-6)


def test_what_a_sampler_adds_to_delta_is_taken_from_the_conversion():
    """Less delta is left for rho, so epsilon is larger."""
    half = replace(TABLE, delta_slack=Fraction(1, 2_000_000))
    exact, slack = (spent_budget((m,), 1e-6) for m in (TABLE, half))
    assert slack["rho"] == exact["rho"] == 0.05 and slack["delta"] == 1e-6
    assert slack["epsilon"] == safe_epsilon(0.05, 5e-7) > exact["epsilon"]


def test_a_counter_whose_tables_list_a_slack_is_another_counter():
    """Also where one of its tables, drawn otherwise, lists none."""
    plain, slack = (describe_mechanism(replace(TABLE, delta_slack=s)) for s in (Fraction(0), Fraction(1, 2**130)))
    dates = {"kind": "tree", "nights": 8, "first": "2026-01-01"}
    keys = {counter_key("shop", "d", {"counter": dates, "mechanisms": m}) for m in ([plain, plain], [plain, slack])}
    assert len(keys) == 2


def test_two_machines_may_differ_in_the_last_digits_and_no_further():
    assert same_number(2.0, 2.0 + 1e-9) and same_number(1e-12, 0.0)
    assert not same_number(2.0, 2.0 + 1e-8) and not same_number(2, 2.0000000001)


@pytest.mark.parametrize(("charged", "says"), [("1/20", None), ("1/100", "charged 0.01"), ("1/10", "charged 0.1")])
def test_a_charge_that_is_not_the_cost_does_not_verify(book, make_card, charged, says):
    """Less would be a promise that nobody paid for; more, another release."""
    book.register(make_card(budget={"rho": 2.0}))
    listed = [describe_mechanism(TABLE)]
    intent = book.intent("tiny", "k", Fraction(charged), {"mechanisms": listed})
    commit = book.commit(intent, {"release_sha256": "0" * 64, "noise": "os"})
    proof = {"sha256": {"release": "0" * 64}, "mechanisms": listed}
    found = _charged(proof, commit, intent, book.entries())
    assert found is None if says is None else says in str(found)


def test_every_file_has_its_digest_in_the_order_of_names(tmp_path):
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("a.txt")
    found = file_digests(tmp_path)
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("a.txt", "b.txt")}
    assert found == digests | {"link": NO_FILE} and list(found) == sorted(found)


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "tanh"])
def test_a_machine_that_rounds_otherwise_is_another_maker(monkeypatch, name):
    """One digit in one entry of one function is enough; the names of the digests are 16 digits long."""
    here = publication._arithmetic()
    assert here == publication._arithmetic() and maker()["arithmetic"] == here[:16] and len(maker()["source"]) == 16

    def otherwise(x):
        found = getattr(np, name)(x)
        found[3, 5] = np.nextafter(found[3, 5], np.inf)
        return found

    elsewhere = SimpleNamespace(**vars(np) | {name: otherwise})
    monkeypatch.setattr(publication, "np", elsewhere)
    assert publication._arithmetic() != here


PLAIN, WORD = {}, {"practice": "recorded"}
LOOK, RELEASE = {"joint": {"variant": HELD_OUT}}, {"joint": None}


def entries(*told):
    return [Entry(n, lineage, kind, "", body, GENESIS, GENESIS) for n, (lineage, kind, body) in enumerate(told, 1)]


SAID, SILENT = ("mine", "REGISTER", WORD), ("mine", "REGISTER", PLAIN)
LATER, TAKEN_BACK = ("mine", "AMEND", WORD), ("mine", "AMEND", PLAIN)


def answered(asked: int, body: dict, lineage: str = "mine", kind: str = "COMMIT") -> list[tuple[str, str, dict]]:
    """An intent, which is entry ``asked``, and what came of it."""
    return [(lineage, "INTENT", body), (lineage, kind, {"intent": asked})]


CASES = {
    "nothing answered yet": ([SAID], True),
    "not said": ([SILENT], False),
    "another lineage says it": ([SILENT, ("other", "REGISTER", WORD)], False),
    "said before the answer": ([SAID, *answered(2, LOOK)], True),
    "said after it": ([SILENT, *answered(2, LOOK), LATER], False),
    "after an answer of another lineage": ([("other", "REGISTER", PLAIN), *answered(2, LOOK, "other"), SAID], False),
    "after a release that nobody judged": ([SILENT, *answered(2, RELEASE), LATER], True),
    # its answer may lie in the store, to be recovered
    "after an attempt that may have drawn": ([SILENT, *answered(2, LOOK, kind="DRAW"), LATER], False),
    "taken back before the answer": ([SAID, TAKEN_BACK, *answered(3, LOOK)], False),
}


@pytest.mark.parametrize("case", CASES)
def test_a_word_on_practice_counts_from_before_the_first_answer(case):
    told, counts = CASES[case]
    assert recorded_in_time(entries(*told), "mine") == counts


def domain(**changes):
    return card_dict()["domain"] | changes


def test_a_second_look_at_the_changed_card_does_not_wash_the_change_away(book, make_card):
    book.register(make_card())
    changed = make_card(domain=domain(vetoes=[["x", "a"]]))
    for card in (make_card(), changed):
        book.note(card.name, "INSPECT", look_fields(card, 1))
    told = assumptions(changed, entries_of(book.entries(), "tiny", "INSPECT"), Route("hand"))
    assert any("(entries 2, 3)" in s for s in told)
    assert any("the card was changed after somebody had looked at the data (entry 2)" in s for s in told)


@pytest.mark.parametrize(
    "change",
    [
        {"domain": domain(markov="aggregated")},
        {"domain": domain(horizon=3)},
        {"tolerance": {"gap": 0.5}},
        {"budget": {"rho": 9.0}},
    ],
)
def test_whatever_a_card_declares_is_in_its_hash(make_card, change):
    assert card_hash(make_card(**change)) != card_hash(make_card())


def test_where_files_and_ledger_lie_is_no_declaration_and_a_spelt_out_default_no_change(make_card, tmp_path):
    columns = {"user_id": "user_id", "episode_id": "episode_id", "step": "step", "reward": "reward"}
    moved = make_card(
        source={"files": ["elsewhere/*.csv"], "columns": columns}, budget={"rho": 10.0, "ledger": "books.db"}
    )
    assert card_hash(moved.placed(tmp_path / "other")) == card_hash(make_card())
    assert card_hash(make_card(domain=domain(markov="declared", vetoes=[]))) == card_hash(make_card())


SAYS = {
    "hand": ["somebody asked for this run", "what the terminal told them of the rows is not accounted for"],
    "calendar": ["a release was due on 20", "everybody in the log is charged again"],
    "counter": ["every date on which the job ran has its night", "a person counts on the first night"],
    "exact": ["every output depends on the rows", "nothing was charged", "no sensitivity is claimed"],
}


def certificate(home, run):
    made = Store(home.root).open(run["run"])
    assert made.verify().problem is None
    told = json.loads((made.folder / "certificate.json").read_text(encoding="utf-8"))
    assert made.certificate.model_dump() == told
    return told


def test_each_route_says_what_holds_there_and_nothing_of_the_others(tmp_path, monkeypatch):
    shop, home = lay_out(tmp_path / "plain", log=rows(40), cap=9.0), home_at(tmp_path / "plain" / "home")
    night = nightly_job(str(shop / "private.toml"), home)
    found = {"calendar": certificate(home, night)}
    assert f"a release was due on {night['night']['due']}" in json.dumps(found["calendar"])
    ingest_job(str(shop), home)
    for by, name in (("hand", "both"), ("exact", "exact")):
        found[by] = certificate(home, run_job(str(shop / f"{name}.toml"), home))
    nights = Shop(tmp_path / "nights", monkeypatch, nights=4)
    found["counter"] = certificate(nights.home, nights.night(1, customers(0, 40)))
    for by, proof in found.items():
        text = json.dumps(proof)
        for other, sentences in SAYS.items():
            assert all((s in text) is (other == by) for s in sentences), (by, other)
        assert ("which outputs exist does not depend on the rows" in text) is (by != "exact")
