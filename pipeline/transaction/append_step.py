"""One night of a counter: charge, count who is new, draw the rows that are due, write, commit; or replay.

A date has its leaf whatever arrived, an empty one where nothing did: which nights exist tells nothing of the rows.  The
order is that of every release (privacy.md §10).  A committed night is never drawn again, whatever the data say now;
a run that died before its COMMIT is recovered or pays for what it draws again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path

import numpy as np

from pipeline.declaration.card import Card, CardError
from pipeline.ledger.chain import Entry
from pipeline.ledger.lease import Holder
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.nights import Night, committed_nights
from pipeline.logs.contribution_bounding import count_newcomers, hash_width
from pipeline.logs.store import Snapshot, snapshots
from pipeline.privacy.factorisation import draw_rows
from pipeline.privacy.noise import Integers, NoiseBlocks, NoiseSource, RealDataError
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.counts import Counts
from pipeline.statistics.privatizers import check_slack
from pipeline.transaction.artifacts import Attempt, folder_of, write_attempt
from pipeline.transaction.continual_step import NightlyCounter
from pipeline.transaction.heads import known_to_ledger, remember_head
from pipeline.transaction.kept_steps import KeptCounter, digest
from pipeline.transaction.lock import one_at_a_time
from pipeline.transaction.recovery import recover
from pipeline.transaction.release_once import Curated, charged_once, of_this_card, replay


@dataclass(frozen=True)
class Appended:
    """The release of a night, and in a sentence what became of it."""

    curated: Curated
    leaf: int
    said: str


def append_night(nightly: NightlyCounter, ledger: Ledger, store: Path, noise: NoiseSource, day: date) -> Appended:
    """Append the leaf of ``day``: everybody who is new in snapshots since the last night, be it nobody.

    Where the date has its leaf already, the last night's release is replayed: nothing is drawn, nothing is charged.

    Raises
    ------
    BudgetError
        If the nights are over, the cap does not allow the counter, or what it keeps is gone or edited; no row was read.
    CardError
        If the date is before the first, nothing was ever ingested, or the newest snapshot is of another card.
    RealDataError
        If the data is real and the noise is not the operating system's.
    """
    card = nightly.card
    ledger.require(card)
    nightly.privatizer.admit(noise)
    with one_at_a_time(store / card.name) as place:
        known_to_ledger(card.name, ledger, store)
        recovered = recover(card.name, ledger, store, place)
        nights, leaf = committed_nights(ledger.entries(), card.name, nightly.key), nightly.leaf_on(day)
        if nights and leaf <= nights[-1].leaf:
            last = nights[-1]
            folder = folder_of(store, card.name, last.commit.body["run_key"], exact=False)
            found = replay(ledger, card, folder, last.commit, None, recovered)
            return Appended(found, last.leaf, _idle(last))
        since, there = nights[-1].leaf + 1 if nights else 1, snapshots(store, card.name)
        if not (nights or there):
            raise CardError(f"{card.name}: no snapshot; run `reticent ingest` on its card first")
        kept = KeptCounter(_folder(store, nightly), nightly.counter, nights, _size(nightly))
        kept.settle()
        waiting = [s for s in there if s.number > kept.snapshot]
        _newest_fits(waiting, card)
        # what came in under another card is not of this counter
        waiting = [s for s in waiting if (s.domain_hash, s.kind) == (card.domain_hash(), card.kind)]
        intent, holder = _intent(nightly, ledger, leaf, since, place)
        remember_head(store / card.name, intent)
        with ledger.leased(intent, holder):
            release = _draw(nightly, kept, waiting, noise, intent)
            folder = folder_of(store, card.name, intent.body["run_key"], exact=False)
            # a night is a night, whatever the data: there is no digest to compare it with
            attempt = Attempt(intent.body["run_key"], intent.body["attempt"], "")
            write_attempt(release, folder, attempt)
            commit = charged_once(ledger, intent, release, folder)
        remember_head(store / card.name, commit)
        found = Curated(release, folder, attempt.run_key, intent, commit, False, False, recovered)
        return Appended(found, leaf, _told(nightly, leaf, since, intent))


def _newest_fits(waiting: Sequence[Snapshot], card: Card) -> None:
    if not waiting:
        return
    if waiting[-1].kind != card.kind:
        raise RealDataError(f"{card.name}: the snapshot was ingested as {waiting[-1].kind}, the card says {card.kind}")
    of_this_card(waiting[-1], card)


def _intent(nightly: NightlyCounter, ledger: Ledger, leaf: int, since: int, place: str) -> tuple[Entry, Holder]:
    holder = Holder(secrets.token_hex(16), place)
    # no snapshot: which ones a night counted tells on which nights the log changed
    body = {
        "mechanisms": [describe_mechanism(m) for m in nightly.mechanisms(leaf)],
        "epsilon": None,
        "counter": nightly.told(leaf, since),
    }
    # priced inside the transaction: an attempt elsewhere may have died meanwhile
    charge = partial(nightly.price, leaf=leaf, since=since)
    return ledger.intent(nightly.card.name, nightly.night_key(leaf), charge, body, holder=holder), holder


def _draw(
    nightly: NightlyCounter, kept: KeptCounter, waiting: Sequence[Snapshot], noise: NoiseSource, intent: Entry
) -> Release:
    """Count who is new, add noise to the rows that are due, keep them, and read tonight's sum off all rows."""
    card, counter, told = nightly.card, nightly.counter, intent.body["counter"]
    leaf, since = told["night"], told["since"]
    sums, fresh = count_newcomers(waiting, card, kept.seen(hash_width(card)), kept.key)
    counts = Counts(card.name, card.kind, card.domain.dynamics, sums)
    mechanisms = nightly.mechanisms(leaf)
    tonight = np.concatenate([sums[m.table].reshape(-1) for m in mechanisms])
    check_slack(mechanisms, noise)
    blocks = NoiseBlocks(tuple(m.cells for m in mechanisms), tuple(m.variance or 0 for m in mechanisms), noise, counts)

    def leaves(t: int) -> Integers | None:
        return tonight if t == leaf else kept.leaf(t)

    due = [row for t in range(since, leaf + 1) for row in counter.rows(t)]
    rows = draw_rows(due, leaves, blocks)
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


def _folder(store: Path, nightly: NightlyCounter) -> Path:
    return store / nightly.card.name / "counters" / nightly.key[:24]


def _size(nightly: NightlyCounter) -> int:
    return sum(m.cells for m in nightly.privatizer.mechanisms)


def _idle(last: Night) -> str:
    of = f"night {last.leaf} of {last.intent.body['counter']['nights']}"
    return f"{of} is drawn already; what came in since waits for the next night. Nothing is charged"


def _told(nightly: NightlyCounter, leaf: int, since: int, intent: Entry) -> str:
    empty = f", with {leaf - since} empty before it" if leaf > since else ""
    return f"night {leaf} of {nightly.counter.steps}{empty}: charged ρ = {intent.body['rho']}"
