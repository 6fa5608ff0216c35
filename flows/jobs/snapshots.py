"""Jobs on raw rows: ``inspect``, ``store purge``, ``store export``.  Never recorded flows; they write no run folder."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from flows.config.home import CardLike, Home, card_at
from flows.config.setting import ledger_for, newest_snapshot
from pipeline.declaration.card import AnyCard, CardError, LqCard
from pipeline.declaration.toml import DamagedError
from pipeline.files import private_folder
from pipeline.ledger.chain import Entry
from pipeline.logs.editions import lock_lineage
from pipeline.logs.rules import check_names
from pipeline.logs.store import Snapshot, check_parts, load, numbers, snapshot_folder
from pipeline.operator.advice import advice, vector_advice
from pipeline.operator.facts import TableInspection, VectorInspection
from pipeline.operator.ingest_report import IngestReport, ingest_report
from pipeline.operator.inspection import inspect_tables
from pipeline.operator.leaving import COUNTERS_STAY, NOT_UNDONE, carry_out, export_minari, plan_purge
from pipeline.operator.vector_inspection import inspect_vectors
from pipeline.transaction.place import one_at_a_time, refuse_old_ledger, remember_head


class Purged(TypedDict):
    """What ``store purge --json`` prints: ``bytes`` removed or to be removed, ``paths`` below the lineage's folder."""

    dataset: str
    purged: bool
    snapshots: list[int]
    paths: list[str]
    bytes: int
    not_undone: list[str]


class Written(TypedDict):
    """What ``store export --json`` prints: the data set, its folder and size, and the entry of the look."""

    dataset: str
    snapshot: int
    minari: str
    folder: str
    episodes: int
    steps: int
    ledger_entry: int


def inspect_job(card: CardLike, home: Home) -> TableInspection | VectorInspection:
    """Enter the look in the ledger, then read the snapshot and the source files.

    Raises
    ------
    BudgetError
        If a real card is not registered: a look that no ledger knows of cannot be told in a certificate.
    CardError
        If the card differs from its registration, or there is no snapshot of it.
    """
    card = card_at(card, home.shelf)
    check_names(card)
    snapshot, entry = enter_inspection(card, home)
    if isinstance(card, LqCard):
        seen = inspect_vectors(snapshot, card)
        return {**seen, "warnings": vector_advice(seen), "ledger_entry": entry.seq}
    facts = inspect_tables(snapshot, card)
    return {**facts, "warnings": advice(facts, card), "ledger_entry": entry.seq}


class Quarantined(TypedDict):
    """What ``inspect --quarantine --json`` prints: the report of the newest snapshot, and the entry of the look."""

    dataset: str
    snapshot: int
    report: IngestReport
    ledger_entry: int


def quarantine_job(card: CardLike, home: Home) -> Quarantined:
    """Enter the look in the ledger, then read what the newest ingest set aside.

    Raises
    ------
    BudgetError
        If a real card is not registered.
    CardError
        If the card differs from its registration, or there is no snapshot of it.
    """
    card = card_at(card, home.shelf)
    snapshot, entry = enter_inspection(card, home)
    report = ingest_report(snapshot, card)
    return {"dataset": card.name, "snapshot": snapshot.number, "report": report, "ledger_entry": entry.seq}


def enter_inspection(card: AnyCard, home: Home) -> tuple[Snapshot, Entry]:
    """The newest snapshot, and the ledger's entry of a look at it: on disk before a row is read, whatever comes after.

    Raises
    ------
    BudgetError
        If a real card is not registered.
    CardError
        If the card differs from its registration, or there is no snapshot of it.
    """
    ledger = ledger_for(card, home)
    snapshot = newest_snapshot(card, home)
    with one_at_a_time(home.store / card.name):
        refuse_old_ledger(card.name, ledger, home.store)
        entry = ledger.record_inspection(card, snapshot.number)
        remember_head(home.store / card.name, entry)
    return snapshot, entry


def purge_job(card: CardLike, home: Home, *, keep: int = 0, quarantine_only: bool = False, yes: bool) -> Purged:
    """Remove old snapshots (and what ingest set aside); without ``yes`` only say what would go."""
    card = card_at(card, home.shelf)
    ledger = ledger_for(card, home)
    lineage = home.store / card.name
    # the ingest's lock first: who waits for a long ingest must not keep runs waiting
    with lock_lineage(private_folder(lineage)), one_at_a_time(lineage):
        refuse_old_ledger(card.name, ledger, home.store)
        purge = plan_purge(lineage, keep=keep, quarantine_only=quarantine_only)
        if yes and purge.paths:
            # noted first: a purge that died half-way is known, and goes on at no harm
            if not purge.noted:
                body = {"snapshots": purge.snapshots, "quarantine_only": quarantine_only}
                remember_head(lineage, ledger.note(card.name, "PURGE", body))
            carry_out(purge, lineage)
    return {
        "dataset": card.name,
        "purged": yes and bool(purge.paths),
        "snapshots": purge.snapshots,
        "paths": purge.paths,
        "bytes": purge.size,
        "not_undone": [*NOT_UNDONE, *([COUNTERS_STAY] if (lineage / "counters").is_dir() else [])],
    }


class Looked(TypedDict):
    """One snapshot that was read to its last byte: what is wrong with it, or None."""

    snapshot: int
    problem: str | None


class StoreVerified(TypedDict):
    """What ``store verify --json`` prints."""

    dataset: str
    ok: bool
    snapshots: list[Looked]


def verify_store_job(card: CardLike, home: Home) -> StoreVerified:
    """Read every byte of a lineage's snapshots, and say which is not what ingest wrote; nothing is told of rows."""
    name = card_at(card, home.shelf).name
    with lock_lineage(private_folder(home.store / name)):
        found = [_look(home.store, name, number) for number in numbers(home.store, name)]
    return {"dataset": name, "ok": all(one["problem"] is None for one in found), "snapshots": found}


def _look(store: Path, name: str, number: int) -> Looked:
    problem: str | None = None
    try:
        check_parts(load(snapshot_folder(store / name, number)))
    except DamagedError as e:
        problem = str(e)
    return {"snapshot": number, "problem": problem}


def export_job(card: CardLike, home: Home, to: Path) -> Written:
    """Enter the look in the ledger, then write the newest snapshot as a Minari data set below ``to``.

    Raises
    ------
    BudgetError
        If a real card is not registered.
    CardError
        If the folder is below ``runs/``, the data set is there already, or h5py is not installed.
    """
    card = card_at(card, home.shelf)
    if to.resolve().is_relative_to(home.runs.resolve()):
        raise CardError(f"--to {to}: below runs/, whose folders may be published; raw rows never go there")
    # who holds the rows can look at them
    snapshot, entry = enter_inspection(card, home)
    written = export_minari(snapshot, card, to.resolve())
    return {
        "dataset": card.name,
        "snapshot": snapshot.number,
        "minari": written.name,
        "folder": str(written.folder),
        "episodes": written.episodes,
        "steps": written.steps,
        "ledger_entry": entry.seq,
    }
