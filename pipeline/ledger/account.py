"""Registered values of a lineage, what it and those that may share its people have spent, and what is left.

Exact rationals, read off the entries.  Which values may change after registration: privacy.md §0.1-14.

*Sharing* (privacy.md §0.2-8).  A lineage that is registered again under another name holds the same people.  So the
real lineages of a ledger are charged together: separate people have separate ledgers.  Earlier versions let two
lineages be declared disjoint, and those stay so: no person's rows count in both, and the loss of a person who is in
the one, or instead in the other, is the cost of leaving the one and joining the other.  If one of the two was charged
for people whom the ledger does not know, the people in both are unknown, and the two are charged together.

*Reserve*.  A person who taught a release must not judge what it shaped, in any lineage.  So the people of all real
lineages are split by one keyed hash of their id, the ledger's, and those below the reserve teach in none of them.  A
lineage that was registered before ledgers had a reserve has none, and is split by its own name; a synthetic one holds
no real people, is split by its name, and reserves the share that its card declares.

*Limits*: the tightest of cap, month and year.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from itertools import accumulate, combinations_with_replacement

from pipeline.declaration.card import AnyCard, Card, CardError
from pipeline.ledger.chain import Body, BudgetError, Entry, canonical_hash, entries_of
from pipeline.privacy.budget import fraction_of

# reserve of a ledger's real lineages where no card declares one
_USUAL = Fraction(1, 2)
_FIELD = "reserve"


def ledger_reserve(entries: Sequence[Entry]) -> Fraction | None:
    """Share of the people of a ledger's real lineages who never teach; None before the first is registered."""
    registrations = _registrations(entries)
    reserves = [e.body[_FIELD] for e in registrations if _FIELD in e.body]
    return Fraction(reserves[-1]) if reserves else (Fraction(0) if registrations else None)


def reserve_of(entries: Sequence[Entry], lineage: str) -> Fraction:
    """Share of a registered lineage's people who never teach in it."""
    fields = registration(entries, lineage)
    if fields.get("kind") == "real" and _FIELD in fields:
        return ledger_reserve(entries) or Fraction(0)
    return Fraction(fields.get(_FIELD, 0))


def reserve_for(entries: Sequence[Entry], card: AnyCard) -> Fraction:
    """Share of the people of a card, registered or not yet, who never teach."""
    if registration(entries, card.name):
        return reserve_of(entries, card.name)
    if (declared := _declared_reserve(card)) is not None:
        return declared
    in_use = ledger_reserve(entries) if card.kind == "real" else Fraction(0)
    return _USUAL if in_use is None else in_use


def split_of(entries: Sequence[Entry], lineage: str) -> str:
    """Name by which the people of a lineage are split: empty for the ledger's own split."""
    fields = registration(entries, lineage)
    return "" if fields.get("kind") == "real" and _FIELD in fields else lineage


def _reserve_fields(entries: Sequence[Entry], card: AnyCard, *, amend: bool) -> tuple[Body, Body]:
    """Fields of the reserve in a registration: as registered, and as the card declares it; empty where there is none.

    Raises CardError if the ledger has registered another one, or it is too late to change it.
    """
    declared, fields = _declared_reserve(card), registration(entries, card.name)
    in_use = ledger_reserve(entries) if card.kind == "real" else Fraction(fields.get(_FIELD, 0))
    if in_use is None:
        return {}, {_FIELD: str(_USUAL if declared is None else declared)}
    registered = _FIELD in fields or (card.kind == "real" and not fields)
    standing: Body = {_FIELD: str(in_use)} if registered else {}
    if declared is None or (declared == in_use and (registered or not declared)):
        return standing, standing
    declaration = f"{card.name}: [budget] reserve = {float(declared):g}"
    if not fields:
        if card.kind == "real":
            first = _registrations(entries)[0].lineage
            raise CardError(
                f"{declaration}: this ledger reserves {float(in_use):g} of its people, as it was registered with "
                f"{first}; say the same, or leave it out"
            )
        return {}, {_FIELD: str(declared)}
    if amend:
        _check_change(entries, card, declaration)
    return standing, {_FIELD: str(declared)}


def _check_change(entries: Sequence[Entry], card: AnyCard, declaration: str) -> None:
    """Refuse to change the reserve once people may have taught, or a second time."""
    registrations = (
        _registrations(entries) if card.kind == "real" else entries_of(entries, card.name, "REGISTER", "AMEND")
    )
    names = {e.lineage for e in registrations}
    if (e := next((e for e in entries if e.kind == "INTENT" and e.lineage in names), None)) is not None:
        raise CardError(
            f"{declaration}: entry {e.seq} of {e.lineage} was charged already, so people have taught or judged; it "
            "never changes after that. Put the registered one back, or leave it out"
        )
    before = Fraction(registrations[0].body.get(_FIELD, 0))
    if any(_FIELD in e.body and Fraction(e.body[_FIELD]) != before for e in registrations):
        raise CardError(f"{declaration}: it was changed once, and changes no more; put the registered one back")


def _declared_reserve(card: AnyCard) -> Fraction | None:
    return None if card.budget.reserve is None else fraction_of(card.budget.reserve)


def _registrations(entries: Sequence[Entry]) -> list[Entry]:
    """REGISTER and AMEND entries of real lineages."""
    return [e for e in entries if e.kind in ("REGISTER", "AMEND") and e.body["kind"] == "real"]


def registration(entries: Sequence[Entry], lineage: str) -> Body:
    """The values registered last; empty where the lineage is not registered."""
    registrations = entries_of(entries, lineage, "REGISTER", "AMEND")
    return registrations[-1].body if registrations else {}


def spent_on(entries: Sequence[Entry], lineage: str) -> Fraction:
    """Sum of all charges to a lineage, an exact rho; no refunds, whatever became of an attempt."""
    return sum((Fraction(e.body["rho"]) for e in entries_of(entries, lineage, "INTENT")), Fraction(0))


def commit_of(entries: Sequence[Entry], lineage: str, run_key: str) -> Entry | None:
    """The COMMIT of a key, if there is one."""
    return next((e for e in entries_of(entries, lineage, "COMMIT") if e.body["run_key"] == run_key), None)


def intents_of(entries: Sequence[Entry], lineage: str, run_key: str) -> list[Entry]:
    """All attempts at a key, oldest first."""
    return [e for e in entries_of(entries, lineage, "INTENT") if e.body["run_key"] == run_key]


def _registered_fields(card: AnyCard) -> Body:
    """Fields that registration fixes: later runs compare the card with them (privacy.md §0.1-14)."""
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
        # absent where the card has none: registrations of versions before these fields stay equal
        **({} if limits is None else {"schedule": limits}),
        **({"practice": card.domain.practice} if isinstance(card, Card) and card.domain.practice else {}),
    }


def change_of_registration(entries: Sequence[Entry], card: AnyCard, amend: bool) -> tuple[str, Body] | None:
    """Kind and body of the entry that brings a registration up to the card; None where they agree.

    Raises CardError if they differ and ``amend`` is not set, or differ in what never changes.
    """
    registered = registration(entries, card.name)
    fields = dict(_registered_fields(card))
    # earlier versions let lineages be declared disjoint, for good
    if "disjoint_from" in registered:
        fields["disjoint_from"] = registered["disjoint_from"]
    standing, reserve = _reserve_fields(entries, card, amend=amend)
    fields |= reserve
    if not registered:
        return "REGISTER", fields
    absent: Body = {"schedule": None, "practice": None, "reserve": None}
    old, new = {**absent, **registered, **standing}, {**absent, **fields}
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
        rule = "use `register --amend` to change them for all runs"
        if fixed:
            rule = f"'{fixed[0]}' never changes" + (" once a budget is spent" if fixed[0] == "unit" else "")
        differences = ", ".join(f"{k}: registered {old[k]}, card says {new[k]}" for k in changed)
        raise CardError(f"{card.name}: differs from its registration ({differences}); {rule}")
    return "AMEND", fields


def claims_needed(entries: Sequence[Entry], lineage: str) -> int:
    """Number of the last entry that declared the people of a lineage disjoint: claims are needed since then; 0: ever.

    Earlier versions declared; ``register`` refuses it now.
    """
    since, declared = 0, list[str]()
    for e in entries_of(entries, lineage, "REGISTER", "AMEND"):
        since = since if e.body.get("disjoint_from", []) == declared else e.seq
        declared = e.body.get("disjoint_from", [])
    return since


def card_hash(card: AnyCard) -> str:
    """Sha256 of a card's declarations, vetoes, markov and tolerance included, but not the places of files and ledger.

    A key left at its default is as good as absent, so that a new key of a later version changes no old hash.
    """
    declared = card.model_dump(mode="json", exclude={"source": {"files"}, "budget": {"ledger"}}, exclude_defaults=True)
    return canonical_hash(declared)


def look_fields(card: AnyCard, snapshot: int) -> Body:
    """Body of INSPECT: somebody is about to look at a snapshot, at no cost; snapshot 0 is a log before any ingest."""
    return {"snapshot": snapshot, "domain_hash": card.domain_hash(), "card_hash": card_hash(card), "rho": "0"}


Group = frozenset[str]


@dataclass(frozen=True)
class Move:
    """A change of one person's rows: those in ``replaced`` lineages, and those in lineages left or joined."""

    replaced: Group
    joined: Group

    @property
    def lineages(self) -> Group:
        """All that hold rows of the person."""
        return self.replaced | self.joined


def apart_from(entries: Sequence[Entry], lineage: str) -> Group:
    """Lineages that share no people with this one: declared disjoint, and the ledger knows the people of both."""
    return _declared_apart(entries, lineage) - mixed_with(entries, lineage)


def mixed_with(entries: Sequence[Entry], lineage: str) -> Group:
    """Lineages that were declared disjoint from this one, and are charged together with it all the same.

    One of the two was charged for people whose ids the ledger does not know, as versions did that knew of no claims.
    """
    unknown = {e.lineage for e in entries if e.kind == "INTENT" and not e.body.get("claimed")}
    declared = _declared_apart(entries, lineage)
    return declared if lineage in unknown else declared & unknown


def _declared_apart(entries: Sequence[Entry], lineage: str) -> Group:
    disjoint = {name: registration(entries, name).get("disjoint_from", ()) for name in _real(entries)}
    return frozenset(n for n in disjoint if n in disjoint.get(lineage, ()) or lineage in disjoint[n])


def sharing(entries: Sequence[Entry], lineage: str) -> Group:
    """Lineages that may hold people of this one, itself among them; a synthetic one shares no people."""
    real = _real(entries)
    return real - apart_from(entries, lineage) if lineage in real else frozenset({lineage})


def moves(entries: Sequence[Entry], lineage: str) -> list[Move]:
    """The largest changes of one person's rows that concern a lineage; a synthetic one stands alone."""
    real = _real(entries)
    if lineage not in real:
        return [Move(frozenset({lineage}), frozenset())]
    apart = {name: apart_from(entries, name) for name in real}
    groups = list(_largest(frozenset(), real, apart))
    changes = [Move(a & b, a ^ b) for a, b in combinations_with_replacement(groups, 2)]
    return [m for m in changes if lineage in m.lineages]


def lost(entries: Sequence[Entry], move: Move, counted: Callable[[Entry], bool] = lambda e: True) -> Fraction:
    """Privacy loss of one person whose rows are changed so: an exact zCDP rho."""
    charged = [e for e in entries if e.kind == "INTENT" and counted(e)]
    replaced = (Fraction(e.body["rho"]) for e in charged if e.lineage in move.replaced)
    # leaving is being replaced by nobody, so it never costs more
    joined = (Fraction(_joining(e)) for e in charged if e.lineage in move.joined)
    return sum((*replaced, *joined), Fraction(0))


def _joining(e: Entry) -> str:
    """Charge of an entry to a person who leaves or joins; a retry that took a charge over pays nothing again."""
    return min(e.body.get("rho_add_remove", e.body["rho"]), e.body["rho"], key=Fraction)


def _real(entries: Sequence[Entry]) -> Group:
    names = {e.lineage for e in entries if e.kind == "REGISTER"}
    return frozenset(n for n in names if registration(entries, n).get("kind") == "real")


def _largest(chosen: Group, left: Group, apart: dict[str, Group]) -> Sequence[Group]:
    """Largest sets of lineages that one person may be in: no two of them are disjoint."""
    if not left:
        return [chosen]
    first = min(left)
    within = _largest(chosen | {first}, left - apart[first] - {first}, apart)
    without = _largest(chosen, left - {first}, apart) if left & apart[first] else []
    # a set that could take the first one in is not among the largest
    return [*within, *(g for g in without if g & apart[first])]


PERIODS = {"month": "%Y-%m", "year": "%Y"}


@dataclass(frozen=True)
class Account:
    """Cap and spending of a lineage; exact zCDP rhos.

    ``lost``: largest loss of one of its people, to all lineages that may hold them: ``spent``, where there is no other.
    """

    cap: Fraction
    spent: Fraction
    delta: float
    lost: Fraction

    @property
    def remaining(self) -> Fraction:
        """Cap minus what is lost."""
        return self.cap - self.lost


def account_of(entries: Sequence[Entry], lineage: str, where: str) -> Account:
    """Cap and spending of a lineage.

    Raises BudgetError if the lineage is not registered.
    """
    fields = registration(entries, lineage)
    if not fields:
        raise BudgetError(f"{lineage}: no entry in {where}; run `reticent register` once. Nothing was read")
    worst = max(lost(entries, move) for move in moves(entries, lineage))
    return Account(Fraction(fields["rho"]), spent_on(entries, lineage), fields["delta"], worst)


@dataclass(frozen=True)
class Allowance:
    """The largest charge that a limit still allows.

    ``rho``, ``cap``: what is left, and of how much; exact zCDP rhos.
    ``limit``, ``whose``: lifetime, month or year; and the lineage that registered it.
    """

    rho: Fraction
    limit: str
    cap: Fraction
    whose: str

    def facts(self) -> dict[str, str | float]:
        """Return the same as plain values."""
        return {"of": self.limit, "cap_rho": float(self.cap), "left_rho": float(self.rho)}


def left_for(entries: Sequence[Entry], lineage: str, now: datetime, joining: Fraction = Fraction(1)) -> Allowance:
    """The largest charge that all limits still allow: see :func:`allowances`."""
    return min(allowances(entries, lineage, now, joining), key=lambda a: (a.rho, a.whose != lineage))


def allowances(
    entries: Sequence[Entry], lineage: str, now: datetime, joining: Fraction = Fraction(1)
) -> list[Allowance]:
    """The largest charge that each limit still allows.

    The limits are those of the lineage and of every other whose people may be the same.  A month and a year are those
    of the calendar (UTC); charges are dated by their INTENTs.

    ``now``: says which month and year it is (UTC).
    ``joining``: the part of the charge that a person pays who leaves or joins; 1 is always enough.
    """
    dated = dict(zip((e.seq for e in entries), written_by(entries, now), strict=True))
    found: list[Allowance] = []
    for move in moves(entries, lineage):
        share = Fraction(1) if lineage in move.replaced else joining
        for limit, since in (("lifetime", ""), *((name, f"{now:{form}}") for name, form in PERIODS.items())):
            caps = {name: cap for name in move.lineages if (cap := _limit(entries, name, limit)) is not None}
            if not caps or not share:
                continue
            tightest = min(caps, key=lambda name: (caps[name], name != lineage))
            left = caps[tightest] - lost(entries, move, lambda e, since=since: dated[e.seq] >= since)
            # a limit that was passed while a clock was wrong, or lowered, is used up: what costs nothing is allowed
            found.append(Allowance(max(left, Fraction(0)) / share, limit, caps[tightest], tightest))
    return found


def _limit(entries: Sequence[Entry], lineage: str, limit: str) -> Fraction | None:
    fields = registration(entries, lineage)
    cap = fields.get("rho") if limit == "lifetime" else (fields.get("schedule") or {}).get(limit)
    return None if cap is None else Fraction(cap)


def written_by(entries: Sequence[Entry], now: datetime) -> list[str]:
    """Dates on which entries were written (UTC): each its own, or a bound where a clock was wrong.

    Each was written after all earlier ones; one dated later than now, before the next one that is not.
    """
    present = now.isoformat(timespec="seconds")
    earlier = accumulate((e.at if e.at <= present else "" for e in entries), max)
    following, dated = present, list[str]()
    for e, before in reversed(list(zip(entries, earlier, strict=True))):
        following = e.at if e.at <= present else following
        # never before an earlier entry: a charge by a clock that was set back would count in no month
        dated.append(max(before, following))
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
        f"{float(left.cap):g}{period}{other}; ask for at most what is left. Nothing was read for it"
    )
