"""Attempts at a release: which may have drawn, the price of a retry, how many may be lost, and who is drawing now.

An attempt says DRAW before its first noise is drawn.  One that died without it drew nothing, and never will: the next
attempt at the same release takes its charge over.  One that died after it may have drawn, so the next pays again.

The process that draws holds a lease: a row beside the chain, renewed while the holder lives (privacy.md §0.1-15).  An
attempt is dead when its lease ran out, or when another process holds the lock of the place it drew in: that lock is the
operating system's, which drops it with the process.

A gate before a release is an attempt of its own: its mechanism, its cost, and the entry that charged it.
"""

import json
import time
from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from threading import Event, Thread

import sqlalchemy as sa

from pipeline.facts.promise import GateFacts, MechanismFacts
from pipeline.ledger.account import commit_of, intents_of, registration
from pipeline.ledger.chain import AttemptLostError, Body, BudgetError, Entry, canonical, entries_of
from pipeline.ledger.database import leases
from pipeline.privacy.release import Mechanism, total_rho
from pipeline.privacy.release_file import describe_mechanism, mechanism_from

# draws of one release that may die before the operator has to look: a schedule that retries for ever spends no more
MOST_LOST = 3
# in an INTENT: its attempt says DRAW; attempts of older versions say nothing, and may have drawn
NOTED = {"draw": "noted"}
# fields of an INTENT that describe the draw
_TERMS = ("mechanisms", "planned_calls", "joint")


def may_have_drawn(entries: Sequence[Entry], intent: Entry) -> bool:
    """Whether noise may have been drawn for an attempt; ``entries`` in their order."""
    if not _notes_draws(intent):
        return True
    # its DRAW or COMMIT stands soon after it: a counter of a year asks this a hundred thousand times
    first = bisect_right(entries, intent.seq, key=lambda e: e.seq)
    later = (entries[i] for i in range(first, len(entries)))
    return any(e.kind in ("DRAW", "COMMIT") and e.body["intent"] == intent.seq for e in later)


def taken_over(entries: Sequence[Entry], attempts: Sequence[Entry]) -> Fraction:
    """Charges that the next attempt takes over: all that was paid since one of these may have drawn."""
    paid = Fraction(0)
    for e in attempts:
        paid = Fraction(0) if may_have_drawn(entries, e) else paid + Fraction(e.body["rho"])
    return paid


def left_to_pay(entries: Sequence[Entry], lineage: str, run_key: str, rho: Fraction) -> Fraction:
    """Charge of the next attempt at a release: its cost, less what it takes over.

    Raises ValueError if ``rho`` is negative: nothing is ever refunded.
    """
    if rho < 0:
        raise ValueError(f"a charge is at least 0; got {rho}")
    return max(Fraction(0), rho - taken_over(entries, intents_of(entries, lineage, run_key)))


def paid_for(entries: Sequence[Entry], intent: Entry) -> Fraction:
    """All that was paid for one attempt: its own charge, and those it took over."""
    intents = intents_of(entries, intent.lineage, intent.body["run_key"])
    return taken_over(entries, [e for e in intents if e.seq < intent.seq]) + Fraction(intent.body["rho"])


def refuse_drain(entries: Sequence[Entry], lineage: str, run_key: str, body: Body) -> None:
    """Refuse another draw where too many died since the last RETRY: no schedule may use up a cap by itself.

    Raises BudgetError if so; nothing was read.
    """
    looked = max((e.seq for e in entries_of(entries, lineage, "RETRY")), default=0)
    lost = 0
    for e in _due_alike(entries, lineage, body) if "due" in body else _alike(entries, lineage, run_key, body):
        if commit_of(entries, lineage, e.body["run_key"]) is not None:
            lost = 0
        elif e.seq > looked and _notes_draws(e) and may_have_drawn(entries, e):
            lost += 1
    if lost >= MOST_LOST:
        raise BudgetError(
            f"{lineage}: {lost} draws of this release died after they had begun, and each is paid for; find out why "
            "(memory, disk), then allow it with `reticent ledger retry CARD`. Nothing was read"
        )


def refuse_taken_over(entries: Sequence[Entry], intent: Entry) -> None:
    """Refuse to draw under a charge that a later attempt may have taken over.

    Raises AttemptLostError if there is a later attempt at this release or counter; nothing was drawn here.
    """
    if any(e.seq > intent.seq for e in _alike(entries, intent.lineage, intent.body["run_key"], intent.body)):
        raise AttemptLostError(f"{intent.lineage}: another attempt took this one over; nothing was drawn here")


def refuse_seeded(entries: Sequence[Entry], intent: Entry, body: Body) -> None:
    """Refuse to commit, for people who exist, what is not of operating-system noise."""
    if registration(entries, intent.lineage).get("kind") == "real" and body.get("noise") != "os":
        raise BudgetError(
            f"{intent.lineage}: registered as real, so only a release with operating-system noise is committed"
        )


def _notes_draws(intent: Entry) -> bool:
    return NOTED.items() <= intent.body.items()


def _due_alike(entries: Sequence[Entry], lineage: str, body: Body) -> list[Entry]:
    """INTENTs at the same release of any date of a calendar: each date is another key."""
    terms = [canonical(body.get(name)) for name in _TERMS]
    dated = [e for e in entries_of(entries, lineage, "INTENT") if "due" in e.body]
    return [e for e in dated if [canonical(e.body.get(name)) for name in _TERMS] == terms]


def _alike(entries: Sequence[Entry], lineage: str, run_key: str, body: Body) -> list[Entry]:
    """INTENTs at the same release; of a counter, at any of its steps."""
    if "counter" not in body:
        return intents_of(entries, lineage, run_key)
    steps = [e for e in entries_of(entries, lineage, "INTENT") if "counter" in e.body]
    return [e for e in steps if e.body["counter"]["key"] == body["counter"]["key"]]


# how long a lease lasts
SECONDS = 120.0


@dataclass(frozen=True)
class Holder:
    """The process that draws, and the place whose lock it holds."""

    token: str
    place: str


def clock(connection: sa.Connection) -> float:
    """Seconds since 1970 by one clock for all who share the ledger: the database server's, else this machine's."""
    if connection.dialect.name == "postgresql":
        return float(connection.exec_driver_sql("select extract(epoch from clock_timestamp())").scalar_one())
    return time.time()


def grant_lease(connection: sa.Connection, intent: int, holder: Holder) -> None:
    """Start a lease for an INTENT."""
    values = {"intent": intent, "token": holder.token, "place": holder.place}
    connection.execute(leases.insert().values(expires=clock(connection) + SECONDS, **values))


def renew_lease(connection: sa.Connection, intent: int, holder: Holder) -> bool:
    """Prolong a lease; False where it was ended meanwhile."""
    mine = (leases.c.intent == intent) & (leases.c.token == holder.token)
    return connection.execute(leases.update().where(mine).values(expires=clock(connection) + SECONDS)).rowcount == 1


def end_leases(connection: sa.Connection, intents: Sequence[int]) -> None:
    """End the leases of these INTENTs."""
    connection.execute(leases.delete().where(leases.c.intent.in_(intents)))


def living(connection: sa.Connection, intents: Sequence[int], place: str) -> list[int]:
    """Return the INTENTs that may still be drawing; the caller holds the lock of ``place``, so none is alive there."""
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


@dataclass(frozen=True)
class Passed:
    """A gate that was charged, and that a release passed (privacy.md §0.2-2)."""

    mechanisms: tuple[Mechanism, ...]
    commit: Entry

    @property
    def rho(self) -> Fraction:
        """Exact zCDP cost."""
        return total_rho(self.mechanisms) or Fraction(0)

    def facts(self) -> GateFacts:
        """The ``gate`` of report.json and certificate.json."""
        (mechanism,) = self.mechanisms
        described = MechanismFacts.model_validate(describe_mechanism(mechanism))
        return GateFacts(mechanism=described, entry=self.commit.seq, hash=self.commit.hash)


def passed_gate(entries: Sequence[Entry], intent: Entry) -> Passed | None:
    """The gate that the INTENT of a release names, or None."""
    by_number = {e.seq: e for e in entries}
    commit = by_number.get(intent.body.get("gate", 0))
    if commit is None:
        return None
    intent_of_gate = by_number[commit.body["intent"]]
    return Passed(tuple(mechanism_from(m) for m in intent_of_gate.body["mechanisms"]), commit)


def gate_of(proof: Body) -> tuple[Mechanism, ...]:
    """Mechanisms of the gate that a certificate lists; empty where there was none."""
    return (mechanism_from(proof["gate"]["mechanism"]),) if "gate" in proof else ()


def gate_problem(proof: Body, intent: Entry, entries: Sequence[Entry]) -> str | None:
    """Difference between the gate of a certificate and that of the ledger, in words; or None."""
    stated = proof.get("gate")
    if (None if stated is None else stated["entry"]) != intent.body.get("gate"):
        return f"entry {intent.seq} passed another gate"
    if stated is None:
        return None
    commit = next((e for e in entries if e.seq == stated["entry"]), None)
    if commit is None or (commit.hash, commit.kind, commit.lineage) != (stated["hash"], "COMMIT", intent.lineage):
        return f"entry {stated['entry']} is no gate of {intent.lineage}"
    charged = next((e for e in entries if e.seq == commit.body["intent"]), None)
    if charged is None or charged.body["mechanisms"] != json.loads(canonical([stated["mechanism"]])):
        return f"entry {commit.body['intent']} was charged for another gate"
    return (
        None if paid_for(entries, charged) == total_rho(gate_of(proof)) else f"entry {charged.seq} charged too little"
    )
