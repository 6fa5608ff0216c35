"""The budget ledger: what is asked is spent before anything is read, the cap holds, an edit is noticed."""

from __future__ import annotations

import sqlite3
import stat
from fractions import Fraction
from multiprocessing import get_context

import pytest

from pipeline.card import CardError
from pipeline.ledger.chain import BudgetError
from pipeline.ledger.ledger import open_ledger


@pytest.fixture
def ledger(tmp_path, make_card):
    book = open_ledger(tmp_path / "ledger.db", create=True)
    book.register(make_card(budget={"rho": 2.0}))
    return book


def test_a_ledger_is_created_for_its_owner_only(tmp_path):
    open_ledger(tmp_path / "deep" / "ledger.db", create=True)
    assert stat.S_IMODE((tmp_path / "deep" / "ledger.db").stat().st_mode) == 0o600


def test_a_missing_ledger_refuses_and_never_starts_at_zero(tmp_path):
    with pytest.raises(BudgetError, match="does not exist"):
        open_ledger(tmp_path / "none.db", create=False)
    assert not (tmp_path / "none.db").exists()


def test_an_intent_spends_whatever_follows(ledger):
    ledger.intent("tiny", "k1", Fraction(1, 3), {})
    ledger.intent("tiny", "k1", Fraction(1, 3), {})
    assert ledger.account("tiny").spent == Fraction(2, 3)
    assert [e.body["attempt"] for e in ledger.entries("tiny") if e.kind == "INTENT"] == [1, 2]


def test_the_cap_is_exact_and_a_refusal_leaves_no_trace(ledger):
    ledger.intent("tiny", "k1", Fraction(3, 2), {})
    with pytest.raises(BudgetError, match=r"left 0\.5"):
        ledger.intent("tiny", "k2", Fraction(1, 2) + Fraction(1, 10**12), {})
    ledger.intent("tiny", "k3", Fraction(1, 2), {})
    assert ledger.account("tiny").remaining == 0


def test_a_committed_key_is_never_drawn_again_and_commits_once(ledger):
    intent = ledger.intent("tiny", "k", Fraction(1, 2), {})
    second = ledger.intent("tiny", "k", Fraction(1, 2), {})
    ledger.commit(intent, {"release_sha256": "0" * 64})
    with pytest.raises(BudgetError, match="another attempt"):
        ledger.commit(second, {})
    with pytest.raises(BudgetError, match="replayed"):
        ledger.intent("tiny", "k", Fraction(1, 2), {})
    assert ledger.account("tiny").spent == 1


def test_registration_is_immutable_without_amend_and_the_kind_always(ledger, make_card):
    assert ledger.register(make_card(budget={"rho": 2.0})) is None
    with pytest.raises(CardError, match="rho: registered 2, card says 3"):
        ledger.register(make_card(budget={"rho": 3.0}))
    assert ledger.register(make_card(budget={"rho": 3.0}), amend=True).kind == "AMEND"
    assert ledger.account("tiny").cap == 3
    real = make_card(kind="real", budget={"rho": 3.0, "ledger": "l.db", "delta": 1e-6})
    with pytest.raises(CardError, match="never changes"):
        ledger.register(real, amend=True)


def test_vetoes_and_markov_are_not_registered_but_the_domain_is(ledger, make_card):
    domain = make_card().domain.model_dump()
    same = make_card(budget={"rho": 2.0}, domain=domain | {"vetoes": [["x", "a"]], "markov": "aggregated"})
    assert ledger.register(same) is None
    with pytest.raises(CardError, match="domain_hash"):
        ledger.register(make_card(budget={"rho": 2.0}, domain=domain | {"horizon": 3}))


@pytest.mark.parametrize(
    "edit",
    [
        "update entries set body = replace(body, '1/2', '1/4') where kind = 'INTENT'",
        "delete from entries where seq = 2",
        "update entries set lineage = 'other' where seq = 3",
        "update entries set seq = 9 where seq = 3",
    ],
)
def test_an_edited_ledger_is_refused(ledger, tmp_path, edit):
    ledger.intent("tiny", "a", Fraction(1, 2), {})
    ledger.intent("tiny", "b", Fraction(1, 2), {})
    with sqlite3.connect(tmp_path / "ledger.db") as raw:
        raw.execute(edit)
    raw.close()
    assert open_ledger(tmp_path / "ledger.db", create=False).problem()
    with pytest.raises(BudgetError, match="damaged"):
        ledger.account("tiny")


def test_a_file_that_is_no_ledger_is_refused(tmp_path):
    (tmp_path / "ledger.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(BudgetError, match="damaged"):
        open_ledger(tmp_path / "ledger.db", create=False).account("tiny")


def test_a_truncated_tail_shows_in_the_account_of_what_remains(ledger, tmp_path):
    """The chain alone cannot see a cut tail; the release in the store does (see test_curate)."""
    ledger.intent("tiny", "a", Fraction(1, 2), {})
    with sqlite3.connect(tmp_path / "ledger.db") as raw:
        raw.execute("delete from entries where seq = 2")
    raw.close()
    assert ledger.problem() is None


def _race(path: str, gate, wins) -> None:
    book = open_ledger(path.replace("file:", ""), create=False)
    gate.wait()
    try:
        book.intent("tiny", "race", Fraction(3, 2), {})
    except BudgetError:
        return
    with wins.get_lock():
        wins.value += 1


def test_of_processes_racing_for_the_last_budget_exactly_one_wins(ledger, tmp_path):
    context = get_context("spawn")
    gate, wins = context.Barrier(3), context.Value("i", 0)
    runners = [context.Process(target=_race, args=(str(tmp_path / "ledger.db"), gate, wins)) for _ in range(3)]
    for r in runners:
        r.start()
    for r in runners:
        r.join(60)
    assert wins.value == 1
    assert ledger.account("tiny").spent == Fraction(3, 2)
