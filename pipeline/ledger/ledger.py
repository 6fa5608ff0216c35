"""The budget ledger: registered lineages, intents and commits, in SQLite or PostgreSQL.

Order of a run (privacy.md §10): INTENT is on disk before a row is read or a number is drawn; what it charges stays
spent whatever happens next.  The cap is a filter: a request that would pass it is refused.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import sqlalchemy as sa

from pipeline.declaration.card import AnyCard
from pipeline.ledger import account as accounts
from pipeline.ledger import attempts, database
from pipeline.ledger.chain import AttemptLostError, Body, BudgetError, Entry, Head, entries_of
from pipeline.ledger.people import claim, key_file, known_key, knows_people, refuse_second_key
from pipeline.ledger.publication import OperatorKey, key_body, publications, registered_keys

Price = Callable[[Sequence[Entry]], Fraction]


def now() -> datetime:
    """Clock of entries, of monthly and yearly limits and of nights: UTC."""
    return datetime.now(UTC)


class Ledger:
    """One ledger, opened by :func:`open_ledger`; every method checks the chain before it uses an entry."""

    def __init__(self, engine: sa.Engine, where: str) -> None:
        self.where = where
        self._chain = database.Chain(engine, where, lambda: now())

    # reading

    def entries(self, lineage: str | None = None) -> list[Entry]:
        """All entries, or those of one lineage, oldest first; a broken chain is a :class:`BudgetError`."""
        with self._chain.open() as page:
            return [e for e in page.entries if lineage is None or e.lineage == lineage]

    def problem(self) -> str | None:
        """What is wrong with the chain, or None."""
        with self._chain.connect() as connection:
            return self._chain.read(connection)[1]

    def head(self) -> Head | None:
        """The newest entry, to be kept elsewhere; None while nothing is registered."""
        entries = self.entries()
        return Head(entries[-1].seq, entries[-1].hash) if entries else None

    def lineages(self) -> list[str]:
        """Names of all registered lineages."""
        return list(dict.fromkeys(e.lineage for e in self.entries() if e.kind == "REGISTER"))

    def account(self, lineage: str) -> accounts.Account:
        """Cap and spending of a registered lineage."""
        return accounts.account_of(self.entries(), lineage, self.where)

    def left(self, lineage: str, joining: Fraction = Fraction(1)) -> accounts.Allowance:
        """The largest charge that is allowed now; ``joining``: the part that a person pays who leaves or joins."""
        entries = self.entries()
        accounts.account_of(entries, lineage, self.where)
        return accounts.left_for(entries, lineage, now(), joining)

    def committed(self, lineage: str, run_key: str) -> Entry | None:
        """The COMMIT of a key, if there is one."""
        return accounts.commit_of(self.entries(), lineage, run_key)

    # entries that charge nothing

    def register(
        self, card: AnyCard, *, amend: bool = False, look: Callable[[Sequence[Entry]], Body | None] = lambda _: None
    ) -> Entry | None:
        """Create the lineage, or check that the card still agrees with its registration.

        ``look``: from the lineage's INSPECT entries to the body of one that they lack; None: none is lacking.
        Returns the new entry; None where the lineage stood already and agrees.
        Raises CardError if a registered field differs and ``amend`` is not set, or it is too late to change it.
        """
        with self._chain.open() as page:
            change = accounts.change_of_registration(page.entries, card, amend)
            entry = None if change is None else page.append(card.name, *change)
            # both or neither: a run would not tell of a look that a kill left out
            if (body := look(entries_of(page.entries, card.name, "INSPECT"))) is not None:
                page.append(card.name, "INSPECT", body)
            return entry

    def claim(self, lineage: str, people: Sequence[Sequence[str]], key: bytes) -> list[str | None]:
        """Claim people for a lineage: :func:`pipeline.ledger.people.claim`."""
        with self._chain.open() as page:
            return claim(page.connection, lineage, accounts.apart_from(page.entries, lineage), people, key)

    def knows_people(self) -> bool:
        """Whether any person was ever claimed."""
        with self._chain.connect() as connection:
            return knows_people(connection)

    def people_key(self, store: Path) -> bytes:
        """The secret by which people are known and split: :func:`pipeline.ledger.people.known_key`."""
        with self._chain.open() as page:
            return known_key(page.connection, page.entries, key_file(self.where, store))

    def require(self, card: AnyCard) -> None:
        """Refuse a card that was never registered (exit 4) or differs from its registration (exit 2)."""
        self.account(card.name)
        self.register(card)

    def note(self, lineage: str, kind: str, body: Body) -> Entry:
        """Append an entry that charges nothing.

        KEY, INSPECT (a look at a snapshot), SIGN (an approved run), PURGE (raw rows left the store), RETRY.
        """
        with self._chain.open() as page:
            return page.append(lineage, kind, body)

    def publish(self, lineage: str, run: Body, key: OperatorKey) -> Entry:
        """Append PUBLISH, which vouches for the files of a run, unless its newest one vouches for the very same files.

        ``run``: as ``flows.jobs.run.publication`` describes it; no fact about a person.
        """
        with self._chain.open() as page:
            earlier = publications(page.entries, run["run"])
            if earlier and earlier[-1].body["files"] == run["files"]:
                return earlier[-1]
            if key.public not in registered_keys(page.entries):
                page.append(lineage, "KEY", key_body(key))
            return page.append(lineage, "PUBLISH", {**run, "key": key.public}, sign=key.sign_entry)

    # a release: INTENT, lease, DRAW, COMMIT

    def intent(
        self, lineage: str, run_key: str, rho: Fraction | Price, body: Body, *, holder: attempts.Holder | None = None
    ) -> Entry:
        """Spend ``rho`` for an attempt at ``run_key``; durable when this returns.

        Raises BudgetError if it would pass the cap, the key has its COMMIT, or another attempt at it is alive; nothing
        was read.
        Raises ValueError if ``rho`` is negative: nothing is ever refunded.
        """
        with self._chain.open() as page:
            entries = page.entries
            accounts.account_of(entries, lineage, self.where)
            rho = rho(entries) if callable(rho) else attempts.left_to_pay(entries, lineage, run_key, rho)
            if accounts.commit_of(entries, lineage, run_key) is not None:
                raise BudgetError(f"{lineage}: this release is committed; it is replayed, never drawn again")
            earlier = [e.seq for e in accounts.intents_of(entries, lineage, run_key)]
            if holder is not None and (alive := attempts.living(page.connection, earlier, holder.place)):
                raise BudgetError(
                    f"{lineage}: this release is being drawn elsewhere (entry {alive[0]} of {self.where}); "
                    "wait until it is committed or its lease ends. Nothing was read"
                )
            refuse_second_key(entries, body)
            attempts.refuse_drain(entries, lineage, run_key, body)
            joining = min(Fraction(body.get("rho_add_remove", rho)), rho) / rho if rho else Fraction(1)
            accounts.refuse_beyond(accounts.left_for(entries, lineage, now(), joining), lineage, rho)
            noted = {} if holder is None else attempts.NOTED
            fields = {"run_key": run_key, "attempt": 1 + len(earlier), "rho": str(rho), **noted}
            e = page.append(lineage, "INTENT", {**fields, **body})
            attempts.end_leases(page.connection, earlier)
            if holder is not None:
                attempts.grant_lease(page.connection, e.seq, holder)
            return e

    def draw(self, intent: Entry) -> Entry:
        """Append DRAW: noise is drawn for an attempt from now on; AttemptLostError if a later one took it over."""
        with self._chain.open() as page:
            attempts.refuse_taken_over(page.entries, intent)
            body = {"run_key": intent.body["run_key"], "attempt": intent.body["attempt"], "intent": intent.seq}
            return page.append(intent.lineage, "DRAW", body)

    @contextmanager
    def leased(self, intent: Entry, holder: attempts.Holder) -> Generator[None]:
        """Keep an attempt's lease alive while its release is drawn and written; afterwards the lease ends."""
        try:
            with attempts.heartbeat(lambda: self.renew(intent, holder)):
                yield
        finally:
            # where the database is gone too, the lease runs out by itself
            with suppress(BudgetError), self._chain.connect() as connection:
                attempts.end_leases(connection, [intent.seq])

    def renew(self, intent: Entry, holder: attempts.Holder) -> bool:
        """Prolong a lease; False where another attempt has taken over."""
        with self._chain.connect() as connection:
            return attempts.renew_lease(connection, intent.seq, holder)

    def alive(self, intent: Entry, place: str) -> bool:
        """Whether an attempt may still be drawing; the caller holds the lock of ``place``."""
        with self._chain.connect() as connection:
            return bool(attempts.living(connection, [intent.seq], place))

    def commit(self, intent: Entry, body: Body) -> Entry:
        """Record that the attempt's release is on disk; at most one COMMIT a key, the same one for the same file.

        ``body``: of the release on disk: at least its ``noise`` and its sha256.
        Raises AttemptLostError if another attempt has the COMMIT.
        Raises BudgetError if the lineage is registered as real, and the noise was not the operating system's.
        """
        with self._chain.open() as page:
            committed = accounts.commit_of(page.entries, intent.lineage, intent.body["run_key"])
            if committed is None:
                if was_overtaken(page.entries, intent):
                    raise AttemptLostError(
                        f"{intent.lineage}: a later night is committed; this draw is lost, its spend stays"
                    )
                attempts.refuse_seeded(page.entries, intent, body)
                spent = accounts.account_of(page.entries, intent.lineage, self.where).lost
                fields = {"run_key": intent.body["run_key"], "attempt": intent.body["attempt"]}
                fields |= {"intent": intent.seq, "spent": str(spent)}
                return page.append(intent.lineage, "COMMIT", {**fields, **body})
        if committed.body["intent"] == intent.seq and all(committed.body[k] == v for k, v in body.items()):
            return committed
        raise AttemptLostError(f"{intent.lineage}: another attempt committed this release first; its spend stays")


def was_overtaken(entries: Sequence[Entry], intent: Entry) -> bool:
    """Whether a step of the same counter is committed that this attempt does not follow; False of a single release."""
    if "counter" not in intent.body:
        return False
    from pipeline.ledger.steps import overtaken

    return overtaken(entries, intent.lineage, intent.body["counter"]) is not None


def open_ledger(where: Path | str, *, create: bool) -> Ledger:
    """Open a ledger file or database URL.

    Raises BudgetError if it does not exist and ``create`` is False: a missing ledger means refuse, never "start at
    zero".
    """
    engine, shown = database.open_engine(where, create=create)
    return Ledger(engine, shown)
