"""What ``plan --json`` says of nights: of a counter, of its epochs and evaluations, or of a calendar."""

from __future__ import annotations

from reports.facts.part import Number, Part


class EvaluationsPlan(Part):
    """Evaluations on dates of a counter.

    Parameters
    ----------
    share
        Of the people, who are in no leaf, and evaluate once.
    dates, drawn, tonight, next
        How many of the counter's dates have one, how many are drawn, whether a run today draws one, and the next date.
    each_rho, life_rho
        What one charges beyond the counter, and what counter and evaluations cost over their whole life.
    """

    share: Number
    dates: int
    drawn: int
    tonight: bool
    next: str | None
    each_rho: Number
    life_rho: Number


class EpochsPlan(Part):
    """Where a counter's sums begin anew with every epoch.

    Parameters
    ----------
    nights
        Of an epoch.
    opening
        Tables that are read when one begins, from all nights so far, and stand for it.
    next
        The date on which the next one begins; None: this is the last.
    """

    nights: int
    opening: list[str]
    next: str | None


class NightsPlan(Part):
    """The counter's part of a plan.

    Parameters
    ----------
    key, kind, cost
        Of the counter, see :class:`~reports.facts.promise.CounterFacts`.
    nights, first, last
        How many, and the dates of the first and the last.
    night, drawn, left
        Today's (None outside the dates), nights with a release, nights after today.
    replays, charge_rho
        Whether a run today draws nothing, and what it is charged.
    standard_deviation, times_one_release
        Of each table's sums, and their variance beside one release at the same rho: ``tonight`` and at ``worst``.
    evaluations, epochs
        Where some of the people evaluate instead; where sums begin anew.
    """

    key: str
    kind: str
    nights: int
    first: str
    last: str
    cost: int
    night: int | None
    drawn: int
    left: int
    replays: bool
    charge_rho: Number
    standard_deviation: dict[str, dict[str, Number]]
    times_one_release: dict[str, Number]
    evaluations: EvaluationsPlan | None = None
    epochs: EpochsPlan | None = None


class CalendarPlan(Part):
    """The calendar's part of a plan; dates are ISO.

    Parameters
    ----------
    release
        ``nightly``, ``weekly``, ``monthly``, or its dates.
    rho_each, rho_life
        What one date charges, and all of them from the first to the last; None where the calendar has no end.
    drawn, due, stands
        Dates with a release so far, today's date of the calendar, and whether its release is among them.
    next, to_come
        The next date that is charged, and how many there are; None where the calendar has no end.
    paid, last, refused, limit
        How many of these the budget pays before it refuses one, the last of them, the one it refuses, and which limit
        (``lifetime``, ``month``, ``year``) says so; None where nothing is refused within a century.
    """

    release: str | list[str]
    rho_each: Number
    rho_life: Number | None
    drawn: int
    due: str | None
    stands: bool
    next: str | None
    to_come: int | None
    paid: int
    last: str | None
    refused: str | None
    limit: str | None
