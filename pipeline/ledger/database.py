"""Where a ledger lives: a SQLite file created for its owner only, or a PostgreSQL database by URL.

Both have one writer at a time and are durable when a transaction returns; a database that is not is refused.
"""

from __future__ import annotations

from contextlib import suppress
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
from pipeline.ledger.chain import BudgetError, NoLedgerError
from pipeline.ledger.chain_tables import lay_out

_LOCK = 0x7265746963656E74
_BUSY = {"SQLITE_BUSY", "55P03"}
_CONFLICT = {"40001", "40P01"}
_FULL = {"SQLITE_FULL", "53100"}
_FORBIDDEN = {"SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "42501", "25006"}


def open_engine(where: Path | str, *, create: bool) -> tuple[sa.Engine, str]:
    """Engine of a ledger whose tables are there, and how to name it in a message (no password).

    Raises
    ------
    BudgetError
        If it is missing and ``create`` is False, if it is damaged, or if the database does not answer.
    CardError
        If the URL names no database that can hold a ledger, or its driver is not installed.
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
                raise NoLedgerError(f"ledger {path} does not exist; `reticent register` creates it. Nothing was read")
            _create_file(path)
        _check_file(path)
    except OSError as e:
        raise BudgetError(f"ledger {path} cannot be opened ({e.strerror}); nothing was read") from None
    engine = _sqlite(path)
    _lay_out(engine, str(path), create=False)
    return engine, str(path)


def refusal(where: str, e: DBAPIError) -> BudgetError:
    """What went wrong with the database, in one line without its address' password."""
    kind = str(getattr(e.orig, "sqlite_errorname", None) or getattr(e.orig, "sqlstate", None) or "")
    if isinstance(e, IntegrityError) or kind in _CONFLICT:
        return BudgetError(f"ledger {where}: another process wrote first; nothing was charged, try again")
    if kind in _BUSY:
        return BudgetError(f"ledger {where}: another process held it for 30 s; nothing was charged, try again")
    if kind in _FULL:
        return BudgetError(f"ledger {where}: its disk is full, and this entry was not written; make room and run again")
    if kind.startswith("SQLITE_IOERR") and kind != "SQLITE_IOERR_SHORT_READ":
        return BudgetError(f"ledger {where}: its disk failed ({kind}); look after the disk, then run again")
    if any(kind.startswith(k) for k in _FORBIDDEN):
        return BudgetError(f"ledger {where}: this user may not write it ({kind}); nothing was read")
    if hasattr(e.orig, "sqlstate") and (not kind or kind[:2] in ("08", "28", "3D", "53", "57")):
        reason = f"code {kind}" if kind else type(e.orig).__name__
        return BudgetError(
            f"ledger {where}: the database does not answer or does not let this user in ({reason}); "
            "start it or mend budget.ledger. Nothing was read"
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
    """A file that was cut in an index still reads well: SQLite looks at every page once, on opening."""
    if connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar() != "ok":
        raise BudgetError(f"ledger {where} is damaged: its file is cut or overwritten; restore it. Nothing was read")


def _create_file(path: Path) -> None:
    """Lay out a ledger beside and link it into place: a ledger that is there is whole, and is never replaced."""
    make_folder(path.parent)
    with suppress(FileExistsError), whole_file(path, private=True, over=False, alone=False) as fresh:
        _lay_out(_sqlite(fresh), str(path), create=True)


def _check_file(path: Path) -> None:
    mode = path.stat().st_mode
    if not path.is_file():
        raise BudgetError(f"ledger {path} is not a file; restore it. Nothing was read")
    if mode & 0o002 or mode & 0o600 != 0o600:
        rights = f"{mode & 0o777:03o}"
        raise BudgetError(f"ledger {path} has rights {rights}: `chmod 600` makes it its owner's. Nothing was read")


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
    try:
        engine = sa.create_engine(
            url, isolation_level="READ COMMITTED", poolclass=NullPool, connect_args={"connect_timeout": 10}
        )
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
                "be lost after it was charged. Set both to on. Nothing was read"
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
