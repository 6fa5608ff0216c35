"""Where a lineage stands, and what one more charge may cost: the tightest of cap, month and year.

How often people of a lineage have evaluated a policy: every look at them counts, whatever it was about.

Whoever asks again and again is told "better" by chance sooner or later.  So the level of an interval depends on how
many evaluations of the lineage the ledger knows, over all recipes and splits: see
:func:`~pipeline.evaluation.intervals.level_of`.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from itertools import accumulate

from pipeline.ledger.account import registration, spent_on
from pipeline.ledger.chain import Body, BudgetError, Entry
from pipeline.ledger.people import lost, moves, worst_loss
from pipeline.statistics.held_out import VARIANT


def is_look(charged: Body) -> bool:
    """Whether what is charged evaluates a policy on people who were held out.

    Parameters
    ----------
    charged
        Of an INTENT.
    """
    return (charged.get("joint") or {}).get("variant") == VARIANT


def look_told(entries: Sequence[Entry], lineage: str, run_key: str, charged: Body) -> dict[str, int]:
    """Which evaluation an INTENT pays for, as it says it; nothing where it pays for none.

    Parameters
    ----------
    entries, lineage
        Of the ledger up to that INTENT, and the name of the dataset.
    run_key, charged
        Of the release, and what else the INTENT says.
    """
    if not is_look(charged):
        return {}
    there = [e for e in entries if e.lineage == lineage and e.kind == "INTENT" and "look" in e.body]
    again = [e.body["look"] for e in there if e.body["run_key"] == run_key]
    return {"look": again[0] if again else 1 + max((e.body["look"] for e in there), default=0)}


def look_problem(entries: Sequence[Entry], intent: Entry, said: int | None) -> str | None:
    """What is wrong with the number of an evaluation, in words, or None.

    Parameters
    ----------
    entries, intent
        Of the ledger, and what paid for the release.
    said
        By the release.
    """
    before = [e for e in entries if e.seq < intent.seq]
    found = look_told(before, intent.lineage, intent.body["run_key"], intent.body).get("look")
    if found == intent.body.get("look") == said:
        return None
    told = intent.body.get("look")
    return f"entry {intent.seq} is evaluation {found} of {intent.lineage}; it says {told}, the release {said}"


_PERIODS = {"month": "%Y-%m", "year": "%Y"}


@dataclass(frozen=True)
class Account:
    """Where a lineage stands; exact zCDP rhos.

    Parameters
    ----------
    lineage
        Name of the dataset.
    cap
        What may be spent over its lifetime.
    spent
        All INTENTs, whatever became of them.
    delta
        At which rho is converted to epsilon.
    lost
        What its people have lost at most, to all lineages that may hold them: ``spent``, where there is no other.
    """

    lineage: str
    cap: Fraction
    spent: Fraction
    delta: float
    lost: Fraction

    @property
    def remaining(self) -> Fraction:
        """Cap minus what is lost."""
        return self.cap - self.lost


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
    return Account(
        lineage, Fraction(fields["rho"]), spent_on(entries, lineage), fields["delta"], worst_loss(entries, lineage)
    )


@dataclass(frozen=True)
class Left:
    """What one more charge may cost at most.

    Parameters
    ----------
    rho, cap
        What is left, and of how much; exact zCDP rhos.
    limit
        Which limit says so: ``lifetime``, or this ``month`` or ``year``.
    whose
        The lineage that has this limit: the one that is charged, or another whose people may be the same.
    """

    rho: Fraction
    limit: str
    cap: Fraction
    whose: str

    def told(self) -> dict[str, str | float]:
        """The same as plain values."""
        return {"of": self.limit, "cap_rho": float(self.cap), "left_rho": float(self.rho)}


def left_for(
    entries: Sequence[Entry], lineage: str, partition: int | None, now: datetime, joining: Fraction = Fraction(1)
) -> Left:
    """What one more charge to everybody, or to one partition, may cost at most: the tightest of all limits.

    The limits are those of the lineage and of every other whose people may be the same.  A month and a year are those
    of the calendar (UTC); charges are dated by their INTENTs.

    Parameters
    ----------
    entries, lineage
        Of the ledger, and the name of a registered dataset.
    partition
        None: everybody is charged.
    now
        Says which month and year it is (UTC).
    joining
        The part of the charge that somebody pays who leaves or joins; 1 is always enough.
    """
    dated = dict(zip((e.seq for e in entries), written_by(entries, now), strict=True))
    found: list[Left] = []
    for move in moves(entries, lineage):
        share = Fraction(1) if lineage in move.replaced else joining
        for limit, since in (("lifetime", ""), *((name, f"{now:{form}}") for name, form in _PERIODS.items())):
            caps = {name: cap for name in move.lineages if (cap := _limit(entries, name, limit)) is not None}
            if not caps or not share:
                continue
            tightest = min(caps, key=lambda name: (caps[name], name != lineage))

            def counted(e: Entry, since: str = since) -> bool:
                elsewhere = e.lineage == lineage and partition is not None and e.body.get("partition") is not None
                return dated[e.seq] >= since and not (elsewhere and e.body["partition"] != partition)

            # a limit that was passed while a clock was wrong, or lowered, is used up: what costs nothing is allowed
            rho = max(caps[tightest] - lost(entries, move, counted), Fraction(0)) / share
            found.append(Left(rho, limit, caps[tightest], tightest))
    return min(found, key=lambda one: (one.rho, one.whose != lineage))


def _limit(entries: Sequence[Entry], lineage: str, limit: str) -> Fraction | None:
    registered = registration(entries, lineage) or {}
    cap = registered.get("rho") if limit == "lifetime" else (registered.get("schedule") or {}).get(limit)
    return None if cap is None else Fraction(cap)


def written_by(entries: Sequence[Entry], now: datetime) -> list[str]:
    """When each entry was written (UTC): its own date, or the best bound on it where a clock ran ahead of ``now``.

    An entry dated later than now was written before the next one that is not, and after all earlier ones.
    """
    present = now.isoformat(timespec="seconds")
    earlier = accumulate((e.at if e.at <= present else "" for e in entries), max)
    following, dated = present, list[str]()
    for e, before in reversed(list(zip(entries, earlier, strict=True))):
        following = e.at if e.at <= present else following
        dated.append(e.at if e.at <= present else max(before, following))
    return dated[::-1]


def refuse_beyond(left: Left, lineage: str, rho: Fraction) -> None:
    """Refuse a charge that passes a limit.

    Parameters
    ----------
    left, lineage, rho
        From :func:`left_for`, and what would be charged to which lineage.

    Raises
    ------
    BudgetError
        Naming the limit, and whose it is.
    """
    if rho <= left.rho:
        return
    period = "" if left.limit == "lifetime" else f" this {left.limit} (budget.schedule)"
    other = ""
    if left.whose != lineage:
        other = (
            f" of {left.whose}, whose people may be the same: real datasets of one ledger are charged together, unless "
            "one was declared disjoint from the other before it was charged (`reticent register --disjoint-from`)"
        )
    raise BudgetError(
        f"{lineage}: asked ρ = {float(rho):.6g}, left {float(left.rho):.6g} of "
        f"{float(left.cap):g}{period}{other}; ask for at most what is left. Nothing was read"
    )
