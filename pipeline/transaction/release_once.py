"""The curator: the one place where the ledger, the rows and the noise meet.

Order (privacy.md §10): INTENT (budget spent, on disk) -> rows are read and summed -> noise -> the release is written
and renamed -> COMMIT.  A committed key is replayed at no cost and never drawn again.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Protocol

from pipeline.declaration.card import AnyCard, Card, CardError
from pipeline.ledger.chain import AttemptLostError, BudgetError, Entry, canonical
from pipeline.ledger.lease import Holder
from pipeline.ledger.ledger import Ledger
from pipeline.logs.aggregate import aggregate
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import HERE, Means, forget
from pipeline.privacy.noise import NoiseSource, RealDataError
from pipeline.privacy.release import Release, total_epsilon, total_rho
from pipeline.privacy.release_file import describe_mechanism, read_release, sha256_file
from pipeline.statistics.private_sum import PrivateSum
from pipeline.transaction.artifacts import Attempt, folder_of, read_attempt, write_attempt
from pipeline.transaction.heads import known_to_ledger, remember_head
from pipeline.transaction.lock import one_at_a_time
from pipeline.transaction.recovery import Recovered, commit_facts, fits, recover


@dataclass(frozen=True)
class Curated:
    """A release on disk, and what the ledger says of it (None where nothing is private and nothing was charged).

    ``replayed``: the release had been committed before; ``stale``: the snapshot's bytes have changed since;
    ``recovered``: what dead runs had left in the store, settled first.
    """

    release: Release
    folder: Path
    run_key: str
    intent: Entry | None
    commit: Entry | None
    replayed: bool
    stale: bool
    recovered: Recovered


class Drawing(Protocol):
    """What a curator may release: priced before a row is read, drawn once."""

    @property
    def exact(self) -> bool:
        """Whether there is no noise at all: nothing is charged, synthetic data only."""
        ...

    def admit(self, noise: NoiseSource) -> None:
        """Refuse, before any row is read, what would not be private on real data."""
        ...

    def spec(self) -> list[Any]:
        """What tells this release from any other of the snapshot: plain values, part of the run key."""
        ...

    def charge(self) -> tuple[Fraction | None, dict[str, Any]]:
        """Exact rho, and what the INTENT says of it beside the snapshot."""
        ...

    def draw(self, snapshot: Snapshot, noise: NoiseSource, means: Means) -> Release:
        """Read the rows and draw; called once, after the charge is on disk."""
        ...


@dataclass(frozen=True)
class CountsDrawing:
    """The count tables of a card."""

    card: Card
    privatizer: PrivateSum

    @property
    def exact(self) -> bool:
        """See :class:`Drawing`."""
        return self.privatizer.exact

    def admit(self, noise: NoiseSource) -> None:
        """See :class:`Drawing`."""
        self.privatizer.admit(noise)

    def spec(self) -> list[Any]:
        """See :class:`Drawing`: the mechanisms alone, whatever the planner."""
        # the sampler's share of delta follows the cap of the lineage: another cap is no other release
        known = [{k: v for k, v in m.items() if k != "delta_slack"} for m in self._described()]
        return known + (["table"] if any(m.delta_slack for m in self.privatizer.mechanisms) else [])

    def _described(self) -> list[dict[str, Any]]:
        return [describe_mechanism(m) for m in self.privatizer.mechanisms]

    def charge(self) -> tuple[Fraction | None, dict[str, Any]]:
        """See :class:`Drawing`."""
        mechanisms = self.privatizer.mechanisms
        pure = total_epsilon(mechanisms)
        return total_rho(mechanisms), {"mechanisms": self._described(), "epsilon": None if pure is None else str(pure)}

    def draw(self, snapshot: Snapshot, noise: NoiseSource, means: Means) -> Release:
        """See :class:`Drawing`."""
        return self.privatizer.draw(aggregate(snapshot, self.card, means), noise)


def key_of(card: AnyCard, snapshot: Snapshot, drawing: Drawing) -> str:
    """Hex key of a release: lineage, snapshot *number*, registered domain and what is drawn; no digest of data."""
    parts = [card.name, snapshot.number, card.domain_hash(), drawing.spec()]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def run_key(card: Card, snapshot: Snapshot, privatizer: PrivateSum) -> str:
    """Hex key of a release of counts."""
    return key_of(card, snapshot, CountsDrawing(card, privatizer))


def release_counts(
    card: Card,
    snapshot: Snapshot,
    privatizer: PrivateSum,
    ledger: Ledger,
    store: Path,
    noise: NoiseSource,
    means: Means = HERE,
) -> Curated:
    """Release the counts of a snapshot, or replay the committed release; see :func:`release_drawn`."""
    return release_drawn(card, snapshot, CountsDrawing(card, privatizer), ledger, store, noise, means)


def release_drawn(
    card: AnyCard,
    snapshot: Snapshot,
    drawing: Drawing,
    ledger: Ledger,
    store: Path,
    noise: NoiseSource,
    means: Means = HERE,
) -> Curated:
    """Charge, draw, write and commit a release of a snapshot, or replay the committed one.

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
    with one_at_a_time(store / card.name) as place:
        of_this_card(snapshot, card)
        known_to_ledger(card.name, ledger, store)
        recovered = recover(card.name, ledger, store, place)
        key = key_of(card, snapshot, drawing)
        folder = folder_of(store, card.name, key, exact=drawing.exact)
        if drawing.exact:
            release = drawing.draw(snapshot, noise, means)
            write_attempt(release, folder, Attempt(key, 1, snapshot.data_digest))
            forget(snapshot)
            return Curated(release, folder, key, None, None, replayed=False, stale=False, recovered=recovered)
        commit = ledger.committed(card.name, key)
        if commit is not None:
            # a run that died after its COMMIT had not come to it
            forget(snapshot)
            return replay(ledger, card, folder, commit, snapshot, recovered)
        means.ready(snapshot)
        holder = Holder(secrets.token_hex(16), place)
        intent = _charge(card, snapshot, drawing, ledger, key, holder)
        remember_head(store / card.name, intent)
        with ledger.leased(intent, holder):
            release = drawing.draw(snapshot, noise, means)
            write_attempt(release, folder, Attempt(key, intent.body["attempt"], snapshot.data_digest))
            commit = charged_once(ledger, intent, release, folder)
        remember_head(store / card.name, commit)
        forget(snapshot)
        return Curated(release, folder, key, intent, commit, replayed=False, stale=False, recovered=recovered)


def of_this_card(snapshot: Snapshot, card: AnyCard) -> None:
    """Caps are applied at ingest, so a snapshot made under another domain voids every sensitivity of this card."""
    if (snapshot.dataset, snapshot.domain_hash) != (card.name, card.domain_hash()):
        raise CardError(f"{card.name}: snapshot {snapshot.number} was ingested under another card; ingest again")
    if not all(p.is_file() for p in snapshot.part_files):
        raise CardError(f"{card.name}: snapshot {snapshot.number} is gone: purged? Ingest again; nothing was charged")


def _charge(card: AnyCard, snapshot: Snapshot, drawing: Drawing, ledger: Ledger, key: str, holder: Holder) -> Entry:
    rho, told = drawing.charge()
    if rho is None:
        raise RealDataError(f"{card.name}: some tables have noise and some have none; nothing was read")
    return ledger.intent(card.name, key, rho, {"snapshot": snapshot.number, **told}, holder=holder)


def charged_once(ledger: Ledger, intent: Entry, release: Release, folder: Path) -> Entry:
    """COMMIT a release that is on disk; where another attempt was first, its folder goes and its spend stays."""
    try:
        return ledger.commit(intent, commit_facts(release, folder))
    except AttemptLostError:
        shutil.rmtree(folder)
        raise


def replay(
    ledger: Ledger, card: AnyCard, folder: Path, commit: Entry, snapshot: Snapshot | None, recovered: Recovered
) -> Curated:
    """The committed release as it lies in the store, checked against its entries.

    ``snapshot`` is what it was drawn from; None for a night of a counter, whatever its data are by now.
    """
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
    intent = next(e for e in ledger.entries(card.name) if e.seq == commit.body["intent"])
    told = (release.dataset, release.data_kind, release.noise, release.sampler)
    charged = (card.name, card.kind, commit.body["noise"], commit.body["sampler"])
    if not fits(release, intent, commit) or told != charged:
        raise BudgetError(
            f"{card.name}: release.json does not match its ledger entries {intent.seq} and {commit.seq}: edited"
        )
    stale = snapshot is not None and drawn.data_digest != snapshot.data_digest
    key = commit.body["run_key"]
    return Curated(release, folder, key, intent, commit, replayed=True, stale=stale, recovered=recovered)
