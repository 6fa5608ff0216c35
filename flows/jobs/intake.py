"""Jobs on raw rows: the next edition of a log by hand or by a night, looks at it, and its removal.

None of them writes a run's folder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flows.config.home import ALONE, CardLike, Home, Work, card_at
from pipeline.declaration.card import AnyCard, Card, LqCard
from pipeline.declaration.toml import DamagedError, LogError
from pipeline.files import DISK, private_folder, remove_file, remove_tree
from pipeline.logs import rules, sources, store
from pipeline.logs.ingest import Claims, ingest
from pipeline.operator.ingest_report import PAGE, ingest_report

if TYPE_CHECKING:
    from pipeline.facts.promise import Dump
    from pipeline.ledger.chain import Entry


def ingest_job(card: CardLike, home: Home, work: Work = ALONE, frame: object = None) -> Dump:
    """Logs -> the next edition and its quarantine, whatever came in; operator-only facts.

    ``work``: reports bytes done of all, and warnings for the operator.
    Returns sizes, and rows set aside by rule; ``same_as`` is the first edition of the very same bytes,
    ``same_rows`` are other datasets with the very same rows of real people, ``problem`` says how the log does not fit
    its card, and ``report`` the counts of people at each rule.
    Raises CardError if the card or a file is wrong.
    """
    card = card_at(card, home.shelf)
    with sources.frame_file(frame, home.store / card.name) as files:
        s = work.step("ingest")(ingest_edition, card, home, work, files=files)
    problem: str | None = None
    try:
        store.check_delivery(card, s)
    except LogError as e:
        problem = str(e)
    return {
        "dataset": s.dataset,
        "snapshot": s.number,
        "rows": s.rows,
        "users": s.users,
        "episodes": s.episodes,
        "quarantined": dict(s.quarantined),
        "partitions": s.partitions,
        "folder": str(s.folder),
        "same_as": store.earlier_twin(home.store, s),
        # synthetic people are nobody: they have no budget to add up
        "same_rows": store.same_rows(home.store, s) if card.kind == "real" else [],
        "problem": problem,
        "report": ingest_report(s, card),
    }


def ingest_edition(
    card: AnyCard, home: Home, work: Work = ALONE, night: date | None = None, files: Sequence[Path] | None = None
) -> store.Snapshot:
    """The next edition of a card's log, or that of a scheduled night: see :func:`~pipeline.logs.ingest.ingest`."""
    if isinstance(card, Card) and card.loses_last_step:
        work.say(f"warning: {card.name} declares no ends, so the last step counts in no table; e.g. ends = ['end']")
    resources = replace(home.resources, progress=work.progress, say=work.say)
    return ingest(card, home.store, night=night, resources=resources, claims=claims_of(card, home), files=files)


def claims_of(card: AnyCard, home: Home) -> Claims | None:
    """Claims on the people of a card's lineage; None if it is synthetic, not registered, or no claims are needed.

    Earlier versions claimed all real people of a ledger, some under texts that are not the one form of their ids.
    """
    if card.kind != "real":
        return None
    # with its database it costs a third of a start, and synthetic people need none
    from pipeline.ledger.account import apart_from, claims_needed, registration
    from pipeline.ledger.chain import NoLedgerError
    from pipeline.ledger.ledger import open_ledger

    try:
        ledger = open_ledger(home.ledger_of(card), create=False)
    except NoLedgerError:
        return None
    entries = ledger.entries()
    if not registration(entries, card.name):
        return None
    key, apart = ledger.people_key(home.store), sorted(apart_from(entries, card.name))
    if not apart and not ledger.knows_people():
        return None
    return Claims(claims_needed(entries, card.name), apart, partial(ledger.claim, card.name, key=key))


def inspect_job(card: CardLike, home: Home, frame: object = None) -> Dump:
    """Enter the look in the ledger, then read the snapshot and the source files.

    Raises BudgetError if a real card is not registered: a look that no ledger knows of cannot be told in a certificate.
    Raises CardError if the card differs from its registration, or there is no snapshot of it.
    """
    from pipeline.operator.inspection import advice, inspect_tables, inspect_vectors, vector_advice

    card = card_at(card, home.shelf)
    rules.check_names(card)
    snapshot, entry = enter_inspection(card, home)
    if isinstance(card, LqCard):
        seen = inspect_vectors(snapshot, card)
        return {**seen, "warnings": vector_advice(seen), "ledger_entry": entry.seq}
    with sources.frame_file(frame, home.store / card.name) as files:
        facts = inspect_tables(snapshot, card, files)
    return {**facts, "warnings": advice(facts, card), "ledger_entry": entry.seq}


def quarantine_job(card: CardLike, home: Home) -> Dump:
    """Enter the look in the ledger, then read what the newest ingest set aside.

    Raises BudgetError if a real card is not registered.
    Raises CardError if the card differs from its registration, or there is no snapshot of it.
    """
    card = card_at(card, home.shelf)
    snapshot, entry = enter_inspection(card, home)
    report = ingest_report(snapshot, card)
    return {"dataset": card.name, "snapshot": snapshot.number, "report": report, "ledger_entry": entry.seq}


def enter_inspection(card: AnyCard, home: Home) -> tuple[store.Snapshot, Entry]:
    """The newest snapshot, and the ledger's entry of a look at it: on disk before a row is read, whatever comes after.

    Raises BudgetError if a real card is not registered.
    Raises CardError if the card differs from its registration, or there is no snapshot of it.
    """
    from flows.jobs.registration import ledger_for, newest_snapshot
    from pipeline.ledger.account import look_fields
    from pipeline.transaction.transaction import one_at_a_time, refuse_old_ledger, remember_head

    ledger = ledger_for(card, home)
    snapshot = newest_snapshot(card, home)
    with one_at_a_time(home.store / card.name):
        refuse_old_ledger(card.name, ledger, home.store)
        entry = ledger.note(card.name, "INSPECT", look_fields(card, snapshot.number))
        remember_head(home.store / card.name, entry)
    return snapshot, entry


def purge_job(card: CardLike, home: Home, *, keep: int = 0, quarantine_only: bool = False, yes: bool) -> Dump:
    """Remove old snapshots (and what ingest set aside); without ``yes`` only say what would go."""
    from flows.jobs.registration import ledger_for
    from pipeline.transaction.transaction import one_at_a_time, refuse_old_ledger, remember_head

    card = card_at(card, home.shelf)
    ledger = ledger_for(card, home)
    lineage = home.store / card.name
    # the ingest's lock first: a purge that waits for a long ingest must not make runs wait
    with store.lock_lineage(private_folder(lineage)), one_at_a_time(lineage):
        refuse_old_ledger(card.name, ledger, home.store)
        snapshots, paths, size = plan_purge(lineage, keep=keep, quarantine_only=quarantine_only)
        if yes and paths:
            # recorded first: a purge that died half-way is known, and can safely go on
            if not all(name.startswith(_GOING) for name in paths):
                body = {"snapshots": snapshots, "quarantine_only": quarantine_only}
                remember_head(lineage, ledger.note(card.name, "PURGE", body))
            carry_out(paths, lineage)
    return {
        "dataset": card.name,
        "purged": yes and bool(paths),
        "snapshots": snapshots,
        "paths": paths,
        "bytes": size,
        "not_undone": [*NOT_UNDONE, *([COUNTERS_STAY] if (lineage / "counters").is_dir() else [])],
    }


def verify_store_job(card: CardLike, home: Home) -> Dump:
    """Read every byte of a lineage's snapshots, and list those that ingest did not write so; returns no rows."""
    name = card_at(card, home.shelf).name
    problems = dict[int, str | None]()
    with store.lock_lineage(private_folder(home.store / name)):
        for number in store.numbers(home.store, name):
            problems[number] = None
            try:
                store.check_parts(store.load(store.snapshot_folder(home.store / name, number)))
            except DamagedError as e:
                problems[number] = str(e)
    snapshots = [{"snapshot": number, "problem": problem} for number, problem in problems.items()]
    return {"dataset": name, "ok": not any(problems.values()), "snapshots": snapshots}


NOT_UNDONE = (
    "the budget that was spent on these rows stays spent",
    "the releases, policies and reports made from them stay where they went, and give away what they gave away",
    "copies outside this store (the source files, backups, freed disk blocks) are not touched",
)

# prefix of a folder that is being removed
_GOING = ".purging-"
# of a lineage with nightly counters
COUNTERS_STAY = "a nightly counter keeps its exact leaf tables and the hashes of who was counted (docs/privacy.md)"


def plan_purge(lineage: Path, *, keep: int, quarantine_only: bool) -> tuple[list[int], list[str], int]:
    """What a purge would remove; touches nothing.

    Returns numbers of whole snapshots, folders and files relative to the lineage's folder, and their bytes.

    Raises ValueError if ``keep`` is negative.
    """
    if keep < 0:
        raise ValueError(f"keep must be 0 or more; got {keep}")
    folders = {int(p.name[9:]): p for p in lineage.glob("snapshot-*") if re.fullmatch(r"snapshot-\d{4,}", p.name)}
    old = sorted(folders)[: max(0, len(folders) - keep)]
    if quarantine_only:
        patterns = ("quarantine-*.parquet", PAGE)
        gone = [q for number in sorted(folders) for name in patterns for q in sorted(folders[number].glob(name))]
        old = []
    else:
        gone = [folders[number] for number in old]
    gone += [p for p in (lineage / "refused", *sorted(lineage.glob(".frame-*"))) if p.exists()]
    gone += [p for p in store.leftovers(lineage) if p.parent not in gone]
    # rows of people who evaluate, of a night that was killed
    gone += sorted(lineage.glob("counters/*/evaluate/*"))
    # first, so that the names are free: folders that an earlier purge had renamed when it died
    gone = sorted(lineage.glob(f"{_GOING}*")) + gone
    size = sum(f.stat().st_size for p in gone for f in ([p] if p.is_file() else p.rglob("*")) if f.is_file())
    return old, [str(p.relative_to(lineage)) for p in gone], size


def carry_out(paths: Sequence[str], lineage: Path) -> None:
    """Remove what :func:`plan_purge` listed; a folder is renamed first, so that it is there whole or not at all."""
    going, parents = list[Path](), {lineage}
    for path in (lineage / name for name in paths):
        if not path.is_dir():
            remove_file(path)
            parents.add(path.parent)
        elif path.name.startswith(_GOING):
            remove_tree(path)
        else:
            going.append(lineage / f"{_GOING}{path.name.lstrip('.')}")
            DISK.move(path, going[-1])
    # before the first file goes: a power cut would give a folder in pieces its old name back
    DISK.sync(lineage)
    for path in going:
        remove_tree(path)
    for folder in sorted(parents):
        DISK.sync(folder)
