"""The budget ledger: what is asked is spent before anything is read, the cap holds, an edit is noticed."""

from __future__ import annotations

import errno
import math
import stat
from fractions import Fraction

import pytest
import sqlalchemy as sa

from flows.terminal.screen import fail
from pipeline.ledger.database import open_engine
from reticent import BudgetError, CardError
from tests.ledger.conftest import in_file


def test_a_ledger_is_created_for_its_owner_only(tmp_path):
    in_file(tmp_path / "deep" / "ledger.db").open(create=True)
    assert stat.S_IMODE((tmp_path / "deep" / "ledger.db").stat().st_mode) == 0o600


def test_a_missing_ledger_refuses_and_never_starts_at_zero(tmp_path):
    with pytest.raises(BudgetError, match="does not exist"):
        in_file(tmp_path / "none.db").open()
    assert not (tmp_path / "none.db").exists()


def test_an_intent_spends_whatever_follows(ledger):
    ledger.intent("tiny", "k1", Fraction(1, 3), {})
    ledger.intent("tiny", "k1", Fraction(1, 3), {})
    assert ledger.account("tiny").spent == Fraction(2, 3)
    assert [e.body["attempt"] for e in ledger.entries("tiny") if e.kind == "INTENT"] == [1, 2]


def test_nothing_is_ever_refunded(ledger):
    ledger.intent("tiny", "k1", Fraction(1), {})
    with pytest.raises(ValueError, match="at least 0"):
        ledger.intent("tiny", "k2", Fraction(-1), {})
    assert ledger.account("tiny").spent == 1


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


def test_the_head_is_the_newest_entry(place, make_card):
    book = place.open(create=True)
    assert book.head() is None
    entry = book.register(make_card())
    assert str(book.head()) == f"1:{entry.hash}"


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
    "error", [OSError(errno.ENOSPC, "No space left on device", "store/part"), OSError("x (os error 28)")]
)
def test_the_shell_says_that_a_disk_is_full(error, capsys):
    assert fail(error, as_json=False) == 1
    assert "the disk is full" in capsys.readouterr().err


def test_the_shell_says_that_a_disk_is_read_only(capsys):
    assert fail(OSError(errno.EROFS, "Read-only file system", "store"), as_json=False) == 1
    said = capsys.readouterr().err
    assert "the disk is read only" in said and "traceback" not in said


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
