"""A ledger's tables: entries (the chain), head (its newest entry), leases (who draws now; no part of the chain)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from pipeline.ledger.chain import BudgetError, Entry

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


def rows(connection: sa.Connection) -> list[Row]:
    """All entries as they are stored, oldest first."""
    return [tuple(r) for r in connection.execute(sa.select(entries).order_by(entries.c.seq))]


def parsed(row: Row) -> Entry:
    """An entry from its stored row.

    Raises
    ------
    ValueError
        If the row holds what no entry can hold.
    """
    seq, lineage, kind, at, text, previous, digest = row
    body: Any = json.loads(text) if isinstance(text, str) else None
    if not isinstance(seq, int) or not isinstance(body, dict):
        raise ValueError("not an entry")
    return Entry(seq, lineage, kind, at, body, previous, digest)


def head_problem(connection: sa.Connection, found: Sequence[Entry]) -> str | None:
    """What the noted head says against these entries: a chain that lost its last entries is whole to look at."""
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
