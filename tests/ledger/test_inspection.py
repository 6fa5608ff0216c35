"""A look at the data is an entry without a cost, and a card changed after it is said so."""

from __future__ import annotations

import pytest

from pipeline.ledger.account import card_hash
from pipeline.ledger.certificate import Route, assumptions
from pipeline.ledger.chain import entries_of

CHANGED = "the card was changed after somebody had looked at the data"


@pytest.fixture
def book(alone, make_card):
    alone.register(make_card())
    return alone


def looks(book, lineage):
    return entries_of(book.entries(), lineage, "INSPECT")


def domain(**changes):
    return {
        "horizon": 2,
        "states": {"column": "state", "labels": ["x", "y"], "ends": ["end"]},
        "actions": {"column": "action", "labels": ["a", "b"]},
        **changes,
    }


def test_a_look_costs_nothing_and_holds_nothing_counted(book, make_card):
    entry = book.record_inspection(make_card(), 3)
    assert (entry.kind, entry.seq) == ("INSPECT", 2)
    assert set(entry.body) == {"snapshot", "domain_hash", "card_hash", "rho"}
    assert (entry.body["snapshot"], entry.body["rho"]) == (3, "0")
    assert book.account("tiny").spent == 0 and book.problem() is None
    assert looks(book, "tiny") == [entry] and looks(book, "other") == []


def test_nobody_looked_and_nothing_is_said(book, make_card):
    assert assumptions(make_card(), looks(book, "tiny"), Route("hand")) == assumptions(make_card(), [], Route("hand"))
    assert not [s for s in assumptions(make_card(), [], Route("hand")) if "looked" in s]


@pytest.mark.parametrize(
    "change",
    [
        {"domain": domain(vetoes=[["x", "a"]])},
        {"domain": domain(markov="aggregated")},
        {"domain": domain(horizon=3)},
        {"tolerance": {"gap": 0.5}},
        {"budget": {"rho": 9.0}},
    ],
)
def test_any_change_of_what_the_card_declares_is_told(book, make_card, change):
    book.record_inspection(make_card(), 1)
    same, other = (assumptions(card, looks(book, "tiny"), Route("hand")) for card in (make_card(), make_card(**change)))
    assert any("looked at the data with `reticent inspect` (entry 2)" in s for s in same)
    assert not any(CHANGED in s for s in same)
    assert any(f"{CHANGED} (entry 2)" in s for s in other)


def test_a_second_look_at_the_changed_card_does_not_wash_the_change_away(book, make_card):
    changed = make_card(domain=domain(vetoes=[["x", "a"]]))
    book.record_inspection(make_card(), 1)
    book.record_inspection(changed, 1)
    told = assumptions(changed, looks(book, "tiny"), Route("hand"))
    assert any("(entries 2, 3)" in s for s in told) and any(f"{CHANGED} (entry 2)" in s for s in told)


def test_where_files_and_ledger_lie_is_no_declaration_and_a_spelt_out_default_no_change(make_card, tmp_path):
    columns = {"user_id": "user_id", "episode_id": "episode_id", "step": "step", "reward": "reward"}
    moved = make_card(
        source={"files": ["elsewhere/*.csv"], "columns": columns}, budget={"rho": 10.0, "ledger": "books.db"}
    )
    assert card_hash(moved.placed(tmp_path / "other")) == card_hash(make_card())
    assert card_hash(make_card(domain=domain(markov="declared", vetoes=[]))) == card_hash(make_card())
