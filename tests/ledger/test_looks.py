"""Looks over all lineages whose people may be the same, who never teaches, and who had been read before they judged."""

from __future__ import annotations

from fractions import Fraction

import pytest

from pipeline.ledger.account import reserve_for, reserve_of, split_of
from pipeline.ledger.looks import judged_before, look_number
from reticent import CardError
from tests.ledger.disjoint import disjoint

ASKED = Fraction(1, 100)


@pytest.fixture
def real(make_card):
    def card(name, kind="real", **budget):
        return make_card(name=name, kind=kind, budget={"rho": 9.0, "ledger": "l.db", **budget})

    return card


@pytest.fixture
def book(alone):
    return alone


def release(book, name, key, recipe="r", share=None, **more):
    """An INTENT, as a run of a recipe writes it: with a share, people judge."""
    body = {"claimed": True, **({"recipe": recipe} if recipe else {}), **more}
    if share is not None:
        body["joint"] = {"variant": "held_out", "share": share}
    return book.intent(name, key, ASKED, body | look_number(book.entries(), name, key, body))


def older(book, card):
    """A real lineage as it was registered before ledgers reserved anybody."""
    body = {"rho": "9", "delta": 1e-6, "kind": "real", "unit": card.unit.user, "relation": "replace"}
    told = {"episodes_per_user": card.unit.episodes_per_user, "domain_hash": card.domain_hash()}
    return book.note(card.name, "REGISTER", {**body, **told})


def why(book, intent):
    return judged_before(book.entries(), intent)


def test_every_look_at_people_who_may_be_the_same_counts(book, real):
    for name in ("a", "b"):
        book.register(real(name))
    book.register(real("c"))
    disjoint(book, "c", "a", "b")
    book.register(real("world", kind="synthetic"))
    looks = [release(book, name, key, share="1/4").body["look"] for name, key in (("a", "1"), ("b", "2"), ("a", "3"))]
    # under one lineage's own count the second would have been the first again
    assert looks == [1, 2, 3]
    assert release(book, "b", "2", share="1/4").body["look"] == 2, "an attempt at the same release is no new look"
    assert release(book, "c", "4", share="1/4").body["look"] == 1, "it shares nobody"
    assert release(book, "world", "5", share="1/4").body["look"] == 1, "nobody is in it"
    book.register(real("d"))
    assert release(book, "d", "6", share="1/4").body["look"] == 5


def test_lineages_that_share_nobody_are_all_counted_by_one_that_may_share_with_each(book, real):
    book.register(real("a"))
    book.register(real("b"))
    disjoint(book, "b", "a")
    book.register(real("c"))
    assert [release(book, n, n, share="1/4").body["look"] for n in "abc"] == [1, 1, 3]


def test_the_first_real_lineage_reserves_half_of_the_people_and_later_ones_agree(book, real):
    assert reserve_for((), real("a")) == Fraction(1, 2) and reserve_for((), real("x", kind="synthetic")) == 0
    assert book.register(real("a")).body["reserve"] == "1/2"
    assert book.register(real("b")).body["reserve"] == "1/2"
    assert book.register(real("c", reserve=0.5)).body["reserve"] == "1/2"
    with pytest.raises(
        CardError, match=r"reserve = 0\.3: this ledger reserves 0\.5 .* registered with a; say the same"
    ):
        book.register(real("d", reserve=0.3))
    assert {split_of(book.entries(), n) for n in "abc"} == {""}, "one split for all of them"
    assert "reserve" not in book.register(real("world", kind="synthetic")).body
    assert book.register(real("toy", kind="synthetic", reserve=0.2)).body["reserve"] == "1/5"
    assert split_of(book.entries(), "toy") == "toy" and reserve_of(book.entries(), "toy") == Fraction(1, 5)


def test_the_reserve_changes_once_and_for_all_lineages_and_never_after_a_charge(book, real):
    for name in ("a", "b"):
        book.register(real(name))
    with pytest.raises(CardError, match=r"differs from its registration \(reserve: registered 1/2, card says 3/10\)"):
        book.register(real("b", reserve=0.3))
    book.register(real("b", reserve=0.3), amend=True)
    assert [reserve_of(book.entries(), n) for n in "ab"] == [Fraction(3, 10)] * 2
    book.require(real("a"))
    with pytest.raises(CardError, match="changed once"):
        book.register(real("a", reserve=0.2), amend=True)


def test_who_may_have_taught_cannot_be_reserved_any_more(book, real):
    for name in ("a", "b"):
        book.register(real(name))
    spent = release(book, "a", "1")
    with pytest.raises(CardError, match=f"entry {spent.seq} of a was charged already"):
        book.register(real("b", reserve=0.3), amend=True)


def test_a_lineage_of_before_keeps_its_split_and_reserves_nobody(book, real):
    older(book, real("old"))
    book.require(real("old"))
    assert (reserve_of(book.entries(), "old"), split_of(book.entries(), "old")) == (0, "old")
    assert book.register(real("new")).body["reserve"] == "0", "everybody may have taught"
    assert split_of(book.entries(), "new") == ""
    with pytest.raises(CardError, match="this ledger reserves 0 "):
        book.register(real("third", reserve=0.5))
    book.register(real("old", reserve=0.5), amend=True)
    assert (reserve_of(book.entries(), "new"), split_of(book.entries(), "old")) == (Fraction(1, 2), "")


def test_looks_of_one_lineage_as_older_versions_counted_them_still_verify(book, real):
    from pipeline.ledger.looks import look_problem

    for name in ("a", "b"):
        older(book, real(name))
    body = {"joint": {"variant": "held_out", "share": "1/4"}, "look": 1}
    entries = [book.intent(name, name, ASKED, body) for name in ("a", "b")]
    assert [look_problem(book.entries(), e, 1) for e in entries] == [None, None]
    now = book.intent("b", "c", ASKED, {**body, "recipe": "r"})
    assert "is evaluation 3 of b; it says 1" in str(look_problem(book.entries(), now, 1))


def test_the_same_recipe_answers_for_itself_and_another_one_does_not(book, real):
    book.register(real("a"))
    assert why(book, release(book, "a", "1", share="1/4")) is None
    # another edition, budget or share: the same digest
    assert why(book, release(book, "a", "2", share="1/2")) is None
    other = release(book, "a", "3", recipe="s", share="1/4")
    assert why(book, other) == (
        "an earlier release (ledger entry 2 of a) read people who judge here, by another recipe: what it told may "
        "have shaped this policy"
    )
    # the first one was chosen before the other was answered
    assert why(book, release(book, "a", "4", share="1/4")) is None


def test_who_is_reserved_is_fresh_whoever_taught(book, real):
    for name in ("a", "b"):
        book.register(real(name))
    release(book, "a", "1", recipe="s")
    assert why(book, release(book, "b", "2", share="1/2")) is None
    release(book, "a", "3", recipe="s", counter={"share": "1/4"})
    assert why(book, release(book, "b", "4", share="1/2")) is None
    # a few of the judges were asked by another recipe
    release(book, "a", "5", recipe="s", share="1/100")
    assert why(book, release(book, "b", "6", share="1/2")) is None, "it had asked before"
    assert why(book, release(book, "b", "7", recipe="t", share="1/2")) is not None


def test_who_taught_must_not_judge(book, real):
    book.register(real("a", reserve=0.0))
    release(book, "a", "1", recipe="s")
    assert "by another recipe" in str(why(book, release(book, "a", "2", share="1/4")))


def test_a_release_of_an_older_version_names_no_recipe(book, real):
    book.register(real("a", reserve=0.0))
    first, again = (release(book, "a", key, recipe="", share="1/4") for key in "12")
    assert why(book, first) is None and "by a recipe that the ledger does not name" in str(why(book, again))
    assert "by a recipe that the ledger does not name" in str(why(book, release(book, "a", "3", share="1/4")))


def test_two_splits_know_nothing_of_each_other(book, real):
    older(book, real("old"))
    book.register(real("new"))
    assert why(book, release(book, "new", "1", share="1/4")) is None
    assert "entry 3 of new" in str(why(book, release(book, "old", "2", recipe="s", share="1/4")))


def test_synthetic_people_are_nobody_elses(book, real):
    for name in ("w", "x"):
        book.register(real(name, kind="synthetic"))
    release(book, "w", "1", recipe="s")
    assert why(book, release(book, "x", "2", share="1/4")) is None
    assert why(book, release(book, "w", "3", share="1/4")) is not None


def test_what_was_chosen_before_the_first_answer_follows_none(book, real):
    book.register(real("a"))
    book.note("a", "RECIPE", {"recipe": "s"})
    release(book, "a", "1", share="1/4")
    # after the answer
    book.note("a", "RECIPE", {"recipe": "late"})
    assert why(book, release(book, "a", "2", recipe="s", share="1/4")) is None
    assert why(book, release(book, "a", "3", recipe="late", share="1/4")) is not None


def test_the_count_of_a_gate_shapes_no_policy_and_what_died_before_it_drew_told_nobody(book, real):
    from pipeline.ledger.attempts import Holder

    book.register(real("a", reserve=0.0))
    release(book, "a", "gate", recipe="s", mechanisms=[{"table": "set_aside"}])
    holder = Holder("x", "place")
    book.intent("a", "dead", ASKED, {"recipe": "s", "claimed": True}, holder=holder)
    assert why(book, release(book, "a", "1", share="1/4")) is None
