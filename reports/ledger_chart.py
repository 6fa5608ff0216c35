"""Spending of a lineage: its history as data, and spending against time as a line of blocks for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from fractions import Fraction

from pipeline.declaration.numbers import number
from pipeline.facts.answers import LimitFacts
from pipeline.facts.promise import Number, Part
from pipeline.ledger.account import registration
from pipeline.ledger.chain import Entry
from pipeline.ledger.ledger import Ledger

_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDTH = 60


class Spent(Part):
    """Spending ``spent_rho`` up to the time ``at``."""

    at: str
    spent_rho: Number


class Event(Part):
    """An ``entry`` of the ledger and the time it was made ``at``, with what its kind has.

    ``cap_rho``: of an amendment, the new cap.
    ``snapshot``: that was looked at.
    ``what``: was deleted.
    ``run``, ``by``, ``note``: of a signature: the run signed, and its signer.
    """

    entry: int
    at: str
    cap_rho: Number | None = None
    snapshot: int | None = None
    what: str | None = None
    run: str | None = None
    by: str | None = None
    note: str | None = None


class ChargedRun(Part):
    """An INTENT of a release; ``state`` says whether a COMMIT followed."""

    entry: int
    run: str
    state: str
    rho: Number
    at: str
    night: int | None = None
    nights: int | None = None


class Lineage(Part):
    """History of a lineage."""

    name: str
    cap_rho: Number
    spent_rho: Number
    delta: Number
    registered_at: str
    schedule: dict[str, Number]
    limit: LimitFacts
    spending: list[Spent]
    amendments: list[Event]
    inspections: list[Event]
    entries: list[ChargedRun]
    retries: list[Event]
    purges: list[Event]
    signatures: list[Event]


def lineage_facts(ledger: Ledger, name: str) -> Lineage:
    """A lineage's history from the ledger."""
    account, entries = ledger.account(name), ledger.entries(name)
    charges = [e for e in entries if e.kind == "INTENT"]
    schedule: dict[str, str] = registration(entries, name).get("schedule") or {}
    committed = {e.body["intent"] for e in entries if e.kind == "COMMIT"}
    return Lineage(
        name=name,
        cap_rho=float(account.cap),
        spent_rho=float(account.spent),
        delta=account.delta,
        registered_at=entries[0].at,
        schedule={period: float(Fraction(rho)) for period, rho in schedule.items()},
        limit=LimitFacts.model_validate(ledger.left(name).facts()),
        spending=spending((e.at, float(Fraction(e.body["rho"]))) for e in charges),
        amendments=[_event(e, cap_rho=float(Fraction(e.body["rho"]))) for e in entries if e.kind == "AMEND"],
        inspections=[_event(e, snapshot=e.body["snapshot"]) for e in entries if e.kind == "INSPECT"],
        entries=[_charged(e, committed) for e in charges],
        retries=[_event(e) for e in entries if e.kind == "RETRY"],
        purges=[_event(e, what=_purged(e)) for e in entries if e.kind == "PURGE"],
        signatures=[
            _event(e, run=e.body["run"], by=e.body["by"], note=e.body.get("note")) for e in entries if e.kind == "SIGN"
        ],
    )


def _event(e: Entry, **more: object) -> Event:
    return Event.model_validate({"entry": e.seq, "at": e.at, **more})


def _charged(e: Entry, committed: set[int]) -> ChargedRun:
    counter = {key: e.body["counter"][key] for key in ("night", "nights") if "counter" in e.body}
    state = "committed" if e.seq in committed else "intent"
    return ChargedRun(
        entry=e.seq, run=e.body["run_key"][:24], state=state, rho=float(Fraction(e.body["rho"])), at=e.at, **counter
    )


def _purged(e: Entry) -> str:
    if e.body["quarantine_only"]:
        return "rows that ingest set aside"
    return "snapshots " + (", ".join(map(str, e.body["snapshots"])) or "none: rows that ingest set aside")


def spending(charges: Iterable[tuple[str, float]]) -> list[Spent]:
    """Cumulative spending at the time of each charge that cost something.

    ``charges``: time (ISO 8601, UTC) and rho, oldest first.
    """
    total, points = 0.0, list[Spent]()
    for at, rho in charges:
        total += rho
        if rho > 0:
            points.append(Spent(at=at, spent_rho=total))
    return points


def chart(points: Sequence[Spent], cap: float, since: str, until: str) -> list[str]:
    """Two lines: spending at 60 moments between two times, in eighths of the cap, and the times.

    A moment before the first charge is a space; spending at the cap is a full block.

    ``since``, ``until``: the two times, ISO 8601.
    """
    if not points:
        return []
    begin, end = (datetime.fromisoformat(t).timestamp() for t in (since, until))
    times = [datetime.fromisoformat(p.at).timestamp() for p in points]
    span = max(end - begin, 1.0)
    line = ""
    for i in range(_WIDTH):
        now = begin + span * (i + 1) / _WIDTH
        spent = max((p.spent_rho for p, t in zip(points, times, strict=True) if t <= now), default=None)
        line += " " if spent is None else _BLOCKS[min(7, int(8 * spent / cap))]
    label = f"ρ = {number(points[-1].spent_rho, toward='up')} of {cap:g}"
    first, last = since[:10], until[:10]
    return [f"  {line}  {label}", f"  {first}{last:>{_WIDTH - len(first)}}"]
