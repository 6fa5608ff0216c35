"""The budget ledger: what is asked is spent before anything is read, caps and schedules hold, an edit is noticed."""

import errno
import math
import stat
from datetime import UTC, datetime
from fractions import Fraction

import pytest
import sqlalchemy as sa
from pydantic import ValidationError

from flows.terminal.screen import fail
from pipeline.ledger.database import open_engine
from reticent import BudgetError, CardError
from tests.flows.nights import stop_clock
from tests.ledger.conftest import in_file


def test_a_ledger_is_created_for_its_owner_only(tmp_path):
    in_file(tmp_path / "deep" / "ledger.db").open(create=True)
    assert stat.S_IMODE((tmp_path / "deep" / "ledger.db").stat().st_mode) == 0o600


def test_a_missing_ledger_refuses_and_never_starts_at_zero(tmp_path):
    with pytest.raises(BudgetError, match="does not exist"):
        in_file(tmp_path / "none.db").open()
    assert not (tmp_path / "none.db").exists()


def test_an_intent_spends_whatever_follows_and_nothing_is_refunded(ledger):
    for _ in range(2):
        ledger.intent("tiny", "k1", Fraction(1, 3), {})
    with pytest.raises(ValueError, match="at least 0"):
        ledger.intent("tiny", "k2", Fraction(-1), {})
    assert ledger.account("tiny").spent == Fraction(2, 3)
    assert [e.body["attempt"] for e in ledger.entries("tiny") if e.kind == "INTENT"] == [1, 2]


def test_a_committed_key_is_never_drawn_again_and_commits_once(ledger):
    intent = ledger.intent("tiny", "k", Fraction(1, 2), {})
    second = ledger.intent("tiny", "k", Fraction(1, 2), {})
    ledger.commit(intent, {"release_sha256": "0" * 64})
    with pytest.raises(BudgetError, match="another attempt committed this release first"):
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


def test_the_unit_may_be_amended_until_something_was_spent_on_it(ledger, make_card):
    def of(user):
        source = make_card().source.model_dump()
        unit = {"user": user, "episodes_per_user": 1, "users_public": 100}
        return make_card(unit=unit, source=source | {"columns": source["columns"] | {"user_id": user}})

    assert ledger.register(of("household"), amend=True).kind == "AMEND"
    ledger.intent("tiny", "k", Fraction(1, 10), {})
    with pytest.raises(CardError, match="'unit' never changes once a budget is spent"):
        ledger.register(of("patient"), amend=True)


def test_vetoes_and_markov_are_not_registered_but_the_domain_is(ledger, make_card):
    domain = make_card().domain.model_dump()
    same = make_card(budget={"rho": 2.0}, domain=domain | {"vetoes": [["x", "a"]], "markov": "aggregated"})
    assert ledger.register(same) is None
    with pytest.raises(CardError, match="domain_hash"):
        ledger.register(make_card(budget={"rho": 2.0}, domain=domain | {"horizon": 3}))


def test_the_filter_allows_what_is_left_to_the_last_digit_and_nothing_more(ledger):
    """Sums of thirds and tenths are exact: floats would refuse the last tenth or allow too much."""
    for i in range(3):
        ledger.intent("tiny", f"third-{i}", Fraction(1, 3), {})
    for i in range(9):
        ledger.intent("tiny", f"tenth-{i}", Fraction(1, 10), {})
    left = Fraction(1, 10)
    above = Fraction(math.nextafter(float(left), 1))
    for more in (above, left + Fraction(1, 10**60)):
        with pytest.raises(BudgetError, match=r"left 0\.1 .*Nothing was read"):
            ledger.intent("tiny", "more", more, {})
    ledger.intent("tiny", "equal", left, {})
    assert ledger.account("tiny").remaining == 0


def test_decimals_on_a_card_are_decimals(place, make_card):
    """A filter in floats would refuse the last spend."""
    assert 0.1 + 0.2 > 0.3
    book = place.open(create=True)
    book.register(make_card(budget={"rho": 0.3}))
    for tenths in (1, 2):
        book.intent("tiny", f"{tenths}", Fraction(tenths, 10), {})
    assert book.account("tiny").remaining == 0


def test_inspections_and_other_free_entries_are_tolerated_everywhere(ledger, make_card):
    with ledger._chain.open() as page:
        page.append("tiny", "INSPECT", {"domain_hash": "0" * 64})
    intent = ledger.intent("tiny", "k", Fraction(1), {})
    ledger.commit(intent, {"release_sha256": "0" * 64})
    assert ledger.register(make_card(budget={"rho": 2.0})) is None
    assert ledger.account("tiny").spent == 1 and ledger.problem() is None
    assert [e.kind for e in ledger.entries()] == ["REGISTER", "INSPECT", "INTENT", "COMMIT"]


def test_a_recovered_commit_is_the_same_commit(ledger):
    """Somebody committed our file while we slept: that is our COMMIT, not a lost race."""
    intent = ledger.intent("tiny", "k", Fraction(1), {})
    first = ledger.commit(intent, {"release_sha256": "0" * 64})
    assert ledger.commit(intent, {"release_sha256": "0" * 64}) == first
    with pytest.raises(BudgetError, match="another attempt committed this release first"):
        ledger.commit(intent, {"release_sha256": "1" * 64})


def test_two_ledgers_open_at_once_see_each_other(ledger, place):
    """The chain is read anew each time; only its hashes are remembered."""
    other = place.open()
    assert other.account("tiny").spent == 0
    ledger.intent("tiny", "k", Fraction(1), {})
    assert other.account("tiny").spent == 1
    other.intent("tiny", "l", Fraction(1), {})
    assert ledger.account("tiny").spent == 2
    place.execute("update entries set body = replace(body, '\"1\"', '\"0\"') where seq = 2")
    for book in (ledger, other):
        with pytest.raises(BudgetError, match="entry 2 was edited"):
            book.account("tiny")


def test_a_full_disk_is_said_to_be_full_and_never_damaged(tmp_path, make_card):
    """Whoever reads "damaged, restore it" puts an old copy back, where all that was needed was room."""
    book = in_file(tmp_path / "ledger.db").open(create=True)
    book.register(make_card(budget={"rho": 2.0}))
    pages = (tmp_path / "ledger.db").stat().st_size // 4096

    def full(connection, _record):
        connection.execute(f"PRAGMA max_page_count={pages}")

    sa.event.listen(book._chain._engine, "connect", full)
    with pytest.raises(BudgetError, match="disk is full") as refused:
        book.intent("tiny", "k", Fraction(1), {"more": "x" * 9000})
    assert "damaged" not in str(refused.value) and "restore" not in str(refused.value)
    sa.event.remove(book._chain._engine, "connect", full)
    assert book.problem() is None and book.account("tiny").spent == 0
    assert book.intent("tiny", "k", Fraction(1), {}).body["attempt"] == 1


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "store/part"), "the disk is full"),
        (OSError("x (os error 28)"), "the disk is full"),
        (OSError(errno.EROFS, "Read-only file system", "store"), "the disk is read only"),
    ],
)
def test_the_shell_says_what_a_disk_lacks(error, says, capsys):
    assert fail(error, as_json=False) == 1
    said = capsys.readouterr().err
    assert says in said and "traceback" not in said


def test_an_entry_is_on_disk_before_anything_is_drawn(tmp_path):
    """EXTRA: the folder is synced too; and a writer waits for another one rather than fail at once."""
    in_file(tmp_path / "ledger.db").open(create=True)
    engine, _ = open_engine(tmp_path / "ledger.db", create=False)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000


def test_what_was_drawn_from_a_seed_is_not_committed_for_people_who_exist(tmp_path, make_card):
    book = in_file(tmp_path / "ledger.db").open(create=True)
    book.register(make_card(kind="real", budget={"rho": 1.0, "ledger": str(tmp_path / "ledger.db")}))
    intent = book.intent("tiny", "k", Fraction(1, 2), {})
    for noise in ("seeded", "none", None):
        with pytest.raises(BudgetError, match="registered as real"):
            book.commit(intent, {"release_sha256": "0" * 64} | ({} if noise is None else {"noise": noise}))
    assert book.commit(intent, {"release_sha256": "0" * 64, "noise": "os"}).kind == "COMMIT"


SCHEDULE = {"rho": 2.0, "schedule": {"rho_month": 0.5, "rho_year": 0.8}}


@pytest.fixture
def at(monkeypatch):
    def move(text):
        stop_clock(monkeypatch, datetime.fromisoformat(text).replace(tzinfo=UTC))

    move("2026-01-31T23:00:00")
    return move


@pytest.fixture
def limited(book, make_card, at):
    book.register(make_card(budget=SCHEDULE))
    return book


def charge(book, key, rho):
    return book.intent("tiny", key, Fraction(rho), {})


def test_a_month_and_a_year_are_the_calendars_and_the_tightest_limit_rules(limited, at):
    charge(limited, "a", "1/2")
    with pytest.raises(BudgetError, match=r"left 0 of 0\.5 this month \(budget.schedule\).*Nothing was read"):
        charge(limited, "b", "1/1000000")
    charge(limited, "free", "0")
    at("2026-02-01T00:00:00")
    assert limited.left("tiny").facts() == {"of": "year", "cap_rho": 0.8, "left_rho": pytest.approx(0.3)}
    with pytest.raises(BudgetError, match=r"left 0\.3 of 0\.8 this year"):
        charge(limited, "b", "4/10")
    charge(limited, "b", "3/10")
    at("2027-01-01T00:00:00")
    charge(limited, "c", "1/2")
    at("2028-01-01T00:00:00")
    charge(limited, "d", "1/2")
    at("2029-01-01T00:00:00")
    # 1.8 of the lifetime is gone
    with pytest.raises(BudgetError, match=r"left 0\.2 of 2; ask"):
        charge(limited, "e", "3/10")


def test_a_clock_that_was_set_back_frees_nothing(limited, at):
    charge(limited, "a", "1/2")
    at("2026-01-01T00:00:00")
    with pytest.raises(BudgetError, match="this month"):
        charge(limited, "b", "1/10")


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
def test_a_wrong_clock_frees_nothing_and_costs_one_period(limited, at, clock):
    for number, (day, then) in enumerate(CLOCKS[clock]):
        at(f"{day}T23:30:00")
        if isinstance(then, str):
            charge(limited, f"{number}", then)
            continue
        cap = {"month": 0.5, "year": 0.8}[then[0]]
        assert limited.left("tiny").facts() == {"of": then[0], "cap_rho": cap, "left_rho": pytest.approx(then[1])}


def test_a_lowered_limit_leaves_nothing_rather_than_less(limited, make_card):
    charge(limited, "a", "4/10")
    limited.register(make_card(budget={"rho": 2.0, "schedule": {"rho_month": 0.1}}), amend=True)
    assert limited.left("tiny").rho == 0
    charge(limited, "free", "0")


def test_a_schedule_is_registered_and_changes_by_amendment_alone(limited, make_card, at):
    wider = make_card(budget={"rho": 2.0, "schedule": {"rho_month": 1.0}})
    with pytest.raises(CardError, match="schedule: registered"):
        limited.require(wider)
    limited.register(wider, amend=True)
    charge(limited, "a", "9/10")
    assert limited.left("tiny").limit == "month"


def test_a_lineage_without_a_schedule_is_registered_in_the_old_words(book, make_card):
    assert "schedule" not in book.register(make_card()).body
    assert book.left("tiny").facts() == {"of": "lifetime", "cap_rho": 10.0, "left_rho": 10.0}


def test_an_empty_schedule_is_no_schedule(make_card):
    with pytest.raises(ValidationError, match="rho_month"):
        make_card(budget={"rho": 1.0, "schedule": {}})
