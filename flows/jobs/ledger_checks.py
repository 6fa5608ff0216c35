"""What ``ledger verify`` and ``ledger sign`` look at: the chain, heads kept elsewhere, the store, signed runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from flows.config.home import Home
from flows.jobs.proof import require_verified
from pipeline.declaration.card import AnyCard, CardError
from pipeline.ledger.chain import BudgetError, Entry, Head, head_of_certificate, lacking
from pipeline.ledger.keys import signatures_problem
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.publication import file_digests, files_problem
from pipeline.ledger.steps import counters_problem
from pipeline.privacy.release_file import sha256_file
from pipeline.transaction.place import one_at_a_time, refuse_old_ledger
from pipeline.transaction.recovery import recover


class Verified(TypedDict):
    """What ``ledger verify --json`` prints; ``recovered`` are lines on what dead runs had left."""

    ok: bool
    entries: int
    problem: str | None
    recovered: NotRequired[list[str]]


def verify_export(entries: Sequence[Entry], heads: Sequence[Head], trusted: frozenset[str]) -> Verified:
    """Check an exported ledger, chain already checked: counters, heads kept elsewhere, signatures."""
    problem = _lost(entries, heads) or counters_problem(entries) or signatures_problem(entries, trusted)
    return {"ok": problem is None, "entries": 0 if problem else len(entries), "problem": problem}


def verify_job(ledger: Ledger, home: Home, heads: Sequence[Head], trusted: frozenset[str] = frozenset()) -> Verified:
    """Check a ledger against itself, heads kept elsewhere, the store and signed runs; settle what dead runs left.

    Parameters
    ----------
    ledger
        The one to check.
    home
        Whose store and runs bear witness.
    heads
        Kept elsewhere; the ledger must have them.
    trusted
        Public keys that must have signed every PUBLISH; without any, those that the ledger registers.
    """
    recovered: list[str] = []
    problem = ledger.problem() or _lost(ledger.entries(), heads)
    if problem is None:
        try:
            for lineage in ledger.lineages():
                refuse_old_ledger(lineage, ledger, home.store)
                known_to_runs(lineage, ledger, home.runs)
                recovered += _settle(lineage, ledger, home.store)
        except BudgetError as e:
            problem = str(e)
    found: Verified = {"ok": False, "entries": 0, "problem": problem}
    if problem is None:
        found = verify_export(ledger.entries(), (), trusted)
        problem = found["problem"] or _changed_since_signed(ledger, home) or _changed_since_published(ledger, home)
        found = {"ok": problem is None, "entries": 0 if problem else found["entries"], "problem": problem}
    if recovered:
        found["recovered"] = recovered
    return found


def known_to_runs(lineage: str, ledger: Ledger, runs: Path) -> None:
    """Refuse a ledger that lacks an entry which a run's certificate names: store and ledger are both an old copy.

    Raises
    ------
    BudgetError
        If so: what was released since would be drawn again for nothing.
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


class Signature(TypedDict):
    """The body of a SIGN entry."""

    run: str
    commit: int
    by: str
    certificate_sha256: str
    note: NotRequired[str]


class Signed(Signature):
    """What ``ledger sign --json`` prints."""

    entry: int
    hash: str
    at: str


def sign_job(ledger: Ledger, run: Path, by: str, note: str | None, card: AnyCard | None = None) -> Signed:
    """Append a sign-off: who answers for a run, when, and for which certificate.

    Parameters
    ----------
    ledger
        That charged the run.
    run
        Its folder.
    by, note
        Who signs, and a line beside the name.
    card
        Of the dataset, where it is at hand: then the files are made again.

    Raises
    ------
    CardError
        If there is nothing to sign, or no name.
    BudgetError
        If the ledger lacks the entry that the certificate names, or the run does not verify.
    """
    for name, text in (("--by", by), ("--note", note)):
        if text is not None and (not text.strip() or not text.isprintable()):
            raise CardError(f"{name}: a line of text, please")
    file = run / "certificate.json"
    head = head_of_certificate(file)
    commit = next((e for e in ledger.entries() if (e.seq, e.hash) == (head.seq, head.hash)), None)
    if commit is None:
        raise BudgetError(
            f"{run.name}: ledger {ledger.where} lacks entry {head.seq} that its certificate names; "
            "a real dataset has its own ledger: name it with --card"
        )
    require_verified(run, ledger.entries, card)
    digest, signer = sha256_file(file), by.strip()
    told: Signature = {"run": run.name, "commit": commit.seq, "by": signer, "certificate_sha256": digest}
    if note is not None:
        told["note"] = note.strip()
    made = ledger.note(commit.lineage, "SIGN", {**told})
    return {"entry": made.seq, "hash": made.hash, "at": made.at, **told}


def _lost(entries: Sequence[Entry], heads: Sequence[Head]) -> str | None:
    lost = lacking(entries, heads)
    if lost is None:
        return None
    return (
        f"it lacks entry {lost.seq} as it was kept elsewhere: it was cut, is an old copy or is another ledger. "
        "Restore the newest"
    )


def _settle(lineage: str, ledger: Ledger, store: Path) -> list[str]:
    if not (store / lineage).is_dir():
        return []
    try:
        with one_at_a_time(store / lineage, wait=False) as place:
            line = str(recover(lineage, ledger, store, place))
    except BlockingIOError:
        # a run is at work there: it settled what there was before it began
        return []
    return [f"{lineage}: {line}"] if line else []


def _changed_since_published(ledger: Ledger, home: Home) -> str | None:
    """The first run of this home whose files the ledger vouched for, and does not any more."""
    vouched = [e for e in ledger.entries() if e.kind == "PUBLISH"]
    for folder in sorted(home.runs.iterdir()):
        entries = [e for e in vouched if e.body["run"] == folder.name]
        if entries and folder.is_dir() and not folder.is_symlink():
            files = file_digests(folder)
            if not any(e.body["files"] == files for e in entries):
                return f"{folder.name}: {files_problem(entries[-1], files)}"
    return None


def _changed_since_signed(ledger: Ledger, home: Home) -> str | None:
    for e in ledger.entries():
        if e.kind == "SIGN":
            file = home.runs / e.body["run"] / "certificate.json"
            if file.is_file() and sha256_file(file) != e.body["certificate_sha256"]:
                return f"{e.body['run']}: certificate.json has changed since {e.body['by']} signed it (entry {e.seq})"
    return None
