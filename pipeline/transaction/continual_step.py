"""A step of a continual release: one date, one leaf of a counter, one charge for all of them (privacy.md §10).

A date has its leaf whatever arrived, an empty one where nothing did: which steps exist tells nothing of the rows.  A
committed step is never drawn again, whatever the data say now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.declaration.card import Card, CardError
from pipeline.ledger.chain import BudgetError, Entry, canonical
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.nights import Night, committed_nights, counter_intents, counter_key, night_price, overtaken
from pipeline.logs.aggregate import count_new
from pipeline.logs.contribution_bounding import hash_width
from pipeline.logs.store import Snapshot, snapshots
from pipeline.privacy.factorisation import Factorisation
from pipeline.privacy.noise import Integers, NoiseSource, RealDataError
from pipeline.privacy.release import Mechanism, Release
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.private_sum import PrivateSum
from pipeline.transaction.kept_steps import KeptCounter, digest
from pipeline.transaction.release_once import check_snapshot
from pipeline.transaction.transaction import Curated, open_lineage, replay, transaction


@dataclass(frozen=True)
class ContinualRelease:
    """What a recipe declares: count tables of a card, a counter over T dates, and the first of them.

    Parameters
    ----------
    card
        What the dataset declares.
    privatizer
        Its mechanisms are those of the counter's rows.
    counter
        The factorisation: which rows of noise are drawn at which of its T leaves.
    first
        The date of leaf 1.
    """

    card: Card
    privatizer: PrivateSum
    counter: Factorisation
    first: date

    @cached_property
    def key(self) -> str:
        """See :func:`~pipeline.ledger.nights.counter_key`."""
        shape = {"kind": self.counter.kind, "nights": self.counter.steps, "first": self.first.isoformat()}
        described = [describe_mechanism(m) for m in self.privatizer.mechanisms]
        return counter_key(self.card.name, self.card.domain_hash(), shape, described)

    def step_key(self, leaf: int) -> str:
        """Hex key of the release of leaf 1 .. T; no snapshot and no digest of data is in it."""
        return hashlib.sha256(canonical([self.key, leaf]).encode()).hexdigest()

    def leaf_on(self, day: date) -> int:
        """Which leaf a date is, counted from 1.

        Raises
        ------
        CardError
            If it is before the first.
        BudgetError
            If it is after the last: its noise is not paid for.
        """
        leaf, last = self.until(day), self.last
        if leaf < 1:
            raise CardError(f"{self.card.name}: {day} is before the counter's first night, {self.first}")
        if leaf > self.counter.steps:
            raise BudgetError(
                f"{self.card.name}: the counter's {self.counter.steps} nights ended on {last}; another counter is "
                "another charge (change 'first' in [nightly]); the last night is replayed by its date. Nothing was read"
            )
        return leaf

    def until(self, day: date) -> int:
        """Dates from the first to this one, unchecked."""
        return (day - self.first).days + 1

    @property
    def last(self) -> date:
        """The last date."""
        return self.first + timedelta(days=self.counter.steps - 1)

    def mechanisms(self, leaf: int) -> tuple[Mechanism, ...]:
        """Mechanisms with the noise of the sum at this leaf."""
        return self.privatizer.at(leaf)

    def describe(self, leaf: int, since: int) -> dict[str, Any]:
        """What the INTENT, the release and the certificate say of the counter at a step that covers ``since .. leaf``.

        The keys are those of the ledger's first day: a step is a ``night`` there.
        """
        return {
            "key": self.key,
            "kind": self.counter.kind,
            "nights": self.counter.steps,
            "first": self.first.isoformat(),
            "night": leaf,
            "since": since,
            "date": (self.first + timedelta(days=leaf - 1)).isoformat(),
            "cost": self.counter.cost,
            "error": self.counter.error(leaf),
        }

    def price(self, entries: Sequence[Entry], leaf: int, since: int) -> Fraction:
        """What a step charges, as an exact zCDP rho.

        Parameters
        ----------
        entries
            All entries of the ledger.
        leaf, since
            The step covers the leaves ``since .. leaf``.

        Raises
        ------
        BudgetError
            If another store committed one of these leaves meanwhile.
        """
        told = self.describe(leaf, since)
        if (other := overtaken(entries, self.card.name, told)) is not None:
            raise BudgetError(
                f"{self.card.name}: night {other.leaf} was committed meanwhile (entry {other.commit.seq}), from "
                "another store; one store keeps a counter. Nothing was read"
            )
        before = counter_intents(entries, self.card.name, self.key)
        return night_price(before, told, self.privatizer.mechanisms)


@dataclass(frozen=True)
class Appended:
    """The release of a step, and in a sentence what became of it."""

    curated: Curated
    leaf: int
    said: str


def append_step(declared: ContinualRelease, ledger: Ledger, store: Path, noise: NoiseSource, day: date) -> Appended:
    """Append the leaf of ``day``: all who are new in snapshots since the last step, perhaps nobody.

    Where the date has its leaf already, the last step's release is replayed: nothing is drawn, nothing is charged.

    Parameters
    ----------
    declared
        The counter and its tables.
    ledger, store
        What charges it, and the operator's store that keeps it.
    noise
        The operating system's wherever the data is real.
    day
        A date of the counter.

    Raises
    ------
    BudgetError
        If the dates are over, the cap does not allow the counter, or what it keeps is gone or edited; no row was read.
    CardError
        If the date is before the first, nothing was ever ingested, or the newest snapshot is of another card.
    RealDataError
        If the data is real and the noise is not the operating system's.
    """
    card = declared.card
    ledger.require(card)
    declared.privatizer.admit(noise)
    with open_lineage(card.name, ledger, store) as lineage:
        steps, leaf = committed_nights(ledger.entries(), card.name, declared.key), declared.leaf_on(day)
        if steps and leaf <= steps[-1].leaf:
            return Appended(replay(lineage, card, steps[-1].commit, None), steps[-1].leaf, _idle(steps[-1]))
        since, there = steps[-1].leaf + 1 if steps else 1, snapshots(store, card.name)
        if not (steps or there):
            raise CardError(f"{card.name}: no snapshot; run `reticent ingest` on its card first")
        size = sum(m.cells for m in declared.privatizer.mechanisms)
        kept = KeptCounter(store / card.name / "counters" / declared.key[:24], declared.counter, steps, size)
        kept.settle()
        waiting = [s for s in there if s.number > kept.snapshot]
        _newest_fits(waiting, card)
        # what came in under another card is not of this counter
        waiting = [s for s in waiting if (s.domain_hash, s.kind) == (card.domain_hash(), card.kind)]
        # no snapshot in it: which ones a step counted tells on which dates the log changed
        told = {
            "mechanisms": [describe_mechanism(m) for m in declared.mechanisms(leaf)],
            "epsilon": None,
            "counter": declared.describe(leaf, since),
        }
        # priced inside the ledger's transaction: an attempt elsewhere may have died meanwhile
        price = partial(declared.price, leaf=leaf, since=since)
        with transaction(lineage, declared.step_key(leaf), price, told, ["step"]) as t:
            release = t.stage("step", lambda: _draw(declared, kept, waiting, noise, t.intent))
            # a step is a step, whatever the data: there is no digest to compare it with
            found = t.commit(release, data_digest="")
        return Appended(found, leaf, _told(declared, leaf, since, t.intent))


def _newest_fits(waiting: Sequence[Snapshot], card: Card) -> None:
    if not waiting:
        return
    if waiting[-1].kind != card.kind:
        raise RealDataError(f"{card.name}: the snapshot was ingested as {waiting[-1].kind}, the card says {card.kind}")
    check_snapshot(waiting[-1], card)


def _draw(
    declared: ContinualRelease, kept: KeptCounter, waiting: Sequence[Snapshot], noise: NoiseSource, intent: Entry
) -> Release:
    """Count who is new, add noise to the rows that are due, keep them, and read the step's sum off all rows."""
    card, counter, told = declared.card, declared.counter, intent.body["counter"]
    leaf, since = told["night"], told["since"]
    sums, fresh = count_new(waiting, card, kept.seen(hash_width(card)), kept.key)
    counts = ExactSums(card.name, card.kind, card.domain.dynamics, sums)
    mechanisms = declared.mechanisms(leaf)
    tonight = np.concatenate([sums[m.table].reshape(-1) for m in mechanisms])

    def leaves(t: int) -> Integers | None:
        return tonight if t == leaf else kept.leaf(t)

    due = [row for t in range(since, leaf + 1) for row in counter.rows(t)]
    rows = declared.privatizer.draw_rows(due, leaves, noise, counts)
    kept.write(leaf, intent.body["attempt"], tonight, fresh, rows, waiting[-1].number if waiting else None)
    ends = np.cumsum([0, *(len(counter.rows(t)) for t in range(since, leaf + 1))])

    def noisy(t: int) -> Integers:
        return kept.rows(t) if t < since else rows[ends[t - since] : ends[t - since + 1]]

    total = np.rint(counter.total(leaf, noisy)).astype(np.int64)
    pieces = np.split(total, np.cumsum([m.cells for m in mechanisms])[:-1])
    return Release(
        dataset=card.name,
        data_kind=counts.data_kind,
        dynamics=counts.dynamics,
        mechanisms=mechanisms,
        tables={m.table: x.reshape(m.shape) for m, x in zip(mechanisms, pieces, strict=True)},
        noise=noise.name,
        sampler=noise.sampler,
        counter={**told, "drawn_sha256": digest(rows)},
    )


def _idle(last: Night) -> str:
    of = f"night {last.leaf} of {last.intent.body['counter']['nights']}"
    return f"{of} is drawn already; what came in since waits for the next night. Nothing is charged"


def _told(declared: ContinualRelease, leaf: int, since: int, intent: Entry) -> str:
    empty = f", with {leaf - since} empty before it" if leaf > since else ""
    return f"night {leaf} of {declared.counter.steps}{empty}: charged ρ = {intent.body['rho']}"
