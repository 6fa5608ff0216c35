"""Editions: which number an ingest has, and what its operator is told of it; never decided by what came in.

A number is given once.  It stands in the ledger, in run keys and on published pages, so it must tell nothing about the
rows (privacy.md §0.2-1).
"""

from __future__ import annotations

from pathlib import Path

from pipeline.declaration.card import AnyCard
from pipeline.declaration.toml import LogError
from pipeline.files import remove_file, whole_file, write_file
from pipeline.logs.rules import check_tolerance
from pipeline.logs.store import Snapshot, numbers, snapshot_folder, snapshots

# a number that is noted, and perhaps not published yet
_BEGUN = ".edition"


def take_number(store: Path, dataset: str) -> int:
    """Number of the edition that begins now; the caller holds the lineage's lock.

    It is above every one that was ever given, purged ones included.  One that was noted and never published is that of
    the next ingest, whatever it finds: the number of a retry depends on no row.

    Raises
    ------
    LogError
        If the note of the highest number is damaged.
    """
    begun = _begun(store / dataset)
    if begun is not None:
        return begun
    note = _number_note(store, dataset)
    try:
        highest = int(note.read_text(encoding="utf-8")) if note.exists() else 0
    except ValueError:
        raise LogError(f"{note}: damaged; write the highest snapshot number ever given into it") from None
    return 1 + max([highest, *numbers(store, dataset)])


def note_number(store: Path, dataset: str, number: int) -> None:
    """Note that a number is given, then publish; the note lies beside the lineage's folder and outlives it."""
    for note in (store / dataset / _BEGUN, _number_note(store, dataset)):
        with whole_file(note, private=True) as fresh:
            write_file(fresh, f"{number}\n")


def end_edition(lineage: Path) -> bool:
    """Forget that a number was noted, once its snapshot is published; whether there was one to forget."""
    begun = _begun(lineage)
    if begun is None or not snapshot_folder(lineage, begun).is_dir():
        return False
    remove_file(lineage / _BEGUN)
    return True


def check_delivery(card: AnyCard, snapshot: Snapshot, *, may_be_empty: bool = False) -> None:
    """Refuse a log that does not fit its card; for the operator's eyes, as one person's rows may be the cause.

    Parameters
    ----------
    card
        Its [tolerance].
    snapshot
        What was made of the log; it stays.
    may_be_empty
        Whether nothing new is nothing to worry about, as in a night of a counter.

    Raises
    ------
    LogError
        If its files could not be read, not one row is left, or more rows break a rule than the card accepts.
    """
    if snapshot.unread:
        raise LogError(f"{snapshot.unread}.  The rows of the edition before it stand")
    if not snapshot.source_rows and not may_be_empty:
        raise LogError(f"{card.name}: the files hold no rows; put the log there")
    check_tolerance(card, snapshot.folder, snapshot.quarantined, snapshot.source_rows)
    if not snapshot.rows and not may_be_empty:
        most = max(snapshot.quarantined, key=lambda rule: snapshot.quarantined[rule], default="none")
        raise LogError(
            f"{card.name}: not one of {snapshot.source_rows:,} rows is left (most broke {most}); "
            "do the card's labels and columns fit the files?"
        )


def earlier_twin(store: Path, snapshot: Snapshot) -> int | None:
    """The first edition that was made of the same bytes under the same declarations; for the operator's eyes.

    Parameters
    ----------
    store, snapshot
        The operator's folder, and an edition in it.
    """
    there = (s for s in snapshots(store, snapshot.dataset, readable=True) if s.number < snapshot.number)
    return next((s.number for s in there if s.source_digest == snapshot.source_digest), None)


def _begun(lineage: Path) -> int | None:
    note = lineage / _BEGUN
    try:
        return int(note.read_text(encoding="utf-8")) if note.exists() else None
    except ValueError:
        raise LogError(f"{note}: damaged; remove it") from None


def _number_note(store: Path, dataset: str) -> Path:
    return store / f".last-snapshot-{dataset}"
