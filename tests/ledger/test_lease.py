"""Leases: two stores that share a ledger do not draw one release twice unknowingly; of a race one wins."""

from fractions import Fraction
from threading import Event

import pytest

from pipeline.ledger import attempts
from pipeline.ledger.attempts import NOTED, Holder, may_have_drawn
from pipeline.ledger.chain import Entry
from reticent import BudgetError
from tests.ledger import racing
from tests.ledger.racing import race

HERE, THERE, AGAIN = Holder("1" * 32, "here"), Holder("2" * 32, "there"), Holder("3" * 32, "here")


def draw(book, holder):
    return book.intent("tiny", "k", Fraction(1, 2), {}, holder=holder)


def run_out(place):
    place.execute("update leases set expires = 1")


def test_a_release_that_is_being_drawn_elsewhere_is_refused_before_it_is_charged(ledger):
    first = draw(ledger, HERE)
    with pytest.raises(BudgetError, match="being drawn elsewhere"):
        draw(ledger, THERE)
    assert ledger.account("tiny").spent == Fraction(1, 2)
    ledger.intent("tiny", "another", Fraction(1, 2), {}, holder=THERE)
    assert ledger.alive(first, "there") and not ledger.alive(first, "here")


def test_without_leases_both_would_draw(ledger):
    """The broken twin: two charges, and only one release can be committed."""
    first, second = (ledger.intent("tiny", "k", Fraction(1, 2), {}) for _ in range(2))
    ledger.commit(second, {})
    with pytest.raises(BudgetError, match="another attempt committed this release first"):
        ledger.commit(first, {})


def test_who_holds_the_lock_of_a_place_knows_that_attempts_there_are_dead(ledger):
    draw(ledger, HERE)
    again = draw(ledger, AGAIN)
    assert again.body["attempt"] == 2
    assert not ledger.renew(ledger.entries()[1], HERE), "the first lease was taken over"


def test_a_lease_that_ran_out_is_dead_until_its_holder_wakes(ledger, place):
    first = draw(ledger, HERE)
    ledger.draw(first)
    run_out(place)
    assert not ledger.alive(first, "there")
    assert ledger.renew(first, HERE) and ledger.alive(first, "there")
    run_out(place)
    second = draw(ledger, THERE)
    assert not ledger.renew(first, HERE)
    ledger.commit(second, {"release_sha256": "2"})
    with pytest.raises(BudgetError, match="another attempt committed this release first; its spend stays"):
        ledger.commit(first, {"release_sha256": "1"})
    assert ledger.account("tiny").spent == 1


def test_only_the_holder_renews(ledger):
    first = draw(ledger, HERE)
    assert not ledger.renew(first, THERE)


def test_a_lease_beats_while_a_release_is_drawn_and_ends_with_it(ledger, monkeypatch):
    beaten = Event()
    renew = attempts.renew_lease

    def seen(*args):
        kept = renew(*args)
        beaten.set()
        return kept

    monkeypatch.setattr(attempts, "SECONDS", 60.0)
    monkeypatch.setattr(attempts, "renew_lease", seen)
    first = draw(ledger, HERE)
    monkeypatch.setattr(attempts, "SECONDS", 0.04)
    with ledger.leased(first, HERE):
        assert beaten.wait(60)
    monkeypatch.setattr(attempts, "SECONDS", 60.0)
    assert not ledger.alive(first, "there")
    assert draw(ledger, THERE).body["attempt"] == 2


def test_a_lease_ends_with_a_failed_draw_too(ledger):
    first = draw(ledger, HERE)
    with pytest.raises(OverflowError), ledger.leased(first, HERE):
        raise OverflowError
    assert not ledger.alive(first, "there")


def test_leases_are_no_part_of_the_chain(ledger):
    first = draw(ledger, HERE)
    assert set(first.body) == {"run_key", "attempt", "rho", "draw"}
    assert ledger.problem() is None


class Read(list):
    """Entries that count how many of them were looked at."""

    looked = 0

    def __getitem__(self, i):
        self.looked += 1
        return super().__getitem__(i)

    def __iter__(self):
        return (self[i] for i in range(len(self)))


def test_what_an_attempt_left_is_looked_for_behind_it(ledger):
    """A counter of a year asks of every night before each of its nights: not of the whole ledger each time."""
    bodies = [NOTED if i % 2 else {"intent": i - 1} for i in range(1, 4001)]
    kinds = ["INTENT" if i % 2 else "DRAW" for i in range(1, 4001)]
    entries = Read(Entry(i, "tiny", k, "", b, "", "") for i, (k, b) in enumerate(zip(kinds, bodies, strict=True), 1))
    intents = list(entries)[::2]
    entries.looked = 0
    assert all(may_have_drawn(entries, e) for e in intents)
    assert entries.looked < 20 * len(intents)
    died = Entry(4001, "tiny", "INTENT", "", NOTED, "", "")
    assert not may_have_drawn([*entries, died], died)


def test_what_was_paid_before_a_draw_is_used_up_by_it(ledger, place):
    """An attempt that died before its noise leaves its charge to the next, which draws; a third pays again."""
    left = []
    for drawn in (False, True, False):
        attempt = draw(ledger, HERE)
        left.append(Fraction(attempt.body["rho"]))
        if drawn:
            ledger.draw(attempt)
        run_out(place)
    assert left == [Fraction(1, 2), 0, Fraction(1, 2)] and ledger.account("tiny").spent == 1


RUNNERS = 2


# what processes race for -> what the others are told, what is charged, and what the ledger holds
RACES = {
    "the last budget": (racing.spend, ("asked ρ = 1.5, left 0.5",), "3/2", ["INTENT"]),
    "a draw": (racing.draw, ("being drawn elsewhere",), "1/100", ["INTENT"]),
    "a release": (racing.release, ("being drawn elsewhere", "is committed"), "1/10", ["INTENT", "COMMIT"]),
    "a commit": (racing.commit, ("another attempt",), "1/50", ["INTENT", "INTENT", "COMMIT"]),
}


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=() if what == "the last budget" else pytest.mark.slow) for what in RACES]
)
def test_of_processes_that_race_for_one_thing_exactly_one_wins_and_nothing_is_lost(ledger, place, what):
    todo, says, spent, kinds = RACES[what]
    for _ in range(RUNNERS if todo is racing.commit else 0):
        ledger.intent("tiny", "one", Fraction(1, 100), {})
    wins, told = race(todo, place.where, RUNNERS)
    assert wins == 1 and all(any(words in t for words in says) for t in told)
    assert ledger.account("tiny").spent == Fraction(spent) and ledger.problem() is None
    assert [e.kind for e in ledger.entries()] == ["REGISTER", *kinds]


@pytest.mark.slow
def test_of_processes_that_register_at_once_one_creates_and_the_others_agree(place):
    wins, told = race(racing.register, place.where, RUNNERS)
    assert wins == 1 and set(told) == {"it stood already"}
    assert [e.kind for e in place.open().entries()] == ["REGISTER"]


def test_of_hosts_that_each_made_a_key_only_the_first_one_is_charged(ledger, place):
    """Both looked before either was charged; people who taught under one key would judge under the other."""
    ledger.intent("tiny", "one", Fraction(1, 10), {"people_key": "a" * 16})
    with pytest.raises(BudgetError, match=r"another key than the ledger's: b{16}, not a{16}"):
        place.open().intent("tiny", "two", Fraction(1, 10), {"people_key": "b" * 16})
    ledger.intent("tiny", "two", Fraction(1, 10), {"people_key": "a" * 16})
    assert ledger.account("tiny").spent == Fraction(1, 5)
