"""A lineage's place in the operator's store: lock, newest ledger entry seen, its committed releases."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pipeline.files import make_folder, sync_all, whole_file, whole_folder, write_file
from pipeline.ledger.chain import AttemptLostError, BudgetError, Entry, Head, lacking
from pipeline.ledger.ledger import Ledger
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import release_files

_PARTIAL = re.compile(r"(?P<key>[0-9a-f]{24})\.attempt-(?P<attempt>\d+)")


@dataclass(frozen=True)
class Attempt:
    """Which draw a folder holds.

    Parameters
    ----------
    run_key, attempt
        Hex key of the release, and which try at it, counted from 1.
    data_digest
        Sha256 of the rows' files; for the operator alone, as it would confirm guesses.
    """

    run_key: str
    attempt: int
    data_digest: str


def folder_of(store: Path, lineage: str, run_key: str, *, exact: bool) -> Path:
    """Where the release of a key is kept.

    Parameters
    ----------
    store, lineage
        The operator's store, and the name of the dataset.
    run_key
        64 hex digits.
    exact
        Whether it has no noise: exact tables of a simulation are no private release.
    """
    return store / lineage / "releases" / f"{'exact-' if exact else ''}{run_key[:24]}"


def drawn_folders(store: Path, lineage: str) -> list[Path]:
    """Folders of finished private releases; the exact tables of a simulation are not among them."""
    found = sorted((store / lineage / "releases").glob("*/attempt.json"))
    return [p.parent for p in found if re.fullmatch(r"[0-9a-f]{24}", p.parent.name)]


def unfinished(store: Path, lineage: str) -> list[tuple[Path, str, int]]:
    """Folders of draws that were never finished, with the beginning of their key and their attempt."""
    found = [(p, _PARTIAL.fullmatch(p.name)) for p in sorted((store / lineage / "releases").glob("*.attempt-*"))]
    return [(p, m["key"], int(m["attempt"])) for p, m in found if m is not None]


def read_attempt(folder: Path) -> Attempt:
    """Which draw a folder holds, as its ``attempt.json`` says.

    Raises
    ------
    BudgetError
        If that cannot be read.
    """
    try:
        facts: Any = json.loads((folder / "attempt.json").read_text(encoding="utf-8"))
        return Attempt(str(facts["run_key"]), int(facts["attempt"]), str(facts["data_digest"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise BudgetError(f"{folder / 'attempt.json'} is damaged; restore the store. Nothing was read") from None


def write_attempt(release: Release, folder: Path, attempt: Attempt) -> None:
    """Write a release beside and rename it: a folder under its final name is whole.

    Parameters
    ----------
    release
        What was drawn.
    folder
        From :func:`folder_of`.
    attempt
        Which draw it is; kept beside the release, and in the name of the unfinished folder.

    Raises
    ------
    AttemptLostError
        If another attempt's release is there already: a release that is there is never replaced.
    """
    exact, beside = release.noise == "none", f"{folder.name}.attempt-{attempt.attempt}"
    try:
        with whole_folder(folder, private=True, over=exact, beside=beside) as partial:
            for name, content in release_files(release).items():
                write_file(partial / name, content)
            write_file(partial / "attempt.json", json.dumps(asdict(attempt)))
    except OSError:
        if exact or not folder.exists() or read_attempt(folder) == attempt:
            raise
        raise AttemptLostError(f"{release.dataset}: another attempt drew this release first; its spend stays") from None


_LOCK = ".releasing"


@contextmanager
def one_at_a_time(folder: Path, *, wait: bool = True) -> Generator[str]:
    """Hold a folder's lock, which dies with its process; a second holder waits.

    Parameters
    ----------
    folder
        A lineage's folder in the store, or the folder of runs; made where it is missing, mode 0700.
    wait
        Whether to wait while another process or thread holds it.

    Yields
    ------
    A name of this place: a random token in the store, hashed with the machine's name.  While the lock is held, no
    attempt that drew here is alive; a copy of the store on another machine is another place.

    Raises
    ------
    BlockingIOError
        If ``wait`` is not set and another run holds it.
    """
    make_folder(folder, 0o700)
    with os.fdopen(os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600), "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        token = lock.read()
        if len(token) != 32:
            token = secrets.token_hex(16)
            write_file(folder / _LOCK, token)
            # a lease that a power cut leaves behind must be known as this place's own
            sync_all(folder, [_LOCK])
        yield hashlib.sha256(f"{token} {platform.node()}".encode()).hexdigest()[:32]


def remember_head(folder: Path, entry: Entry) -> None:
    """Note the newest ledger entry this store has seen, so that a cut or restored ledger is noticed.

    Parameters
    ----------
    folder
        The lineage's folder in the store; the caller holds its lock.
    entry
        The entry that was just appended.
    """
    with whole_file(folder / "ledger-head.json", private=True) as fresh:
        write_file(fresh, json.dumps({"seq": entry.seq, "hash": entry.hash}))


def refuse_old_ledger(lineage: str, ledger: Ledger, store: Path) -> None:
    """Refuse a ledger that is older than this store: one that lacks an entry or a release seen here.

    Parameters
    ----------
    lineage
        Name of the dataset in the ledger and of its folder in the store.
    ledger
        The ledger that charges it.
    store
        The operator's store.

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


def refuse_lost_ledger(lineage: str, where: Path | str, store: Path) -> None:
    """Refuse to go on, or to begin anew, where this store has seen a ledger file that is gone.

    Parameters
    ----------
    lineage
        Name of the dataset.
    where
        Path of the ledger's file, or the URL of its database, which is not looked at.
    store
        The operator's store.

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
