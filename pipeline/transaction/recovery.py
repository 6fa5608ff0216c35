"""What a run finds of runs that died: a finished release is committed, everything else is deleted and stays spent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pipeline.files import remove_tree
from pipeline.ledger.account import commit_of
from pipeline.ledger.chain import Body, BudgetError, Entry, canonical
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.steps import overtaken
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import describe, describe_mechanism, read_release, sha256_file
from pipeline.transaction.place import drawn_folders, read_attempt, remember_head, unfinished


@dataclass(frozen=True)
class Recovered:
    """What dead runs had left.

    Parameters
    ----------
    committed
        COMMITs made late.
    deleted
        How many unfinished or beaten draws were deleted; their spend stays.
    """

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

    Parameters
    ----------
    lineage, ledger, store
        Name of the dataset, what charges it, and the operator's store.
    place
        Of the lock that the caller holds (:func:`~pipeline.transaction.place.one_at_a_time`).

    Raises
    ------
    BudgetError
        If an uncommitted release cannot be read, or is not what its INTENT describes.
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
        beaten = counter is not None and overtaken(entries, lineage, counter) is not None
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

    Parameters
    ----------
    release
        As it lies in the store.
    intent, commit
        Its entries; None where it is not committed yet.
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
