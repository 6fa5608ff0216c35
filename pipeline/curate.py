"""The curator: the one place where the ledger, the rows and the noise meet.

Order (privacy.md §10): INTENT (budget spent, on disk) -> rows are read and summed -> noise -> the release is written
and renamed -> COMMIT.  A committed key is replayed at no cost and never drawn again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.card import Card
from pipeline.ledger.chain import BudgetError, Entry, canonical
from pipeline.ledger.ledger import Ledger
from pipeline.logs.aggregate import aggregate
from pipeline.logs.store import Snapshot
from pipeline.privacy.noise import NoiseSource, RealDataError
from pipeline.privacy.release import Release, total_epsilon, total_rho
from pipeline.privacy.release_file import describe_mechanism, read_release, sha256_file, write_release
from pipeline.statistics.privatizers import CentralCounts


@dataclass(frozen=True)
class Curated:
    """A release on disk, and what the ledger says of it (None where nothing is private and nothing was charged).

    ``replayed``: the release had been committed before; ``stale``: the snapshot's bytes have changed since.
    """

    release: Release
    folder: Path
    run_key: str
    intent: Entry | None
    commit: Entry | None
    replayed: bool
    stale: bool


def run_key(card: Card, snapshot: Snapshot, privatizer: CentralCounts) -> str:
    """Hex key of a release: lineage, snapshot *number*, registered domain and mechanism list; no digest of data."""
    spec = [describe_mechanism(m) for m in privatizer.mechanisms]
    parts = [card.name, snapshot.number, card.domain_hash(), spec]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def release_counts(
    card: Card,
    snapshot: Snapshot,
    privatizer: CentralCounts,
    ledger: Ledger,
    store: Path,
    noise: NoiseSource,
    progress: Callable[[int, int], None] | None = None,
) -> Curated:
    """Release the counts of a snapshot, or replay the committed release.

    Raises
    ------
    BudgetError
        If the lineage is not registered or the cap does not allow it; no row was read.
    CardError
        If the card differs from its registration.
    RealDataError
        If the data is real and some table would get no operating-system noise; no row was read.
    """
    ledger.require(card)
    privatizer.admit(noise)
    if snapshot.kind != card.kind:
        raise RealDataError(f"{card.name}: the snapshot was ingested as {snapshot.kind}, the card says {card.kind}")
    with one_at_a_time(store / card.name):
        known_to_ledger(card.name, ledger, store)
        return _release(card, snapshot, privatizer, ledger, store, noise, progress)


def _release(
    card: Card,
    snapshot: Snapshot,
    privatizer: CentralCounts,
    ledger: Ledger,
    store: Path,
    noise: NoiseSource,
    progress: Callable[[int, int], None] | None,
) -> Curated:
    key = run_key(card, snapshot, privatizer)
    kept = store / card.name / "releases"
    folder = kept / f"{'exact-' if privatizer.exact else ''}{key[:24]}"
    if privatizer.exact:
        release = privatizer.draw(aggregate(snapshot, card, progress), noise)
        _write(release, folder, key, 1, snapshot)
        return Curated(release, folder, key, None, None, replayed=False, stale=False)
    commit = ledger.committed(card.name, key)
    if commit is not None:
        return _replay(ledger, card, folder, key, commit, snapshot)
    if folder.exists():
        return _recover(ledger, card, folder, key, snapshot)
    mechanisms = [describe_mechanism(m) for m in privatizer.mechanisms]
    rho, pure = total_rho(privatizer.mechanisms), total_epsilon(privatizer.mechanisms)
    if rho is None:
        raise RealDataError(f"{card.name}: some tables have noise and some have none; nothing was read")
    body = {"snapshot": snapshot.number, "mechanisms": mechanisms, "epsilon": None if pure is None else str(pure)}
    intent = ledger.intent(card.name, key, rho, body)
    remember_head(store / card.name, intent)
    release = privatizer.draw(aggregate(snapshot, card, progress), noise)
    digest = _write(release, folder, key, intent.body["attempt"], snapshot)
    commit = ledger.commit(intent, {"release_sha256": digest, "noise": release.noise, "sampler": release.sampler})
    remember_head(store / card.name, commit)
    return Curated(release, folder, key, intent, commit, replayed=False, stale=False)


@contextmanager
def one_at_a_time(folder: Path) -> Generator[None]:
    """Hold the lineage's lock from before INTENT to COMMIT; a second run waits and then replays."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(folder / ".releasing", os.O_CREAT | os.O_RDWR, 0o600), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remember_head(folder: Path, entry: Entry) -> None:
    """Note the newest ledger entry this store has seen, so that a cut or restored ledger is noticed."""
    partial = folder / ".ledger-head.partial"
    partial.write_text(json.dumps({"seq": entry.seq, "hash": entry.hash}))
    partial.chmod(0o600)
    _sync(partial)
    partial.rename(folder / "ledger-head.json")
    _sync(folder)


def known_to_ledger(lineage: str, ledger: Ledger, store: Path) -> None:
    """Refuse a ledger that is older than this store: one that lacks an entry or a release seen here.

    Raises
    ------
    BudgetError
        If the ledger was cut, replaced or restored from an old copy; nothing was read.
    """
    entries = ledger.entries()
    seen = {e.seq: e.hash for e in entries}
    head = store / lineage / "ledger-head.json"
    if head.is_file():
        last = json.loads(head.read_text())
        if seen.get(last["seq"]) != last["hash"]:
            raise BudgetError(
                f"{lineage}: ledger {ledger.where} lacks entry {last['seq']}, which this store has seen: it was cut "
                "or is an old copy. Restore the newest; nothing was read"
            )
    intents = {(e.body["run_key"], e.body["attempt"]) for e in entries if e.lineage == lineage and e.kind == "INTENT"}
    for path in sorted((store / lineage / "releases").glob("*/attempt.json")):
        drawn = json.loads(path.read_text())
        exact = path.parent.name.startswith("exact-")
        if not exact and (drawn["run_key"], drawn["attempt"]) not in intents:
            raise BudgetError(
                f"{lineage}: a release is in the store but not in the ledger: an old ledger? Restore the newest"
            )


def _replay(ledger: Ledger, card: Card, folder: Path, key: str, commit: Entry, snapshot: Snapshot) -> Curated:
    try:
        release = read_release(folder)
        drawn_from = json.loads((folder / "attempt.json").read_text())["data_digest"]
    except (OSError, ValueError, KeyError) as e:
        raise BudgetError(
            f"{card.name}: the committed release is gone from the store ({e}); it is never drawn again"
        ) from None
    if sha256_file(folder / "release.parquet") != commit.body["release_sha256"]:
        raise BudgetError(
            f"{card.name}: the stored release does not match its COMMIT (entry {commit.seq}): it was edited"
        )
    intent = next(e for e in ledger.entries(card.name) if e.seq == commit.body["intent"])
    described = json.loads(canonical([describe_mechanism(m) for m in release.mechanisms]))
    told = (release.dataset, release.data_kind, release.noise, release.sampler)
    if described != intent.body["mechanisms"] or told != (
        card.name,
        card.kind,
        commit.body["noise"],
        commit.body["sampler"],
    ):
        raise BudgetError(
            f"{card.name}: release.json does not match its ledger entries {intent.seq} and {commit.seq}: edited"
        )
    return Curated(release, folder, key, intent, commit, replayed=True, stale=drawn_from != snapshot.data_digest)


def _recover(ledger: Ledger, card: Card, folder: Path, key: str, snapshot: Snapshot) -> Curated:
    """Commit a release that was renamed before its run died; one the ledger never heard of means a lost ledger."""
    facts = json.loads((folder / "attempt.json").read_text())
    intents = [e for e in ledger.entries(card.name) if e.kind == "INTENT" and e.body["run_key"] == key]
    match = [e for e in intents if facts["run_key"] == key and e.body["attempt"] == facts["attempt"]]
    if not match:
        raise BudgetError(
            f"{card.name}: a release is in the store but not in the ledger: an old ledger? Restore the newest"
        )
    release = read_release(folder)
    body = {
        "release_sha256": sha256_file(folder / "release.parquet"),
        "noise": release.noise,
        "sampler": release.sampler,
    }
    return _replay(ledger, card, folder, key, ledger.commit(match[0], body), snapshot)


def _write(release: Release, folder: Path, key: str, attempt: int, snapshot: Snapshot) -> str:
    """Write beside, sync, rename: a folder under its final name is whole."""
    partial = folder.with_name(f"{folder.name}.attempt-{attempt}")
    shutil.rmtree(partial, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial.mkdir(mode=0o700)
    digest = write_release(release, partial)
    # the data digest stays in the operator's store: published, it would confirm guesses
    facts = {"run_key": key, "attempt": attempt, "data_digest": snapshot.data_digest}
    (partial / "attempt.json").write_text(json.dumps(facts))
    for path in [*partial.iterdir(), partial]:
        path.chmod(0o700 if path.is_dir() else 0o600)
        _sync(path)
    if folder.exists() and release.noise == "none":
        shutil.rmtree(folder)
    # a release that is there is never replaced: renaming onto it fails
    partial.rename(folder)
    _sync(folder.parent)
    return digest


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
