"""What is PostgreSQL's own: durability, clear refusals without a password, and who may write."""

import sys
from contextlib import nullcontext
from fractions import Fraction

import pytest
import sqlalchemy as sa

from reticent import BudgetError, CardError
from tests.ledger.conftest import Place
from tests.ledger.postgres import USER

DOWN = "postgresql+psycopg://keeper:s3cret@127.0.0.1:1/books?password=s3cret"


def test_a_server_that_is_down_is_a_refusal_without_the_password():
    for create in (False, True):
        with pytest.raises(BudgetError, match="does not answer") as refused:
            Place(DOWN, None).open(create=create)
        assert "s3cret" not in str(refused.value) and "127.0.0.1" in str(refused.value)
        assert refused.value.__cause__ is None and refused.value.__suppress_context__


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_the_short_names_mean_the_same_driver(scheme):
    with pytest.raises(BudgetError, match=r"psycopg://keeper:\*\*\*@127"):
        Place(DOWN.replace("postgresql+psycopg", scheme), None).open()


def test_a_missing_driver_is_the_operators_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(CardError, match=r"pip install 'reticent\[postgres\]'"):
        Place(DOWN, None).open()


@pytest.mark.parametrize("url", ["mysql://keeper:s3cret@host/books", "postgresql+psycopg://keeper:s3cret@host:port/b"])
def test_a_url_that_names_no_ledger_is_the_operators_to_mend_and_not_repeated(url):
    with pytest.raises(CardError, match=r"budget\.ledger") as refused:
        Place(url, None).open()
    assert "s3cret" not in str(refused.value)


@pytest.fixture
def books(request, server) -> Place:
    server.psql("drop database if exists ledger with (force)")
    server.psql("create database ledger")
    return Place(server.url("ledger"), server)


@pytest.mark.service
@pytest.mark.parametrize("how", ["database", "role"])
def test_a_database_that_may_lose_a_commit_is_refused(books, make_card, how):
    book = books.open(create=True)
    book.register(make_card())
    whom = {"database": "database ledger", "role": f"role {USER}"}[how]
    books.server.psql(f"alter {whom} set synchronous_commit = off")
    try:
        with pytest.raises(BudgetError, match="synchronous_commit = off"):
            book.intent("tiny", "k", Fraction(1), {})
        with pytest.raises(BudgetError, match="synchronous_commit = off"):
            books.open()
    finally:
        books.server.psql(f"alter {whom} reset synchronous_commit")
    assert book.account("tiny").spent == 0


@pytest.mark.service
def test_a_database_without_a_ledger_is_refused_and_a_missing_database_too(books):
    with pytest.raises(BudgetError, match="holds no ledger"):
        books.open()
    with pytest.raises(BudgetError, match="does not answer"):
        Place(books.server.url("nowhere"), None).open(create=True)


@pytest.mark.service
def test_a_role_that_may_only_append_can_keep_the_ledger_and_one_that_may_only_read_cannot(books, make_card):
    books.open(create=True).register(make_card())
    server = books.server
    for role in ("keeper", "reader"):
        server.psql(f"drop role if exists {role}")
        server.psql(f"create role {role} login")
    books.execute("grant select, insert on entries to keeper")
    books.execute("grant select, insert, delete, update on head, leases to keeper")
    books.execute("grant select on entries, head, leases to reader")
    keeper = Place(books.where.replace(f"{USER}@", "keeper@"), None).open()
    assert keeper.intent("tiny", "k", Fraction(1), {}).seq == 2
    reader = Place(books.where.replace(f"{USER}@", "reader@"), None).open()
    assert reader.account("tiny").spent == 1
    with pytest.raises(BudgetError, match="may not write"):
        reader.intent("tiny", "l", Fraction(1), {})


@pytest.mark.service
def test_a_server_that_stops_between_two_questions_costs_nothing_and_comes_back(books, make_card):
    book = books.open(create=True)
    book.register(make_card())
    books.server.stop("immediate")
    try:
        with pytest.raises(BudgetError, match="does not answer"):
            book.intent("tiny", "k", Fraction(1), {})
    finally:
        books.server.start()
    assert book.account("tiny").spent == 0
    book.intent("tiny", "k", Fraction(1), {})
    books.server.stop("immediate")
    books.server.start()
    assert book.account("tiny").spent == 1


@pytest.mark.service
@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_of_another_encoding_holds_what_it_can_and_refuses_the_rest(books, make_card, encoding):
    books.server.psql("drop database ledger with (force)")
    books.server.psql(f"create database ledger encoding '{encoding}' template template0")
    book = books.open(create=True)
    book.register(make_card())
    book.note("tiny", "SIGN", {"by": "Jérôme"})
    with pytest.raises(BudgetError, match="lacks a character") if encoding == "LATIN1" else nullcontext():
        book.note("tiny", "SIGN", {"by": "Ωmega"})
    assert book.intent("tiny", "k", Fraction(1), {}).body["rho"] == "1"
    assert books.open().account("tiny").spent == 1


@pytest.mark.service
def test_tables_that_another_host_makes_meanwhile_are_no_damage(server, monkeypatch):
    server.psql("drop schema public cascade; create schema public", "ledger")
    first = Place(server.url("ledger"), server)

    class Early:
        """It looked before the other host's commit."""

        def get_table_names(self) -> list[str]:
            return []

    first.open(create=True)
    look, looks = sa.inspect, [Early()]
    monkeypatch.setattr(sa, "inspect", lambda of: looks.pop() if looks else look(of))
    assert not first.open(create=True).entries()
