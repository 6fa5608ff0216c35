"""Where a ledger lives: a SQLite file created for its owner only, or another database by URL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from pipeline.ledger.chain import BudgetError


def open_engine(where: Path | str, *, create: bool) -> tuple[sa.Engine, str]:
    """Engine of a ledger and how to name it in a message (no password).

    Raises
    ------
    BudgetError
        If a file does not exist and ``create`` is False.
    """
    if isinstance(where, str) and "://" in where:
        url = sa.make_url(where)
        if url.get_backend_name() != "sqlite":
            return sa.create_engine(url, isolation_level="SERIALIZABLE"), url.render_as_string(hide_password=True)
        where = url.database or ""
    path = Path(where)
    if not path.exists():
        if not create:
            raise BudgetError(f"ledger {path} does not exist; `reticent register` creates it. Nothing was read")
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return _sqlite(path), str(path)


def _sqlite(path: Path) -> sa.Engine:
    engine = sa.create_engine(f"sqlite:///{path}", connect_args={"timeout": 30})

    def durable(connection: Any, _record: Any) -> None:
        # sqlite3 would begin transactions by itself, too late for a single writer
        connection.isolation_level = None
        connection.execute("PRAGMA synchronous=FULL")

    def single_writer(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", durable)
    event.listen(engine, "begin", single_writer)
    return engine
