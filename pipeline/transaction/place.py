"""A lineage's place in the operator's store: lock, newest ledger entry seen, its committed releases.

What a run finds of runs that died: a finished release is committed, everything else is deleted and stays spent.
"""

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

from pipeline.files import make_folder, remove_tree, sync_all, whole_file, whole_folder, write_file
from pipeline.ledger.account import commit_of
from pipeline.ledger.chain import AttemptLostError, Body, BudgetError, Entry, Head, canonical, lacking
from pipeline.ledger.ledger import Ledger
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import describe, describe_mechanism, read_release, release_files, sha256_file

_PARTIAL = re.compile(r"(?P<key>[0-9a-f]{24})\.attempt-(?P<attempt>\d+)")


@dataclass(frozen=True)
class Attempt:
    """Which draw a folder holds.

    ``run_key``, ``attempt``: hex key of the release, and which try at it, counted from 1.
    ``data_digest``: sha256 of the rows' files; for the operator alone, as it would confirm guesses.
    """

    run_key: str
    attempt: int
    data_digest: str


def folder_of(store: Path, lineage: str, run_key: str, *, exact: bool) -> Path:
    """Where the release of a key is kept.

    ``run_key``: 64 hex digits.
    ``exact``: whether it has no noise: exact tables of a simulation are no private release.
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

    Raises BudgetError if that cannot be read.
    """
    try:
        facts: Any = json.loads((folder / "attempt.json").read_text(encoding="utf-8"))
        return Attempt(str(facts["run_key"]), int(facts["attempt"]), str(facts["data_digest"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise BudgetError(f"{folder / 'attempt.json'} is damaged; restore the store") from None


def write_attempt(release: Release, folder: Path, attempt: Attempt) -> None:
    """Write a release beside and rename it: a folder under its final name is whole.

    Raises AttemptLostError if another attempt's release is there already: a release that is there is never replaced.
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

    ``folder``: A lineage's folder in the store, or the folder of runs; made where it is missing, mode 0700.
    Yields A name of this place: a random token in the store, hashed with the machine's name.  While the lock is held,
    no attempt that drew here is alive; a copy of the store on another machine is another place.
    Raises BlockingIOError if ``wait`` is not set and another run holds it.
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
    """Note the newest ledger entry this store has seen, so that a cut or restored ledger is noticed."""
    with whole_file(folder / "ledger-head.json", private=True) as fresh:
        write_file(fresh, json.dumps({"seq": entry.seq, "hash": entry.hash}))


def refuse_old_ledger(lineage: str, ledger: Ledger, store: Path) -> None:
    """Refuse a ledger that is older than this store: one that lacks an entry or a release seen here.

    Raises BudgetError if the ledger was cut, replaced or restored from an old copy; nothing was read.
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

    Raises BudgetError if so: a new ledger would start at zero.
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
        raise BudgetError(f"{path} is damaged; restore the store") from None


@dataclass(frozen=True)
class Recovered:
    """What dead runs had left."""

    committed: tuple[Entry, ...] = ()
    deleted: int = 0

    def __str__(self) -> str:
        told = [f"committed attempt {e.body['attempt']} at {e.body['run_key'][:24]}" for e in self.committed]
        if self.deleted:
            told.append(f"deleted {self.deleted} unfinished or beaten draw{'s' if self.deleted > 1 else ''}")
        return f"recovered after a crash: {'; '.join(told)}; what they cost stays spent" if told else ""


def recover(lineage: str, ledger: Ledger, store: Path, place: str) -> Recovered:
    """Settle what dead attempts left in this store; the caller holds its lock and knows the ledger is not an old one.

    A release is committed only if its folder names its key and attempt, that INTENT is there and describes it, no
    COMMIT has the key, and the attempt is dead (privacy.md §0.1-15).  What a living attempt made is left.

    Raises BudgetError if an uncommitted release cannot be read, or is not what its INTENT describes.
    """
    entries = ledger.entries(lineage)
    by_attempt = {(e.body["run_key"][:24], e.body["attempt"]): e for e in entries if e.kind == "INTENT"}
    committed: list[Entry] = []
    deleted = 0
    for folder in drawn_folders(store, lineage):
        found = read_attempt(folder)
        intent, commit = by_attempt[found.run_key[:24], found.attempt], commit_of(entries, lineage, found.run_key)
        if (commit is not None and commit.body["intent"] == intent.seq) or ledger.alive(intent, place):
            continue
        counter = intent.body.get("counter")
        beaten = False
        if counter is not None:
            from pipeline.ledger.steps import overtaken

            beaten = overtaken(entries, lineage, counter) is not None
        if commit is None and not beaten:
            committed.append(ledger.commit(intent, commit_facts(_described(folder, intent), folder)))
            remember_head(store / lineage, committed[-1])
        else:
            remove_tree(folder)
            deleted += 1
    for folder, key, attempt in unfinished(store, lineage):
        if not ledger.alive(by_attempt[key, attempt], place):
            remove_tree(folder)
            deleted += 1
    return Recovered(tuple(committed), deleted)


def commit_facts(release: Release, folder: Path) -> Body:
    """What a COMMIT says of a release on disk; with scales that followed earlier answers, those that were used."""
    drawn = {} if release.counter is None else {"drawn_sha256": release.counter["drawn_sha256"]}
    used = {} if release.joint is None else {"mechanisms": [describe_mechanism(m) for m in release.mechanisms]}
    return {
        "release_sha256": sha256_file(folder / "release.parquet"),
        "noise": release.noise,
        "sampler": release.sampler,
        **drawn,
        **used,
    }


def fits(release: Release, intent: Entry, commit: Entry | None = None) -> bool:
    """Whether a release is described as it was charged; adaptive scales, as they were committed.

    ``intent``, ``commit``: its entries; None where it is not committed yet.
    """
    if (release.relation, release.trust_model) != ("replace", "central"):
        return False
    told = json.loads(canonical(describe(release)))
    counter = {k: v for k, v in told.get("counter", {}).items() if k != "drawn_sha256"}
    if told.get("joint") != intent.body.get("joint") or counter != intent.body.get("counter", {}):
        return False
    charged = intent.body.get("mechanisms") or (commit.body["mechanisms"] if commit is not None else None)
    if charged is not None:
        return told["mechanisms"] == charged
    planned = {table for call in intent.body["planned_calls"] for table in call["tables"]}
    # what no answer decides was known before: how people who evaluate are asked
    fixed = [call for call in intent.body["planned_calls"] if "table" in call]
    known = [{k: v for k, v in call.items() if k not in ("tables", "adaptive")} for call in fixed]
    return {m.table for m in release.mechanisms} <= planned and all(m in told["mechanisms"] for m in known)


def _described(folder: Path, intent: Entry) -> Release:
    try:
        release = read_release(folder)
    except ValueError:
        release = None
    if release is None or release.dataset != intent.lineage or not fits(release, intent):
        raise BudgetError(
            f"{folder}: an uncommitted release that cannot be read or is not what entry {intent.seq} describes: it was "
            "edited. Move it away; its cost stays spent"
        )
    return release
