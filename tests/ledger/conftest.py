"""The two engines a ledger lives in; a test that takes ``place`` runs on both (PostgreSQL under ``service``)."""

import sqlite3
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.ledger.ledger import Ledger, open_ledger
from tests.ledger.postgres import Server, binaries, postgres_server


@dataclass(frozen=True)
class Place:
    """Where one test's ledger lives."""

    where: str
    server: Server | None

    def open(self, *, create: bool = False) -> Ledger:
        return open_ledger(self.where, create=create)

    def execute(self, sql: str) -> None:
        if self.server is not None:
            self.server.psql(sql, "ledger")
            return
        raw = sqlite3.connect(self.where)
        raw.execute(sql)
        raw.commit()
        raw.close()


def in_file(path: Path) -> Place:
    return Place(str(path), None)


@pytest.fixture(scope="session")
def server() -> Generator[Server]:
    if binaries() is None:
        pytest.skip("no PostgreSQL server: apt-get install postgresql")
    with postgres_server() as running:
        running.psql("create database ledger")
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.service)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "sqlite":
        return in_file(tmp_path / "ledger.db")
    running: Server = request.getfixturevalue("server")
    running.psql("drop schema public cascade; create schema public", "ledger")
    return Place(running.url("ledger"), running)


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    """A ledger in a file: for what is read off the entries, wherever they are kept."""
    return in_file(tmp_path / "ledger.db").open(create=True)


@pytest.fixture
def ledger(place: Place, make_card) -> Ledger:
    book = place.open(create=True)
    book.register(make_card(budget={"rho": 2.0}))
    return book
