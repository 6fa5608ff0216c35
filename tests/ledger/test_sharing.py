"""Real lineages of one ledger share their people, but for those that an earlier version declared disjoint."""

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
from pipeline.ledger.account import Move, apart_from, mixed_with, moves, reserve_for, reserve_of, split_of
from pipeline.ledger.attempts import Holder
from pipeline.ledger.ledger import open_ledger
from pipeline.ledger.looks import judged_before, look_number, look_problem
from pipeline.ledger.people import key_file, read_key
from reticent import BudgetError, CardError
from tests.ledger.disjoint import disjoint

KEY = b"k" * 32


@pytest.fixture
def real(make_card):
    def card(name, rho=1.0, kind="real", **budget):
        where = "l.db" if kind == "real" else "home"
        return make_card(name=name, kind=kind, budget={"rho": rho, "ledger": where, **budget})

    return card


def register(book, real, names, apart=""):
    """Lineages in this order; those in ``apart`` share nobody with those before them."""
    for i, name in enumerate(names):
        book.register(real(name))
        if name in apart:
            disjoint(book, name, *names[:i])


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
    intent = charge(book, "b", "1/4")
    assert book.account("a").remaining == 1
    # the commit says what the people lost in all
    assert book.commit(intent, {"release_sha256": "00", "noise": "os", "sampler": "x"}).body["spent"] == "1"


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
    register(book, real, "ab", apart="b")
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
    register(book, real, "ab", apart="b")
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
    register(book, real, "ab", apart="b")
    book.require(real("b"))
    assert moves(book.entries(), "a") == [Move(frozenset("a"), frozenset()), Move(frozenset(), frozenset("ab"))]
    book.register(real("b", 2.0), amend=True)
    assert book.entries()[-1].body["disjoint_from"] == ["a"]


def test_people_whom_the_ledger_does_not_know_are_charged_together_whatever_was_declared(book, real):
    """The attack: an entry of rows whose people nobody looked up, after the declaration."""
    register(book, real, "abc", apart="bc")
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
    register(claims, real, "ab", apart="b")
    assert claimed(claims, "a", ["ann", "bob"]) == [True, True]
    assert claimed(claims, "b", ["bob", "cat", "dan"]) == [False, True, True]
    # for good, whoever asks again and in whatever order
    assert claimed(claims, "a", ["cat", "ann", "eve"]) == [False, True, True]
    assert claimed(claims, "b", ["eve", "cat", "bob"]) == [False, True, False]
    with pytest.raises(BudgetError, match="known under key"):
        claimed(claims, "a", ["ann"], b"x" * 32)


def test_another_amendment_takes_no_claim_back(claims, real):
    register(claims, real, "ab", apart="b")
    assert claimed(claims, "b", ["ann"]) == [True]
    charge(claims, "b", "1/4", claimed=True)
    claims.register(real("b", 2.0), amend=True)
    assert claimed(claims, "a", ["ann"]) == [False]


def test_one_person_moves_no_other_and_nobody_is_ever_in_two(claims, real):
    """The broken twin, a count of the overlap that decides for all, would change what others are answered."""
    register(claims, real, "abc", apart="bc")
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


def test_the_worst_move_is_that_of_every_way_to_be_in_lineages(book, real):
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
        return sum(cost[n][0] for n in a & b) + sum(cost[n][0] * cost[n][1] for n in a ^ b)

    for name in names:
        worst = max(loss(a, b) for a in possible for b in possible if name in a | b)
        assert book.account(name).lost == worst
    assert Move(frozenset("a"), frozenset()).lineages == {"a"}


ASKED = Fraction(1, 100)


def release(book, name, key, recipe="r", share=None, **more):
    """An INTENT, as a run of a recipe writes it: with a share, people judge."""
    body = {"claimed": True, **({"recipe": recipe} if recipe else {}), **more}
    if share is not None:
        body["joint"] = {"variant": "held_out", "share": share}
    return book.intent(name, key, ASKED, body | look_number(book.entries(), name, key, body))


def older(book, card):
    """A real lineage as it was registered before ledgers reserved anybody."""
    body = {"rho": "1", "delta": 1e-6, "kind": "real", "unit": card.unit.user, "relation": "replace"}
    told = {"episodes_per_user": card.unit.episodes_per_user, "domain_hash": card.domain_hash()}
    return book.note(card.name, "REGISTER", {**body, **told})


def why(book, intent):
    return judged_before(book.entries(), intent)


def test_every_look_at_people_who_may_be_the_same_counts(book, real):
    register(book, real, "abc", apart="c")
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
    register(book, real, "abc", apart="b")
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
    register(book, real, "ab")
    with pytest.raises(CardError, match=r"differs from its registration \(reserve: registered 1/2, card says 3/10\)"):
        book.register(real("b", reserve=0.3))
    book.register(real("b", reserve=0.3), amend=True)
    assert [reserve_of(book.entries(), n) for n in "ab"] == [Fraction(3, 10)] * 2
    book.require(real("a"))
    with pytest.raises(CardError, match="changed once"):
        book.register(real("a", reserve=0.2), amend=True)


def test_who_may_have_taught_cannot_be_reserved_any_more(book, real):
    register(book, real, "ab")
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
    register(book, real, "ab")
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
    book.register(real("a", reserve=0.0))
    release(book, "a", "gate", recipe="s", mechanisms=[{"table": "set_aside"}])
    holder = Holder("x", "place")
    book.intent("a", "dead", ASKED, {"recipe": "s", "claimed": True}, holder=holder)
    assert why(book, release(book, "a", "1", share="1/4")) is None
