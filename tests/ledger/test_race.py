"""Of processes that race for one thing, exactly one wins; the others are told why, and nothing is lost."""

from __future__ import annotations

from fractions import Fraction

import pytest

from reticent import BudgetError
from tests.ledger.racing import commit, draw, race, register, release, spend

RUNNERS = 2


def test_of_processes_racing_for_the_last_budget_exactly_one_wins(ledger, place):
    wins, told = race(spend, place.where, RUNNERS)
    assert wins == 1 and all("asked ρ = 1.5, left 0.5" in t for t in told)
    assert ledger.account("tiny").spent == Fraction(3, 2) and ledger.problem() is None


@pytest.mark.slow
def test_of_stores_racing_to_draw_one_release_exactly_one_draws(ledger, place):
    wins, told = race(draw, place.where, RUNNERS)
    assert wins == 1 and all("being drawn elsewhere" in t for t in told)
    assert ledger.account("tiny").spent == Fraction(1, 100)


@pytest.mark.slow
def test_of_stores_racing_through_the_machine_exactly_one_draws_and_commits(ledger, place):
    wins, told = race(release, place.where, RUNNERS)
    assert wins == 1 and all("being drawn elsewhere" in t or "is committed" in t for t in told)
    assert [e.kind for e in ledger.entries()] == ["REGISTER", "INTENT", "COMMIT"]


@pytest.mark.slow
def test_of_attempts_at_one_release_exactly_one_is_committed(ledger, place):
    for _ in range(RUNNERS):
        ledger.intent("tiny", "one", Fraction(1, 100), {})
    wins, told = race(commit, place.where, RUNNERS)
    assert wins == 1 and all("another attempt" in t for t in told)
    assert [e.kind for e in ledger.entries()].count("COMMIT") == 1


@pytest.mark.slow
def test_of_processes_that_register_at_once_one_creates_and_the_others_agree(place):
    wins, told = race(register, place.where, RUNNERS)
    assert wins == 1 and set(told) == {"it stood already"}
    assert [e.kind for e in place.open().entries()] == ["REGISTER"]


def test_of_hosts_that_each_made_a_key_only_the_first_one_is_charged(ledger, place):
    """Both looked before either was charged; people who taught under one key would judge under the other."""
    ledger.intent("tiny", "one", Fraction(1, 10), {"people_key": "a" * 16})
    with pytest.raises(BudgetError, match=r"another key than the ledger's: b{16}, not a{16}"):
        place.open().intent("tiny", "two", Fraction(1, 10), {"people_key": "b" * 16})
    ledger.intent("tiny", "two", Fraction(1, 10), {"people_key": "a" * 16})
    assert ledger.account("tiny").spent == Fraction(1, 5)
