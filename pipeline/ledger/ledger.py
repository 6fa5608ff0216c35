"""The budget ledger: registered lineages, intents and commits, in SQLite (another database by URL).

Order of a run (privacy.md §10): INTENT is on disk before a row is read or a number is drawn; what it charges stays
spent whatever happens next.  The cap is a filter: a request that would pass it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError, IntegrityError

from pipeline.card import Card, CardError
from pipeline.ledger.chain import GENESIS, BudgetError, Entry, canonical, chain_problem, entry_hash
from pipeline.ledger.engine import open_engine
from pipeline.ledger.inspection import card_hash
from pipeline.privacy.budget import fraction_of

_metadata = sa.MetaData()
_entries = sa.Table(
    "entries",
    _metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("lineage", sa.String, nullable=False, index=True),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("at", sa.String, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("previous", sa.String(64), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False),
)


@dataclass(frozen=True)
class Account:
    """Where a lineage stands: cap, what is spent (all INTENTs), what is left; exact zCDP rhos."""

    lineage: str
    cap: Fraction
    spent: Fraction
    delta: float

    @property
    def remaining(self) -> Fraction:
        """Cap minus spent."""
        return self.cap - self.spent


def registered_fields(card: Card) -> dict[str, Any]:
    """What registration fixes: later runs compare the card with this (privacy.md §0.1-14)."""
    return {
        "rho": str(fraction_of(card.budget.rho)),
        "delta": card.budget.delta,
        "kind": card.kind,
        "unit": card.unit.user,
        "episodes_per_user": card.unit.episodes_per_user,
        "relation": "replace",
        "domain_hash": card.domain_hash(),
    }


class Ledger:
    """One ledger.  Open it with :func:`open_ledger`; every method checks the chain before it believes a number."""

    def __init__(self, engine: sa.Engine, where: str) -> None:
        self._engine, self.where = engine, where

    def create_tables(self) -> None:
        """Lay out an empty ledger; an existing one is left alone."""
        with self._transaction() as connection:
            _metadata.create_all(connection)

    def entries(self, lineage: str | None = None) -> list[Entry]:
        """All entries, or those of one lineage, oldest first; a broken chain is a :class:`BudgetError`."""
        with self._transaction() as connection:
            found = self._checked(connection)
        return [e for e in found if lineage is None or e.lineage == lineage]

    def problem(self) -> str | None:
        """What is wrong with the chain, or None."""
        with self._transaction() as connection:
            return chain_problem(self._read(connection))

    def register(self, card: Card, *, amend: bool = False) -> Entry | None:
        """Create the lineage, or check that the card still agrees with its registration.

        Returns
        -------
        The new entry; None where the lineage stood already and agrees.

        Raises
        ------
        CardError
            If a registered field differs and ``amend`` is not set, or if ``kind`` would change.
        """
        fields = registered_fields(card)
        with self._transaction() as connection:
            found = self._checked(connection)
            now = _registration(found, card.name)
            if now is None:
                return self._append(connection, found, card.name, "REGISTER", fields)
            changed = sorted(k for k in fields if fields[k] != now[k])
            if not changed:
                return None
            spent = _account(found, card.name, self.where).spent
            if amend and Fraction(fields["rho"]) < spent:
                raise CardError(f"{card.name}: cap {fields['rho']} is below what is spent, {float(spent):.6g}")
            if not amend or "kind" in changed:
                rule = (
                    "'kind' never changes"
                    if "kind" in changed
                    else "use `register --amend` to change them for all runs"
                )
                found = ", ".join(f"{k}: registered {now[k]}, card says {fields[k]}" for k in changed)
                raise CardError(f"{card.name}: differs from its registration ({found}); {rule}")
            return self._append(connection, found, card.name, "AMEND", fields)

    def require(self, card: Card) -> None:
        """Refuse a card that was never registered (exit 4) or differs from its registration (exit 2)."""
        now = _registration(self.entries(), card.name)
        if now is None:
            raise BudgetError(f"{card.name}: no entry in {self.where}; run `reticent register` once. Nothing was read")
        self.register(card)

    def account(self, lineage: str) -> Account:
        """Cap and spending of a registered lineage."""
        return _account(self.entries(), lineage, self.where)

    def amendments(self, lineage: str) -> list[Entry]:
        """Every change of a registered value, oldest first."""
        return [e for e in self.entries(lineage) if e.kind == "AMEND"]

    def inspected(self, card: Card, snapshot: int) -> Entry:
        """Record, at no cost and without a counted fact, that somebody is about to look at a snapshot."""
        body = {"snapshot": snapshot, "domain_hash": card.domain_hash(), "card_hash": card_hash(card), "rho": "0"}
        with self._transaction() as connection:
            return self._append(connection, self._checked(connection), card.name, "INSPECT", body)

    def inspections(self, lineage: str) -> list[Entry]:
        """Every look at the data, oldest first."""
        return [e for e in self.entries(lineage) if e.kind == "INSPECT"]

    def lineages(self) -> list[str]:
        """Names of all registered lineages."""
        return list(dict.fromkeys(e.lineage for e in self.entries() if e.kind == "REGISTER"))

    def intent(self, lineage: str, run_key: str, rho: Fraction, body: Mapping[str, Any]) -> Entry:
        """Spend ``rho`` for an attempt at ``run_key``; durable when this returns.

        Raises
        ------
        BudgetError
            If it would pass the cap, or the key has its COMMIT; nothing was read.
        """
        with self._transaction() as connection:
            found = self._checked(connection)
            account = _account(found, lineage, self.where)
            if _commit(found, lineage, run_key) is not None:
                raise BudgetError(f"{lineage}: this release is committed; it is replayed, never drawn again")
            if account.spent + rho > account.cap:
                raise BudgetError(
                    f"{lineage}: asked ρ = {float(rho):.6g}, left {float(account.remaining):.6g} of "
                    f"{float(account.cap):g}; ask for at most what is left. Nothing was read"
                )
            attempt = 1 + sum(e.kind == "INTENT" and e.body["run_key"] == run_key for e in found)
            full = {"run_key": run_key, "attempt": attempt, "rho": str(rho), **body}
            return self._append(connection, found, lineage, "INTENT", full)

    def commit(self, intent: Entry, body: Mapping[str, Any]) -> Entry:
        """Record that the attempt's release is on disk; at most one COMMIT a key."""
        key = intent.body["run_key"]
        with self._transaction() as connection:
            found = self._checked(connection)
            if _commit(found, intent.lineage, key) is not None:
                raise BudgetError(f"{intent.lineage}: another attempt committed this release first; its spend stays")
            spent = _account(found, intent.lineage, self.where).spent
            full = {
                "run_key": key,
                "attempt": intent.body["attempt"],
                "intent": intent.seq,
                "spent": str(spent),
                **body,
            }
            return self._append(connection, found, intent.lineage, "COMMIT", full)

    def purged(self, lineage: str, body: Mapping[str, Any]) -> Entry:
        """Note, at no cost, that raw rows left the store."""
        with self._transaction() as connection:
            return self._append(connection, self._checked(connection), lineage, "PURGE", body)

    def committed(self, lineage: str, run_key: str) -> Entry | None:
        """The COMMIT of a key, if there is one."""
        return _commit(self.entries(), lineage, run_key)

    @contextmanager
    def _transaction(self) -> Generator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except IntegrityError:
            raise BudgetError(
                f"ledger {self.where}: another process wrote first; nothing was charged, try again"
            ) from None
        except DatabaseError as e:
            raise BudgetError(
                f"ledger {self.where} is damaged or not a ledger ({type(e.orig).__name__}); restore it"
            ) from e

    def _checked(self, connection: sa.Connection) -> list[Entry]:
        found = self._read(connection)
        if problem := chain_problem(found):
            raise BudgetError(f"ledger {self.where} is damaged: {problem}; restore it from a copy. Nothing was read")
        return found

    @staticmethod
    def _read(connection: sa.Connection) -> list[Entry]:
        rows = connection.execute(sa.select(_entries).order_by(_entries.c.seq)).all()
        try:
            return [Entry(r.seq, r.lineage, r.kind, r.at, json.loads(r.body), r.previous, r.hash) for r in rows]
        except ValueError:
            raise BudgetError("the ledger is damaged: an entry is not JSON; restore it. Nothing was read") from None

    @staticmethod
    def _append(
        connection: sa.Connection, found: Sequence[Entry], lineage: str, kind: str, body: Mapping[str, Any]
    ) -> Entry:
        # numbered after the entries that were checked: a writer in between makes the primary key conflict
        seq, previous = (found[-1].seq + 1, found[-1].hash) if found else (1, GENESIS)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        plain = json.loads(canonical(dict(body)))
        e = Entry(seq, lineage, kind, at, plain, previous, entry_hash(seq, lineage, kind, at, plain, previous))
        values = {"seq": seq, "lineage": lineage, "kind": kind, "at": at, "previous": previous, "hash": e.hash}
        connection.execute(_entries.insert().values(body=canonical(plain), **values))
        return e


def open_ledger(where: Path | str, *, create: bool) -> Ledger:
    """Open a ledger file or database URL.

    Raises
    ------
    BudgetError
        If it does not exist and ``create`` is False: a missing ledger means refuse, never "start at zero".
    """
    engine, shown = open_engine(where, create=create)
    ledger = Ledger(engine, shown)
    if create:
        ledger.create_tables()
    return ledger


def _registration(entries: Sequence[Entry], lineage: str) -> Mapping[str, Any] | None:
    found = [e.body for e in entries if e.lineage == lineage and e.kind in ("REGISTER", "AMEND")]
    return found[-1] if found else None


def _account(entries: Sequence[Entry], lineage: str, where: str) -> Account:
    fields = _registration(entries, lineage)
    if fields is None:
        raise BudgetError(f"{lineage}: no entry in {where}; run `reticent register` once. Nothing was read")
    spent = sum((Fraction(e.body["rho"]) for e in entries if e.lineage == lineage and e.kind == "INTENT"), Fraction(0))
    return Account(lineage, Fraction(fields["rho"]), spent, fields["delta"])


def _commit(entries: Sequence[Entry], lineage: str, run_key: str) -> Entry | None:
    return next(
        (e for e in entries if e.lineage == lineage and e.kind == "COMMIT" and e.body["run_key"] == run_key), None
    )
