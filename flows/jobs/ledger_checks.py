"""What ``ledger verify`` and ``ledger sign`` look at: the chain, heads kept elsewhere, the store, signed runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from flows.config.home import Home, find_card
from flows.config.setting import ledger_for
from pipeline.declaration.card import CardError, load_any_card
from pipeline.ledger.chain import BudgetError, Entry, Head, NoLedgerError, head_of_certificate, lacking
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.steps import counters_problem
from pipeline.ledger.verify import Check, read_certificate, verify_run
from pipeline.privacy.release_file import sha256_file
from pipeline.transaction.place import one_at_a_time, refuse_old_ledger
from pipeline.transaction.recovery import recover


class Verified(TypedDict):
    """What ``ledger verify --json`` prints; ``recovered`` are lines on what dead runs had left."""

    ok: bool
    entries: int
    problem: str | None
    recovered: NotRequired[list[str]]


def verify_job(ledger: Ledger, home: Home, heads: Sequence[Head]) -> Verified:
    """Check a ledger against itself, heads kept elsewhere, the store and signed runs; settle what dead runs left.

    Parameters
    ----------
    ledger
        The one to check.
    home
        Whose store and runs bear witness.
    heads
        Kept elsewhere; the ledger must have them.
    """
    recovered: list[str] = []
    problem = ledger.problem() or _lost(ledger, heads)
    if problem is None:
        try:
            for lineage in ledger.lineages():
                refuse_old_ledger(lineage, ledger, home.store)
                known_to_runs(lineage, ledger, home.runs)
                recovered += _settle(lineage, ledger, home.store)
        except BudgetError as e:
            problem = str(e)
    problem = problem or counters_problem(ledger.entries()) or _changed_since_signed(ledger, home)
    found: Verified = {"ok": problem is None, "entries": 0 if problem else len(ledger.entries()), "problem": problem}
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


@dataclass(frozen=True)
class Proof:
    """What a recomputed certificate came to.

    Parameters
    ----------
    run
        Its name.
    ok, problem
        Whether nothing is wrong, and else the first thing that is.
    checks
        All that was checked.
    """

    run: str
    ok: bool
    problem: str | None
    checks: list[Check]


def verify_run_job(folder: Path, ledger: Callable[[], Ledger]) -> Proof:
    """Recompute a run's certificate; without a ledger at hand its entry stays unchecked.

    Parameters
    ----------
    folder
        Of the run.
    ledger
        Opens the one that charged it.

    Raises
    ------
    CardError
        If there is no readable certificate.
    """
    try:
        entries = ledger().entries()
    except NoLedgerError:
        entries = None
    try:
        lineage = read_certificate(folder)["dataset"]
        if entries is not None and all(e.lineage != lineage for e in entries):
            # another ledger than the one that charged the run
            entries = None
        checks = verify_run(folder, entries)
    except ValueError as e:
        raise CardError(str(e)) from None
    wrong = next((c for c in checks if c.ok is False), None)
    problem = None if wrong is None else f"{wrong.what}: {wrong.found}"
    return Proof(folder.name, wrong is None, problem, checks)


def sign_job(ledger: Ledger, run: Path, by: str, note: str | None) -> Entry:
    """Append a sign-off: who answers for a run, when, and for which certificate.

    Parameters
    ----------
    ledger
        That charged the run.
    run
        Its folder.
    by, note
        Who signs, and a line beside the name.

    Raises
    ------
    CardError
        If there is nothing to sign, no name, or a file of the run is not what its certificate says.
    BudgetError
        If the ledger lacks the entry that the certificate names.
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
    told: Any = json.loads(file.read_text(encoding="utf-8"))["sha256"]
    files = {kind: sha256_file(run / f"{kind}.parquet") for kind in ("release", "policy")}
    wrong = [k for k in files if files[k] != told[k]]
    if wrong or files["release"] != commit.body["release_sha256"]:
        raise CardError(f"{run.name}: {(wrong or ['release'])[0]}.parquet is not what its certificate says: edited")
    of_note = {} if note is None else {"note": note.strip()}
    return ledger.sign(commit, {"run": run.name, "by": by.strip(), "certificate_sha256": sha256_file(file), **of_note})


class Retried(TypedDict):
    """What ``ledger retry --json`` prints."""

    dataset: str
    entry: int


def retry_job(card_name: str, home: Home) -> Retried:
    """Allow draws that died to be tried again: somebody knows now why they did.

    Parameters
    ----------
    card_name
        Path or name of the card.
    home
        Where the ledger of a synthetic card is.

    Raises
    ------
    BudgetError
        If the lineage is not registered.
    """
    card = load_any_card(find_card(card_name, home.shelf))
    entry = ledger_for(card, home).allow_retry(card.name)
    return {"dataset": card.name, "entry": entry.seq}


def _lost(ledger: Ledger, heads: Sequence[Head]) -> str | None:
    lost = lacking(ledger.entries(), heads)
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


def _changed_since_signed(ledger: Ledger, home: Home) -> str | None:
    for e in ledger.entries():
        if e.kind == "SIGN":
            file = home.runs / e.body["run"] / "certificate.json"
            if file.is_file() and sha256_file(file) != e.body["certificate_sha256"]:
                return f"{e.body['run']}: certificate.json has changed since {e.body['by']} signed it (entry {e.seq})"
    return None
