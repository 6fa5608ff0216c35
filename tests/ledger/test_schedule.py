"""A card's schedule: what a month and a year allow, beside the lifetime cap; refused before anything is read."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import pytest
from pydantic import ValidationError

import pipeline.ledger.ledger as module
from pipeline.ledger.ledger import open_ledger
from reticent import BudgetError, CardError

SCHEDULE = {"rho": 2.0, "schedule": {"rho_month": 0.5, "rho_year": 0.8}}


@pytest.fixture
def at(monkeypatch):
    def move(text):
        monkeypatch.setattr(module, "now", lambda: datetime.fromisoformat(text).replace(tzinfo=UTC))

    move("2026-01-31T23:00:00")
    return move


@pytest.fixture
def book(tmp_path, make_card, at):
    found = open_ledger(tmp_path / "ledger.db", create=True)
    found.register(make_card(budget=SCHEDULE))
    return found


def charge(book, key, rho):
    return book.intent("tiny", key, Fraction(rho), {})


def test_a_month_and_a_year_are_the_calendars_and_the_tightest_limit_rules(book, at):
    charge(book, "a", "1/2")
    with pytest.raises(BudgetError, match=r"left 0 of 0\.5 this month \(budget.schedule\).*Nothing was read"):
        charge(book, "b", "1/1000000")
    charge(book, "free", "0")
    at("2026-02-01T00:00:00")
    assert book.left("tiny").facts() == {"of": "year", "cap_rho": 0.8, "left_rho": pytest.approx(0.3)}
    with pytest.raises(BudgetError, match=r"left 0\.3 of 0\.8 this year"):
        charge(book, "b", "4/10")
    charge(book, "b", "3/10")
    at("2027-01-01T00:00:00")
    charge(book, "c", "1/2")
    at("2028-01-01T00:00:00")
    charge(book, "d", "1/2")
    at("2029-01-01T00:00:00")
    # 1.8 of the lifetime is gone
    with pytest.raises(BudgetError, match=r"left 0\.2 of 2; ask"):
        charge(book, "e", "3/10")


def test_a_clock_that_was_set_back_frees_nothing(book, at):
    charge(book, "a", "1/2")
    at("2026-01-01T00:00:00")
    with pytest.raises(BudgetError, match="this month"):
        charge(book, "b", "1/10")


def test_a_charge_of_a_clock_that_was_set_back_counts_when_the_clock_is_right_again(book, at):
    charge(book, "a", "1/10")
    at("1970-01-01T00:00:00")
    charge(book, "b", "4/10")
    at("2026-01-31T23:30:00")
    with pytest.raises(BudgetError, match=r"left 0 of .* this month"):
        charge(book, "c", "1/10")
    at("2026-02-01T00:00:00")
    assert book.left("tiny").facts() == {"of": "year", "cap_rho": 0.8, "left_rho": pytest.approx(0.3)}


def test_a_date_of_a_clock_that_ran_ahead_comes_true_for_all_charges_since_and_for_one_period(book, at):
    at("2027-01-05T00:00:00")
    charge(book, "a", "1/10")
    at("2026-02-01T00:00:00")
    charge(book, "b", "1/10")
    at("2026-12-31T00:00:00")
    assert book.left("tiny").facts() == {"of": "month", "cap_rho": 0.5, "left_rho": 0.5}
    at("2027-01-06T00:00:00")
    # which clock was wrong no entry tells: rather too little than too much
    assert book.left("tiny").facts() == {"of": "month", "cap_rho": 0.5, "left_rho": pytest.approx(0.3)}
    at("2027-02-01T00:00:00")
    assert book.left("tiny").facts() == {"of": "month", "cap_rho": 0.5, "left_rho": 0.5}
    at("2028-01-01T00:00:00")
    assert book.left("tiny").facts() == {"of": "month", "cap_rho": 0.5, "left_rho": 0.5}


def test_one_jump_of_the_clock_to_2200_costs_one_month_and_not_all_of_them(book, at):
    charge(book, "a", "48/100")
    at("2200-01-01T00:00:00")
    charge(book, "b", "3/10")
    at("2026-01-31T23:30:00")
    # nothing is left this month, and never less than nothing: what costs nothing is not refused
    assert book.left("tiny").facts() == {"of": "month", "cap_rho": 0.5, "left_rho": 0.0}
    charge(book, "free", "0")
    at("2026-02-01T00:00:00")
    assert book.left("tiny").facts() == {"of": "year", "cap_rho": 0.8, "left_rho": pytest.approx(0.02)}
    at("2027-02-01T00:00:00")
    assert book.left("tiny").facts() == {"of": "month", "cap_rho": 0.5, "left_rho": 0.5}


def test_a_charge_of_a_clock_that_ran_ahead_counts_until_something_was_written_after_it(book, at):
    at("2200-01-01T00:00:00")
    charge(book, "b", "1/2")
    at("2026-01-31T23:30:00")
    assert book.left("tiny").rho == 0
    at("2026-02-01T00:00:00")
    assert book.left("tiny").rho == 0


def test_a_clock_that_ran_ahead_and_then_behind_frees_nothing(book, at):
    charge(book, "a", "1/10")
    at("2200-01-01T00:00:00")
    charge(book, "b", "4/10")
    at("1970-01-01T00:00:00")
    assert book.left("tiny").rho == 0
    at("2026-01-31T23:30:00")
    assert book.left("tiny").rho == 0


def test_a_lowered_limit_leaves_nothing_rather_than_less(book, make_card):
    charge(book, "a", "4/10")
    book.register(make_card(budget={"rho": 2.0, "schedule": {"rho_month": 0.1}}), amend=True)
    assert book.left("tiny").rho == 0
    charge(book, "free", "0")


def test_a_schedule_is_registered_and_changes_by_amendment_alone(book, make_card, at):
    wider = make_card(budget={"rho": 2.0, "schedule": {"rho_month": 1.0}})
    with pytest.raises(CardError, match="schedule: registered"):
        book.require(wider)
    book.register(wider, amend=True)
    charge(book, "a", "9/10")
    assert book.left("tiny").limit == "month"


def test_a_lineage_without_a_schedule_is_registered_in_the_old_words(tmp_path, make_card):
    book = open_ledger(tmp_path / "plain.db", create=True)
    assert "schedule" not in book.register(make_card()).body
    assert book.left("tiny").facts() == {"of": "lifetime", "cap_rho": 10.0, "left_rho": 10.0}


def test_an_empty_schedule_is_no_schedule(make_card):
    with pytest.raises(ValidationError, match="rho_month"):
        make_card(budget={"rho": 1.0, "schedule": {}})
