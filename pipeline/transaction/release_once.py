"""A one-off release of a snapshot: the ledger is charged, the rows are summed, noise is added, once.

The other caller of the transaction is :mod:`pipeline.transaction.continual_step`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

from pipeline.declaration.card import AnyCard
from pipeline.ledger.attempts import Passed, passed_gate
from pipeline.ledger.chain import Body, BudgetError, Entry, canonical
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.limits import look_told, refuse_beyond
from pipeline.ledger.people import key_file, read_key
from pipeline.logs.store import Snapshot, check_parts, find_snapshot
from pipeline.logs.summing import HERE, Resources, forget
from pipeline.privacy.noise import NoiseSource, RealDataError
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import read_release, sha256_file
from pipeline.transaction.drawing import Charge, Drawing
from pipeline.transaction.gate import Gate, check_snapshot, check_source, claims_told
from pipeline.transaction.place import Attempt, folder_of, read_attempt, write_attempt
from pipeline.transaction.recovery import fits
from pipeline.transaction.transaction import Curated, OpenLineage, open_lineage, transaction


def key_of(card: AnyCard, edition: int, drawing: Drawing) -> str:
    """Hex key of a release: lineage, edition, registered domain and what is drawn; nothing of what the edition holds.

    Parameters
    ----------
    card, edition
        Of the dataset, and the number of its snapshot.
    drawing
        What would be released.
    """
    parts = [card.name, edition, card.domain_hash(), drawing.spec()]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def release_once(
    card: AnyCard,
    edition: int,
    drawing: Drawing,
    ledger: Ledger,
    store: Path,
    noise: NoiseSource,
    resources: Resources = HERE,
    due: str = "",
    gate: Gate | None = None,
) -> Curated:
    """Charge, draw, write and commit a release of an edition; replay the committed one, even if its rows are gone.

    Parameters
    ----------
    card
        What the dataset declares; registered in the ledger.
    edition
        Number of the snapshot whose rows are read.
    drawing
        What is released: its price, and how it is drawn.
    ledger, store
        What charges it, and the operator's store that keeps it.
    noise
        The operating system's wherever the data is real.
    resources
        Where the rows are summed: here, or on a cluster.
    due
        The date of a calendar that this release is for (ISO), which the INTENT names; empty for none.
    gate
        What must pass before anything else is drawn; a committed answer is asked again, never drawn again.

    Raises
    ------
    BudgetError
        If the lineage is not registered, the cap does not allow it or the ledger is an old one; no row was read.
        Or if another attempt committed this release first; the cost of this one stays spent.
    CardError
        If the card differs from its registration or from the one the snapshot was ingested under, or the snapshot was
        purged meanwhile.
    RealDataError
        If the data is real and some table would get no operating-system noise; no row was read.
    GateError
        If the gate stopped it; the gate's own cost stays spent.
    """
    ledger.require(card)
    for each in [drawing] if gate is None else [gate, drawing]:
        each.admit(noise)
    with open_lineage(card.name, ledger, store) as lineage:
        key, snapshot = key_of(card, edition, drawing), find_snapshot(store, card.name, edition)
        commit = ledger.committed(card.name, key)
        if commit is not None:
            # a run that died after its COMMIT had not come to it
            if snapshot is not None:
                forget(snapshot)
            return replay(lineage, card, commit, snapshot)
        snapshot = check_snapshot(snapshot, card, edition)
        check_source(snapshot, card)
        check_parts(snapshot)
        resources.ready(snapshot)
        told = {**({"due": due} if due else {}), **claims_told(ledger.entries(), card, [snapshot])}
        passed = None
        if gate is not None:
            passed = pass_gate(lineage, card, snapshot, gate, noise, told, drawing.charge())
        named = {} if passed is None else {"gate": passed.commit.seq}
        found = _draw(lineage, card, snapshot, drawing, noise, resources, told | named)
        forget(snapshot)
        return replace(found, gate=passed)


def total_charge(charges: Sequence[Charge]) -> tuple[Fraction, Fraction]:
    """What several INTENTs charge together, and which part of it somebody pays who leaves or joins.

    Parameters
    ----------
    charges
        As :meth:`Drawing.charge` has them; None costs nothing.
    """
    known = [(rho, Fraction(told.get("rho_add_remove", rho))) for rho, told in charges if rho is not None]
    rho, joining = sum((r for r, _ in known), Fraction(0)), sum((j for _, j in known), Fraction(0))
    return rho, joining / rho if rho else Fraction(1)


def pass_gate(
    lineage: OpenLineage,
    card: AnyCard,
    snapshot: Snapshot,
    gate: Gate,
    noise: NoiseSource,
    told: Body,
    following: Charge,
) -> Passed | None:
    """Ask a gate, or its committed answer, whether a log fits its card.

    Parameters
    ----------
    lineage, card, snapshot
        Of the log; the caller holds the lineage's lock.
    gate, noise
        What is counted, and what draws.
    told
        What the INTENT says beside.
    following
        What will be charged once it is passed: nothing is charged for a gate before a run that the budget does not
        allow.

    Returns
    -------
    The answer; None where it was exact and nothing was charged for it.

    Raises
    ------
    GateError
        If it does not.
    BudgetError
        If the cap does not allow both.
    """
    ledger = lineage.ledger
    if not gate.exact and ledger.committed(card.name, key_of(card, snapshot.number, gate)) is None:
        rho, joining = total_charge([gate.charge(), following])
        refuse_beyond(ledger.left(card.name, joining), card.name, rho)
    answer = _draw(lineage, card, snapshot, gate, noise, HERE, told)
    gate.check(answer.release)
    return None if answer.commit is None else Passed(answer.release.mechanisms, answer.commit)


def _draw(
    lineage: OpenLineage,
    card: AnyCard,
    snapshot: Snapshot,
    drawing: Drawing,
    noise: NoiseSource,
    resources: Resources,
    told: Body,
) -> Curated:
    """Charge and draw, once: what is committed is replayed."""
    key = key_of(card, snapshot.number, drawing)
    if drawing.exact:
        keyed = keyed_by(lineage, resources)
        return _write_exact(lineage, key, drawing.draw(snapshot, keyed, lambda _, draw: draw(noise)), snapshot)
    if (commit := lineage.ledger.committed(card.name, key)) is not None:
        return replay(lineage, card, commit, snapshot)
    rho, charged = drawing.charge()
    if rho is None:
        raise RealDataError(f"{card.name}: some tables have noise and some have none; nothing was read")
    look = look_told(lineage.ledger.entries(), card.name, key, charged)
    told = {"snapshot": snapshot.number, **told, **charged, **look}
    keyed = keyed_by(lineage, resources)
    with transaction(lineage, key, rho, told, drawing.stages, noise) as t:
        drawn = drawing.draw(snapshot, keyed, t.stage)
        return t.commit(replace(drawn, look=look.get("look")), snapshot.data_digest)


def keyed_by(lineage: OpenLineage, resources: Resources) -> Resources:
    """The same resources, with the secret of the lineage's ledger, which is made when somebody asks for it."""
    return replace(resources, secret=partial(read_key, key_file(lineage.ledger.where, lineage.store)))


def _write_exact(lineage: OpenLineage, key: str, release: Release, snapshot: Snapshot) -> Curated:
    """Keep the exact tables of simulated data: nothing is private, so nothing is charged and they may change."""
    folder = folder_of(lineage.store, lineage.name, key, exact=True)
    write_attempt(release, folder, Attempt(key, 1, snapshot.data_digest))
    return Curated(release, folder, key, None, None, False, False, lineage.recovered)


def replay(lineage: OpenLineage, card: AnyCard, commit: Entry, snapshot: Snapshot | None) -> Curated:
    """The committed release as it lies in the store, checked against its entries; nothing is drawn or charged.

    Parameters
    ----------
    lineage
        From :func:`open_lineage`.
    card
        Whose release it is.
    commit
        The COMMIT of its key.
    snapshot
        What it was drawn from; None for a step of a continual release, whatever its data are by now.

    Raises
    ------
    BudgetError
        If the release is gone, damaged, or not what its entries say.
    """
    key, ledger = commit.body["run_key"], lineage.ledger
    folder = folder_of(lineage.store, lineage.name, key, exact=False)
    if not folder.exists():
        raise BudgetError(
            f"{card.name}: the release that entry {commit.seq} committed is not in this store: another store drew "
            f"it, or it was lost. Copy its folder {folder.name} here; it is never drawn again"
        )
    try:
        release, drawn = read_release(folder), read_attempt(folder)
    except ValueError as e:
        raise BudgetError(f"{card.name}: the committed release is damaged ({e}); restore the store") from None
    if sha256_file(folder / "release.parquet") != commit.body["release_sha256"]:
        raise BudgetError(
            f"{card.name}: the stored release does not match its COMMIT (entry {commit.seq}): it was edited"
        )
    entries = ledger.entries()
    intent = next(e for e in entries if e.seq == commit.body["intent"])
    told = (release.dataset, release.data_kind, release.noise, release.sampler)
    charged = (card.name, card.kind, commit.body["noise"], commit.body["sampler"])
    if not fits(release, intent, commit) or told != charged:
        raise BudgetError(
            f"{card.name}: release.json does not match its ledger entries {intent.seq} and {commit.seq}: edited"
        )
    stale = snapshot is not None and drawn.data_digest != snapshot.data_digest
    gate = passed_gate(entries, intent)
    return Curated(release, folder, key, intent, commit, True, stale, lineage.recovered, gate)
