"""What the store has seen of the ledger: an old or cut ledger lacks it, and is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.ledger.chain import BudgetError, Entry
from pipeline.ledger.head import Head, lacking
from pipeline.ledger.ledger import Ledger
from pipeline.transaction.artifacts import drawn_folders, read_attempt, sync, unfinished


def remember_head(folder: Path, entry: Entry) -> None:
    """Note the newest ledger entry this store has seen, so that a cut or restored ledger is noticed."""
    partial = folder / ".ledger-head.partial"
    partial.write_text(json.dumps({"seq": entry.seq, "hash": entry.hash}))
    partial.chmod(0o600)
    sync(partial)
    partial.rename(folder / "ledger-head.json")
    sync(folder)


def known_to_ledger(lineage: str, ledger: Ledger, store: Path) -> None:
    """Refuse a ledger that is older than this store: one that lacks an entry or a release seen here.

    Raises
    ------
    BudgetError
        If the ledger was cut, replaced or restored from an old copy; nothing was read.
    """
    entries = ledger.entries()
    head = store / lineage / "ledger-head.json"
    if head.is_file() and (lost := lacking(entries, [_read(head)])):
        raise BudgetError(
            f"{lineage}: ledger {ledger.where} lacks entry {lost.seq}, which this store has seen: it was cut "
            "or is an old copy. Restore the newest; nothing was read"
        )
    intents = {(e.body["run_key"], e.body["attempt"]) for e in entries if e.lineage == lineage and e.kind == "INTENT"}
    drawn = [(a.run_key, a.attempt) for a in map(read_attempt, drawn_folders(store, lineage))]
    begun = [(key, attempt) for _, key, attempt in unfinished(store, lineage)]
    if not intents.issuperset(drawn) or not {(k[:24], n) for k, n in intents}.issuperset(begun):
        raise BudgetError(
            f"{lineage}: a release is in the store but not in the ledger: an old ledger? Restore the newest"
        )


def not_lost(lineage: str, where: Path | str, store: Path) -> None:
    """Refuse to go on, or to begin anew, where this store has seen a ledger file that is gone.

    Raises
    ------
    BudgetError
        If so: a new ledger would start at zero.
    """
    head = store / lineage / "ledger-head.json"
    if head.is_file() and not (isinstance(where, str) and "://" in where) and not Path(where).exists():
        raise BudgetError(
            f"{lineage}: ledger {where} is gone, but this store has seen its entry {_read(head).seq}. Restore "
            "the newest copy; nothing was read, and nothing starts at zero"
        )


def _read(path: Path) -> Head:
    try:
        last: Any = json.loads(path.read_text())
        return Head(int(last["seq"]), str(last["hash"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise BudgetError(f"{path} is damaged; restore the store. Nothing was read") from None
