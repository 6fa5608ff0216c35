"""The budget ledger: registered lineages, intents and commits, in SQLite or PostgreSQL.

Order of a run (privacy.md §10): INTENT is on disk before a row is read or a number is drawn; what it charges stays
spent whatever happens next.  The cap is a filter: a request that would pass it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from pipeline.declaration.card import AnyCard
from pipeline.ledger import lease, tables
from pipeline.ledger.account import (
    Account,
    Left,
    account_of,
    card_hash,
    change_of_registration,
    check_partition,
    commit_of,
    intents_of,
    left_for,
    registration,
)
from pipeline.ledger.chain import (
    GENESIS,
    AttemptLostError,
    Body,
    BudgetError,
    Entry,
    Head,
    canonical,
    chain_problem,
    entry_hash,
)
from pipeline.ledger.engine import open_engine, refusal
from pipeline.ledger.steps import overtaken

Price = Callable[[Sequence[Entry]], Fraction]


def now() -> datetime:
    """Clock of entries, of monthly and yearly limits and of nights: UTC."""
    return datetime.now(UTC)


class Ledger:
    """One ledger.  Open it with :func:`open_ledger`; every method checks the chain before it believes a number."""

    def __init__(self, engine: sa.Engine, where: str) -> None:
        self._engine, self.where = engine, where
        self._known: tuple[list[tables.Row], list[Entry]] = ([], [])

    def entries(self, lineage: str | None = None) -> list[Entry]:
        """All entries, or those of one lineage, oldest first; a broken chain is a :class:`BudgetError`."""
        with self._transaction() as connection:
            found = self._checked(connection)
        return [e for e in found if lineage is None or e.lineage == lineage]

    def problem(self) -> str | None:
        """What is wrong with the chain, or None."""
        with self._transaction() as connection:
            return self._read(connection)[1]

    def head(self) -> Head | None:
        """The newest entry, to be kept elsewhere; None while nothing is registered."""
        found = self.entries()
        return Head(found[-1].seq, found[-1].hash) if found else None

    def register(self, card: AnyCard, *, amend: bool = False, partitions: int | None = None) -> Entry | None:
        """Create the lineage, or check that the card still agrees with its registration.

        Parameters
        ----------
        partitions
            Number of user-disjoint partitions, declared once; None leaves what is registered.

        Returns
        -------
        The new entry; None where the lineage stood already and agrees.

        Raises
        ------
        CardError
            If a registered field differs and ``amend`` is not set, or if ``kind`` or ``partitions`` would change.
        """
        with self._transaction() as connection:
            found = self._checked(connection)
            change = change_of_registration(found, card, amend=amend, partitions=partitions)
            return None if change is None else self._append(connection, found, card.name, *change)

    def require(self, card: AnyCard) -> None:
        """Refuse a card that was never registered (exit 4) or differs from its registration (exit 2)."""
        self.account(card.name)
        self.register(card)

    def account(self, lineage: str) -> Account:
        """Cap and spending of a registered lineage."""
        return account_of(self.entries(), lineage, self.where)

    def left(self, lineage: str) -> Left:
        """What one more charge to everybody may cost now: the tightest of cap and schedule."""
        found = self.entries()
        return left_for(found, account_of(found, lineage, self.where), None, now())

    def amendments(self, lineage: str) -> list[Entry]:
        """Every change of a registered value, oldest first."""
        return [e for e in self.entries(lineage) if e.kind == "AMEND"]

    def inspected(self, card: AnyCard, snapshot: int) -> Entry:
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

    def intent(
        self,
        lineage: str,
        run_key: str,
        rho: Fraction | Price,
        body: Body,
        *,
        holder: lease.Holder | None = None,
        partition: int | None = None,
    ) -> Entry:
        """Spend ``rho`` for an attempt at ``run_key``; durable when this returns.

        Parameters
        ----------
        rho
            A price instead of a number is asked within the transaction, where no entry can come in between.
        holder
            Who draws; the attempt counts as alive while its lease runs (see :meth:`leased`).  Without, as dead.
        partition
            The one registered user-disjoint partition whose rows are read; None means everybody's.

        Raises
        ------
        BudgetError
            If it would pass the cap, the key has its COMMIT, or another attempt at it is alive; nothing was read.
        CardError
            If the partition is not registered.
        ValueError
            If ``rho`` is negative: nothing is ever refunded.
        """
        with self._transaction() as connection:
            found = self._checked(connection)
            account = account_of(found, lineage, self.where)
            rho = rho(found) if callable(rho) else rho
            if rho < 0:
                raise ValueError(f"a charge is at least 0; got {rho}")
            check_partition(found, lineage, partition)
            if commit_of(found, lineage, run_key) is not None:
                raise BudgetError(f"{lineage}: this release is committed; it is replayed, never drawn again")
            earlier = [e.seq for e in intents_of(found, lineage, run_key)]
            if holder is not None and (alive := lease.living(connection, earlier, holder.place)):
                raise BudgetError(
                    f"{lineage}: this release is being drawn elsewhere (entry {alive[0]} of {self.where}); "
                    "wait until it is committed or its lease ends. Nothing was read"
                )
            left = left_for(found, account, partition, now())
            if rho > left.rho:
                period = "" if left.limit == "lifetime" else f" this {left.limit} (budget.schedule)"
                raise BudgetError(
                    f"{lineage}: asked ρ = {float(rho):.6g}, left {float(left.rho):.6g} of "
                    f"{float(left.cap):g}{period}; ask for at most what is left. Nothing was read"
                )
            of_part = {} if partition is None else {"partition": partition}
            full = {"run_key": run_key, "attempt": 1 + len(earlier), "rho": str(rho), **of_part, **body}
            e = self._append(connection, found, lineage, "INTENT", full)
            lease.end(connection, earlier)
            if holder is not None:
                lease.grant(connection, e.seq, holder)
            return e

    @contextmanager
    def leased(self, intent: Entry, holder: lease.Holder) -> Generator[None]:
        """Keep an attempt's lease alive while its release is drawn and written; afterwards the lease ends."""
        try:
            with lease.heartbeat(lambda: self.renew(intent, holder)):
                yield
        finally:
            # where the database is gone too, the lease runs out by itself
            with suppress(BudgetError), self._transaction() as connection:
                lease.end(connection, [intent.seq])

    def renew(self, intent: Entry, holder: lease.Holder) -> bool:
        """Prolong a lease; False where another attempt has taken over."""
        with self._transaction() as connection:
            return lease.renew(connection, intent.seq, holder)

    def alive(self, intent: Entry, place: str) -> bool:
        """Whether an attempt may still be drawing; the caller holds the lock of ``place``."""
        with self._transaction() as connection:
            return bool(lease.living(connection, [intent.seq], place))

    def commit(self, intent: Entry, body: Body) -> Entry:
        """Record that the attempt's release is on disk; at most one COMMIT a key, the same one for the same file.

        Raises
        ------
        AttemptLostError
            If another attempt has the COMMIT.
        """
        key = intent.body["run_key"]
        with self._transaction() as connection:
            found = self._checked(connection)
            there = commit_of(found, intent.lineage, key)
            if there is not None:
                if there.body["intent"] == intent.seq and all(there.body[k] == v for k, v in body.items()):
                    return there
                raise AttemptLostError(
                    f"{intent.lineage}: another attempt committed this release first; its spend stays"
                )
            counter = intent.body.get("counter")
            if counter is not None and overtaken(found, intent.lineage, counter) is not None:
                raise AttemptLostError(
                    f"{intent.lineage}: a later night of this counter is committed already; this draw is lost, its "
                    "spend stays"
                )
            if (registration(found, intent.lineage) or {}).get("kind") == "real" and body.get("noise") != "os":
                raise BudgetError(
                    f"{intent.lineage}: registered as real, so only a release with operating-system noise is committed"
                )
            spent = account_of(found, intent.lineage, self.where).spent
            told = {"run_key": key, "attempt": intent.body["attempt"], "intent": intent.seq, "spent": str(spent)}
            return self._append(connection, found, intent.lineage, "COMMIT", {**told, **body})

    def sign(self, commit: Entry, body: Body) -> Entry:
        """Somebody answers for a run made of a committed release: who, which run, sha256 of its certificate."""
        with self._transaction() as connection:
            found = self._checked(connection)
            return self._append(connection, found, commit.lineage, "SIGN", {"commit": commit.seq, **body})

    def purged(self, lineage: str, body: Body) -> Entry:
        """Note, at no cost, that raw rows left the store."""
        with self._transaction() as connection:
            return self._append(connection, self._checked(connection), lineage, "PURGE", body)

    def committed(self, lineage: str, run_key: str) -> Entry | None:
        """The COMMIT of a key, if there is one."""
        return commit_of(self.entries(), lineage, run_key)

    @contextmanager
    def _transaction(self) -> Generator[sa.Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except DBAPIError as e:
            raise refusal(self.where, e) from None

    def _checked(self, connection: sa.Connection) -> list[Entry]:
        found, problem = self._read(connection)
        if problem is not None:
            raise BudgetError(f"ledger {self.where} is damaged: {problem}; restore it from a copy. Nothing was read")
        return found

    def _read(self, connection: sa.Connection) -> tuple[list[Entry], str | None]:
        """Every row, every time; rows that are what they were when last checked are not hashed again."""
        stored, (rows, known) = tables.rows(connection), self._known
        if stored[: len(rows)] != rows:
            rows, known = [], []
        try:
            fresh = [tables.parsed(r) for r in stored[len(rows) :]]
        except ValueError:
            return [], "an entry is not readable"
        if problem := chain_problem(fresh, after=known[-1] if known else None):
            return [], problem
        found = known + fresh
        self._known = stored, found
        return found, tables.head_problem(connection, found)

    @staticmethod
    def _append(connection: sa.Connection, found: Sequence[Entry], lineage: str, kind: str, body: Body) -> Entry:
        # numbered after the entries that were checked: a writer in between makes the primary key conflict
        seq, previous = (found[-1].seq + 1, found[-1].hash) if found else (1, GENESIS)
        at = now().isoformat(timespec="seconds")
        text = canonical(dict(body))
        plain = json.loads(text)
        e = Entry(seq, lineage, kind, at, plain, previous, entry_hash(seq, lineage, kind, at, plain, previous))
        tables.insert(connection, e, text)
        return e


def open_ledger(where: Path | str, *, create: bool) -> Ledger:
    """Open a ledger file or database URL.

    Raises
    ------
    BudgetError
        If it does not exist and ``create`` is False: a missing ledger means refuse, never "start at zero".
    """
    engine, shown = open_engine(where, create=create)
    return Ledger(engine, shown)
