"""``store purge``: which raw rows leave the operator's store, noted in the ledger."""

from __future__ import annotations

from typing import Any

from flows.config.setting import ledger_for
from flows.config.shelf import Home, find_card
from pipeline.declaration.card import load_any_card
from pipeline.files import private_folder
from pipeline.logs.ingest import lock_lineage
from pipeline.operator.retention import COUNTERS_STAY, NOT_UNDONE, carry_out, plan_purge
from pipeline.transaction.place import known_to_ledger, one_at_a_time, remember_head


def purge_job(card_name: str, home: Home, *, keep: int = 0, quarantine_only: bool = False, yes: bool) -> dict[str, Any]:
    """Remove old snapshots (and what ingest set aside); without ``yes`` only say what would go."""
    card = load_any_card(find_card(card_name, home.shelf))
    ledger = ledger_for(card, home)
    ledger.require(card)
    lineage = home.store / card.name
    # the ingest's lock first: who waits for a long ingest must not keep runs waiting
    with lock_lineage(private_folder(lineage)), one_at_a_time(lineage):
        known_to_ledger(card.name, ledger, home.store)
        purge = plan_purge(lineage, keep=keep, quarantine_only=quarantine_only)
        if yes and purge.paths:
            # noted first: a purge that died half-way is known, and done again at no harm
            entry = ledger.purged(card.name, {"snapshots": purge.snapshots, "quarantine_only": quarantine_only})
            remember_head(lineage, entry)
            carry_out(purge, lineage)
    return {
        "dataset": card.name,
        "purged": yes and bool(purge.paths),
        "snapshots": purge.snapshots,
        "paths": purge.paths,
        "bytes": purge.size,
        "not_undone": [*NOT_UNDONE, *([COUNTERS_STAY] if (lineage / "counters").is_dir() else [])],
    }
