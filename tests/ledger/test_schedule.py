"""A card's schedule: what a month and a year allow, beside the lifetime cap; refused before anything is read."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import pytest
from pydantic import ValidationError

from reticent import BudgetError, CardError
from tests.flows.nights import stop_clock

SCHEDULE = {"rho": 2.0, "schedule": {"rho_month": 0.5, "rho_year": 0.8}}


@pytest.fixture
def at(monkeypatch):
    def move(text):
        stop_clock(monkeypatch, datetime.fromisoformat(text).replace(tzinfo=UTC))

    move("2026-01-31T23:00:00")
    return move


@pytest.fixture
def book(alone, make_card, at):
    alone.register(make_card(budget=SCHEDULE))
    return alone


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


# what a clock says and what is charged then, or what is left then of a month (0.5) or a year (0.8)
CLOCKS = {
    "set back, and right again": [
        ("2026-01-31", "1/10"), ("1970-01-01", "4/10"),
        ("2026-01-31", ("month", 0.0)), ("2026-02-01", ("year", 0.3)),
    ],
    # a date comes true for all charges since, and for one period; which clock was wrong no entry tells
    "ahead": [
        ("2027-01-05", "1/10"), ("2026-02-01", "1/10"), ("2026-12-31", ("month", 0.5)),
        ("2027-01-06", ("month", 0.3)), ("2027-02-01", ("month", 0.5)), ("2028-01-01", ("month", 0.5)),
    ],
    # one jump costs one month and not all of them; never less than nothing is left, and what is free is not refused
    "in 2200 once": [
        ("2026-01-31", "48/100"), ("2200-01-01", "3/10"), ("2026-01-31", ("month", 0.0)), ("2026-01-31", "0"),
        ("2026-02-01", ("year", 0.02)), ("2027-02-01", ("month", 0.5)),
    ],
    "ahead until something is written after it": [
        ("2200-01-01", "1/2"), ("2026-01-31", ("month", 0.0)), ("2026-02-01", ("month", 0.0)),
    ],
    "ahead and then behind": [
        ("2026-01-31", "1/10"), ("2200-01-01", "4/10"), ("1970-01-01", ("month", 0.0)), ("2026-01-31", ("month", 0.0)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_wrong_clock_frees_nothing_and_costs_one_period(book, at, clock):
    for number, (day, then) in enumerate(CLOCKS[clock]):
        at(f"{day}T23:30:00")
        if isinstance(then, str):
            charge(book, f"{number}", then)
            continue
        cap = {"month": 0.5, "year": 0.8}[then[0]]
        assert book.left("tiny").facts() == {"of": then[0], "cap_rho": cap, "left_rho": pytest.approx(then[1])}


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


def test_a_lineage_without_a_schedule_is_registered_in_the_old_words(alone, make_card):
    assert "schedule" not in alone.register(make_card()).body
    assert alone.left("tiny").facts() == {"of": "lifetime", "cap_rho": 10.0, "left_rho": 10.0}


def test_an_empty_schedule_is_no_schedule(make_card):
    with pytest.raises(ValidationError, match="rho_month"):
        make_card(budget={"rho": 1.0, "schedule": {}})
