"""Jobs on raw rows: ``inspect``, ``store purge``, ``store verify``.  Never recorded flows; they write no run folder."""

from __future__ import annotations

from flows.config.home import CardLike, Home, card_at
from flows.config.lineage import ledger_for, newest_snapshot
from pipeline.declaration.card import AnyCard, LqCard
from pipeline.declaration.toml import DamagedError
from pipeline.facts.promise import Dump
from pipeline.files import private_folder
from pipeline.ledger.chain import Entry
from pipeline.logs.rules import check_names
from pipeline.logs.store import Snapshot, check_parts, load, lock_lineage, numbers, snapshot_folder
from pipeline.operator.advice import Facts, advice, vector_advice
from pipeline.operator.ingest_report import ingest_report
from pipeline.operator.inspection import inspect_tables, inspect_vectors
from pipeline.operator.purge import COUNTERS_STAY, NOT_UNDONE, carry_out, plan_purge
from pipeline.transaction.place import one_at_a_time, refuse_old_ledger, remember_head


def inspect_job(card: CardLike, home: Home) -> Facts:
    """Enter the look in the ledger, then read the snapshot and the source files.

    Raises BudgetError if a real card is not registered: a look that no ledger knows of cannot be told in a certificate.
    Raises CardError if the card differs from its registration, or there is no snapshot of it.
    """
    card = card_at(card, home.shelf)
    check_names(card)
    snapshot, entry = enter_inspection(card, home)
    if isinstance(card, LqCard):
        seen = inspect_vectors(snapshot, card)
        return {**seen, "warnings": vector_advice(seen), "ledger_entry": entry.seq}
    facts = inspect_tables(snapshot, card)
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


def enter_inspection(card: AnyCard, home: Home) -> tuple[Snapshot, Entry]:
    """The newest snapshot, and the ledger's entry of a look at it: on disk before a row is read, whatever comes after.

    Raises BudgetError if a real card is not registered.
    Raises CardError if the card differs from its registration, or there is no snapshot of it.
    """
    ledger = ledger_for(card, home)
    snapshot = newest_snapshot(card, home)
    with one_at_a_time(home.store / card.name):
        refuse_old_ledger(card.name, ledger, home.store)
        entry = ledger.record_inspection(card, snapshot.number)
        remember_head(home.store / card.name, entry)
    return snapshot, entry


def purge_job(card: CardLike, home: Home, *, keep: int = 0, quarantine_only: bool = False, yes: bool) -> Dump:
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


def verify_store_job(card: CardLike, home: Home) -> Dump:
    """Read every byte of a lineage's snapshots, and say which is not what ingest wrote; nothing is told of rows."""
    name = card_at(card, home.shelf).name
    found = dict[int, str | None]()
    with lock_lineage(private_folder(home.store / name)):
        for number in numbers(home.store, name):
            found[number] = None
            try:
                check_parts(load(snapshot_folder(home.store / name, number)))
            except DamagedError as e:
                found[number] = str(e)
    looked = [{"snapshot": number, "problem": problem} for number, problem in found.items()]
    return {"dataset": name, "ok": not any(found.values()), "snapshots": looked}
