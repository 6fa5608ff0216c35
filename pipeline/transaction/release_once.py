"""A one-off release of a snapshot: the ledger is charged, the rows are summed, noise is added, once.

The other caller of the transaction is :mod:`pipeline.transaction.continual_step`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path

from pipeline.declaration.card import AnyCard, CardError
from pipeline.facts.promise import present
from pipeline.ledger import attempts, people
from pipeline.ledger.account import apart_from, claims_needed, intents_of, refuse_beyond, reserve_of, split_of
from pipeline.ledger.chain import Body, Entry
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.looks import RECIPE, check_since, is_look, look_number
from pipeline.logs.contribution_bounding import IDS
from pipeline.logs.parts import Split, editions_until, forget, part_key, split_people
from pipeline.logs.store import Snapshot, check_parts, check_source, find_snapshot
from pipeline.logs.summing import HERE, Resources
from pipeline.privacy.noise import NoiseSource, RealDataError
from pipeline.transaction.drawing import Charge, Drawing, Gate, Splitting, key_of, total_charge
from pipeline.transaction.transaction import Curated, OpenLineage, open_lineage, replay, transaction, write_exact


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
    recipe: str = "",
) -> Curated:
    """Charge, draw, write and commit a release of an edition; replay the committed one, even if its rows are gone.

    ``due``: the date of a calendar that this release is for (ISO), which the INTENT names; empty for none.
    ``gate``: must pass before anything else is drawn; a committed one is replayed, never drawn again.
    Raises BudgetError if the lineage is not registered, the cap does not allow it or the ledger is an old one; no row
    was read. Or if another attempt committed this release first; the cost of this one stays spent.
    Raises CardError if the card differs from its registration or from the one the snapshot was ingested under, or the
    snapshot was purged meanwhile.
    Raises RealDataError if the data is real and some table would get no operating-system noise; no row was read.
    Raises GateError if the gate stopped it; the gate's own cost stays spent.
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
            return replay(lineage, card, commit, None if snapshot is None else snapshot.data_digest)
        snapshot = check_snapshot(snapshot, card, edition)
        check_source(snapshot, card)
        if snapshot.ids < IDS and not drawing.exact and not intents_of(ledger.entries(), card.name, key):
            raise CardError(
                f"{card.name}: snapshot {edition} was ingested by an older version, for which two spellings of an id "
                "were two people; ingest again. Nothing was charged"
            )
        check_parts(snapshot)
        resources.ready(snapshot)
        if isinstance(drawing, Splitting) and drawing.since is not None:
            check_since(ledger.entries(), card.name, key, edition, drawing.since)
            editions_until(snapshot, drawing.since)
        fields = {**present(due=due or None), **claim_fields(ledger.entries(), card, [snapshot])}
        # a lost key is refused before anything is charged
        splits = not drawing.exact and (is_look(drawing.charge()[1]) or reserve_of(ledger.entries(), card.name))
        key_mark: Body = key_fields(lineage) if splits else {}
        passed = None if gate is None else pass_gate(lineage, snapshot, gate, noise, fields, drawing.charge())
        named = ({RECIPE: recipe} if recipe else {}) | present(gate=None if passed is None else passed.commit.seq)
        curated = _draw(lineage, card, snapshot, drawing, noise, resources, {**fields, **named, **key_mark})
        forget(snapshot)
        return replace(curated, gate=passed)


def claim_fields(entries: Sequence[Entry], card: AnyCard, snapshots: Sequence[Snapshot]) -> dict[str, bool]:
    """Field ``claimed`` of an INTENT, where its people are; refuses rows of people who may be counted elsewhere.

    Raises CardError if the dataset was declared disjoint from another after such a snapshot was ingested.
    """
    claimed = min((s.claimed for s in snapshots), default=0)
    apart = apart_from(entries, card.name)
    if apart and snapshots and claimed < 1 + claims_needed(entries, card.name):
        raise CardError(
            f"{card.name}: ingested before it was declared disjoint from {', '.join(sorted(apart))}, so people may be "
            "counted in both; ingest again. Nothing was charged"
        )
    # a night on which nothing came in reads no rows
    return {"claimed": True} if claimed or (card.kind == "real" and not snapshots) else {}


def check_snapshot(snapshot: Snapshot | None, card: AnyCard, edition: int) -> Snapshot:
    """Refuse a snapshot of another card: caps are applied at ingest, so it voids every sensitivity of this one.

    ``snapshot``: None where it is gone; the caller holds the lineage's lock.
    Returns the snapshot.
    Raises CardError if it was ingested under another card, or was purged.
    Raises RealDataError if it was ingested as data of another kind.
    """
    if snapshot is None:
        raise CardError(f"{card.name}: there is no snapshot {edition}: purged? Ingest again; nothing was charged")
    if snapshot.kind != card.kind:
        raise RealDataError(f"{card.name}: the snapshot was ingested as {snapshot.kind}, the card says {card.kind}")
    if (snapshot.dataset, snapshot.domain_hash) != (card.name, card.domain_hash()):
        raise CardError(f"{card.name}: snapshot {edition} was ingested under another card; ingest again")
    return snapshot


def pass_gate(
    lineage: OpenLineage, snapshot: Snapshot, gate: Gate, noise: NoiseSource, fields: Body, following: Charge
) -> attempts.Passed | None:
    """Draw a gate, or replay it, and check that a log fits its card.

    ``fields``: of its INTENT; ``following``: the charge of the release behind it.
    Returns the passed gate; None where it was exact and nothing was charged for it.
    Raises GateError if the log does not fit.
    Raises BudgetError if the cap does not allow both.
    """
    ledger, card = lineage.ledger, gate.card
    if not gate.exact and ledger.committed(card.name, key_of(card, snapshot.number, gate)) is None:
        rho, joining = total_charge([gate.charge(), following])
        refuse_beyond(ledger.left(card.name, joining), card.name, rho)
    curated = _draw(lineage, card, snapshot, gate, noise, HERE, fields)
    gate.check(curated.release)
    return None if curated.commit is None else attempts.Passed(curated.release.mechanisms, curated.commit)


def _draw(
    lineage: OpenLineage,
    card: AnyCard,
    snapshot: Snapshot,
    drawing: Drawing,
    noise: NoiseSource,
    resources: Resources,
    fields: Body,
) -> Curated:
    """Charge and draw, once: what is committed is replayed."""
    key, resources = key_of(card, snapshot.number, drawing), keyed_by(lineage, resources)
    if drawing.exact:
        rows = _rows_for(lineage, drawing, snapshot, resources)
        release = drawing.draw(rows, resources, lambda _, draw: draw(noise))
        return write_exact(lineage, key, release, snapshot.data_digest)
    if (commit := lineage.ledger.committed(card.name, key)) is not None:
        return replay(lineage, card, commit, snapshot.data_digest)
    rho, charged = drawing.charge()
    if rho is None:
        raise RealDataError(f"{card.name}: some tables have noise and some have none; nothing was read")
    look = look_number(lineage.ledger.entries(), card.name, key, charged)
    fields = {"snapshot": snapshot.number, **fields, **charged, **look}
    with transaction(lineage, key, rho, fields, drawing.stages, noise) as attempt:
        release = drawing.draw(_rows_for(lineage, drawing, snapshot, resources), resources, attempt.stage)
        return attempt.commit(replace(release, look=look.get("look")), snapshot.data_digest)


def keyed_by(lineage: OpenLineage, resources: Resources) -> Resources:
    """The same resources, with the split of the lineage's ledger, whose secret is made on first use."""
    secret = cache(partial(lineage.ledger.people_key, lineage.store))
    return replace(resources, split=partial(_split, lineage, secret))


def key_fields(lineage: OpenLineage) -> Body:
    """Field of an INTENT for the secret by which its people are split: the mark by which the ledger recognises it."""
    return {people.MARK: people.mark_of(lineage.ledger.people_key(lineage.store))}


def _split(lineage: OpenLineage, secret: Callable[[], bytes], share: Fraction) -> Split:
    entries = lineage.ledger.entries()
    return Split(share, part_key(secret(), split_of(entries, lineage.name)), reserve_of(entries, lineage.name))


def _rows_for(lineage: OpenLineage, drawing: Drawing, snapshot: Snapshot, resources: Resources) -> Snapshot:
    """The snapshot without the people whom the ledger reserves; whole for a gate, or if the drawing splits people."""
    all_people = isinstance(drawing, Splitting | Gate) or not reserve_of(lineage.ledger.entries(), lineage.name)
    if all_people or resources.split is None:
        return snapshot
    return split_people(snapshot, resources.split(Fraction(0)))[0]
