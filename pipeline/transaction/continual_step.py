"""A step of a continual release: one date, one step of a counter, one charge for all of them (privacy.md §10).

A date that is run gets its step whatever arrived, an empty one where nothing did, so the list of steps says nothing
about the rows.  A committed step is never drawn again, even if the data have changed since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from pipeline.declaration.card import Card, CardError
from pipeline.ledger.chain import BudgetError, Entry, canonical
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.steps import (
    CounterBody,
    Step,
    committed_steps,
    counter_intents,
    counter_key,
    overtaken,
    step_price,
)
from pipeline.logs.aggregate import count_new
from pipeline.logs.contribution_bounding import hash_width
from pipeline.logs.store import Snapshot, numbers, snapshots, sound
from pipeline.privacy.factorisation import Factorisation
from pipeline.privacy.noise import Integers, NoiseSource
from pipeline.privacy.release import Mechanism, Release
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.private_sum import PrivateSum
from pipeline.transaction.kept_steps import KeptSteps, digest
from pipeline.transaction.release_once import check_snapshot
from pipeline.transaction.replay import replay
from pipeline.transaction.transaction import Curated, open_lineage, transaction


@dataclass(frozen=True)
class ContinualRelease:
    """What a recipe declares: count tables of a card, a counter over T dates, and the first of them.

    Parameters
    ----------
    card
        What the dataset declares.
    privatizer
        The count tables; its mechanisms have the noise of one row of the counter.
    counter
        The factorisation: which rows of noise are drawn at which of its T steps.
    first
        The date of step 1.
    """

    card: Card
    privatizer: PrivateSum
    counter: Factorisation
    first: date

    @cached_property
    def key(self) -> str:
        """See :func:`~pipeline.ledger.steps.counter_key`."""
        counter, described = self.counter, [describe_mechanism(m) for m in self.privatizer.mechanisms]
        whose = self.card.name, self.card.domain_hash()
        return counter_key(*whose, counter.kind, counter.steps, self.first.isoformat(), described)

    def step_key(self, t: int) -> str:
        """Hex key of the release of step 1 .. T; no snapshot and no digest of data is in it."""
        return hashlib.sha256(canonical([self.key, t]).encode()).hexdigest()

    def step_on(self, day: date) -> int:
        """Which step a date is, counted from 1.

        Raises
        ------
        CardError
            If it is before the first.
        BudgetError
            If it is after the last: its noise is not paid for.
        """
        t, last = self.until(day), self.last
        if t < 1:
            raise CardError(f"{self.card.name}: {day} is before the counter's first night, {self.first}")
        if t > self.counter.steps:
            raise BudgetError(
                f"{self.card.name}: the counter's {self.counter.steps} nights ended on {last}; another counter is "
                "another charge (change 'first' in [nightly]); the last night is replayed by its date. Nothing was read"
            )
        return t

    def until(self, day: date) -> int:
        """Dates from the first to this one, unchecked."""
        return (day - self.first).days + 1

    @property
    def last(self) -> date:
        """The last date."""
        return self.first + timedelta(days=self.counter.steps - 1)

    def mechanisms(self, t: int) -> tuple[Mechanism, ...]:
        """Mechanisms with the noise of the sum at step t."""
        return self.privatizer.at(t)

    def describe(self, t: int, since: int) -> CounterBody:
        """What the INTENT, the release and the certificate say of the counter at a step.

        Parameters
        ----------
        t, since
            The steps ``since .. t`` become known, all but the last of them empty.
        """
        return {
            "key": self.key,
            "kind": self.counter.kind,
            "nights": self.counter.steps,
            "first": self.first.isoformat(),
            "night": t,
            "since": since,
            "date": (self.first + timedelta(days=t - 1)).isoformat(),
            "cost": self.counter.cost,
            "error": self.counter.error(t),
        }

    def price(self, entries: Sequence[Entry], t: int, since: int) -> Fraction:
        """What a step charges, as an exact zCDP rho.

        Parameters
        ----------
        entries
            All entries of the ledger.
        t, since
            See :meth:`describe`.

        Raises
        ------
        BudgetError
            If another store committed one of these steps meanwhile.
        """
        told = self.describe(t, since)
        if (other := overtaken(entries, self.card.name, told)) is not None:
            raise BudgetError(
                f"{self.card.name}: night {other.t} was committed meanwhile (entry {other.commit.seq}), from "
                "another store; one store keeps a counter. Nothing was read"
            )
        before = counter_intents(entries, self.card.name, self.key)
        return step_price(entries, before, told, self.privatizer.mechanisms)


@dataclass(frozen=True)
class Appended:
    """The result of :func:`append_step`.

    Parameters
    ----------
    curated
        The release of the step, drawn now or replayed.
    t
        The step, counted from 1.
    said
        What happened, in one sentence for the operator.
    """

    curated: Curated
    t: int
    said: str


def append_step(declared: ContinualRelease, ledger: Ledger, store: Path, noise: NoiseSource, day: date) -> Appended:
    """Append the step of ``day``: count the people who are new since the last step; there may be none.

    Where the date has its step already, the last step's release is replayed: nothing is drawn, nothing is charged.

    Parameters
    ----------
    declared
        The counter and its tables.
    ledger, store
        The ledger that is charged, and the operator's store that keeps the counter's files.
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
        steps, t = committed_steps(ledger.entries(), card.name, declared.key), declared.step_on(day)
        if steps and t <= steps[-1].t:
            return Appended(replay(lineage, card, steps[-1].commit, None), steps[-1].t, _idle(steps[-1]))
        since = steps[-1].t + 1 if steps else 1
        if not (steps or numbers(store, card.name)):
            raise CardError(f"{card.name}: no snapshot; run `reticent ingest` on its card first")
        size = sum(m.cells for m in declared.privatizer.mechanisms)
        kept = KeptSteps(store / card.name / "counters" / declared.key[:24], declared.counter, steps, size)
        kept.settle()
        waiting = snapshots(store, card.name, after=kept.snapshot)
        if waiting:
            check_snapshot(waiting[-1], card, waiting[-1].number)
        # what came in under another card is not of this counter
        waiting = sound([s for s in waiting if (s.domain_hash, s.kind) == (card.domain_hash(), card.kind)])
        # the INTENT names no snapshot: the numbers would show on which dates the log changed
        told = {
            "mechanisms": [describe_mechanism(m) for m in declared.mechanisms(t)],
            "epsilon": None,
            "counter": declared.describe(t, since),
        }
        # priced inside the ledger's transaction: an attempt elsewhere may have died meanwhile
        price = partial(declared.price, t=t, since=since)
        with transaction(lineage, declared.step_key(t), price, told, ["step"], noise) as attempt:
            release = attempt.stage("step", lambda source: _draw(declared, kept, waiting, source, attempt.intent))
            # a step is a step, whatever the data: there is no digest to compare it with
            found = attempt.commit(release, data_digest="")
        return Appended(found, t, _told(declared, t, since, attempt.intent))


def _draw(
    declared: ContinualRelease, kept: KeptSteps, waiting: Sequence[Snapshot], noise: NoiseSource, intent: Entry
) -> Release:
    """Count who is new, add noise to the rows that are due, keep them, and read the step's sum off all rows."""
    card, counter, told = declared.card, declared.counter, intent.body["counter"]
    now, since = told["night"], told["since"]
    tables, fresh = count_new(waiting, card, kept.seen(hash_width(card)), kept.key)
    sums = ExactSums(card.name, card.kind, card.domain.dynamics, tables)
    mechanisms = declared.mechanisms(now)
    new = np.concatenate([tables[m.table].reshape(-1) for m in mechanisms])

    def exact(t: int) -> Integers | None:
        return new if t == now else kept.exact(t)

    due = [row for t in range(since, now + 1) for row in counter.rows(t)]
    rows = declared.privatizer.draw_rows(due, exact, noise, sums)
    kept.write(now, intent.body["attempt"], new, fresh, rows, waiting[-1].number if waiting else None)
    ends = np.cumsum([0, *(len(counter.rows(t)) for t in range(since, now + 1))])

    def noisy(t: int) -> Integers:
        return kept.rows(t) if t < since else rows[ends[t - since] : ends[t - since + 1]]

    total = np.rint(counter.total(now, noisy)).astype(np.int64)
    pieces = np.split(total, np.cumsum([m.cells for m in mechanisms])[:-1])
    return Release(
        dataset=card.name,
        data_kind=sums.data_kind,
        dynamics=sums.dynamics,
        mechanisms=mechanisms,
        tables={m.table: x.reshape(m.shape) for m, x in zip(mechanisms, pieces, strict=True)},
        noise=noise.name,
        sampler=noise.sampler,
        counter={**told, "drawn_sha256": digest(rows)},
    )


def _idle(last: Step) -> str:
    of = f"night {last.t} of {last.intent.body['counter']['nights']}"
    return f"{of} is drawn already; what came in since waits for the next night. Nothing is charged"


def _told(declared: ContinualRelease, t: int, since: int, intent: Entry) -> str:
    empty = f", with {t - since} empty before it" if t > since else ""
    return f"night {t} of {declared.counter.steps}{empty}: charged ρ = {intent.body['rho']}"
