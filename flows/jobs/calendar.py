"""What the calendar of a recipe has charged and will charge, date by date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from fractions import Fraction

from flows.config.setting import Setting
from flows.jobs.nights import charged_for, night_of
from pipeline.declaration.lineage import Schedule
from pipeline.ledger.account import commit_of, registration, spent_on
from pipeline.ledger.chain import Entry
from pipeline.ledger.ledger import Ledger
from reports.facts.nights_plan import CalendarPlan

# a calendar without an end is followed for so long
_CENTURY = timedelta(days=36_525)
_PERIODS = {"month": "%Y-%m", "year": "%Y"}


def calendar_plan(s: Setting, ledger: Ledger, price: Fraction) -> CalendarPlan | None:
    """What the calendar of a recipe has charged and will charge, date by date; None without one.  Reads no row."""
    calendar, name, today = s.recipe.schedule, s.card.name, night_of(None)
    if calendar is None:
        return None
    entries, due = ledger.entries(), calendar.due(today)
    charged = charged_for(s, entries)
    released = [e for e in charged if not s.guarded.is_gate(s.card, e)]
    drawn = {e.body["due"] for e in released if commit_of(entries, name, e.body["run_key"]) is not None}
    stands = due is not None and due.isoformat() in drawn
    coming = list(_coming(calendar, today, stands))
    stop = _first_refused(coming, price, ledger.account(name).remaining, entries, name, today)
    paid = len(coming) if stop is None else stop[0]
    ends = isinstance(calendar.release, list)
    spent = sum((Fraction(e.body["rho"]) for e in charged), Fraction(0))
    return CalendarPlan(
        release=[str(day) for day in calendar.release] if isinstance(calendar.release, list) else calendar.release,
        rho_each=float(price),
        drawn=len(drawn),
        due=None if due is None else str(due),
        stands=stands,
        next=str(coming[0]) if coming else None,
        to_come=len(coming) if ends else None,
        rho_life=float(spent + price * len(coming)) if ends else None,
        paid=paid,
        last=str(coming[paid - 1]) if paid else None,
        refused=None if stop is None else str(coming[stop[0]]),
        limit=None if stop is None else stop[1],
    )


def _coming(calendar: Schedule, today: date, stands: bool) -> Iterator[date]:
    """Dates whose release is still to be drawn, today's first, for a century."""
    day = calendar.due(today)
    if day is not None and not stands:
        yield day
    after = calendar.after(today)
    while after is not None and after <= today + _CENTURY:
        yield after
        after = calendar.after(after)


def _first_refused(
    coming: Sequence[date], price: Fraction, lifetime: Fraction, entries: Sequence[Entry], name: str, today: date
) -> tuple[int, str] | None:
    """The first date that the lineage's cap, or its schedule's, does not allow, and which limit says so."""
    caps: Mapping[str, str] = (registration(entries, name) or {}).get("schedule") or {}
    spent = dict[str, Fraction]()
    for i, day in enumerate(coming):
        if price * (i + 1) > lifetime:
            return i, "lifetime"
        for limit, cap in caps.items():
            # one that is made up for is charged today
            period = f"{max(day, today):{_PERIODS[limit]}}"
            if period not in spent:
                spent[period] = spent_on([e for e in entries if e.at.startswith(period)], name)
            spent[period] += price
            if spent[period] > Fraction(cap):
                return i, limit
    return None
