"""A ledger's tables: entries (the chain), head (its newest entry), leases (who draws now; no part of the chain)."""

# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from pipeline.ledger.chain import GENESIS, Body, BudgetError, Entry, canonical, chain_problem, entry_hash

metadata = sa.MetaData()
entries = sa.Table(
    "entries",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("lineage", sa.String, nullable=False, index=True),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("at", sa.String, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("previous", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)
head = sa.Table(
    "head",
    metadata,
    sa.Column("only", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("seq", sa.Integer, nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)
leases = sa.Table(
    "leases",
    metadata,
    sa.Column("intent", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("token", sa.String, nullable=False),
    sa.Column("place", sa.String, nullable=False),
    sa.Column("expires", sa.Double, nullable=False),
)
Row = tuple[Any, ...]


def lay_out(connection: sa.Connection, where: str, *, create: bool) -> None:
    """Check that all tables are there; make them where none is and ``create`` is set.

    A ledger of version 0.1.0 has entries alone: it gets the other two, and its head is its last entry.

    Raises
    ------
    BudgetError
        If some tables are gone, or all of them and ``create`` is not set.
    """
    there = {t for t in metadata.tables if sa.inspect(connection).has_table(t)}
    if there == set(metadata.tables):
        return
    if there and there != {"entries"}:
        gone = ", ".join(sorted(set(metadata.tables) - there))
        raise BudgetError(f"ledger {where} is damaged: it lacks its table {gone}; restore it. Nothing was read")
    if not there and not create:
        raise BudgetError(f"{where} is damaged or holds no ledger; `reticent register` creates one. Nothing was read")
    metadata.create_all(connection)
    last = connection.execute(sa.select(entries).order_by(entries.c.seq.desc()).limit(1)).first()
    if last is not None:
        connection.execute(head.insert().values(only=1, seq=last.seq, hash=last.hash))


@dataclass(frozen=True)
class Page:
    """One transaction on a ledger whose chain was checked: what is there, and room for more.

    Parameters
    ----------
    connection
        Of the transaction; leases are changed through it.
    entries
        All entries, oldest first.
    clock
        Dates what is appended.
    """

    connection: sa.Connection
    entries: list[Entry]
    clock: Callable[[], datetime]

    def append(self, lineage: str, kind: str, body: Body, sign: Callable[[str], str] | None = None) -> Entry:
        """Chain one more entry to the last one, and move the head to it.

        Parameters
        ----------
        lineage, kind, body
            See :class:`~pipeline.ledger.chain.Entry`.
        sign
            Makes the ``signature`` of the body from the hash of the entry without it.
        """
        # numbered after the entries that were checked: a writer in between makes the primary key conflict
        seq, previous = (self.entries[-1].seq + 1, self.entries[-1].hash) if self.entries else (1, GENESIS)
        at, plain = self.clock().isoformat(timespec="seconds"), json.loads(canonical(dict(body)))
        if sign is not None:
            plain["signature"] = sign(entry_hash(seq, lineage, kind, at, plain, previous))
        e = Entry(seq, lineage, kind, at, plain, previous, entry_hash(seq, lineage, kind, at, plain, previous))
        insert(self.connection, e, canonical(plain))
        self.entries.append(e)
        return e


class Chain:
    """The chain of a ledger in its database, checked whenever it is read.

    Parameters
    ----------
    engine
        From :func:`~pipeline.ledger.database.open_engine`.
    where
        Names the ledger in messages.
    clock
        Dates what is appended.
    refusal
        Says what a database error means.
    """

    def __init__(
        self,
        engine: sa.Engine,
        where: str,
        clock: Callable[[], datetime],
        refusal: Callable[[str, DBAPIError], BudgetError],
    ) -> None:
        self._engine, self._where, self._clock, self._refusal = engine, where, clock, refusal
        self._known: tuple[list[Row], list[Entry]] = ([], [])

    @contextmanager
    def connect(self) -> Generator[sa.Connection]:
        """One transaction of the database; durable when the block is left."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except DBAPIError as e:
            raise self._refusal(self._where, e) from None

    @contextmanager
    def open(self) -> Generator[Page]:
        """One transaction on the checked chain.

        Raises
        ------
        BudgetError
            If the chain is broken, or the database does not answer.
        """
        with self.connect() as connection:
            found, problem = self.read(connection)
            if problem is not None:
                raise BudgetError(
                    f"ledger {self._where} is damaged: {problem}; restore it from a copy. Nothing was read"
                )
            yield Page(connection, list(found), self._clock)

    def read(self, connection: sa.Connection) -> tuple[list[Entry], str | None]:
        """Every row, every time, and what is wrong with them; rows known from before are not hashed again."""
        stored, (rows, known) = _rows(connection), self._known
        if stored[: len(rows)] != rows:
            rows, known = [], []
        try:
            fresh = [_parsed(r) for r in stored[len(rows) :]]
        except ValueError:
            return [], "an entry is not readable"
        if problem := chain_problem(fresh, after=known[-1] if known else None):
            return [], problem
        found = known + fresh
        self._known = stored, found
        return found, _head_problem(connection, found)


def _rows(connection: sa.Connection) -> list[Row]:
    """All entries as they are stored, oldest first."""
    return [tuple(r) for r in connection.execute(sa.select(entries).order_by(entries.c.seq))]


def _parsed(row: Row) -> Entry:
    """An entry from its stored row; a ValueError if the row holds what no entry can hold."""
    seq, lineage, kind, at, text, previous, digest = row
    body: Any = json.loads(text) if isinstance(text, str) else None
    if not isinstance(seq, int) or not isinstance(body, dict):
        raise ValueError("not an entry")
    return Entry(seq, lineage, kind, at, body, previous, digest)


def _head_problem(connection: sa.Connection, found: Sequence[Entry]) -> str | None:
    """What the noted head contradicts in these entries: without it, a chain that lost its last entries looks whole."""
    noted = [(h.seq, h.hash) for h in connection.execute(sa.select(head))]
    last = [(found[-1].seq, found[-1].hash)] if found else []
    if noted == last:
        return None
    if not noted:
        return "its head is gone"
    return f"its newest entry was {noted[0][0]}, now it is {last[0][0] if last else 'none'}: entries were cut off"


def insert(connection: sa.Connection, e: Entry, text: str) -> None:
    """Store an entry and move the head to it."""
    values = {"seq": e.seq, "lineage": e.lineage, "kind": e.kind, "at": e.at, "previous": e.previous, "hash": e.hash}
    connection.execute(entries.insert().values(body=text, **values))
    connection.execute(head.delete())
    connection.execute(head.insert().values(only=1, seq=e.seq, hash=e.hash))
