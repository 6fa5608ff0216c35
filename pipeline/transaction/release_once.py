"""A one-off release of a snapshot: the ledger is charged, the rows are summed, noise is added, once.

The other caller of the transaction is :mod:`pipeline.transaction.continual_step`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pipeline.declaration.card import AnyCard, CardError
from pipeline.ledger.chain import Body, canonical
from pipeline.ledger.ledger import Ledger
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import HERE, Resources, forget
from pipeline.privacy.noise import NoiseSource, RealDataError
from pipeline.privacy.release import Release
from pipeline.transaction.artifacts import Attempt, folder_of, write_attempt
from pipeline.transaction.transaction import Curated, OpenLineage, open_lineage, replay, transaction

T = TypeVar("T")

# what most releases draw: all at once
WHOLE = ("release",)


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

    def draw(self, snapshot: Snapshot, noise: NoiseSource, resources: Resources, stage: Stage) -> Release:
        """Read the rows and draw; called once, after the charge is on disk.

        Parameters
        ----------
        snapshot
            Whose rows are read.
        noise
            Admitted before (:meth:`admit`).
        resources
            Where the rows are summed.
        stage
            Draws each of :attr:`stages`, in order and once: see :meth:`~.transaction.Transaction.stage`.
        """
        ...


class Stage(Protocol):
    """Draws one declared stage of a release: its name, and what reads rows and adds noise."""

    def __call__(self, name: str, draw: Callable[[], T], /) -> T:
        """What ``draw`` answers."""
        ...


def at_once(name: str, draw: Callable[[], T]) -> T:
    """A stage of exact tables, which nothing is charged for.

    Parameters
    ----------
    name, draw
        See :class:`Stage`.
    """
    return draw()


class Numbered(Protocol):
    """What has the number of a snapshot."""

    @property
    def number(self) -> int:
        """Counted from 1."""
        ...


def key_of(card: AnyCard, snapshot: Numbered, drawing: Drawing) -> str:
    """Hex key of a release: lineage, snapshot *number*, registered domain and what is drawn; no digest of data.

    Parameters
    ----------
    card, snapshot
        Of the dataset, and which ingest of it.
    drawing
        What would be released.
    """
    parts = [card.name, snapshot.number, card.domain_hash(), drawing.spec()]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def release_once(
    card: AnyCard,
    snapshot: Snapshot,
    drawing: Drawing,
    ledger: Ledger,
    store: Path,
    noise: NoiseSource,
    resources: Resources = HERE,
) -> Curated:
    """Charge, draw, write and commit a release of a snapshot, or replay the committed one.

    Parameters
    ----------
    card
        What the dataset declares; registered in the ledger.
    snapshot
        The ingest whose rows are read.
    drawing
        What is released: its price, and how it is drawn.
    ledger, store
        What charges it, and the operator's store that keeps it.
    noise
        The operating system's wherever the data is real.
    resources
        Where the rows are summed: here, or on a cluster.

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
    if snapshot.kind != card.kind:
        raise RealDataError(f"{card.name}: the snapshot was ingested as {snapshot.kind}, the card says {card.kind}")
    with open_lineage(card.name, ledger, store) as lineage:
        check_snapshot(snapshot, card)
        key = key_of(card, snapshot, drawing)
        if drawing.exact:
            return _write_exact(lineage, key, drawing.draw(snapshot, noise, resources, at_once), snapshot)
        commit = ledger.committed(card.name, key)
        if commit is not None:
            # a run that died after its COMMIT had not come to it
            forget(snapshot)
            return replay(lineage, card, commit, snapshot)
        resources.ready(snapshot)
        rho, told = drawing.charge()
        if rho is None:
            raise RealDataError(f"{card.name}: some tables have noise and some have none; nothing was read")
        told = {"snapshot": snapshot.number, **told}
        with transaction(lineage, key, rho, told, drawing.stages) as t:
            found = t.commit(drawing.draw(snapshot, noise, resources, t.stage), snapshot.data_digest)
        forget(snapshot)
        return found


def check_snapshot(snapshot: Snapshot, card: AnyCard) -> None:
    """Refuse a snapshot of another card: caps are applied at ingest, so it voids every sensitivity of this one.

    Parameters
    ----------
    snapshot
        The ingest that is to be released from; the caller holds the lineage's lock.
    card
        What the dataset declares now.

    Raises
    ------
    CardError
        If it was ingested under another card, or was purged.
    """
    if (snapshot.dataset, snapshot.domain_hash) != (card.name, card.domain_hash()):
        raise CardError(f"{card.name}: snapshot {snapshot.number} was ingested under another card; ingest again")
    if not all(p.is_file() for p in snapshot.part_files):
        raise CardError(f"{card.name}: snapshot {snapshot.number} is gone: purged? Ingest again; nothing was charged")


def _write_exact(lineage: OpenLineage, key: str, release: Release, snapshot: Snapshot) -> Curated:
    """Keep the exact tables of simulated data: nothing is private, so nothing is charged and they may change."""
    folder = folder_of(lineage.store, lineage.name, key, exact=True)
    write_attempt(release, folder, Attempt(key, 1, snapshot.data_digest))
    forget(snapshot)
    return Curated(release, folder, key, None, None, False, False, lineage.recovered)
