"""One release transaction: charge, draw, write and commit, each once, whatever dies in between (privacy.md §10).

=========  ==========================================  ============================================================
state      on disk                                     what the next run of the lineage does if this one died there
=========  ==========================================  ============================================================
idle       nothing new                                 begins anew; nothing was charged
INTENT     the charge, and a lease                     takes the charge over: nothing was drawn under it, nor will be
leased     the same, the lease is renewed, rows read   the same
DRAW       the same, and that noise is drawn now       draws under a charge of its own; the old one stays spent
drawn      the same, perhaps an unfinished folder      deletes the folder, then the same
renamed    the charge and the whole release            commits it late: nothing is drawn or charged again
COMMIT     the charge, the release and its COMMIT      replays it at no cost
=========  ==========================================  ============================================================

A run counts as dead once the store's lock is free (same store) or its lease ran out (another store).  Nothing is drawn
before INTENT: :func:`transaction` charges before its block is entered.  DRAW is on disk before a noise source answers
for the first time.  What follows a COMMIT is free post-processing; when it is published, the ledger vouches for its
files (PUBLISH), once for the same files.

A lineage's place in the operator's store: lock, newest ledger entry seen, its committed releases.

Recovery after runs that died: a finished release is committed, everything else is deleted and stays spent.
"""

import fcntl
import hashlib
import json
import os
import platform
import re
import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from pipeline.declaration.card import AnyCard
from pipeline.files import make_folder, remove_tree, sync_all, whole_file, whole_folder, write_file
from pipeline.ledger.account import commit_of
from pipeline.ledger.attempts import Holder, Passed, passed_gate
from pipeline.ledger.chain import AttemptLostError, Body, BudgetError, Entry, Head, canonical, lacking
from pipeline.ledger.ledger import Ledger, Price, was_overtaken
from pipeline.privacy.noise import AnnouncedNoise, NoiseSource
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import describe, describe_mechanism, read_release, release_files, sha256_file

_PARTIAL = re.compile(r"(?P<key>[0-9a-f]{24})\.attempt-(?P<attempt>\d+)")


@dataclass(frozen=True)
class Attempt:
    """The draw that a folder holds.

    ``run_key``, ``attempt``: hex key of the release, and the number of the attempt at it, counted from 1.
    ``data_digest``: sha256 of the rows' files; for the operator alone, as it would confirm guesses.
    """

    run_key: str
    attempt: int
    data_digest: str


def folder_of(store: Path, lineage: str, run_key: str, *, exact: bool) -> Path:
    """Folder of the release of a key.

    ``run_key``: 64 hex digits.
    ``exact``: whether it has no noise: exact tables of a simulation are no private release.
    """
    return store / lineage / "releases" / f"{'exact-' if exact else ''}{run_key[:24]}"


def drawn_folders(store: Path, lineage: str) -> list[Path]:
    """Folders of finished private releases; the exact tables of a simulation are not among them."""
    files = sorted((store / lineage / "releases").glob("*/attempt.json"))
    return [p.parent for p in files if re.fullmatch(r"[0-9a-f]{24}", p.parent.name)]


def unfinished(store: Path, lineage: str) -> list[tuple[Path, str, int]]:
    """Folders of draws that were never finished, with the beginning of their key and their attempt."""
    folders = [(p, _PARTIAL.fullmatch(p.name)) for p in sorted((store / lineage / "releases").glob("*.attempt-*"))]
    return [(p, m["key"], int(m["attempt"])) for p, m in folders if m is not None]


def read_attempt(folder: Path) -> Attempt:
    """Read ``attempt.json`` of a folder.

    Raises BudgetError if that cannot be read.
    """
    try:
        facts: Any = json.loads((folder / "attempt.json").read_text(encoding="utf-8"))
        return Attempt(str(facts["run_key"]), int(facts["attempt"]), str(facts["data_digest"]))
    except (OSError, ValueError, KeyError, TypeError):
        raise BudgetError(f"{folder / 'attempt.json'} is damaged; restore the store") from None


def write_attempt(release: Release, folder: Path, attempt: Attempt) -> None:
    """Write a release beside and rename it: a folder under its final name is whole.

    Raises AttemptLostError if another attempt's release is there already: a release that is there is never replaced.
    """
    exact, beside = release.noise == "none", f"{folder.name}.attempt-{attempt.attempt}"
    try:
        with whole_folder(folder, private=True, over=exact, beside=beside) as partial:
            for name, content in release_files(release).items():
                write_file(partial / name, content)
            write_file(partial / "attempt.json", json.dumps(asdict(attempt)))
    except OSError:
        if exact or not folder.exists() or read_attempt(folder) == attempt:
            raise
        raise AttemptLostError(f"{release.dataset}: another attempt drew this release first; its spend stays") from None


_LOCK = ".releasing"


@contextmanager
def one_at_a_time(folder: Path, *, wait: bool = True) -> Generator[str]:
    """Hold a folder's lock, which dies with its process; a second holder waits.

    ``folder``: a lineage's folder in the store, or the folder of runs; made where it is missing, mode 0700.
    Yields a name of this place: a random token in the store, hashed with the machine's name.  While the lock is held,
    no attempt that drew here is alive; a copy of the store on another machine is another place.
    Raises BlockingIOError if ``wait`` is not set and another run holds it.
    """
    make_folder(folder, 0o700)
    with os.fdopen(os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600), "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        token = lock.read()
        if len(token) != 32:
            token = secrets.token_hex(16)
            write_file(folder / _LOCK, token)
            # a lease that a power cut leaves behind must be known as this place's own
            sync_all(folder, [_LOCK])
        yield hashlib.sha256(f"{token} {platform.node()}".encode()).hexdigest()[:32]


def remember_head(folder: Path, entry: Entry) -> None:
    """Note the newest ledger entry this store has seen, so that a cut or restored ledger is noticed."""
    with whole_file(folder / "ledger-head.json", private=True) as fresh:
        write_file(fresh, json.dumps({"seq": entry.seq, "hash": entry.hash}))


def refuse_old_ledger(lineage: str, ledger: Ledger, store: Path) -> None:
    """Refuse a ledger that is older than this store: one that lacks an entry or a release seen here.

    Raises BudgetError if the ledger was cut, replaced or restored from an old copy; nothing was read.
    """
    entries = ledger.entries()
    head = store / lineage / "ledger-head.json"
    if head.is_file() and (lost := lacking(entries, [_read(head)])):
        raise BudgetError(
            f"{lineage}: ledger {ledger.where} lacks entry {lost.seq}, which this store has seen: it was cut "
            "or is an old copy. Restore the newest; nothing was read"
        )
    intents = {(e.body["run_key"], e.body["attempt"]) for e in entries if e.lineage == lineage and e.kind == "INTENT"}
    drawn = [(a.run_key, a.attempt) for a in map(read_attempt, drawn_folders(store, lineage))]
    begun = [(key, attempt) for _, key, attempt in unfinished(store, lineage)]
    if not intents.issuperset(drawn) or not {(k[:24], n) for k, n in intents}.issuperset(begun):
        raise BudgetError(
            f"{lineage}: a release is in the store but not in the ledger: an old ledger? Restore the newest"
        )


def refuse_lost_ledger(lineage: str, where: Path | str, store: Path) -> None:
    """Refuse to go on, or to begin anew, where this store has seen a ledger file that is gone.

    Raises BudgetError if so: a new ledger would start at zero.
    """
    head = store / lineage / "ledger-head.json"
    if head.is_file() and not (isinstance(where, str) and "://" in where) and not Path(where).exists():
        raise BudgetError(
            f"{lineage}: ledger {where} is gone, but this store has seen its entry {_read(head).seq}. Restore "
            "the newest copy; nothing was read, and nothing starts at zero"
        )


def _read(path: Path) -> Head:
    try:
        return Head.of(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        raise BudgetError(f"{path} is damaged; restore the store") from None


@dataclass(frozen=True)
class Recovered:
    """Releases of dead runs that were committed late, and the number of folders deleted."""

    committed: tuple[Entry, ...] = ()
    deleted: int = 0

    def __str__(self) -> str:
        parts = [f"committed attempt {e.body['attempt']} at {e.body['run_key'][:24]}" for e in self.committed]
        if self.deleted:
            parts.append(f"deleted {self.deleted} unfinished or beaten draw{'s' if self.deleted > 1 else ''}")
        return f"recovered after a crash: {'; '.join(parts)}; what they cost stays spent" if parts else ""


def recover(lineage: str, ledger: Ledger, store: Path, place: str) -> Recovered:
    """Commit or delete the folders of dead attempts; the caller holds the store's lock, and the ledger is no old one.

    A release is committed only if its folder names its key and attempt, that INTENT is there and describes it, no
    COMMIT has the key, and the attempt is dead (privacy.md §0.1-15).  The folders of a living attempt are left.

    Raises BudgetError if an uncommitted release cannot be read, or is not what its INTENT describes.
    """
    entries = ledger.entries(lineage)
    by_attempt = {(e.body["run_key"][:24], e.body["attempt"]): e for e in entries if e.kind == "INTENT"}
    committed: list[Entry] = []
    deleted = 0
    for folder in drawn_folders(store, lineage):
        drawn = read_attempt(folder)
        intent, commit = by_attempt[drawn.run_key[:24], drawn.attempt], commit_of(entries, lineage, drawn.run_key)
        if (commit is not None and commit.body["intent"] == intent.seq) or ledger.alive(intent, place):
            continue
        if commit is None and not was_overtaken(entries, intent):
            committed.append(ledger.commit(intent, commit_facts(_described(folder, intent), folder)))
            remember_head(store / lineage, committed[-1])
        else:
            remove_tree(folder)
            deleted += 1
    for folder, key, attempt in unfinished(store, lineage):
        if not ledger.alive(by_attempt[key, attempt], place):
            remove_tree(folder)
            deleted += 1
    return Recovered(tuple(committed), deleted)


def commit_facts(release: Release, folder: Path) -> Body:
    """Fields of the COMMIT of a release on disk; its mechanisms, where scales followed earlier results."""
    drawn = {} if release.counter is None else {"drawn_sha256": release.counter["drawn_sha256"]}
    used = {} if release.joint is None else {"mechanisms": [describe_mechanism(m) for m in release.mechanisms]}
    return {
        "release_sha256": sha256_file(folder / "release.parquet"),
        "noise": release.noise,
        "sampler": release.sampler,
        **drawn,
        **used,
    }


def fits(release: Release, intent: Entry, commit: Entry | None = None) -> bool:
    """Whether the description of a release agrees with its charge; adaptive scales, with its COMMIT.

    ``intent``, ``commit``: its entries; None where it is not committed yet.
    """
    if (release.relation, release.trust_model) != ("replace", "central"):
        return False
    described = json.loads(canonical(describe(release)))
    counter = {k: v for k, v in described.get("counter", {}).items() if k != "drawn_sha256"}
    if described.get("joint") != intent.body.get("joint") or counter != intent.body.get("counter", {}):
        return False
    charged = intent.body.get("mechanisms") or (commit.body["mechanisms"] if commit is not None else None)
    if charged is not None:
        return described["mechanisms"] == charged
    planned = {table for call in intent.body["planned_calls"] for table in call["tables"]}
    # calls that do not depend on earlier results were described in full: those of the evaluation
    fixed = [call for call in intent.body["planned_calls"] if "table" in call]
    expected = [{k: v for k, v in call.items() if k not in ("tables", "adaptive")} for call in fixed]
    return {m.table for m in release.mechanisms} <= planned and all(m in described["mechanisms"] for m in expected)


def _described(folder: Path, intent: Entry) -> Release:
    try:
        release = read_release(folder)
    except ValueError:
        release = None
    if release is None or release.dataset != intent.lineage or not fits(release, intent):
        raise BudgetError(
            f"{folder}: an uncommitted release that cannot be read or is not what entry {intent.seq} describes: it was "
            "edited. Move it away; its cost stays spent"
        )
    return release


T = TypeVar("T")


@dataclass(frozen=True)
class OpenLineage:
    """A lineage ready for a release: its store is locked, its ledger is no old copy, dead runs are settled."""

    name: str
    ledger: Ledger
    store: Path
    place: str
    recovered: Recovered


@dataclass(frozen=True)
class Curated:
    """A release on disk, with its entries in the ledger.

    ``folder``: in the store.
    ``intent``, ``commit``: the ledger's entries of it; None for exact tables of synthetic data, which are never
    charged.
    ``stale``: the snapshot's bytes have changed since the release was drawn from it.
    ``gate``: that was charged and passed before; None where there was none.
    """

    release: Release
    folder: Path
    run_key: str
    intent: Entry | None
    commit: Entry | None
    replayed: bool
    stale: bool
    recovered: Recovered
    gate: Passed | None = None


def write_exact(lineage: OpenLineage, run_key: str, release: Release, data_digest: str) -> Curated:
    """Write the exact tables of simulated data: nothing is private, so nothing is charged and they may change."""
    folder = folder_of(lineage.store, lineage.name, run_key, exact=True)
    write_attempt(release, folder, Attempt(run_key, 1, data_digest))
    return Curated(release, folder, run_key, None, None, False, False, lineage.recovered)


def replay(lineage: OpenLineage, card: AnyCard, commit: Entry, data_digest: str | None) -> Curated:
    """The committed release as it lies in the store, checked against its entries; nothing is drawn or charged.

    ``data_digest``: of the rows' files now; None where they are gone, and for a step of a continual release.
    Raises BudgetError if the release is gone, damaged, or not what its entries say.
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
    described = (release.dataset, release.data_kind, release.noise, release.sampler)
    charged = (card.name, card.kind, commit.body["noise"], commit.body["sampler"])
    if not fits(release, intent, commit) or described != charged:
        raise BudgetError(
            f"{card.name}: release.json does not match its ledger entries {intent.seq} and {commit.seq}: edited"
        )
    stale = data_digest is not None and drawn.data_digest != data_digest
    gate = passed_gate(entries, intent)
    return Curated(release, folder, key, intent, commit, True, stale, lineage.recovered, gate)


class State(Enum):
    """State of a transaction; see the table above."""

    IDLE = "idle"
    INTENT = "INTENT"
    LEASED = "leased"
    DRAWING = "DRAW"
    DRAWN = "drawn"
    RENAMED = "renamed"
    COMMITTED = "COMMIT"


@contextmanager
def open_lineage(name: str, ledger: Ledger, store: Path) -> Generator[OpenLineage]:
    """Lock a lineage's store, check that its ledger is no old one, and settle dead runs.

    Yields the lineage; its lock is held until the block is left.
    Raises BudgetError if the ledger was cut or is an old copy, or a dead run's folder was edited; nothing was read.
    """
    with one_at_a_time(store / name) as place:
        refuse_old_ledger(name, ledger, store)
        yield OpenLineage(name, ledger, store, place, recover(name, ledger, store, place))


@contextmanager
def transaction(
    lineage: OpenLineage, run_key: str, rho: Fraction | Price, fields: Body, stages: Sequence[str], noise: NoiseSource
) -> "Generator[Transaction]":
    """Charge a release, then enter the block, which draws the stages and commits.

    ``lineage``, ``run_key``: from :func:`open_lineage`, and the hex key of the release.
    Yields the leased transaction.
    Raises BudgetError if the cap does not allow it, the key has its COMMIT, or another attempt at it is alive; nothing
    was read.
    Raises RuntimeError if the block is left without an error and without a COMMIT.
    """
    t = Transaction(lineage, run_key, tuple(stages), noise)
    with t.charge(rho, fields):
        yield t


class Transaction:
    """One attempt at a release, from idle to COMMIT.  Made by :func:`transaction`; ``stage`` draws only when leased."""

    def __init__(self, lineage: OpenLineage, run_key: str, stages: tuple[str, ...], noise: NoiseSource) -> None:
        self.lineage, self.run_key = lineage, run_key
        self._noise = AnnouncedNoise(noise, self._announce)
        self.state = State.IDLE
        self._stages_left = list(stages)
        self._intent: Entry | None = None
        self._commit: Entry | None = None

    @property
    def intent(self) -> Entry:
        """The entry that paid for this attempt; a RuntimeError before it is on disk."""
        if self._intent is None:
            raise RuntimeError("this transaction is not charged yet")
        return self._intent

    @contextmanager
    def charge(self, rho: Fraction | Price, fields: Body) -> Generator[None]:
        """Idle -> INTENT -> leased; when the block is left, the lease ends and the store knows the newest entry."""
        lineage, ledger, folder = self.lineage, self.lineage.ledger, self.lineage.store / self.lineage.name
        self._require(State.IDLE)
        holder = Holder(secrets.token_hex(16), lineage.place)
        self._intent = ledger.intent(lineage.name, self.run_key, rho, fields, holder=holder)
        self.state = State.INTENT
        remember_head(folder, self._intent)
        with ledger.leased(self._intent, holder):
            self.state = State.LEASED
            yield
            if self._commit is None:
                raise RuntimeError(f"this transaction was left {self.state.value}, without a COMMIT")
        remember_head(folder, self._commit)

    def stage(self, name: str, draw: Callable[[NoiseSource], T]) -> T:
        """Draw one declared stage: leased -> DRAW with the first noise, and with the last stage -> drawn.

        ``draw``: reads rows, adds noise of the source it is given, the only one it may use, and returns the noisy
        result; called once, and never again if it fails.
        Raises RuntimeError if nothing is charged and leased, or another stage is next.
        """
        self._require(State.LEASED, State.DRAWING)
        if self._stages_left[:1] != [name]:
            raise RuntimeError(f"stage {name!r} is not what comes next; left are {self._stages_left}")
        later, self._stages_left = self._stages_left[1:], []
        # a draw that fails may have drawn: nothing more is drawn under this charge
        result = draw(self._noise)
        self._stages_left = later
        if not later:
            self.state = State.DRAWN
        return result

    def commit(self, release: Release, data_digest: str) -> Curated:
        """Write beside, rename, COMMIT: drawn -> renamed -> COMMIT.

        ``data_digest``: sha256 of the rows' files, for the operator alone; empty where a replay does not compare it.
        Raises AttemptLostError if another attempt was first: this one's folder goes, its spend stays.
        Raises RuntimeError if some declared stage was not drawn.
        """
        self._require(State.DRAWN)
        lineage, intent = self.lineage, self.intent
        folder = folder_of(lineage.store, lineage.name, self.run_key, exact=False)
        write_attempt(release, folder, Attempt(self.run_key, intent.body["attempt"], data_digest))
        self.state = State.RENAMED
        try:
            self._commit = lineage.ledger.commit(intent, commit_facts(release, folder))
        except AttemptLostError:
            remove_tree(folder)
            raise
        self.state = State.COMMITTED
        return Curated(release, folder, self.run_key, intent, self._commit, False, False, lineage.recovered)

    def _announce(self) -> None:
        """Append DRAW, once, durable before any noise is drawn."""
        if self.state is State.LEASED:
            lineage = self.lineage
            remember_head(lineage.store / lineage.name, lineage.ledger.draw(self.intent))
            self.state = State.DRAWING
        self._require(State.DRAWING)

    def _require(self, *states: State) -> None:
        if self.state not in states:
            raise RuntimeError(f"this transaction is {self.state.value}, not {states[0].value}")
