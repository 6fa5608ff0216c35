"""What one more charge may cost: the tightest of the lifetime cap and the limits of a month and a year."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from itertools import accumulate

from pipeline.ledger.account import Account, charges_of, registration, spent_of
from pipeline.ledger.chain import BudgetError, Entry

_PERIODS = {"month": "%Y-%m", "year": "%Y"}


@dataclass(frozen=True)
class Left:
    """What one more charge may cost at most.

    Parameters
    ----------
    rho, cap
        What is left, and of how much; exact zCDP rhos.
    limit
        Which limit says so: ``lifetime``, or this ``month`` or ``year``.
    """

    rho: Fraction
    limit: str
    cap: Fraction

    def told(self) -> dict[str, str | float]:
        """The same as plain values."""
        return {"of": self.limit, "cap_rho": float(self.cap), "left_rho": float(self.rho)}


def left_for(entries: Sequence[Entry], account: Account, partition: int | None, now: datetime) -> Left:
    """What one more charge to everybody, or to one partition, may cost at most: the tightest of cap and schedule.

    A month and a year are those of the calendar (UTC); charges are dated by their INTENTs.

    Parameters
    ----------
    entries, account
        Of the ledger, and of the lineage.
    partition
        None: everybody is charged.
    now
        Says which month and year it is (UTC).
    """
    schedule: Mapping[str, str] = (registration(entries, account.lineage) or {}).get("schedule") or {}
    limits = [("lifetime", account.cap, "")]
    limits += [(name, Fraction(schedule[name]), f"{now:{form}}") for name, form in _PERIODS.items() if name in schedule]

    dated = written_by(entries, now)

    def left(cap: Fraction, since: str) -> Fraction:
        charges = charges_of([e for e, at in zip(entries, dated, strict=True) if at >= since], account.lineage)
        spent = spent_of(charges if partition is None else [c for c in charges if c[0] in (None, partition)])
        # a limit that was lowered, or passed while a clock was wrong, is used up: what costs nothing is still allowed
        return max(cap - spent, Fraction(0))

    return min((Left(left(cap, since), name, cap) for name, cap, since in limits), key=lambda one: one.rho)


def written_by(entries: Sequence[Entry], now: datetime) -> list[str]:
    """When each entry was written (UTC): its own date, or the best bound on it where a clock ran ahead of ``now``.

    An entry dated later than now was written before the next one that is not, and after all earlier ones.

    Parameters
    ----------
    entries, now
        Of the ledger, in order, and the time now.
    """
    present = now.isoformat(timespec="seconds")
    earlier = accumulate((e.at if e.at <= present else "" for e in entries), max)
    following, dated = present, list[str]()
    for e, before in reversed(list(zip(entries, earlier, strict=True))):
        following = e.at if e.at <= present else following
        dated.append(e.at if e.at <= present else max(before, following))
    return dated[::-1]


def refuse_beyond(left: Left, lineage: str, rho: Fraction) -> None:
    """Refuse a charge that is more than what is left.

    Parameters
    ----------
    left
        From :func:`left_for`.
    lineage, rho
        What is asked for which dataset.

    Raises
    ------
    BudgetError
        If it is too much; nothing was read.
    """
    if rho > left.rho:
        period = "" if left.limit == "lifetime" else f" this {left.limit} (budget.schedule)"
        raise BudgetError(
            f"{lineage}: asked ρ = {float(rho):.6g}, left {float(left.rho):.6g} of "
            f"{float(left.cap):g}{period}; ask for at most what is left. Nothing was read"
        )
