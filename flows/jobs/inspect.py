"""``inspect``: the operator's look at the newest snapshot.  It is never a recorded flow and writes no run folder."""

from __future__ import annotations

from typing import Any

from flows.config.setting import ledger_for, newest_snapshot
from flows.config.shelf import Home, find_card
from pipeline.declaration.card import AnyCard, LqCard, load_any_card
from pipeline.ledger.chain import Entry
from pipeline.logs.rules import check_names
from pipeline.logs.store import Snapshot
from pipeline.operator.advice import advice
from pipeline.operator.hidden_state import hidden_state
from pipeline.operator.inspect import look
from pipeline.operator.inspect_vectors import look_vectors, vector_advice
from pipeline.transaction.place import known_to_ledger, one_at_a_time, remember_head


def inspect_job(card_name: str, home: Home) -> dict[str, Any]:
    """Enter the look in the ledger, then read the snapshot and the source files.

    Raises
    ------
    BudgetError
        If a real card is not registered: a look that no ledger knows of cannot be told in a certificate.
    CardError
        If the card differs from its registration, or there is no snapshot of it.
    """
    card = load_any_card(find_card(card_name, home.shelf))
    check_names(card)
    snapshot, entry = enter_look(card, home)
    if isinstance(card, LqCard):
        seen = look_vectors(snapshot, card)
        return seen | {"warnings": vector_advice(seen, card), "ledger_entry": entry.seq}
    facts = look(snapshot, card) | {"hidden_state": hidden_state(snapshot, card)}
    return facts | {"warnings": advice(facts, card), "ledger_entry": entry.seq}


def enter_look(card: AnyCard, home: Home) -> tuple[Snapshot, Entry]:
    """The newest snapshot, and the ledger's entry of a look at it: on disk before a row is read, whatever comes after.

    Raises
    ------
    BudgetError
        If a real card is not registered.
    CardError
        If the card differs from its registration, or there is no snapshot of it.
    """
    ledger = ledger_for(card, home)
    ledger.require(card)
    snapshot = newest_snapshot(card, home)
    with one_at_a_time(home.store / card.name):
        known_to_ledger(card.name, ledger, home.store)
        entry = ledger.inspected(card, snapshot.number)
        remember_head(home.store / card.name, entry)
    return snapshot, entry
