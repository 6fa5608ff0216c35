"""A step of a continual release: one date, one step of a counter, one charge for all of them (privacy.md §10).

A date that is run gets its step whatever arrived, an empty one where nothing did, so the list of steps says nothing
about the rows.  A committed step is never drawn again, even if the data have changed since.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from functools import partial
from pathlib import Path

from pipeline.declaration.card import Card, CardError
from pipeline.files import remove_tree
from pipeline.ledger.attempts import passed_gate
from pipeline.ledger.chain import Body, Entry
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.limits import look_told
from pipeline.ledger.steps import (
    Step,
    committed_steps,
    counter_intents,
)
from pipeline.logs.store import Snapshot, numbers, snapshots, sound
from pipeline.logs.summing import HERE
from pipeline.privacy.epochs import SideBySide
from pipeline.privacy.noise import NoiseSource
from pipeline.transaction.continual_draw import Night
from pipeline.transaction.continual_release import ContinualRelease
from pipeline.transaction.gate import check_snapshot, claims_told
from pipeline.transaction.kept_steps import KeptSteps
from pipeline.transaction.release_once import key_of, keyed_by, pass_gate, replay
from pipeline.transaction.transaction import Curated, OpenLineage, open_lineage, transaction


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


def append_step(
    declared: ContinualRelease,
    ledger: Ledger,
    store: Path,
    noise: NoiseSource,
    day: date,
    *,
    scheduled: bool = False,
) -> Appended:
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
    scheduled
        Whether nobody asked: a gate that stopped the counter once then stays shut, whatever came in since.

    Raises
    ------
    GateError
        If the gate does not let the counter begin.
    BudgetError
        If the dates are over, the cap does not allow the counter, or what it keeps is gone or edited; no row was read.
    CardError
        If the date is before the first, nothing was ever ingested, or the newest snapshot is of another card.
    RealDataError
        If the data is real and the noise is not the operating system's.
    """
    card = declared.card
    ledger.require(card)
    declared.admit(noise)
    with open_lineage(card.name, ledger, store) as lineage:
        entries = ledger.entries()
        steps, t = committed_steps(entries, card.name, declared.key), declared.step_on(day)
        folder = store / card.name / "counters" / declared.key[:24]
        # what a killed night left of those who evaluated
        remove_tree(folder / "evaluate")
        if steps and t <= steps[-1].t:
            return Appended(replay(lineage, card, steps[-1].commit, None), steps[-1].t, _idle(steps[-1]))
        since = steps[-1].t + 1 if steps else 1
        if not (steps or numbers(store, card.name)):
            raise CardError(f"{card.name}: no snapshot; run `reticent ingest` on its card first")
        kept = KeptSteps(folder, SideBySide([*declared.times.values()]), steps, declared.size)
        kept.settle()
        waiting = snapshots(store, card.name, after=kept.snapshot)
        if waiting:
            check_snapshot(waiting[-1], card, waiting[-1].number)
        asked, resources = declared.evaluated_at(t, entries), keyed_by(lineage, HERE)
        apart = [] if asked is None else _of_card(snapshots(store, card.name, after=kept.evaluated), card)
        # what an epoch was opened with stands as it was released then
        last = replay(lineage, card, steps[-1].commit, None).release if steps and not declared.opens(since, t) else None
        night = Night(declared, kept, _of_card(waiting, card), asked, apart, resources, last)
        read = [*apart, *night.waiting]
        claimed, price = claims_told(entries, card, read), partial(declared.price, t=t, since=since)
        gate = _begin(lineage, declared, night.waiting, noise, claimed, price, scheduled=scheduled)
        told = {
            **claimed,
            **({} if gate is None else {"gate": gate}),
            **declared.told(t, since, asked),
        }
        key = declared.step_key(t)
        told |= look_told(ledger.entries(), card.name, key, told)
        stages = [*declared.sums.stages, *({} if asked is None else asked.answers)]
        # priced inside the ledger's transaction: an attempt elsewhere may have died meanwhile
        with transaction(lineage, key, price, told, stages, noise) as attempt, night:
            release = night.count(attempt.stage, attempt.intent)
            if asked is not None:
                release = replace(night.ask(release, attempt.stage), look=told["look"])
            # a step is a step, whatever the data: there is no digest to compare it with
            found = attempt.commit(release, data_digest="")
        found = replace(found, gate=passed_gate(ledger.entries(), attempt.intent))
        return Appended(found, t, _told(declared, t, since, attempt.intent))


def _of_card(waiting: Sequence[Snapshot], card: Card) -> list[Snapshot]:
    """What came in under this very card, and can be read."""
    return sound([s for s in waiting if (s.domain_hash, s.kind) == (card.domain_hash(), card.kind)])


def _begin(
    lineage: OpenLineage,
    declared: ContinualRelease,
    waiting: Sequence[Snapshot],
    noise: NoiseSource,
    told: Body,
    price: Callable[[Sequence[Entry]], Fraction],
    *,
    scheduled: bool,
) -> int | None:
    """The COMMIT of the gate that let the counter begin, asked now if this is its first step; None: there is none."""
    card, gate, entries = declared.card, declared.gate, lineage.ledger.entries()
    if begun := counter_intents(entries, card.name, declared.key):
        return begun[0].body.get("gate")
    if gate is None or not waiting:
        return None
    asked = waiting[-1]
    if scheduled:
        keys = {e.body["run_key"] for e in entries if e.kind == "COMMIT" and e.lineage == card.name}
        asked = next((s for s in reversed(waiting) if key_of(card, s.number, gate) in keys), asked)
    passed = pass_gate(lineage, card, asked, gate, noise, told, (price(entries), {}))
    return None if passed is None else passed.commit.seq


def _idle(last: Step) -> str:
    of = f"night {last.t} of {last.intent.body['counter']['nights']}"
    return f"{of} is drawn already; what came in since waits for the next night. Nothing is charged"


def _told(declared: ContinualRelease, t: int, since: int, intent: Entry) -> str:
    empty = f", with {t - since} empty before it" if t > since else ""
    return f"night {t} of {declared.counter.steps}{empty}: charged ρ = {intent.body['rho']}"
