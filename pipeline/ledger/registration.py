"""What a lineage is registered with, and what may still change (privacy.md §0.1-14)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from pipeline.declaration.card import AnyCard, CardError
from pipeline.ledger.account import registration, spent_on
from pipeline.ledger.chain import Entry
from pipeline.privacy.budget import fraction_of


def registered_fields(card: AnyCard) -> dict[str, Any]:
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
    entries: Sequence[Entry], card: AnyCard, *, amend: bool, partitions: int | None
) -> tuple[str, dict[str, Any]] | None:
    """Kind and body of the entry that brings a registration up to the card; None where they agree.

    Raises
    ------
    CardError
        If they differ and ``amend`` is not set, or differ in what never changes.
    """
    now = registration(entries, card.name)
    declared = partitions or (now or {}).get("partitions", 1)
    # a lineage without partitions is registered in the words of before there were any
    fields = registered_fields(card) | ({"partitions": declared} if declared > 1 else {})
    if now is None:
        return "REGISTER", fields
    old, new = ({"partitions": 1, "schedule": None, **told} for told in (now, fields))
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


def check_partition(entries: Sequence[Entry], lineage: str, partition: int | None) -> None:
    """Refuse a partition that registration did not declare: nothing says that its users are in no other."""
    declared = (registration(entries, lineage) or {}).get("partitions", 1)
    if partition is not None and not (declared > 1 and 0 <= partition < declared):
        raise CardError(
            f"{lineage}: partition {partition} is not registered (partitions: {declared}); they are declared once, "
            "at registration"
        )
