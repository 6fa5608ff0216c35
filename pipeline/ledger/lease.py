"""Leases: who is drawing a release now.  Rows beside the chain, renewed while the holder lives (privacy.md §0.1-15).

An attempt is dead when its lease ran out, or when somebody else holds the lock of the place it drew in: that lock is
the operating system's, which drops it with the process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread

import sqlalchemy as sa

from pipeline.ledger.chain import BudgetError
from pipeline.ledger.chain_tables import leases

SECONDS = 120.0


@dataclass(frozen=True)
class Holder:
    """Who draws.

    Parameters
    ----------
    token
        Random, one an attempt.
    place
        A store on a machine, whose lock the attempt holds.
    """

    token: str
    place: str


def clock(connection: sa.Connection) -> float:
    """Seconds since 1970 by one clock for all who share the ledger: the database server's, else this machine's."""
    if connection.dialect.name == "postgresql":
        return float(connection.exec_driver_sql("select extract(epoch from clock_timestamp())").scalar_one())
    return time.time()


def grant(connection: sa.Connection, intent: int, holder: Holder) -> None:
    """A new lease for an INTENT."""
    values = {"intent": intent, "token": holder.token, "place": holder.place}
    connection.execute(leases.insert().values(expires=clock(connection) + SECONDS, **values))


def renew(connection: sa.Connection, intent: int, holder: Holder) -> bool:
    """Prolong a lease; False where it was ended meanwhile."""
    mine = (leases.c.intent == intent) & (leases.c.token == holder.token)
    return connection.execute(leases.update().where(mine).values(expires=clock(connection) + SECONDS)).rowcount == 1


def end(connection: sa.Connection, intents: Sequence[int]) -> None:
    """End the leases of these INTENTs."""
    connection.execute(leases.delete().where(leases.c.intent.in_(intents)))


def living(connection: sa.Connection, intents: Sequence[int], place: str) -> list[int]:
    """Those INTENTs that may still be drawing; the caller holds the lock of ``place``, so none is alive there."""
    now = clock(connection)
    alive = leases.c.intent.in_(intents) & (leases.c.place != place) & (leases.c.expires > now)
    return list(connection.execute(sa.select(leases.c.intent).where(alive).order_by(leases.c.intent)).scalars())


@contextmanager
def heartbeat(beat: Callable[[], object]) -> Generator[None]:
    """Call ``beat`` four times a lease until the block is left; a beat that fails is tried again at the next."""
    stop = Event()

    def go() -> None:
        while not stop.wait(SECONDS / 4):
            with suppress(BudgetError):
                beat()

    thread = Thread(target=go, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
