"""A step of a continual release: one date, one step of a counter, one charge for all of them (privacy.md §10).

A date that is run gets its step whatever arrived, an empty one where nothing did, so the list of steps does not depend
on the rows.  A committed step is never drawn again, even if the data have changed since.

Files of a continual release in the operator's store: exact step sums, hashes of the people counted, and noisy rows, in
``counters/<key>/`` beside the snapshots, folders 0700, files 0600, and out of reach of ``store purge``:

* ``leaf-<t>.<attempt>.npy``: the exact count tables of step t, cells that are not 0 only.  With them the rows of old
  snapshots are no longer needed.
* ``seen-<t>.<attempt>.npy``: hashes of the people (or episodes) that the step counted, under the random key in ``key``.
* ``rows-<t>.<attempt>.npy``: the released rows, each with its noise, never the noise by itself.
* ``note-<t>.<attempt>.json``: the number of the newest snapshot that is counted (secret: it shows when the log
  changed), and keyed digests of the leaf and seen files; the digest of the rows file is in the ledger.

A step's files are written before its release is renamed into place, and count once the ledger has its COMMIT.  All of
them are checked before anything is charged, and again whenever one is read.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
import hashlib
import hmac
import io
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pipeline.arrays import Hashes, Integers
from pipeline.declaration.card import Card, CardError
from pipeline.declaration.numbers import number
from pipeline.facts.promise import present
from pipeline.files import private_folder, remove_file, sync_all, write_file
from pipeline.ledger import account, attempts, looks
from pipeline.ledger.chain import Body, BudgetError, Entry, canonical_hash
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.steps import Step, committed_steps, counter_intents, counter_key, overtaken, step_price
from pipeline.logs.aggregate import Arms, count_new
from pipeline.logs.contribution_bounding import hash_width
from pipeline.logs.parts import Split
from pipeline.logs.store import Snapshot, numbers, snapshots, sound
from pipeline.logs.summing import HERE
from pipeline.privacy.continual import Factorisation, each_night
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import PLAYED, Mechanism, Release
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics import layout, private_sum
from pipeline.statistics.played import Allocation, PlayedLayout
from pipeline.transaction.drawing import WHOLE, Gate, key_of
from pipeline.transaction.release_once import check_snapshot, claim_fields, key_fields, keyed_by, pass_gate
from pipeline.transaction.transaction import Curated, OpenLineage, open_lineage, replay, transaction

_SUFFIXES = {"leaf": "npy", "seen": "npy", "rows": "npy", "note": "json"}


@dataclass(frozen=True)
class KeptSteps:
    """The folder of one continual release and the steps that the ledger has committed."""

    folder: Path
    counter: Factorisation
    steps: Sequence[Step]
    size: int

    @cached_property
    def _step_at(self) -> dict[int, Step]:
        return {t: s for s in self.steps for t in range(s.since, s.t + 1)}

    def settle(self) -> None:
        """Make the folder where there is none, delete files of overtaken attempts, check that all others exist.

        Raises BudgetError if a committed step's file, or the key of the hashes, is gone, or is not what was written.
        """
        fresh = not self.steps
        if fresh:
            private_folder(private_folder(self.folder.parent) / self.folder.name)
        elif not self.folder.is_dir():
            raise BudgetError(self._missing_message("its folder"))
        needed = {_name(kind, s.t, s.attempt) for s in self.steps for kind in _SUFFIXES}
        present = {p.name for suffix in ("npy", "json") for p in self.folder.glob(f"*-*.{suffix}")}
        last = self.steps[-1].t if self.steps else 0
        for name in present - needed:
            # a draw of a later step may be alive elsewhere, or wait for recovery
            if int(name.split("-")[1].split(".")[0]) <= last:
                remove_file(self.folder / name)
        if missing := sorted(needed - present):
            raise BudgetError(self._missing_message(missing[0]))
        if fresh:
            self._write({"key": secrets.token_bytes(32)})
        elif not (self.folder / "key").is_file():
            raise BudgetError(self._missing_message("key"))
        for step in self.steps:
            self._load(step, "leaf")
            self._load(step, "seen")
            self._load_rows(step)

    @property
    def key(self) -> bytes:
        """The random key of the hashes."""
        return (self.folder / "key").read_bytes()

    @property
    def snapshot(self) -> int:
        """Number of the newest snapshot that is counted; 0 before the first step."""
        return int(self._note(self.steps[-1])["snapshot"]) if self.steps else 0

    def seen(self, width: int) -> Hashes:
        """Hashes of all people or episodes counted so far.

        Returns ``(n, width)`` uint64.
        """
        hashes = [self._load(s, "seen") for s in self.steps]
        return np.concatenate([np.empty((0, width), dtype=np.uint64), *hashes])

    def exact(self, t: int) -> Integers | None:
        """Exact sums ``(size,)`` of step ``t``; None where no person was counted in it."""
        step = self._step_at.get(t)
        if step is None or step.t != t:
            return None
        cells, counts = self._load(step, "leaf")
        x = np.zeros(self.size, dtype=np.int64)
        x[cells] = counts
        return x

    def rows(self, t: int) -> Integers:
        """Noisy rows that were released for step ``t``.

        Returns ``(number of rows of t, size)`` int64.
        Raises BudgetError if they are not those that were committed.
        """
        step = self._step_at[t]
        drawn = self._load_rows(step)
        before = sum(len(self.counter.rows(k)) for k in range(step.since, t))
        return drawn[before : before + len(self.counter.rows(t))]

    def write(
        self, t: int, attempt: int, exact: Integers, seen: Hashes, rows: Integers, snapshot: int | None = None
    ) -> None:
        """Put a step's files on the disk; they count once the step is committed.

        ``exact``, ``seen``, ``rows``: see :meth:`exact`, :meth:`seen` (of this step alone) and :meth:`rows` (of ``since
        .. t``).
        ``snapshot``: number of the newest snapshot that is counted; None where nothing came in since the step before.
        """
        cells = np.flatnonzero(exact)
        files = {kind: _bytes(a) for kind, a in (("leaf", np.stack([cells, exact[cells]])), ("seen", seen))}
        digests = {kind: self._mac(_name(kind, t, attempt), content) for kind, content in files.items()}
        note = json.dumps({"snapshot": self.snapshot if snapshot is None else snapshot, **digests})
        signed = {"note": note, "digest": self._mac(_name("note", t, attempt), note.encode())}
        files |= {"rows": _bytes(rows), "note": json.dumps(signed).encode()}
        self._write({_name(kind, t, attempt): content for kind, content in files.items()})

    def _write(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            write_file(self.folder / name, content, private=True)
        sync_all(self.folder, files)

    def _load(self, step: Step, kind: Literal["leaf", "seen"]) -> Any:
        """The array of a file, checked against the digest in the note of its step."""
        path, digest = self.folder / _name(kind, step.t, step.attempt), self._note(step)[kind]
        content = path.read_bytes()
        if not hmac.compare_digest(self._mac(path.name, content), str(digest)):
            raise BudgetError(self._edited_message(path))
        return np.load(io.BytesIO(content))

    def _note(self, step: Step) -> Body:
        """The newest snapshot counted at a step, and keyed digests (hex) of two of its files."""
        path = self.folder / _name("note", step.t, step.attempt)
        try:
            signed: dict[str, str] = json.loads(path.read_bytes())
            note = signed["note"].encode()
            if not hmac.compare_digest(self._mac(path.name, note), signed["digest"]):
                raise BudgetError(self._edited_message(path))
            return json.loads(note)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BudgetError(self._edited_message(path)) from None

    def _load_rows(self, step: Step) -> Integers:
        path = self.folder / _name("rows", step.t, step.attempt)
        try:
            rows: Integers = np.load(path)
        except (ValueError, EOFError):
            raise BudgetError(self._edited_message(path)) from None
        if digest(rows) != step.commit.body["drawn_sha256"]:
            raise BudgetError(f"{path} is not what entry {step.commit.seq} committed: edited. Restore the store")
        return rows

    def _mac(self, name: str, content: bytes) -> str:
        return hmac.new(self.key, name.encode() + b"\0" + content, "sha256").hexdigest()

    @staticmethod
    def _edited_message(path: Path) -> str:
        return f"{path} is not what its night wrote: edited or damaged. Restore the store"

    def _missing_message(self, name: str) -> str:
        return (
            f"{self.folder}: {name} of a counter that has begun is gone: restore the store. Without it nobody knows "
            "who was counted, and nothing starts anew"
        )


def digest(rows: Integers) -> str:
    """Sha256 of released rows, as COMMIT and release.json name it.

    ``rows`` ``(number of rows, cells)``: int64.
    """
    return hashlib.sha256(np.ascontiguousarray(rows, dtype="<i8").tobytes()).hexdigest()


def _bytes(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _name(kind: str, t: int, attempt: int) -> str:
    return f"{kind}-{t:05d}.{attempt}.{_SUFFIXES[kind]}"


@dataclass(frozen=True)
class ContinualRelease:
    """A declared continual release: count tables of the people of a card, a counter over T dates, and its first date.

    ``first``: the date of step 1.
    ``gate``: must pass before the counter begins, and is charged; None: there is none.
    ``played``: returns of each step alone, under the policy in use and under practice; None: none are released.
    ``play``: the people who met the policy in use; None: there are none.
    ``closed``: whether an episode is counted on the night that delivers its end.
    """

    card: Card
    sums: private_sum.PrivateSum
    first: date
    gate: Gate | None = None
    played: private_sum.PrivateSum | None = None
    play: Allocation | None = None
    closed: bool = False

    @property
    def counter(self) -> Factorisation:
        """The rows of noise that are drawn at each of the T steps."""
        assert isinstance(self.sums.time, Factorisation)
        return self.sums.time

    @property
    def size(self) -> int:
        """Cells of all tables that later steps read."""
        return sum(m.cells for m in self.sums.mechanisms)

    @cached_property
    def key(self) -> str:
        counter, first = self.counter, self.first.isoformat()
        dates = {"kind": counter.kind, "nights": counter.steps, "first": first, **self._chosen}
        stated = {"counter": dates, "mechanisms": [describe_mechanism(m) for m in self.mechanisms(1)]}
        return counter_key(self.card.name, self.card.domain_hash(), stated)

    @property
    def _chosen(self) -> Body:
        return present(window=self.counter.window, episodes="closed" if self.closed else None)

    def step_key(self, t: int) -> str:
        """Hex key of the release of step 1 .. T; no snapshot and no digest of data is in it."""
        return canonical_hash([self.key, t])

    def step_on(self, day: date) -> int:
        """Number of the step of a date, counted from 1.

        Raises CardError if it is before the first.
        Raises BudgetError if it is after the last: its noise is not paid for.
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
        """Number of dates from the first to this one, unchecked."""
        return (day - self.first).days + 1

    @property
    def last(self) -> date:
        """The last date."""
        return self.first + timedelta(days=self.counter.steps - 1)

    def mechanisms(self, t: int) -> tuple[Mechanism, ...]:
        """Mechanisms with the noise of the sums at step t."""
        return self.sums.at(t) + (() if self.played is None else self.played.at(t))

    def admit(self, noise: NoiseSource) -> None:
        """Refuse, before any row is read, what would not be private on real data."""
        for summed in (self.sums, *(() if self.played is None else (self.played,))):
            summed.admit(noise)

    def intent_fields(self, t: int, since: int) -> Body:
        """Fields of the INTENT of a step; ``t`` and ``since`` as in :meth:`describe`."""
        described = [describe_mechanism(m) for m in self.mechanisms(t)]
        return {"mechanisms": described, "epsilon": None, "counter": self.describe(t, since)}

    def describe(self, t: int, since: int) -> Body:
        """The ``counter`` of INTENT, release and certificate at a step.

        ``t``, ``since``: the steps ``since .. t`` become known, all but the last of them empty.
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
            **self._chosen,
            **present(play=None if self.played is None else self.play),
        }

    def price(self, entries: Sequence[Entry], t: int, since: int) -> Fraction:
        """Charge of a step, an exact zCDP rho.

        Raises BudgetError if another store committed one of these steps meanwhile.
        """
        counter = self.describe(t, since)
        if (other := overtaken(entries, self.card.name, counter)) is not None:
            raise BudgetError(
                f"{self.card.name}: night {other.t} was committed meanwhile (entry {other.commit.seq}), from "
                "another store; one store keeps a counter. Nothing was read"
            )
        before = counter_intents(entries, self.card.name, self.key)
        return step_price(entries, before, counter, self.mechanisms(t))


def append_step(
    declared: ContinualRelease,
    ledger: Ledger,
    store: Path,
    noise: NoiseSource,
    day: date,
    *,
    scheduled: bool = False,
    recipe: str = "",
) -> tuple[Curated, str]:
    """Append the step of ``day``: count the people who are new since the last step; there may be none.

    Where the date has its step already, the last step's release is replayed: nothing is drawn, nothing is charged.

    Returns the release, and a sentence on the step that it is of.
    Raises GateError if the gate does not let the counter begin.
    Raises BudgetError if the dates are over, the cap does not allow the counter, or a file of it is gone or edited; no
    row was read.
    Raises CardError if the date is before the first, nothing was ever ingested, or the newest snapshot is of another
    card.
    Raises RealDataError if the data is real and the noise is not the operating system's.
    """
    card = declared.card
    ledger.require(card)
    declared.admit(noise)
    with open_lineage(card.name, ledger, store) as lineage:
        entries = ledger.entries()
        steps, t = committed_steps(entries, card.name, declared.key), declared.step_on(day)
        folder = store / card.name / "counters" / declared.key[:24]
        if steps and t <= steps[-1].t:
            return replay(lineage, card, steps[-1].commit, None), _idle(steps[-1])
        since = steps[-1].t + 1 if steps else 1
        if not (steps or numbers(store, card.name)):
            raise CardError(f"{card.name}: no snapshot; run `reticent ingest` on its card first")
        kept = KeptSteps(folder, declared.counter, steps, declared.size)
        kept.settle()
        waiting = snapshots(store, card.name, after=kept.snapshot)
        if waiting:
            check_snapshot(waiting[-1], card, waiting[-1].number)
        # a lost key is refused before anything is charged
        key_mark = key_fields(lineage) if account.reserve_of(entries, card.name) else {}
        split = keyed_by(lineage, HERE).split if key_mark else None
        # of what came in under this very card, all that can be read
        waiting = sound([s for s in waiting if (s.domain_hash, s.kind) == (card.domain_hash(), card.kind)])
        claimed, price = claim_fields(entries, card, waiting), partial(declared.price, t=t, since=since)
        gate = _begin(lineage, declared, waiting, noise, claimed, price, scheduled=scheduled)
        named = ({looks.RECIPE: recipe} if recipe else {}) | present(gate=gate)
        fields = {**claimed, **key_mark, **named, **declared.intent_fields(t, since)}
        parted = None if split is None else split(Fraction(0))
        # priced inside the ledger's transaction: an attempt elsewhere may have died meanwhile
        with transaction(lineage, declared.step_key(t), price, fields, WHOLE, noise) as attempt:
            draw = partial(draw_step, declared, kept, waiting, parted, attempt.intent)
            # a replay of a step does not compare its data: no digest
            curated = attempt.commit(attempt.stage(WHOLE[0], draw), data_digest="")
        curated = replace(curated, gate=attempts.passed_gate(ledger.entries(), attempt.intent))
        return curated, _charged(declared, t, since, attempt.intent)


def draw_step(
    declared: ContinualRelease,
    kept: KeptSteps,
    waiting: Sequence[Snapshot],
    split: Split | None,
    intent: Entry,
    noise: NoiseSource,
) -> Release:
    """Count the people who are new, draw the rows that are due, write the files of the step, and sum up all rows.

    ``split``: the people whom the ledger reserves, who are in no leaf; None: there are none.
    """
    card, counter, time, summed = declared.card, intent.body["counter"], declared.counter, declared.sums
    night, steps = counter["night"], range(counter["since"], counter["night"] + 1)
    arms = None if declared.played is None else Arms(PlayedLayout(card), counter.get("play"))
    tables, fresh = count_new(waiting, card, kept.seen(hash_width(card)), kept.key, split, arms, whole=declared.closed)
    new = np.concatenate([tables[m.table].reshape(-1) for m in summed.mechanisms])
    sums = layout.ExactSums(card.name, card.kind, card.domain.dynamics, tables)
    due = [row for t in steps for row in time.rows(t)]
    drawn = summed.draw_rows(due, lambda t: new if t == night else kept.exact(t), noise, sums)
    ends = np.cumsum([len(time.rows(t)) for t in steps])[:-1]
    drawn_at: dict[int, Integers] = dict(zip(steps, np.split(drawn, ends), strict=True))
    total = np.rint(time.total(night, lambda t: drawn_at[t] if t in drawn_at else kept.rows(t))).astype(np.int64)
    if declared.played is not None:
        played = tables[PLAYED].reshape(-1)
        row = declared.played.draw_rows(each_night(time.steps).rows(night), {night: played}.get, noise, sums)
        total = np.concatenate([total, row[0]])
    mechanisms = declared.mechanisms(night)
    pieces = np.split(total, np.cumsum([m.cells for m in mechanisms])[:-1])
    kept.write(night, intent.body["attempt"], new, fresh, drawn, waiting[-1].number if waiting else None)
    return Release(
        dataset=card.name,
        data_kind=sums.data_kind,
        dynamics=sums.dynamics,
        mechanisms=mechanisms,
        tables={m.table: x.reshape(m.shape) for m, x in zip(mechanisms, pieces, strict=True)},
        noise=noise.name,
        sampler=noise.sampler,
        counter={**counter, "drawn_sha256": digest(drawn)},
    )


def _begin(
    lineage: OpenLineage,
    declared: ContinualRelease,
    waiting: Sequence[Snapshot],
    noise: NoiseSource,
    fields: Body,
    price: Callable[[Sequence[Entry]], Fraction],
    *,
    scheduled: bool,
) -> int | None:
    """Number of the COMMIT of the counter's gate, which is drawn now if this is its first step; None: there is none."""
    card, gate, entries = declared.card, declared.gate, lineage.ledger.entries()
    if begun := counter_intents(entries, card.name, declared.key):
        return begun[0].body.get("gate")
    if gate is None or not waiting:
        return None
    snapshot = waiting[-1]
    if scheduled:
        keys = {e.body["run_key"] for e in entries if e.kind == "COMMIT" and e.lineage == card.name}
        snapshot = next((s for s in reversed(waiting) if key_of(card, s.number, gate) in keys), snapshot)
    passed = pass_gate(lineage, snapshot, gate, noise, fields, (price(entries), {}))
    return None if passed is None else passed.commit.seq


def _idle(last: Step) -> str:
    night = f"night {last.t} of {last.intent.body['counter']['nights']}"
    return f"{night} is drawn already; what came in since waits for the next night. Nothing is charged"


def _charged(declared: ContinualRelease, t: int, since: int, intent: Entry) -> str:
    empty = f", with {t - since} empty before it" if t > since else ""
    rho = number(float(Fraction(intent.body["rho"])), toward="up")
    return f"night {t} of {declared.counter.steps}{empty}: charged ρ = {rho}"
