"""What a lineage has spent and what is left: exact rationals, read off the entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any

from pipeline.ledger.chain import BudgetError, Entry

_PERIODS = {"month": "%Y-%m", "year": "%Y"}


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


def registration(entries: Sequence[Entry], lineage: str) -> Mapping[str, Any] | None:
    """The values registered last, or None."""
    found = [e.body for e in entries if e.lineage == lineage and e.kind in ("REGISTER", "AMEND")]
    return found[-1] if found else None


def account_of(entries: Sequence[Entry], lineage: str, where: str) -> Account:
    """Cap and spending.

    Raises
    ------
    BudgetError
        If the lineage is not registered.
    """
    fields = registration(entries, lineage)
    if fields is None:
        raise BudgetError(f"{lineage}: no entry in {where}; run `reticent register` once. Nothing was read")
    return Account(lineage, Fraction(fields["rho"]), spent_on(entries, lineage), fields["delta"])


def spent_on(entries: Sequence[Entry], lineage: str) -> Fraction:
    """All that was charged to a lineage; no refunds, whatever became of an attempt."""
    return spent_of(_charges(entries, lineage))


def spent_of(charges: Sequence[tuple[int | None, Fraction]]) -> Fraction:
    """Cost of charges ``(partition or None, rho)`` to the person who pays most.

    Partitions are user-disjoint: a keyed hash of the user id puts everybody in one.  A person in partition p pays
    what was charged to everybody plus what was charged to p, so the lineage costs the first plus the largest second.
    """
    whole, parts = Fraction(0), dict[int, Fraction]()
    for partition, rho in charges:
        if partition is None:
            whole += rho
        else:
            parts[partition] = parts.get(partition, Fraction(0)) + rho
    return whole + max(parts.values(), default=Fraction(0))


@dataclass(frozen=True)
class Left:
    """What one more charge may cost at most, and which limit says so: ``lifetime``, or this ``month`` or ``year``."""

    rho: Fraction
    limit: str
    cap: Fraction

    def told(self) -> dict[str, Any]:
        """The same as plain values."""
        return {"of": self.limit, "cap_rho": float(self.cap), "left_rho": float(self.rho)}


def left_for(entries: Sequence[Entry], account: Account, partition: int | None, now: datetime) -> Left:
    """What one more charge to everybody, or to one partition, may cost at most: the tightest of cap and schedule.

    A month and a year are those of the calendar (UTC); charges are dated by their INTENTs.
    """
    schedule: Mapping[str, str] = (registration(entries, account.lineage) or {}).get("schedule") or {}
    limits = [("lifetime", account.cap, "")]
    limits += [(name, Fraction(schedule[name]), f"{now:{form}}") for name, form in _PERIODS.items() if name in schedule]

    def left(cap: Fraction, since: str) -> Fraction:
        charges = _charges([e for e in entries if e.at >= since], account.lineage)
        return cap - spent_of(charges if partition is None else [c for c in charges if c[0] in (None, partition)])

    return min((Left(left(cap, since), name, cap) for name, cap, since in limits), key=lambda one: one.rho)


def commit_of(entries: Sequence[Entry], lineage: str, run_key: str) -> Entry | None:
    """The COMMIT of a key, if there is one."""
    return next(
        (e for e in entries if e.lineage == lineage and e.kind == "COMMIT" and e.body["run_key"] == run_key), None
    )


def intents_of(entries: Sequence[Entry], lineage: str, run_key: str) -> list[Entry]:
    """All attempts at a key, oldest first."""
    return [e for e in entries if e.lineage == lineage and e.kind == "INTENT" and e.body["run_key"] == run_key]


def _charges(entries: Sequence[Entry], lineage: str) -> list[tuple[int | None, Fraction]]:
    return [
        (e.body.get("partition"), Fraction(e.body["rho"]))
        for e in entries
        if e.lineage == lineage and e.kind == "INTENT"
    ]
