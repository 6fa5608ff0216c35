"""What a lineage is registered with, what it and those that may share its people have spent, and what is left.

Exact rationals, read off the entries.  What may still change after registration, and what never does: privacy.md
§0.1-14.

*Sharing* (privacy.md §0.2-8).  A lineage that is registered again under another name holds the same people.  So the
real lineages of a ledger are charged together: separate people have separate ledgers.  Earlier versions let two
lineages be declared disjoint, and those stay so: nobody's rows count in both, and what somebody loses who is in the
one, or instead in the other, is the cost of leaving the one and joining the other.  Unless one of the two was charged
for people whom the ledger does not know: then nobody could say who is in both, and they are charged together.

*Reserve*.  Whoever taught a release must not judge what it shaped, in whatever lineage.  So the people of all real
lineages are split by one keyed hash of their id, the ledger's, and those below the reserve teach in none of them.  A
lineage that was registered before ledgers had a reserve has none, and is split by its own name; a synthetic one stands
for nobody, is split by its name, and reserves whom its card says.

*Limits*: the tightest of cap, month and year.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from itertools import accumulate, combinations_with_replacement

from pipeline.declaration.card import AnyCard, Card, CardError
from pipeline.ledger.chain import Body, BudgetError, Entry, canonical, entries_of
from pipeline.privacy.budget import fraction_of

# of the people of real lineages, where no card says otherwise
USUAL = Fraction(1, 2)
_FIELD = "reserve"


def ledger_reserve(entries: Sequence[Entry]) -> Fraction | None:
    """Share of the people of a ledger's real lineages who never teach; None before the first is registered."""
    found = _registrations(entries)
    told = [e.body[_FIELD] for e in found if _FIELD in e.body]
    return Fraction(told[-1]) if told else (Fraction(0) if found else None)


def reserve_of(entries: Sequence[Entry], lineage: str) -> Fraction:
    """Share of a registered lineage's people who never teach in it."""
    now = _now(entries, lineage)
    if now.get("kind") == "real":
        return (ledger_reserve(entries) or Fraction(0)) if _FIELD in now else Fraction(0)
    return Fraction(now.get(_FIELD, 0))


def reserve_for(entries: Sequence[Entry], card: AnyCard) -> Fraction:
    """The same of a card that may not be registered yet: what its registration would say."""
    if _now(entries, card.name):
        return reserve_of(entries, card.name)
    asked, there = _asked(card), ledger_reserve(entries) if card.kind == "real" else Fraction(0)
    return asked if asked is not None else USUAL if there is None else there


def split_of(entries: Sequence[Entry], lineage: str) -> str:
    """By what name the people of a lineage are split: empty for the ledger's own split."""
    now = _now(entries, lineage)
    return "" if now.get("kind") == "real" and _FIELD in now else lineage


def reserve_told(entries: Sequence[Entry], card: AnyCard, *, amend: bool) -> tuple[Body, Body]:
    """What a registration says of the reserve, as it stands and as the card has it; nothing where there was none.

    Raises CardError if the ledger has registered another one, or it is too late to change it.
    """
    asked, now = _asked(card), _now(entries, card.name)
    there = ledger_reserve(entries) if card.kind == "real" else (Fraction(now.get(_FIELD, 0)) if now else Fraction(0))
    if there is None:
        return {}, {_FIELD: str(USUAL if asked is None else asked)}
    held = _FIELD in now or (card.kind == "real" and not now)
    stands: Body = {_FIELD: str(there)} if held else {}
    if asked is None or (asked == there and (held or not asked)):
        return stands, stands
    told = f"{card.name}: [budget] reserve = {float(asked):g}"
    if not now:
        if card.kind == "real":
            first = _registrations(entries)[0].lineage
            raise CardError(
                f"{told}: this ledger reserves {float(there):g} of its people, as it was registered with {first}; say "
                "the same, or leave it out"
            )
        return {}, {_FIELD: str(asked)}
    if amend:
        _check_change(entries, card, told)
    return stands, {_FIELD: str(asked)}


def _check_change(entries: Sequence[Entry], card: AnyCard, told: str) -> None:
    """Refuse to change who never teaches once somebody may have taught, or a second time."""
    ours = _registrations(entries) if card.kind == "real" else entries_of(entries, card.name, "REGISTER", "AMEND")
    names = {e.lineage for e in ours}
    if (e := next((e for e in entries if e.kind == "INTENT" and e.lineage in names), None)) is not None:
        raise CardError(
            f"{told}: entry {e.seq} of {e.lineage} was charged already, so people have taught or judged; it never "
            "changes after that. Put the registered one back, or leave it out"
        )
    before = Fraction(ours[0].body.get(_FIELD, 0))
    if any(_FIELD in e.body and Fraction(e.body[_FIELD]) != before for e in ours):
        raise CardError(f"{told}: it was changed once, and changes no more; put the registered one back")


def _asked(card: AnyCard) -> Fraction | None:
    return None if card.budget.reserve is None else fraction_of(card.budget.reserve)


def _registrations(entries: Sequence[Entry]) -> list[Entry]:
    """Of real lineages."""
    return [e for e in entries if e.kind in ("REGISTER", "AMEND") and e.body["kind"] == "real"]


def _now(entries: Sequence[Entry], lineage: str) -> Body:
    found = entries_of(entries, lineage, "REGISTER", "AMEND")
    return found[-1].body if found else {}


def registration(entries: Sequence[Entry], lineage: str) -> Body | None:
    """The values registered last, or None."""
    found = entries_of(entries, lineage, "REGISTER", "AMEND")
    return found[-1].body if found else None


def spent_on(entries: Sequence[Entry], lineage: str) -> Fraction:
    """All that was charged to a lineage, as an exact rho; no refunds, whatever became of an attempt."""
    return sum((Fraction(e.body["rho"]) for e in entries_of(entries, lineage, "INTENT")), Fraction(0))


def commit_of(entries: Sequence[Entry], lineage: str, run_key: str) -> Entry | None:
    """The COMMIT of a key, if there is one.

    ``entries``, ``lineage``, ``run_key``: of the ledger, the name of the dataset, and the hex key of a release.
    """
    return next((e for e in entries_of(entries, lineage, "COMMIT") if e.body["run_key"] == run_key), None)


def intents_of(entries: Sequence[Entry], lineage: str, run_key: str) -> list[Entry]:
    """All attempts at a key, oldest first."""
    return [e for e in entries_of(entries, lineage, "INTENT") if e.body["run_key"] == run_key]


def _registered_fields(card: AnyCard) -> Body:
    """What registration fixes: later runs compare the card with this (privacy.md §0.1-14)."""
    schedule = card.budget.schedule
    limits = None if schedule is None else {k: str(fraction_of(v)) for k, v in schedule.limits().items()}
    return {
        "rho": str(fraction_of(card.budget.rho)),
        "delta": card.budget.delta,
        "kind": card.kind,
        "unit": card.unit.user,
        "episodes_per_user": card.unit.episodes_per_user,
        "relation": "replace",
        "domain_hash": card.domain_hash(),
        # a lineage without a schedule, or a word on practice, is registered in the words of before there were any
        **({} if limits is None else {"schedule": limits}),
        **({"practice": card.domain.practice} if isinstance(card, Card) and card.domain.practice else {}),
    }


def change_of_registration(entries: Sequence[Entry], card: AnyCard, amend: bool) -> tuple[str, Body] | None:
    """Kind and body of the entry that brings a registration up to the card; None where they agree.

    Raises CardError if they differ and ``amend`` is not set, or differ in what never changes.
    """
    now = registration(entries, card.name)
    fields = dict(_registered_fields(card))
    # earlier versions let lineages be declared disjoint, for good
    if now is not None and "disjoint_from" in now:
        fields["disjoint_from"] = now["disjoint_from"]
    stands, asked = reserve_told(entries, card, amend=amend)
    fields |= asked
    if now is None:
        return "REGISTER", fields
    absent: Body = {"schedule": None, "practice": None, "reserve": None}
    old, new = {**absent, **now, **stands}, {**absent, **fields}
    changed = sorted(k for k in new if new[k] != old[k])
    if not changed:
        return None
    spent = spent_on(entries, card.name)
    if amend and Fraction(fields["rho"]) < spent:
        raise CardError(f"{card.name}: cap {fields['rho']} is below what is spent, {float(spent):.6g}")
    # what was spent was counted for the old unit, of which a new one may hold several
    never = ("kind", "unit") if spent else ("kind",)
    fixed = [k for k in never if k in changed]
    if not amend or fixed:
        rule = (
            f"'{fixed[0]}' never changes" + (" once a budget is spent" if fixed[0] == "unit" else "")
            if fixed
            else "use `register --amend` to change them for all runs"
        )
        told = ", ".join(f"{k}: registered {old[k]}, card says {new[k]}" for k in changed)
        raise CardError(f"{card.name}: differs from its registration ({told}); {rule}")
    return "AMEND", fields


def claims_needed(entries: Sequence[Entry], lineage: str) -> int:
    """Since which entry the people of a lineage must be claimed: the one that declared it disjoint last; 0: any.

    Earlier versions declared; ``register`` refuses it now.
    """
    found, before = 0, list[str]()
    for e in entries_of(entries, lineage, "REGISTER", "AMEND"):
        found = found if e.body.get("disjoint_from", []) == before else e.seq
        before = e.body.get("disjoint_from", [])
    return found


def card_hash(card: AnyCard) -> str:
    """Sha256 of all that a card declares, vetoes, markov and tolerance included; not where files and ledger lie.

    A key left at its default is as good as absent, so that a new key of a later version changes no old hash.
    """
    declared = card.model_dump(mode="json", exclude={"source": {"files"}, "budget": {"ledger"}}, exclude_defaults=True)
    return hashlib.sha256(canonical(declared).encode()).hexdigest()


Group = frozenset[str]


@dataclass(frozen=True)
class Move:
    """What may be changed of one person's rows: those in ``replaced`` lineages, and those in
    lineages left or joined.
    """

    replaced: Group
    joined: Group

    @property
    def lineages(self) -> Group:
        """All that hold rows of the person."""
        return self.replaced | self.joined


def apart_from(entries: Sequence[Entry], lineage: str) -> Group:
    """The lineages that share nobody with this one: declared disjoint, and the ledger knows the people of both."""
    return _declared_apart(entries, lineage) - mixed_with(entries, lineage)


def mixed_with(entries: Sequence[Entry], lineage: str) -> Group:
    """The lineages that were declared disjoint from this one, and are charged together with it all the same.

    One of the two was charged for people whose ids the ledger does not know, as versions did that knew of no claims.
    """
    unknown = {e.lineage for e in entries if e.kind == "INTENT" and not e.body.get("claimed")}
    declared = _declared_apart(entries, lineage)
    return declared if lineage in unknown else declared & unknown


def _declared_apart(entries: Sequence[Entry], lineage: str) -> Group:
    declared = {name: _declared(entries, name) for name in _real(entries)}
    return frozenset(n for n in declared if n in declared.get(lineage, ()) or lineage in declared[n])


def sharing(entries: Sequence[Entry], lineage: str) -> Group:
    """The lineages whose people may be this one's, itself among them; a synthetic one shares nobody."""
    real = _real(entries)
    return real - apart_from(entries, lineage) if lineage in real else frozenset({lineage})


def moves(entries: Sequence[Entry], lineage: str) -> list[Move]:
    """The largest changes of one person's rows that concern a lineage; a synthetic one concerns nobody else."""
    real = _real(entries)
    if lineage not in real:
        return [Move(frozenset({lineage}), frozenset())]
    apart = {name: apart_from(entries, name) for name in real}
    groups = list(_largest(frozenset(), real, apart))
    found = [Move(a & b, a ^ b) for a, b in combinations_with_replacement(groups, 2)]
    return [m for m in found if lineage in m.lineages]


def lost(entries: Sequence[Entry], move: Move, counted: Callable[[Entry], bool] = lambda e: True) -> Fraction:
    """What one person loses, whose rows are changed so: an exact zCDP rho."""
    charged = [e for e in entries if e.kind == "INTENT" and counted(e)]
    replaced = (Fraction(e.body["rho"]) for e in charged if e.lineage in move.replaced)
    # leaving is being replaced by nobody, so it never costs more
    joined = (Fraction(_joining(e)) for e in charged if e.lineage in move.joined)
    return sum((*replaced, *joined), Fraction(0))


def worst_loss(entries: Sequence[Entry], lineage: str) -> Fraction:
    """What one person of a lineage has lost at most, to all lineages together."""
    return max(lost(entries, move) for move in moves(entries, lineage))


def _joining(e: Entry) -> str:
    """What an entry charges somebody who leaves or joins; a retry that took a charge over pays nothing again."""
    return min(e.body.get("rho_add_remove", e.body["rho"]), e.body["rho"], key=Fraction)


def _real(entries: Sequence[Entry]) -> Group:
    names = {e.lineage for e in entries if e.kind == "REGISTER"}
    return frozenset(n for n in names if (registration(entries, n) or {}).get("kind") == "real")


def _declared(entries: Sequence[Entry], lineage: str) -> Group:
    return frozenset((registration(entries, lineage) or {}).get("disjoint_from", ()))


def _largest(chosen: Group, left: Group, apart: dict[str, Group]) -> Sequence[Group]:
    """Largest sets of lineages that one person may be in: no two of them are disjoint."""
    if not left:
        return [chosen]
    first = min(left)
    within = _largest(chosen | {first}, left - apart[first] - {first}, apart)
    without = _largest(chosen, left - {first}, apart) if left & apart[first] else []
    # a set that could take the first one in is not among the largest
    return [*within, *(g for g in without if g & apart[first])]


_PERIODS = {"month": "%Y-%m", "year": "%Y"}


@dataclass(frozen=True)
class Account:
    """Where a lineage stands; exact zCDP rhos.

    ``lost``: what its people have lost at most, to all lineages that may hold them: ``spent``, where there is no other.
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

    Raises BudgetError if the lineage is not registered.
    """
    fields = registration(entries, lineage)
    if fields is None:
        raise BudgetError(f"{lineage}: no entry in {where}; run `reticent register` once. Nothing was read")
    return Account(
        lineage, Fraction(fields["rho"]), spent_on(entries, lineage), fields["delta"], worst_loss(entries, lineage)
    )


@dataclass(frozen=True)
class Allowance:
    """What one more charge may cost at most.

    ``rho``, ``cap``: what is left, and of how much; exact zCDP rhos.
    """

    rho: Fraction
    limit: str
    cap: Fraction
    whose: str

    def told(self) -> dict[str, str | float]:
        """The same as plain values."""
        return {"of": self.limit, "cap_rho": float(self.cap), "left_rho": float(self.rho)}


def left_for(entries: Sequence[Entry], lineage: str, now: datetime, joining: Fraction = Fraction(1)) -> Allowance:
    """What one more charge may cost at most: the tightest of all limits.

    The limits are those of the lineage and of every other whose people may be the same.  A month and a year are those
    of the calendar (UTC); charges are dated by their INTENTs.

    ``now``: says which month and year it is (UTC).
    ``joining``: the part of the charge that somebody pays who leaves or joins; 1 is always enough.
    """
    dated = dict(zip((e.seq for e in entries), written_by(entries, now), strict=True))
    found: list[Allowance] = []
    for move in moves(entries, lineage):
        share = Fraction(1) if lineage in move.replaced else joining
        for limit, since in (("lifetime", ""), *((name, f"{now:{form}}") for name, form in _PERIODS.items())):
            caps = {name: cap for name in move.lineages if (cap := _limit(entries, name, limit)) is not None}
            if not caps or not share:
                continue
            tightest = min(caps, key=lambda name: (caps[name], name != lineage))

            def counted(e: Entry, since: str = since) -> bool:
                return dated[e.seq] >= since

            # a limit that was passed while a clock was wrong, or lowered, is used up: what costs nothing is allowed
            rho = max(caps[tightest] - lost(entries, move, counted), Fraction(0)) / share
            found.append(Allowance(rho, limit, caps[tightest], tightest))
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


def refuse_beyond(left: Allowance, lineage: str, rho: Fraction) -> None:
    """Refuse a charge that passes a limit.

    Raises BudgetError naming the limit, and whose it is.
    """
    if rho <= left.rho:
        return
    period = "" if left.limit == "lifetime" else f" this {left.limit} (budget.schedule)"
    other = ""
    if left.whose != lineage:
        other = (
            f" of {left.whose}, whose people may be the same: real datasets of one ledger are charged together; other "
            "people have a ledger of their own ([budget] ledger)"
        )
    raise BudgetError(
        f"{lineage}: asked ρ = {float(rho):.6g}, left {float(left.rho):.6g} of "
        f"{float(left.cap):g}{period}{other}; ask for at most what is left. Nothing was read"
    )
