"""One release transaction: charge, draw, write and commit, each once, whatever dies in between (privacy.md §10).

=========  ==========================================  ============================================================
state      what is on disk                             what the next run of the lineage does if this one died there
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
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from pipeline.files import remove_tree
from pipeline.ledger.attempts import Holder, Passed
from pipeline.ledger.chain import AttemptLostError, Body, Entry
from pipeline.ledger.ledger import Ledger, Price
from pipeline.privacy.noise import AnnouncedNoise, NoiseSource
from pipeline.privacy.release import Release
from pipeline.transaction.place import (
    Attempt,
    Recovered,
    commit_facts,
    folder_of,
    one_at_a_time,
    recover,
    refuse_old_ledger,
    remember_head,
    write_attempt,
)

T = TypeVar("T")


@dataclass(frozen=True)
class OpenLineage:
    """A lineage ready for a release: its store is locked, its ledger is no old copy, what dead runs left is settled."""

    name: str
    ledger: Ledger
    store: Path
    place: str
    recovered: Recovered


@dataclass(frozen=True)
class Curated:
    """A release on disk, and what the ledger says of it.

    ``release``, ``folder``: the noisy integers, and the folder in the store that holds them.
    ``intent``, ``commit``: the ledger's entries of it; None for exact tables of synthetic data, which are never
    charged.
    ``stale``: the snapshot's bytes have changed since the release was drawn from it.
    ``gate``: what was charged before, and let it pass; None where nothing was.
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


class State(Enum):
    """How far a transaction has come; the table above says what a crash in each state leaves."""

    IDLE = "idle"
    INTENT = "INTENT"
    LEASED = "leased"
    DRAWING = "DRAW"
    DRAWN = "drawn"
    RENAMED = "renamed"
    COMMITTED = "COMMIT"


@contextmanager
def open_lineage(name: str, ledger: Ledger, store: Path) -> Generator[OpenLineage]:
    """Lock a lineage's store, check that its ledger is no old one, and settle what dead runs left.

    Yields the lineage; its lock is held until the block is left.
    Raises BudgetError if the ledger was cut or is an old copy, or what a dead run left was edited; nothing was read.
    """
    with one_at_a_time(store / name) as place:
        refuse_old_ledger(name, ledger, store)
        yield OpenLineage(name, ledger, store, place, recover(name, ledger, store, place))


@contextmanager
def transaction(
    lineage: OpenLineage, run_key: str, rho: Fraction | Price, told: Body, stages: Sequence[str], noise: NoiseSource
) -> Generator[Transaction]:
    """Charge a release, then enter the block, which draws the stages and commits.

    ``lineage``, ``run_key``: from :func:`open_lineage`, and the hex key of the release.
    Yields the leased transaction.
    Raises BudgetError if the cap does not allow it, the key has its COMMIT, or another attempt at it is alive; nothing
    was read.
    Raises RuntimeError if the block is left without an error and without a COMMIT.
    """
    t = Transaction(lineage, run_key, tuple(stages), noise)
    with t.charge(rho, told):
        yield t


class Transaction:
    """One attempt at a release, from idle to COMMIT.  Made by :func:`transaction`; ``stage`` draws only when leased."""

    def __init__(self, lineage: OpenLineage, run_key: str, stages: tuple[str, ...], noise: NoiseSource) -> None:
        self.lineage, self.run_key = lineage, run_key
        self._noise = AnnouncedNoise(noise, self._announce)
        self.state = State.IDLE
        self._left = list(stages)
        self._intent: Entry | None = None
        self._commit: Entry | None = None

    @property
    def intent(self) -> Entry:
        """The entry that paid for this attempt; a RuntimeError before it is on disk."""
        if self._intent is None:
            raise RuntimeError("this transaction is not charged yet")
        return self._intent

    @contextmanager
    def charge(self, rho: Fraction | Price, told: Body) -> Generator[None]:
        """Idle -> INTENT -> leased; when the block is left, the lease ends and the store knows the newest entry."""
        lineage, ledger, folder = self.lineage, self.lineage.ledger, self.lineage.store / self.lineage.name
        self._require(State.IDLE)
        holder = Holder(secrets.token_hex(16), lineage.place)
        self._intent = ledger.intent(lineage.name, self.run_key, rho, told, holder=holder)
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
        answer; called once, and never again if it fails.
        Raises RuntimeError if nothing is charged and leased, or another stage is next.
        """
        self._require(State.LEASED, State.DRAWING)
        if self._left[:1] != [name]:
            raise RuntimeError(f"stage {name!r} is not what comes next; left are {self._left}")
        later, self._left = self._left[1:], []
        # a draw that fails may have drawn: nothing more is drawn under this charge
        answer = draw(self._noise)
        self._left = later
        if not later:
            self.state = State.DRAWN
        return answer

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
        """DRAW, once, and durable before any noise is there."""
        if self.state is State.LEASED:
            lineage = self.lineage
            remember_head(lineage.store / lineage.name, lineage.ledger.draw(self.intent))
            self.state = State.DRAWING
        self._require(State.DRAWING)

    def _require(self, *states: State) -> None:
        if self.state not in states:
            raise RuntimeError(f"this transaction is {self.state.value}, not {states[0].value}")
