"""Editions: which number an ingest has, and what its operator is told of it; never decided by what came in.

A number is given once.  It stands in the ledger, in run keys and on published pages, so it must tell nothing about the
rows (privacy.md §0.2-1).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from pipeline.declaration.card import AnyCard
from pipeline.declaration.toml import DamagedError, LogError
from pipeline.files import remove_file, whole_file, write_file
from pipeline.logs.rules import check_tolerance
from pipeline.logs.store import Snapshot, check_parts, numbers, snapshot_folder, snapshots
from pipeline.logs.work import sweep

_UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, LookupError, AttributeError)
# a number that is noted, and perhaps not published yet
_BEGUN = ".edition"
# what an ingest works on, and a later one takes up
WORK = ".ingest"

Say = Callable[[str], None]


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


@contextmanager
def lock_lineage(home: Path, say: Say = lambda _: None) -> Generator[None, None, None]:
    """Wait until no other ingest of the lineage whose folder is ``home`` runs, nor a purge that takes its files.

    Parameters
    ----------
    home
        The lineage's folder in the store.
    say
        Called with a sentence, if another ingest is waited for.
    """
    # a lock holds nothing that could be lost
    with os.fdopen(os.open(home / ".lock", os.O_RDWR | os.O_CREAT, 0o600), "r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another ingest of {home.name} is running; waiting for it to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        # published, but killed before it was tidied away
        if end_edition(home):
            sweep(home / WORK)
        yield


@contextmanager
def set_aside(snapshot: Snapshot) -> Generator[list[Path], None, None]:
    """The quarantine of a snapshot, to be read inside: a purge may have come before, and does not come half-way.

    Parameters
    ----------
    snapshot
        Whose ingest set the rows aside; no file of it is left where they were purged.

    Raises
    ------
    DamagedError
        In place of whatever the reading raises, where one of the files cannot be read, or one of the parts.
    """
    with lock_lineage(snapshot.folder.parent):
        files = sorted(snapshot.folder.glob("quarantine-*.parquet"))
        try:
            yield files
        except _UNREADABLE:
            for file in files:
                _read_whole(file, snapshot)
            check_parts(snapshot)
            raise


def _read_whole(file: Path, snapshot: Snapshot) -> None:
    try:
        pl.read_parquet(file).select("rule", "effect", "file", "line", pl.col("source").struct.unnest())
    except _UNREADABLE as e:
        raise DamagedError(
            f"{snapshot.dataset}: {file}: damaged ({type(e).__name__}); ingest the log again, or remove what was set "
            "aside: `reticent store purge CARD --quarantine-only`"
        ) from None


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
    with set_aside(snapshot) as files:
        check_tolerance(card, files, snapshot.quarantined, snapshot.source_rows)
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
