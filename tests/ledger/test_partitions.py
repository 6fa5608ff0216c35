"""User-disjoint partitions: the lineage costs what its most charged person pays."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from pipeline.ledger.account import spent_of
from pipeline.ledger.attempts import Holder, paid_for
from reticent import BudgetError, CardError

CHARGES = [(p, Fraction(r, 7)) for p in (None, 0, 1, 2) for r in (1, 3)]


def worst_person(charges) -> Fraction:
    """By enumeration of people: the one in partition p reads out of every charge to all and every charge to p."""
    return max(sum((rho for part, rho in charges if part is None or part == p), Fraction(0)) for p in range(3))


def test_the_cost_is_what_the_most_charged_person_pays():
    for length in range(5):
        for charges in product(CHARGES, repeat=length):
            assert spent_of(charges) == worst_person(charges)


@pytest.mark.parametrize(
    "broken",
    [
        lambda charges: sum((rho for _, rho in charges), Fraction(0)),
        lambda charges: max((rho for _, rho in charges), default=Fraction(0)),
        lambda charges: max(spent_of([c for c in charges if (c[0] is None) == whole]) for whole in (True, False)),
    ],
)
def test_the_enumeration_tells_wrong_rules_apart(broken):
    """Sequential over everything, the largest single charge, parallel between partitions and the whole."""
    assert any(broken(c) != worst_person(c) for c in product(CHARGES, repeat=3))


def test_the_filter_holds_for_every_partition_and_says_what_is_left_there(place, make_card):
    book = place.open(create=True)
    book.register(make_card(budget={"rho": 2.0}), partitions=3)
    book.intent("tiny", "all", Fraction(1, 2), {})
    for p in range(3):
        book.intent("tiny", f"part-{p}", Fraction(1 + (p == 2), 2), {}, partition=p)
    assert book.account("tiny").spent == Fraction(3, 2)
    with pytest.raises(BudgetError, match=r"left 0\.5 "):
        book.intent("tiny", "more", Fraction(1), {}, partition=2)
    with pytest.raises(BudgetError, match=r"left 0\.5 "):
        book.intent("tiny", "more", Fraction(1), {})
    with pytest.raises(BudgetError, match=r"left 1 "):
        book.intent("tiny", "more", Fraction(3, 2), {}, partition=0)
    book.intent("tiny", "more", Fraction(1), {}, partition=0)
    assert book.account("tiny").remaining == 0
    book.intent("tiny", "most", Fraction(1), {}, partition=1)
    with pytest.raises(BudgetError, match=r"left 0 "):
        book.intent("tiny", "least", Fraction(1, 10**9), {})


@pytest.mark.parametrize("partition", [-1, 3, 10])
def test_a_partition_that_was_not_registered_is_refused(place, make_card, partition):
    book = place.open(create=True)
    book.register(make_card(), partitions=3)
    with pytest.raises(CardError, match="is not registered"):
        book.intent("tiny", "k", Fraction(1), {}, partition=partition)
    assert book.account("tiny").spent == 0


def test_without_partitions_nothing_changes_in_the_words_of_an_entry(place, make_card):
    book = place.open(create=True)
    assert "partitions" not in book.register(make_card()).body
    assert set(book.intent("tiny", "k", Fraction(1), {}).body) == {"run_key", "attempt", "rho"}
    with pytest.raises(CardError, match="is not registered"):
        book.intent("tiny", "l", Fraction(1), {}, partition=0)


def test_partitions_never_change_and_survive_an_amendment(place, make_card):
    book = place.open(create=True)
    book.register(make_card(), partitions=3)
    assert book.register(make_card()) is None
    for other in (1, 4):
        with pytest.raises(CardError, match="'partitions' never changes"):
            book.register(make_card(), amend=True, partitions=other)
    assert book.register(make_card(budget={"rho": 20.0}), amend=True).body["partitions"] == 3


def test_a_dead_attempt_at_other_people_pays_for_nobody_here(place, make_card):
    """It had charged its own partition and drawn nothing; only whoever was charged for it may go on for nothing."""
    book = place.open(create=True)
    book.register(make_card(budget={"rho": 2.0}), partitions=2)
    died = book.intent("tiny", "k", Fraction(1), {}, holder=Holder("a", "here"), partition=0)
    other = book.intent("tiny", "k", Fraction(1), {}, holder=Holder("b", "here"), partition=1)
    again = book.intent("tiny", "k", Fraction(1), {}, holder=Holder("c", "here"), partition=0)
    assert [Fraction(e.body["rho"]) for e in (died, other, again)] == [1, 1, 0]
    assert [paid_for(book.entries(), e) for e in (died, other, again)] == [1, 1, 1]


def test_the_parts_of_another_dataset_are_other_parts(place, make_card):
    """Its partition 1 may hold whoever is in partition 0 here."""
    book = place.open(create=True)
    for name in ("a", "b"):
        book.register(make_card(name=name, kind="real", budget={"rho": 1.0, "ledger": "l.db"}), partitions=2)
    book.intent("a", "one", Fraction(3, 4), {}, partition=1)
    for part in (0, 1, None):
        with pytest.raises(BudgetError, match=r"left 0\.25 of 1"):
            book.intent("b", "other", Fraction(1, 2), {}, partition=part)
    # of its own, those of another part pay nothing
    book.intent("a", "two", Fraction(1), {}, partition=0)
