"""Exact sums over the partitions of a snapshot: in groups, here or elsewhere, from where a killed sum stopped.

Every sum is of integers, so it does not matter who adds which partition when: the same integers come out.  Partial
sums are as secret as the rows.  They stay in the snapshot's folder, and leave with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.logs.kept_sums import KeptSums, Partial
from pipeline.logs.packed import Packed
from pipeline.logs.store import Snapshot

Sums = Mapping[str, NDArray[np.int64]]
Progress = Callable[[int, int | None], None]
Seen = Callable[[int], None]

# what is kept costs at most this share of the time it saves, and a short sum keeps nothing
KEEP_AFTER = 2.0
_COST = 1 / 20
DEFAULT_MEMORY = 1 << 30


class Summation(Protocol):
    """Integers that are a sum over part files.  A small value: another machine may be told to do it."""

    @property
    def together(self) -> int:
        """Part files that are read at once."""
        ...

    def depends_on(self) -> Any:
        """Plain values that decide the integers, beside the rows and the code."""
        ...

    def zero(self) -> dict[str, NDArray[np.int64]]:
        """What no row adds up to."""
        ...

    def add(self, sums: Sums, parts: Sequence[Path], seen: Seen) -> None:
        """Add the rows of ``parts`` in place; ``seen`` is told how many, now and then."""
        ...


class Elsewhere(Protocol):
    """Other machines that see the same store."""

    def ready(self, parts: Sequence[Path]) -> None:
        """Refuse, before anything is charged, what would only fail later."""
        ...

    def run(self, work: Summation, parts: Sequence[Path]) -> Iterator[tuple[Sequence[Path], Packed, int]]:
        """Groups as they are done, each once: their part files, sums and rows."""
        ...


@dataclass(frozen=True)
class Means:
    """What the operator gives to ingest and to sums; none of it changes an integer.

    Parameters
    ----------
    memory
        Bytes that ingest may take: it makes partitions small enough, and whatever reads them holds one at a time.
    elsewhere
        Where partitions are summed; None: in this process.
    progress
        Called with (rows so far, rows); both are the operator's.
    say
        Told in a sentence what was resumed.
    """

    memory: int = DEFAULT_MEMORY
    elsewhere: Elsewhere | None = None
    progress: Progress | None = None
    say: Callable[[str], None] = lambda _: None

    def ready(self, snapshot: Snapshot) -> None:
        """Refuse what would only fail after the charge."""
        if self.elsewhere is not None:
            self.elsewhere.ready(snapshot.part_files)


HERE = Means()


def summed(work: Summation, snapshot: Snapshot, means: Means = HERE) -> Sums:
    """The sums of a snapshot.

    Partitions that a killed sum had finished are not read again where the rows, what is summed and the code are as
    they were.  One is finished when it is kept, at the latest after a group that ends ``KEEP_AFTER`` seconds later.
    """
    kept = KeptSums(snapshot, work.depends_on())
    total = kept.load(work.zero()) or Partial(work.zero())
    if total.done:
        means.say(
            f"resuming a sum of {snapshot.dataset} that stopped: "
            f"{len(total.done)} of {snapshot.partitions} partitions are added"
        )
    left = [part for part in snapshot.part_files if part.name not in total.done]
    keeping = _Keeping(kept)
    groups = _here if means.elsewhere is None else _elsewhere
    for _ in groups(work, left, total, means, snapshot):
        keeping.offer(total)
    if total.done != {part.name for part in snapshot.part_files}:
        raise RuntimeError(f"{snapshot.dataset}: some partitions are in no sum; nothing was drawn")
    return total.sums


def forget(snapshot: Snapshot) -> None:
    """Remove the partial sums: their release is on disk."""
    for path in KeptSums(snapshot, None).paths:
        path.unlink(missing_ok=True)


def _here(work: Summation, parts: Sequence[Path], total: Partial, means: Means, snapshot: Snapshot) -> Iterator[None]:
    """One group after the other, straight into the total."""

    def seen(rows: int) -> None:
        total.rows += rows
        if means.progress is not None:
            means.progress(total.rows, snapshot.rows)

    for first in range(0, len(parts), work.together):
        group = parts[first : first + work.together]
        work.add(total.sums, group, seen)
        total.done.update(part.name for part in group)
        yield


def _elsewhere(
    work: Summation, parts: Sequence[Path], total: Partial, means: Means, snapshot: Snapshot
) -> Iterator[None]:
    """Groups in the order in which others finish them."""
    assert means.elsewhere is not None
    for group, found, rows in means.elsewhere.run(work, parts):
        found.add_to(total.sums)
        total.rows += rows
        total.done.update(part.name for part in group)
        if means.progress is not None:
            means.progress(total.rows, snapshot.rows)
        yield


class _Keeping:
    """Keeps a partial sum when enough work would be lost without."""

    def __init__(self, kept: KeptSums) -> None:
        self._kept, self._last, self._pause = kept, time.monotonic(), KEEP_AFTER

    def offer(self, total: Partial) -> None:
        """Keep it, or wait."""
        began = time.monotonic()
        if began - self._last < self._pause:
            return
        self._kept.save(total)
        self._last = time.monotonic()
        self._pause = max(KEEP_AFTER, (self._last - began) / _COST)
