"""Missing, cut, edited, swapped, restored: a damaged ledger is refused by every method and never starts at zero."""

import os
import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from pipeline.ledger.chain import lacking
from reticent import BudgetError, Card
from tests.conftest import card_dict
from tests.ledger.conftest import Place, in_file

EDITS = {
    "a body": "update entries set body = replace(body, '1/2', '1/4') where seq = 2",
    "a rho to zero": "update entries set body = replace(body, '1/2', '0') where seq = 3",
    "the cap": 'update entries set body = replace(body, \'"rho":"2"\', \'"rho":"9"\') where seq = 1',
    "a kind": "update entries set kind = 'NOTE' where seq = 2",
    "a time": "update entries set at = '2001-01-01T00:00:00+00:00' where seq = 2",
    "a lineage": "update entries set lineage = 'other' where seq = 3",
    "a hash": "update entries set hash = previous where seq = 3",
    "no JSON": "update entries set body = 'x' where seq = 2",
    "JSON of another shape": "update entries set body = '[1]' where seq = 2",
    "a middle entry gone": "delete from entries where seq = 2",
    "the first entry gone": "delete from entries where seq = 1",
    "the last entry gone": "delete from entries where seq = 4",
    "the last entries gone": "delete from entries where seq > 1",
    "all entries gone": "delete from entries",
    "a number moved": "update entries set seq = 9 where seq = 3",
    "two entries swapped": "update entries set seq = case seq when 2 then -3 when 3 then -2 else seq end",
    "the head gone": "delete from head",
    "the head set back": "update head set seq = 3, hash = (select hash from entries where seq = 3)",
    "a table gone: entries": "drop table entries",
    "a table gone: head": "drop table head",
    "a table gone: leases": "drop table leases",
}


@pytest.fixture
def written(ledger):
    for key in "abc":
        ledger.intent("tiny", key, Fraction(1, 2), {})
    return ledger


def refused(place: Place, make_card) -> None:
    """Opening, with and without leave to create, or the first question: one of them refuses; nothing is spent anew."""
    for create, use in (
        (False, lambda book: book.account("tiny")),
        (True, lambda book: book.entries()),
        (True, lambda book: book.register(make_card(budget={"rho": 2.0}))),
        (False, lambda book: book.intent("tiny", "new", Fraction(1, 4), {})),
    ):
        with pytest.raises(BudgetError, match=r"damaged|lacks|no file|rights|cannot be opened|not a file"):
            use(place.open(create=create))


# rows are checked by one code, whoever gives them; what a database says of its tables differs
ON_POSTGRESQL = ["a body", "the last entry gone", "all entries gone", "the head gone"]
ON_POSTGRESQL += [edit for edit in EDITS if "table gone" in edit]


@pytest.mark.parametrize(
    ("place", "edit"),
    [
        *(("sqlite", edit) for edit in EDITS),
        *(pytest.param("postgresql", edit, marks=pytest.mark.service) for edit in ON_POSTGRESQL),
    ],
    indirect=["place"],
)
def test_an_edit_is_refused(written, place, make_card, edit):
    place.execute(EDITS[edit])
    if edit == "two entries swapped":
        place.execute("update entries set seq = -seq where seq < 0")
    refused(place, make_card)


def test_the_undamaged_ledger_would_pass_all_of_it(written, place, make_card):
    """The twin of ``refused``: without damage none of its questions fails."""
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        refused(place, make_card)


@pytest.fixture(scope="module")
def content(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("book") / "ledger.db"
    book = in_file(path).open(create=True)
    book.register(Card.model_validate(card_dict(budget={"rho": 100.0})))
    for i in range(60):
        book.intent("tiny", f"key-{i}", Fraction(1, 2), {"note": "x" * 100})
    return path.read_bytes()


@pytest.fixture
def file(tmp_path, content) -> Path:
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def _cut(path: Path, tenth: int) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: [len(whole) * tenth // 10, len(whole) * tenth // 10 // 4096 * 4096][tenth % 2]])


def _zero(path: Path, page: int) -> None:
    whole = bytearray(path.read_bytes())
    assert len(whole) >= 8 * 4096
    whole[page * 4096 : (page + 1) * 4096] = bytes(4096)
    path.write_bytes(whole)


def _another(path: Path, _: int) -> None:
    path.unlink()
    in_file(path).execute("create table people (name text)")
    path.chmod(0o600)


def _folder(path: Path, _: int) -> None:
    path.unlink()
    path.mkdir()


OTHERS = (b"", b"not a database at all" * 100, b"SQLite format 3\x00")


@pytest.mark.parametrize(
    ("spoil", "how"),
    [
        *((_cut, tenth) for tenth in range(10)),
        (lambda path, _: path.write_bytes(path.read_bytes()[:-1]), 0),
        *((_zero, page) for page in range(8)),
        *((lambda path, i: path.write_bytes(OTHERS[i]), i) for i in range(3)),
        (_another, 0),
        *((Path.chmod, rights) for rights in (0o000, 0o400, 0o200, 0o602, 0o666)),
        (_folder, 0),
    ],
)
def test_a_file_that_is_no_whole_ledger_of_its_owners_is_refused_and_not_laid_out(file, make_card, spoil, how):
    spoil(file, how)
    before = file.read_bytes() if file.is_file() and os.access(file, os.R_OK) else None
    refused(in_file(file), make_card)
    assert before is None or file.read_bytes() == before


def test_a_ledger_that_vanished_while_open_is_not_made_anew(file):
    book = in_file(file).open()
    file.unlink()
    with pytest.raises(BudgetError):
        book.account("tiny")
    assert not file.exists()


def test_a_ledger_never_keeps_entries_in_a_side_file_that_could_be_lost(file):
    """Somebody's tool switched it to write-ahead logging; the next opening switches back, and no log is left."""
    in_file(file).execute("PRAGMA journal_mode=WAL")
    book = in_file(file).open()
    book.intent("tiny", "new", Fraction(1, 4), {})
    assert [p.name for p in file.parent.glob("ledger.db*")] == ["ledger.db"]


def test_a_lost_write_ahead_log_is_noticed_where_the_head_was_kept(file):
    """A tool held it in WAL mode and its log was deleted: the file is a whole old ledger; only a head can tell."""
    old = file.read_bytes()
    book = in_file(file).open()
    book.intent("tiny", "new", Fraction(1, 4), {})
    head = book.head()
    file.write_bytes(old)
    assert book.problem() is None
    assert lacking(book.entries(), [head]) == head


def test_a_ledger_of_the_first_version_gains_its_tables_and_keeps_its_entries(file):
    before = in_file(file).open().entries()
    for table in ("head", "leases"):
        in_file(file).execute(f"drop table {table}")
    book = in_file(file).open()
    assert book.entries() == before and book.head().seq == len(before)


def test_a_swapped_or_restored_ledger_is_whole_and_refused_by_what_others_saw(file, tmp_path, make_card):
    book = in_file(file).open()
    kept = shutil.copy(file, tmp_path / "old.db")
    book.intent("tiny", "new", Fraction(1, 4), {})
    head = book.head()
    other = in_file(tmp_path / "other.db").open(create=True)
    for i in range(3):
        other.register(make_card(name=f"n{i}"))
    for wrong in (Path(kept), tmp_path / "other.db"):
        shutil.copy(wrong, file)
        file.chmod(0o600)
        assert lacking(in_file(file).open().entries(), [head]) == head
