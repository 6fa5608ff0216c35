"""Storage of a ledger: a SQLite file created for its owner only, or a PostgreSQL database by URL.

Both have one writer at a time and are durable when a transaction returns; a database that is not is refused.

A ledger's tables: entries (the chain), head (its newest entry), leases (attempts that draw now; no part of the chain).
"""

# pyright: reportUnknownArgumentType=false
import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.pool import NullPool

from pipeline.declaration.card import CardError
from pipeline.files import make_folder, whole_file
from pipeline.ledger.chain import GENESIS, Body, BudgetError, Entry, NoLedgerError, canonical, chain_problem, entry_hash

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
# every read of a ledger runs it: as text, which is not compiled anew each time
_ENTRIES = f"SELECT {', '.join(entries.c.keys())} FROM entries ORDER BY seq"


def lay_out(connection: sa.Connection, where: str, *, create: bool) -> None:
    """Check that all tables are there; make them where none is and ``create`` is set.

    A ledger of version 0.1.0 has entries alone: it gets the other two, and its head is its last entry.

    Raises BudgetError if some tables are gone, or all of them and ``create`` is not set.
    """
    existing = set(metadata.tables).intersection(sa.inspect(connection).get_table_names())
    if existing == set(metadata.tables):
        return
    if existing and existing != {"entries"}:
        missing = ", ".join(sorted(set(metadata.tables) - existing))
        raise BudgetError(f"ledger {where} is damaged: it lacks its table {missing}; restore it")
    if not existing and not create:
        raise BudgetError(f"{where} is damaged or holds no ledger; `reticent register` creates one")
    # a new file is laid out by one process alone; of a server another may have made the tables meanwhile
    alone = not existing and connection.dialect.name == "sqlite"
    metadata.create_all(connection, checkfirst=not alone)
    if not existing:
        return
    last = connection.execute(sa.select(entries).order_by(entries.c.seq.desc()).limit(1)).first()
    if last is not None:
        connection.execute(head.insert(), {"only": 1, "seq": last.seq, "hash": last.hash})


@dataclass(frozen=True)
class Page:
    """One transaction on a ledger whose chain was checked: reads its entries, and appends."""

    connection: sa.Connection
    entries: list[Entry]
    clock: Callable[[], datetime]

    def append(self, lineage: str, kind: str, body: Body, sign: Callable[[str], str] | None = None) -> Entry:
        """Chain one more entry to the last one, and move the head to it.

        ``sign``: makes the ``signature`` of the body from the hash of the entry without it.
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
    """The chain of a ledger in its database, checked whenever it is read."""

    def __init__(self, engine: sa.Engine, where: str, clock: Callable[[], datetime]) -> None:
        self._engine, self._where, self._clock = engine, where, clock
        self._checked: tuple[list[Row], list[Entry]] = ([], [])

    @contextmanager
    def connect(self) -> Generator[sa.Connection]:
        """One transaction of the database; durable when the block is left."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except DBAPIError as e:
            raise refusal(self._where, e) from None

    @contextmanager
    def open(self) -> Generator[Page]:
        """One transaction on the checked chain.

        Raises BudgetError if the chain is broken, or the database does not answer.
        """
        with self.connect() as connection:
            chain, problem = self.read(connection)
            if problem is not None:
                raise BudgetError(f"ledger {self._where} is damaged: {problem}; restore it from a copy")
            yield Page(connection, list(chain), self._clock)

    def read(self, connection: sa.Connection) -> tuple[list[Entry], str | None]:
        """Read all entries, and what is wrong with them or None; rows that were checked before are not hashed again."""
        stored, (rows, checked) = [tuple(r) for r in connection.exec_driver_sql(_ENTRIES)], self._checked
        if stored[: len(rows)] != rows:
            rows, checked = [], []
        try:
            fresh = [_parsed(r) for r in stored[len(rows) :]]
        except ValueError:
            return [], "an entry is not readable"
        if problem := chain_problem(fresh, after=checked[-1] if checked else None):
            return [], problem
        chain = checked + fresh
        self._checked = stored, chain
        return chain, _head_problem(connection, chain)


def _parsed(row: Row) -> Entry:
    """An entry from its stored row; a ValueError if the row holds what no entry can hold."""
    seq, lineage, kind, at, text, previous, digest = row
    body: Any = json.loads(text) if isinstance(text, str) else None
    if not isinstance(seq, int) or not isinstance(body, dict):
        raise ValueError("not an entry")
    return Entry(seq, lineage, kind, at, body, previous, digest)


def _head_problem(connection: sa.Connection, chain: Sequence[Entry]) -> str | None:
    """Contradiction of head and chain: without a noted head, a chain that lost its last entries looks whole."""
    noted = [tuple(h) for h in connection.exec_driver_sql("SELECT seq, hash FROM head")]
    last = [(chain[-1].seq, chain[-1].hash)] if chain else []
    if noted == last:
        return None
    if not noted:
        return "its head is gone"
    return f"its newest entry was {noted[0][0]}, now it is {last[0][0] if last else 'none'}: entries were cut off"


def insert(connection: sa.Connection, e: Entry, text: str) -> None:
    """Store an entry and move the head to it."""
    values = {"seq": e.seq, "lineage": e.lineage, "kind": e.kind, "at": e.at, "previous": e.previous, "hash": e.hash}
    # values apart from their statements, which are then compiled once
    connection.execute(entries.insert(), {**values, "body": text})
    connection.execute(head.delete())
    connection.execute(head.insert(), {"only": 1, "seq": e.seq, "hash": e.hash})


_LOCK = 0x7265746963656E74
_BUSY = {"SQLITE_BUSY", "55P03"}
_CONFLICT = {"40001", "40P01"}
_FULL = {"SQLITE_FULL", "53100"}
_NO_SUCH_CHARACTER = "22P05"
_FORBIDDEN = {"SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "42501", "25006"}


def open_engine(where: Path | str, *, create: bool) -> tuple[sa.Engine, str]:
    """Engine of a ledger whose tables are there, and how to name it in a message (no password).

    Raises BudgetError if it is missing and ``create`` is False, if it is damaged, or if the database does not answer.
    Raises CardError if the URL names no database that can hold a ledger, or its driver is not installed.
    """
    if isinstance(where, str) and "://" in where:
        url = _url(where)
        if url.get_backend_name() == "postgresql":
            engine, shown = _postgres(url), _shown(url)
            _lay_out(engine, shown, create=create)
            return engine, shown
        where = url.database or ""
    path = Path(where).resolve()
    try:
        if not path.exists():
            if not create:
                raise NoLedgerError(f"ledger {path} does not exist; `reticent register` creates it")
            _create_file(path)
        _check_file(path)
    except OSError as e:
        raise BudgetError(f"ledger {path} cannot be opened ({e.strerror})") from None
    engine = _sqlite(path)
    _lay_out(engine, str(path), create=False)
    return engine, str(path)


def refusal(where: str, e: DBAPIError) -> BudgetError:
    """The error for a failure of the database: one line, without the password in its address."""
    kind = str(getattr(e.orig, "sqlite_errorname", None) or getattr(e.orig, "sqlstate", None) or "")
    if isinstance(e, IntegrityError) or kind in _CONFLICT:
        return BudgetError(f"ledger {where}: another process wrote first; this entry was not written, try again")
    if kind in _BUSY:
        return BudgetError(f"ledger {where}: another process held it for 30 s; this entry was not written, try again")
    if kind in _FULL:
        return BudgetError(f"ledger {where}: its disk is full, and this entry was not written; make room and run again")
    if kind.startswith("SQLITE_IOERR") and kind != "SQLITE_IOERR_SHORT_READ":
        return BudgetError(f"ledger {where}: its disk failed ({kind}); look after the disk, then run again")
    if kind == _NO_SUCH_CHARACTER:
        return BudgetError(
            f"ledger {where}: its database's encoding lacks a character of this entry, which was not written; write it "
            "in plain letters, or move the ledger to a database with UTF8"
        )
    if any(kind.startswith(k) for k in _FORBIDDEN):
        return BudgetError(f"ledger {where}: this user may not write it ({kind})")
    if hasattr(e.orig, "sqlstate") and (not kind or kind[:2] in ("08", "28", "3D", "53", "57")):
        reason = f"code {kind}" if kind else type(e.orig).__name__
        return BudgetError(
            f"ledger {where}: the database does not answer or does not let this user in ({reason}); "
            "start it or mend budget.ledger"
        )
    return BudgetError(f"ledger {where} is damaged or not a ledger ({kind or type(e.orig).__name__}); restore it")


def _lay_out(engine: sa.Engine, where: str, *, create: bool) -> None:
    try:
        with engine.begin() as connection:
            if engine.dialect.name == "sqlite":
                _check_pages(connection, where)
            lay_out(connection, where, create=create)
    except DBAPIError as e:
        raise refusal(where, e) from None


def _check_pages(connection: sa.Connection, where: str) -> None:
    """Refuse a damaged file: SQLite checks every page once, on opening, as a file cut in an index still reads well."""
    if connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar() != "ok":
        raise BudgetError(f"ledger {where} is damaged: its file is cut or overwritten; restore it")


def _create_file(path: Path) -> None:
    """Lay out a ledger beside and link it into place: a ledger that is there is whole, and is never replaced."""
    make_folder(path.parent)
    with suppress(FileExistsError), whole_file(path, private=True, over=False, alone=False) as fresh:
        _lay_out(_sqlite(fresh), str(path), create=True)


def _check_file(path: Path) -> None:
    mode = path.stat().st_mode
    if not path.is_file():
        raise BudgetError(f"ledger {path} is not a file; restore it")
    if mode & 0o002 or mode & 0o600 != 0o600:
        rights = f"{mode & 0o777:03o}"
        raise BudgetError(f"ledger {path} has rights {rights}: `chmod 600` makes it its owner's")


@lru_cache(maxsize=8)
def _sqlite(path: Path) -> sa.Engine:
    # one a file, which keeps its compiled statements; it holds no connection.
    # mode=rw: a ledger that vanished a moment ago is not made anew, empty
    address = f"sqlite:///file:{quote(str(path))}?mode=rw&uri=true"
    engine = sa.create_engine(address, connect_args={"timeout": 30}, poolclass=NullPool)

    def durable(connection: Any, _record: Any) -> None:
        # sqlite3 would begin transactions by itself, too late for a single writer
        connection.isolation_level = None
        # EXTRA syncs the folder too: a journal that reappears after a power cut would take an INTENT back
        connection.execute("PRAGMA synchronous=EXTRA")
        connection.execute("PRAGMA journal_mode=DELETE")

    def single_writer(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", durable)
    event.listen(engine, "begin", single_writer)
    return engine


def _postgres(url: sa.URL) -> sa.Engine:
    # utf8 whatever the database says: by its own, SQL_ASCII gives bytes, and LATIN1 has no Greek
    options = {"connect_timeout": 10, "client_encoding": "utf8"}
    try:
        engine = sa.create_engine(url, isolation_level="READ COMMITTED", poolclass=NullPool, connect_args=options)
    except ImportError:
        raise CardError(
            "budget.ledger: a PostgreSQL ledger needs its driver; install it: pip install 'reticent[postgres]'"
        ) from None

    def single_writer(connection: sa.Connection) -> None:
        # READ COMMITTED on purpose: what is read after the lock was granted is what the writer before left
        durable = connection.exec_driver_sql(
            "select current_setting('synchronous_commit'), current_setting('fsync'), "
            "set_config('lock_timeout', '30s', true), set_config('idle_in_transaction_session_timeout', '60s', true)"
        ).one()
        if "off" in durable[:2]:
            raise BudgetError(
                f"ledger {_shown(url)}: synchronous_commit = {durable[0]}, fsync = {durable[1]}; an entry could "
                "be lost after it was charged. Set both to on"
            )
        connection.exec_driver_sql(f"select pg_advisory_xact_lock({_LOCK})")

    event.listen(engine, "begin", single_writer)
    return engine


def _url(where: str) -> sa.URL:
    try:
        url = sa.make_url(where)
    except (ArgumentError, ValueError):
        # the text may hold a password: it is not repeated
        raise CardError("budget.ledger is no database URL; e.g. postgresql+psycopg://user@host/database") from None
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername not in ("postgresql+psycopg", "sqlite"):
        raise CardError(f"budget.ledger: {url.drivername}: a ledger lives in a SQLite file or at postgresql+psycopg://")
    return url


def _shown(url: sa.URL) -> str:
    public = {k: v for k, v in url.query.items() if k in ("host", "port", "dbname", "service")}
    return url.set(query=public).render_as_string(hide_password=True)
