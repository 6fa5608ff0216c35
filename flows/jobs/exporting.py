"""``store export``: a snapshot's raw rows for another tool.  Never a recorded flow, and never into a run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.config.shelf import Home, find_card
from flows.jobs.inspect import enter_look
from pipeline.declaration.card import CardError, load_any_card
from pipeline.operator.minari_export import export_minari


def export_job(card_name: str, home: Home, to: Path) -> dict[str, Any]:
    """Enter the look in the ledger, then write the newest snapshot as a Minari data set below ``to``.

    Raises
    ------
    BudgetError
        If a real card is not registered.
    CardError
        If the folder is below ``runs/``, the data set is there already, or h5py is not installed.
    """
    card = load_any_card(find_card(card_name, home.shelf))
    if to.resolve().is_relative_to(home.runs.resolve()):
        raise CardError(f"--to {to}: below runs/, whose folders may be published; raw rows never go there")
    # who holds the rows can look at them
    snapshot, entry = enter_look(card, home)
    written = export_minari(snapshot, card, to.resolve())
    return {
        "dataset": card.name,
        "snapshot": snapshot.number,
        "minari": written.name,
        "folder": str(written.folder),
        "episodes": written.episodes,
        "steps": written.steps,
        "ledger_entry": entry.seq,
    }
