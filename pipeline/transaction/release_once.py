"""A one-off release of a snapshot: the ledger is charged, the rows are summed, noise is added, once.

The other caller of the transaction is :mod:`pipeline.transaction.continual_step`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pipeline.declaration.card import AnyCard, CardError
from pipeline.ledger.chain import Body, canonical
from pipeline.ledger.ledger import Ledger
from pipeline.logs.store import Snapshot, check_parts, find_snapshot, source_hash
from pipeline.logs.summing import HERE, Resources, forget
from pipeline.privacy.noise import NoiseSource, RealDataError
from pipeline.privacy.release import Release
from pipeline.transaction.artifacts import Attempt, folder_of, write_attempt
from pipeline.transaction.replay import replay
from pipeline.transaction.transaction import Curated, OpenLineage, open_lineage, transaction

T = TypeVar("T")

# of a release that is drawn all at once
WHOLE = ("release",)


class Stage(Protocol):
    """Draws one declared stage of a release: its name, and what reads rows and adds noise of the source it is given."""

    def __call__(self, name: str, draw: Callable[[NoiseSource], T], /) -> T:
        """What ``draw`` answers; see :meth:`~pipeline.transaction.transaction.Transaction.stage`."""
        ...


class Drawing(Protocol):
    """What can be released from a snapshot: it has a price before a row is read, and it is drawn once.

    Every plan of a learner is one (:class:`~pipeline.learners.learner.RunPlan`).
    """

    @property
    def exact(self) -> bool:
        """Whether there is no noise at all: nothing is charged, synthetic data only."""
        ...

    def admit(self, noise: NoiseSource) -> None:
        """Refuse, before any row is read, what would not be private on real data."""
        ...

    def spec(self) -> list[Any]:
        """What distinguishes this release from any other of the snapshot: plain JSON values, part of the run key."""
        ...

    def charge(self) -> tuple[Fraction | None, Body]:
        """Exact zCDP rho (None: some table has no noise), and the INTENT's other fields but the snapshot."""
        ...

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of what is drawn, in order; a later stage's question may rest on an earlier stage's answer."""
        ...

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        """Read the rows and draw; called once, after the charge is on disk.

        Parameters
        ----------
        snapshot
            Whose rows are read.
        resources
            Where the rows are summed.
        stage
            Draws each of :attr:`stages`, in order and once.
        """
        ...


def _at_once(noise: NoiseSource, name: str, draw: Callable[[NoiseSource], T]) -> T:
    """A :class:`Stage` of exact tables, for which nothing is charged."""
    return draw(noise)


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
    """
    ledger.require(card)
    drawing.admit(noise)
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
        if drawing.exact:
            return _write_exact(lineage, key, drawing.draw(snapshot, resources, partial(_at_once, noise)), snapshot)
        resources.ready(snapshot)
        rho, told = drawing.charge()
        if rho is None:
            raise RealDataError(f"{card.name}: some tables have noise and some have none; nothing was read")
        told = {"snapshot": edition, **({"due": due} if due else {}), **told}
        with transaction(lineage, key, rho, told, drawing.stages, noise) as t:
            found = t.commit(drawing.draw(snapshot, resources, t.stage), snapshot.data_digest)
        forget(snapshot)
        return found


def check_snapshot(snapshot: Snapshot | None, card: AnyCard, edition: int) -> Snapshot:
    """Refuse a snapshot of another card: caps are applied at ingest, so it voids every sensitivity of this one.

    Parameters
    ----------
    snapshot
        The ingest that is to be released from, None where it is gone; the caller holds the lineage's lock.
    card
        What the dataset declares now.
    edition
        Number of the snapshot.

    Returns
    -------
    The snapshot.

    Raises
    ------
    CardError
        If it was ingested under another card, or was purged.
    RealDataError
        If it was ingested as data of another kind.
    """
    if snapshot is None:
        raise CardError(f"{card.name}: there is no snapshot {edition}: purged? Ingest again; nothing was charged")
    if snapshot.kind != card.kind:
        raise RealDataError(f"{card.name}: the snapshot was ingested as {snapshot.kind}, the card says {card.kind}")
    if (snapshot.dataset, snapshot.domain_hash) != (card.name, card.domain_hash()):
        raise CardError(f"{card.name}: snapshot {edition} was ingested under another card; ingest again")
    return snapshot


def check_source(snapshot: Snapshot, card: AnyCard) -> None:
    """Refuse a snapshot that was read in another way than the card says now.

    Parameters
    ----------
    snapshot, card
        The ingest, and what the dataset declares now.

    Raises
    ------
    CardError
        If [source] was edited since.
    """
    if snapshot.source_hash not in ("", source_hash(card)):
        raise CardError(
            f"{card.name}: [source] was edited since snapshot {snapshot.number} was ingested; ingest again, or put "
            "[source] back. Nothing was charged"
        )


def _write_exact(lineage: OpenLineage, key: str, release: Release, snapshot: Snapshot) -> Curated:
    """Keep the exact tables of simulated data: nothing is private, so nothing is charged and they may change."""
    folder = folder_of(lineage.store, lineage.name, key, exact=True)
    write_attempt(release, folder, Attempt(key, 1, snapshot.data_digest))
    forget(snapshot)
    return Curated(release, folder, key, None, None, False, False, lineage.recovered)
