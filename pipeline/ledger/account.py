"""What a lineage is registered with, what it has spent and what is left: exact rationals, read off the entries.

What may still change after registration, and what never does: privacy.md §0.1-14.
"""

# pyright: reportUnknownVariableType=false
from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction

from pipeline.declaration.card import AnyCard, CardError
from pipeline.ledger.chain import Body, Entry, canonical, entries_of
from pipeline.privacy.budget import fraction_of


def registration(entries: Sequence[Entry], lineage: str) -> Body | None:
    """The values registered last, or None.

    Parameters
    ----------
    entries, lineage
        Of the ledger, in order, and the name of the dataset.
    """
    found = entries_of(entries, lineage, "REGISTER", "AMEND")
    return found[-1].body if found else None


def spent_on(entries: Sequence[Entry], lineage: str) -> Fraction:
    """All that was charged to a lineage, as an exact rho; no refunds, whatever became of an attempt."""
    return spent_of(charges_of(entries, lineage))


def spent_of(charges: Sequence[tuple[int | None, Fraction]]) -> Fraction:
    """Cost of charges to the person who pays most (parallel composition).

    Partitions are user-disjoint: a keyed hash of the user id puts everybody in one.  A person in partition p pays
    what was charged to everybody plus what was charged to p, so the lineage costs the first plus the largest second.

    Parameters
    ----------
    charges
        Pairs ``(partition, rho)``; partition None means everybody.
    """
    whole, parts = Fraction(0), dict[int, Fraction]()
    for partition, rho in charges:
        if partition is None:
            whole += rho
        else:
            parts[partition] = parts.get(partition, Fraction(0)) + rho
    return whole + max(parts.values(), default=Fraction(0))


def commit_of(entries: Sequence[Entry], lineage: str, run_key: str) -> Entry | None:
    """The COMMIT of a key, if there is one.

    Parameters
    ----------
    entries, lineage, run_key
        Of the ledger, the name of the dataset, and the hex key of a release.
    """
    return next((e for e in entries_of(entries, lineage, "COMMIT") if e.body["run_key"] == run_key), None)


def intents_of(entries: Sequence[Entry], lineage: str, run_key: str) -> list[Entry]:
    """All attempts at a key, oldest first."""
    return [e for e in entries_of(entries, lineage, "INTENT") if e.body["run_key"] == run_key]


def charges_of(entries: Sequence[Entry], lineage: str) -> list[tuple[int | None, Fraction]]:
    """All charges of a lineage as :func:`spent_of` adds them up."""
    return [(e.body.get("partition"), Fraction(e.body["rho"])) for e in entries_of(entries, lineage, "INTENT")]


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
        # a lineage without a schedule is registered in the words of before there were any
        **({} if limits is None else {"schedule": limits}),
    }


def change_of_registration(
    entries: Sequence[Entry],
    card: AnyCard,
    amend: bool,
    partitions: int | None,
    disjoint_from: Sequence[str] = (),
) -> tuple[str, Body] | None:
    """Kind and body of the entry that brings a registration up to the card; None where they agree.

    Raises
    ------
    CardError
        If they differ and ``amend`` is not set, or differ in what never changes, or people can no longer be disjoint.
    """
    now = registration(entries, card.name)
    declared = partitions or (now or {}).get("partitions", 1)
    # a lineage without partitions is registered in the words of before there were any
    fields = {**_registered_fields(card), **({"partitions": declared} if declared > 1 else {})}
    before = (now or {}).get("disjoint_from", [])
    _check_disjoint(entries, card, [name for name in disjoint_from if name not in before])
    if apart := sorted({*before, *disjoint_from}):
        fields["disjoint_from"] = apart
    if now is None:
        return "REGISTER", fields
    old, new = ({"partitions": 1, "schedule": None, "disjoint_from": [], **told} for told in (now, fields))
    changed = sorted(k for k in new if new[k] != old[k])
    if not changed:
        return None
    spent = spent_on(entries, card.name)
    if amend and Fraction(fields["rho"]) < spent:
        raise CardError(f"{card.name}: cap {fields['rho']} is below what is spent, {float(spent):.6g}")
    # what was spent was counted for the old unit, of which a new one may hold several
    never = ("kind", "partitions", "unit") if spent else ("kind", "partitions")
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


def _check_disjoint(entries: Sequence[Entry], card: AnyCard, names: Sequence[str]) -> None:
    """Refuse what nobody could keep true: of people who were charged before, nobody would know in which lineage."""
    if names and card.kind != "real":
        raise CardError(f"{card.name}: is synthetic: nobody is in it, so it is disjoint from every dataset")
    if names and charges_of(entries, card.name):
        raise CardError(
            f"{card.name}: was charged already, for people who may be in {names[0]} too: it stays charged "
            "together with it. Register the new people under a name of their own, before they are charged"
        )
    for name in names:
        if name == card.name or (registration(entries, name) or {}).get("kind") != "real":
            raise CardError(f"{card.name}: --disjoint-from {name}: no other real dataset of this ledger has that name")
        unknown = [e for e in entries_of(entries, name, "INTENT") if not e.body.get("claimed")]
        if unknown:
            raise CardError(
                f"{card.name}: --disjoint-from {name}: its entry {unknown[0].seq} was charged for people whose ids "
                "this ledger does not know, so they stay charged together"
            )


def newly_disjoint(entries: Sequence[Entry], lineage: str, change: tuple[str, Body] | None) -> bool:
    """Whether a change of registration declares a lineage disjoint from one more."""
    before = (registration(entries, lineage) or {}).get("disjoint_from", [])
    return change is not None and change[1].get("disjoint_from", []) != before


def claims_needed(entries: Sequence[Entry], lineage: str) -> int:
    """Since which entry the people of a lineage must be claimed: the one that declared it disjoint last; 0: any."""
    found, before = 0, list[str]()
    for e in entries_of(entries, lineage, "REGISTER", "AMEND"):
        found = found if e.body.get("disjoint_from", []) == before else e.seq
        before = e.body.get("disjoint_from", [])
    return found


def check_partition(entries: Sequence[Entry], lineage: str, partition: int | None) -> None:
    """Refuse a partition that registration did not declare: nothing says that its users are in no other.

    Parameters
    ----------
    entries, lineage
        See :func:`registration`.
    partition
        Counted from 0; None: everybody's rows.
    """
    declared = (registration(entries, lineage) or {}).get("partitions", 1)
    if partition is not None and not (declared > 1 and 0 <= partition < declared):
        raise CardError(
            f"{lineage}: partition {partition} is not registered (partitions: {declared}); they are declared once, "
            "at registration"
        )


def card_hash(card: AnyCard) -> str:
    """Sha256 of all that a card declares, vetoes, markov and tolerance included; not where files and ledger lie.

    A key left at its default is as good as absent, so that a new key of a later version changes no old hash.
    """
    declared = card.model_dump(mode="json", exclude={"source": {"files"}, "budget": {"ledger"}}, exclude_defaults=True)
    return hashlib.sha256(canonical(declared).encode()).hexdigest()
