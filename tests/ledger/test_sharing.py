"""Real lineages of one ledger share their people, but for those that an earlier version declared disjoint."""

from __future__ import annotations

import itertools
import random
import secrets
import stat
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from threading import Barrier
from types import SimpleNamespace

import pytest

from pipeline.ledger import people
from pipeline.ledger.account import Move, apart_from, mixed_with, moves
from pipeline.ledger.ledger import open_ledger
from pipeline.ledger.people import key_file, read_key
from reticent import BudgetError
from tests.ledger.disjoint import disjoint

KEY = b"k" * 32


@pytest.fixture
def real(make_card):
    def card(name, rho=1.0, kind="real", **budget):
        return make_card(
            name=name, kind=kind, budget={"rho": rho, "ledger": "l.db" if kind == "real" else "home", **budget}
        )

    return card


@pytest.fixture
def book(alone):
    return alone


@pytest.fixture
def claims(place):
    """Who is of which lineage is a table of its own, on both engines."""
    return place.open(create=True)


def charge(book, name, rho, key="k", **body):
    return book.intent(name, f"{name}-{key}", Fraction(rho), body)


def test_a_lineage_under_another_name_is_no_fresh_budget(book, real):
    book.register(real("clinic"))
    charge(book, "clinic", "1")
    # the same people, and ten times the cap
    book.register(real("clinic_2", 10.0))
    with pytest.raises(
        BudgetError, match=r"left 0 of 1 of clinic, whose people may be the same.*a ledger of their own"
    ):
        charge(book, "clinic_2", "1/100")
    assert book.account("clinic_2").lost == 1 and book.account("clinic_2").spent == 0
    assert book.left("clinic_2").whose == "clinic"


def test_what_is_charged_to_the_one_is_gone_for_the_other_too(book, real):
    for name, cap in (("a", 2.0), ("b", 1.0)):
        book.register(real(name, cap))
    charge(book, "a", "3/4")
    assert book.left("a").rho == book.left("b").rho == Fraction(1, 4)
    assert charge(book, "b", "1/4").body["rho"] == "1/4"
    assert book.account("a").remaining == 1


def test_the_commit_says_what_the_people_lost_in_all(book, real):
    for name in ("a", "b"):
        book.register(real(name))
    charge(book, "a", "1/4")
    intent = charge(book, "b", "1/2")
    assert book.commit(intent, {"release_sha256": "00", "noise": "os", "sampler": "x"}).body["spent"] == "3/4"


def test_synthetic_people_are_nobody(book, real):
    book.register(real("clinic"))
    book.register(real("copy", kind="synthetic"))
    charge(book, "copy", "1")
    charge(book, "clinic", "1")
    assert book.account("copy").lost == book.account("clinic").lost == 1


def test_the_schedule_of_the_other_holds_as_well(book, real):
    book.register(real("a", schedule={"rho_month": 0.1}))
    book.register(real("b"))
    with pytest.raises(BudgetError, match=r"left 0\.1 of 0\.1 this month .* of a"):
        charge(book, "b", "1/5")


def test_disjoint_lineages_are_charged_alone_but_for_who_leaves_the_one_and_joins_the_other(book, real):
    book.register(real("a"))
    book.register(real("b"))
    disjoint(book, "b", "a")
    charge(book, "a", "1", rho_add_remove="1/2", claimed=True)
    # half of a for leaving it, and half of b for joining it: the whole cap of both
    assert book.left("b", Fraction(1, 2)).rho == 1
    assert book.left("b").rho == Fraction(1, 2)
    charge(book, "b", "1", rho_add_remove="1/2", claimed=True)
    assert book.account("a").lost == book.account("b").lost == 1
    # an entry that does not say what joining costs is charged in full
    book.register(real("c"))
    disjoint(book, "c", "a", "b")
    with pytest.raises(BudgetError, match=r"left 0\.5 of 1"):
        charge(book, "c", "6/10")


def test_an_entry_that_does_not_say_what_leaving_costs_counts_in_full(book, real):
    """A counter's does not, and none of an older version does."""
    book.register(real("a"))
    book.register(real("b"))
    disjoint(book, "b", "a")
    charge(book, "a", "3/4", claimed=True)
    assert book.left("b").rho == Fraction(1, 4)
    with pytest.raises(BudgetError, match=r"left 0\.5 of 1;"):
        charge(book, "b", "6/10", rho_add_remove="3/10", claimed=True)
    assert charge(book, "b", "1/2", rho_add_remove="1/4", claimed=True)
    assert book.account("a").lost == book.account("b").lost == 1


def test_whoever_stays_pays_the_whole_charge_however_little_it_costs_to_leave(book, real):
    """Once half the charge was what was held against the cap: ρ = 1.9 was spent of 1."""
    book.register(real("clinic"))
    with pytest.raises(BudgetError, match=r"asked ρ = 1\.9, left 1 of 1;"):
        charge(book, "clinic", "19/10", rho_add_remove="19/20")
    charge(book, "clinic", "6/10", rho_add_remove="3/10")
    assert book.left("clinic", Fraction(1, 2)).rho == Fraction(4, 10)
    # and so for a name under which the same people may be
    book.register(real("clinic_2", 10.0))
    with pytest.raises(BudgetError, match=r"left 0\.4 of 1 of clinic"):
        charge(book, "clinic_2", "5/10", rho_add_remove="1/4")
    assert book.account("clinic").remaining == Fraction(4, 10)


def test_a_declaration_of_an_earlier_version_stays_with_the_lineage(book, real):
    book.register(real("a"))
    book.register(real("b"))
    disjoint(book, "b", "a")
    book.require(real("b"))
    assert moves(book.entries(), "a") == [Move(frozenset("a"), frozenset()), Move(frozenset(), frozenset("ab"))]
    book.register(real("b", 2.0), amend=True)
    assert book.entries()[-1].body["disjoint_from"] == ["a"]


def test_people_whom_the_ledger_does_not_know_are_charged_together_whatever_was_declared(book, real):
    """The attack: an entry of rows whose people nobody looked up, after the declaration."""
    for name in "abc":
        book.register(real(name))
    disjoint(book, "b", "a")
    disjoint(book, "c", "a", "b")
    charge(book, "a", "1/2", rho_add_remove="1/4", claimed=True)
    charge(book, "b", "1/2", rho_add_remove="1/4")
    entries = book.entries()
    assert mixed_with(entries, "b") == {"a", "c"} and mixed_with(entries, "a") == mixed_with(entries, "c") == {"b"}
    assert apart_from(entries, "b") == set() and apart_from(entries, "a") == {"c"}
    assert book.account("a").lost == book.account("b").lost == 1, "somebody may be in both"
    with pytest.raises(BudgetError, match="left 0 of 1"):
        charge(book, "b", "1/10", "more", claimed=True)
    assert book.left("c").rho == Fraction(1, 4), "whoever is in b may leave a for c"


def claimed(book, lineage, ids, key=KEY):
    """Whether each is of the lineage; ids that have one spelling."""
    return [text is not None for text in book.claim(lineage, [(one,) for one in ids], key)]


def test_people_in_both_are_of_the_first_one_by_one(claims, real):
    claims.register(real("a"))
    claims.register(real("b"))
    disjoint(claims, "b", "a")
    assert claimed(claims, "a", ["ann", "bob"]) == [True, True]
    assert claimed(claims, "b", ["bob", "cat", "dan"]) == [False, True, True]
    # for good, whoever asks again and in whatever order
    assert claimed(claims, "a", ["cat", "ann", "eve"]) == [False, True, True]
    assert claimed(claims, "b", ["eve", "cat", "bob"]) == [False, True, False]
    with pytest.raises(BudgetError, match="known under key"):
        claimed(claims, "a", ["ann"], b"x" * 32)


def test_another_amendment_takes_no_claim_back(claims, real):
    claims.register(real("a"))
    claims.register(real("b"))
    disjoint(claims, "b", "a")
    assert claimed(claims, "b", ["ann"]) == [True]
    charge(claims, "b", "1/4", claimed=True)
    claims.register(real("b", 2.0), amend=True)
    assert claimed(claims, "a", ["ann"]) == [False]


def test_one_person_moves_no_other_and_nobody_is_ever_in_two(claims, real):
    """The broken twin, a count of the overlap that decides for all, would change what others are answered."""
    claims.register(real("a"))
    claims.register(real("b"))
    disjoint(claims, "b", "a")
    claims.register(real("c"))
    disjoint(claims, "c", "a", "b")
    draw, where = random.Random(5), dict[str, set[str]]()
    for _ in range(40):
        name, people = draw.choice("abc"), draw.sample([f"p{i}" for i in range(12)], 5)
        for person, ours in zip(people, claimed(claims, name, people), strict=True):
            if ours:
                where.setdefault(person, set()).add(name)
            else:
                assert where[person] and name not in where[person]
    assert all(len(names) == 1 for names in where.values())


def test_no_hash_leaves_with_the_chain_and_the_key_is_its_owners(tmp_path, real):
    book = open_ledger(tmp_path / "l.db", create=True)
    book.register(real("a"))
    before = book.entries()
    claimed(book, "a", ["ann"])
    assert book.entries() == before and book.problem() is None
    file = key_file(book.where, tmp_path)
    key = read_key(file)
    assert file == tmp_path / "l.db.people-key" and read_key(file) == key and len(key) == 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("zz")
    with pytest.raises(BudgetError, match="damaged"):
        read_key(file)


def test_two_ingests_that_come_at_once_know_people_by_one_key(tmp_path, monkeypatch):
    """Else a person of both lineages would be two, and charged as if in one."""
    both = Barrier(2)

    def drawn(size):
        # both found that there is none
        both.wait(60)
        return secrets.token_hex(size)

    monkeypatch.setattr(people, "secrets", SimpleNamespace(token_hex=drawn))
    file = tmp_path / "l.db.people-key"
    with ThreadPoolExecutor(2) as pool:
        one, other = (pool.submit(read_key, file) for _ in range(2))
        assert one.result() == other.result() == read_key(file)


def test_the_worst_move_is_that_of_every_way_to_be_in_lineages(book, real, monkeypatch):
    """Against brute force over all sets of lineages that one person may be in before, and after."""
    names = "abcde"
    draw = random.Random(1)
    for name in names:
        apart = [other for other in names[: names.index(name)] if draw.random() < 0.5]
        book.register(real(name, 1000.0))
        disjoint(book, name, *apart)
    cost = {name: (Fraction(draw.randint(1, 9)), Fraction(draw.randint(1, 9), 10)) for name in names}
    for name, (rho, part) in cost.items():
        charge(book, name, rho, rho_add_remove=str(rho * part), claimed=True)
    entries = book.entries()
    declared = {frozenset({e.lineage, n}) for e in entries for n in e.body.get("disjoint_from", ())}
    possible = [
        frozenset(s)
        for k in range(6)
        for s in itertools.combinations(names, k)
        if not any(frozenset(pair) in declared for pair in itertools.combinations(s, 2))
    ]

    def loss(a, b):
        return sum((cost[n][0] for n in a & b), Fraction(0)) + sum(
            (cost[n][0] * cost[n][1] for n in a ^ b), Fraction(0)
        )

    for name in names:
        worst = max(loss(a, b) for a in possible for b in possible if name in a | b)
        assert book.account(name).lost == worst
    assert Move(frozenset("a"), frozenset()).lineages == {"a"}
