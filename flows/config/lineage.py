"""The lineage of a card in a home: the ledger that charges it, and its newest snapshot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flows.config.home import Home
from pipeline.declaration.card import AnyCard, CardError
from pipeline.ledger.chain import BudgetError
from pipeline.ledger.ledger import Ledger, open_ledger
from pipeline.logs.store import Snapshot, check_source, latest
from pipeline.transaction.place import refuse_lost_ledger


def ledger_for(card: AnyCard, home: Home) -> Ledger:
    """Open the ledger that charges this card; a synthetic card creates and registers itself, a real one never.

    Raises BudgetError if a real card is not registered.
    Raises CardError if the card differs from its registration.
    """
    refuse_lost_ledger(card.name, home.ledger_of(card), home.store)
    if card.kind == "synthetic":
        ledger = open_ledger(home.ledger_of(card), create=True)
        ledger.register(card)
    else:
        ledger = open_ledger(home.ledger_of(card), create=False)
    ledger.require(card)
    return ledger


def known_to_runs(lineage: str, ledger: Ledger, runs: Path) -> None:
    """Refuse a ledger that lacks an entry which a run's certificate names: store and ledger are both an old copy.

    Raises BudgetError if so: what was released since would be drawn again for nothing.
    """
    entries = {e.seq: e.hash for e in ledger.entries()}
    for file in sorted(runs.glob("*/certificate.json")):
        try:
            proof: Any = json.loads(file.read_text(encoding="utf-8"))
            of_this = proof["dataset"] == lineage and proof["ledger"] is not None
            lost = of_this and entries.get(proof["ledger"]["entry"]) != proof["ledger"]["hash"]
        except (OSError, ValueError, KeyError, TypeError):
            # no certificate, so no witness; `ledger verify RUN` says what is wrong with it
            continue
        if lost:
            raise BudgetError(
                f"{lineage}: ledger {ledger.where} lacks entry {proof['ledger']['entry']}, of which run "
                f"{file.parent.name} was made: ledger and store are old copies, or the run is another ledger's. "
                "Restore the newest, or move that run away if it is none of theirs. Nothing was read"
            )


def newest_snapshot(card: AnyCard, home: Home) -> Snapshot:
    """The latest snapshot, ingested under this very card."""
    found = latest(home.store, card.name)
    if found is None:
        raise CardError(f"{card.name}: no snapshot in {home.root}; run `reticent ingest` on its card first")
    if found.kind != card.kind:
        raise CardError(
            f"{card.name}: snapshot {found.number} was ingested as {found.kind}, the card now says {card.kind}; "
            "the kind of a dataset never changes"
        )
    if found.domain_hash != card.domain_hash():
        raise CardError(f"{card.name}: snapshot {found.number} was ingested under another domain; ingest again")
    check_source(found, card)
    return found
