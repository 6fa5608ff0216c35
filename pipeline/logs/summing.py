"""Exact sums over the partitions of a snapshot: in groups, here or elsewhere, from where a killed sum stopped.

Every sum is of integers, so it does not matter who adds which partition when: the same integers come out.  Partial
sums are as secret as the rows.  They stay in the snapshot's folder, as one file that is whole and of the same rows,
code and sum, or not used; they leave with it.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.code import code_digest
from pipeline.files import open_private, remove_file, remove_tree, whole_file
from pipeline.logs.elsewhere import Elsewhere, Packed, Seen
from pipeline.logs.store import Snapshot

_VERSION = 1


@dataclass
class Partial:
    """Sums so far, the names of the part files in them, and how many rows those hold."""

    sums: Mapping[str, NDArray[np.int64]]
    done: set[str] = field(default_factory=set[str])
    rows: int = 0


class KeptSums:
    """One file a snapshot: a sum of something else takes its place.

    Parameters
    ----------
    of
        Plain values: what is summed (:meth:`~pipeline.logs.summing.Summation.depends_on`).
    """

    def __init__(self, snapshot: Snapshot, of: Any) -> None:
        self._snapshot, self._of = snapshot, of
        self.path = snapshot.folder / ".sums"

    @property
    def paths(self) -> list[Path]:
        """The file, and what a run left that was killed while it wrote, one of version 0.1 included."""
        return [self.path, *(self.path.with_name(name) for name in (".sums.partial", ".sums.new"))]

    def load(self, zero: Mapping[str, NDArray[np.int64]]) -> Partial | None:
        """What is kept, if it is whole and of this very sum; ``zero`` has its names and shapes."""
        try:
            with self.path.open("rb") as file:
                head: dict[str, Any] = json.loads(file.readline())
                if head["key"] != self._named:
                    return None
                payload = file.read()
        except (OSError, ValueError, KeyError, TypeError):
            return None
        sizes = [table.nbytes for table in zero.values()]
        whole = _begin_digest(head["done"], int(head["rows"]))
        whole.update(payload)
        if len(payload) != sum(sizes) or whole.hexdigest() != head["sha256"]:
            return None
        at, sums = 0, dict[str, NDArray[np.int64]]()
        for (name, table), size in zip(zero.items(), sizes, strict=True):
            sums[name] = np.frombuffer(payload[at : at + size], dtype=np.int64).reshape(table.shape).copy()
            at += size
        return Partial(sums, set(head["done"]), int(head["rows"]))

    def save(self, partial: Partial) -> None:
        """Replace the file at once.  A full disk or a power cut costs the file, never an integer."""
        whole = _begin_digest(sorted(partial.done), partial.rows)
        for table in partial.sums.values():
            whole.update(np.ascontiguousarray(table).data)
        head = {"key": self._named, "done": sorted(partial.done), "rows": partial.rows, "sha256": whole.hexdigest()}
        with suppress(OSError), whole_file(self.path, private=True) as fresh, open_private(fresh) as file:
            file.write(json.dumps(head).encode() + b"\n")
            for table in partial.sums.values():
                file.write(np.ascontiguousarray(table).data)

    @cached_property
    def _named(self) -> str:
        """Sha256 of all that decides the integers; part files by name, size and time, as they lay there when asked.

        Asked by :meth:`load`, before they are read: what is replaced meanwhile is not vouched for.
        """
        stats = [(part.name, part.stat()) for part in self._snapshot.part_files]
        parts = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
        told = [_VERSION, code_digest(), self._of, self._snapshot.number, self._snapshot.data_digest, parts]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _begin_digest(done: list[str], rows: int) -> Any:
    """A digest that holds which part files are in the sums."""
    return hashlib.sha256(json.dumps([done, rows]).encode())


Sums = Mapping[str, NDArray[np.int64]]
Progress = Callable[[int, int | None], None]

# what is kept costs at most this share of the time it saves, and a short sum keeps nothing
KEEP_AFTER = 2.0
_COST = 1 / 20
# groups a worker: enough that a slow one at the end is short
_GROUPS_EACH = 4
DEFAULT_MEMORY = 2 << 30
# how folders begin, in a snapshot's folder, that hold its people in two parts (pipeline.logs.parts)
PARTS = ".parts-"


class Summation(Protocol):
    """How integers are summed over part files.  A small value, which is sent to a worker on another machine."""

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
        """Add the rows of ``parts`` in place; call ``seen`` with the number of rows, batch after batch."""
        ...


@dataclass(frozen=True)
class Resources:
    """What the operator gives to ingest and to sums; none of it changes an integer, but for the secret.

    Parameters
    ----------
    memory
        Bytes that ingest may take: it makes partitions small enough, and whatever reads them holds one at a time.
    elsewhere
        Where rows are read and summed; None: on this machine.
    progress
        Called with (rows so far, rows); both are the operator's.
    say
        Called with a sentence: what was resumed.
    secret
        Answers the secret of the ledger that charges, by which people are split in parts; it alone of these may change
        an integer.
    """

    memory: int = DEFAULT_MEMORY
    elsewhere: Elsewhere | None = None
    progress: Progress | None = None
    say: Callable[[str], None] = lambda _: None
    secret: Callable[[], bytes] | None = None

    def ready(self, snapshot: Snapshot) -> None:
        """Refuse what would only fail after the charge."""
        if self.elsewhere is not None:
            self.elsewhere.ready(snapshot.part_files)


HERE = Resources()


def sum_snapshot(work: Summation, snapshot: Snapshot, resources: Resources = HERE) -> Sums:
    """The sums of a snapshot.

    Partitions that a killed sum had finished are not read again where the rows, what is summed and the code are as
    they were.  One is finished when it is kept, at the latest after a group that ends ``KEEP_AFTER`` seconds later.
    """
    kept = KeptSums(snapshot, work.depends_on())
    nothing = work.zero()
    total = kept.load(nothing) or Partial(nothing)
    if total.done:
        resources.say(
            f"resuming a sum of {snapshot.dataset} that stopped: "
            f"{len(total.done)} of {snapshot.partitions} partitions are added"
        )
    left = [part for part in snapshot.part_files if part.name not in total.done]
    keeping = _Keeping(kept)
    groups = _here if resources.elsewhere is None else _elsewhere
    for _ in groups(work, left, total, resources, snapshot):
        keeping.offer(total)
    if total.done != {part.name for part in snapshot.part_files}:
        raise RuntimeError(f"{snapshot.dataset}: some partitions are in no sum; nothing was drawn")
    return total.sums


def forget(snapshot: Snapshot) -> None:
    """Remove the partial sums, and rows that were written in parts: their release is on disk.

    Parameters
    ----------
    snapshot
        Whose release is written and renamed.
    """
    for path in KeptSums(snapshot, None).paths:
        remove_file(path)
    for folder in snapshot.folder.glob(f"{PARTS}*"):
        remove_tree(folder)


def _here(
    work: Summation, parts: Sequence[Path], total: Partial, resources: Resources, snapshot: Snapshot
) -> Iterator[None]:
    """One group after the other, straight into the total."""

    def seen(rows: int) -> None:
        total.rows += rows
        if resources.progress is not None:
            resources.progress(total.rows, snapshot.rows)

    for first in range(0, len(parts), work.together):
        group = parts[first : first + work.together]
        work.add(total.sums, group, seen)
        total.done.update(part.name for part in group)
        yield


@dataclass(frozen=True, repr=False)
class SumParts:
    """See :class:`~pipeline.logs.elsewhere.Task`: the sums of a group of partitions."""

    work: Summation
    files: Sequence[Path]

    @property
    def named(self) -> str:
        """The first and the last."""
        first, last = self.files[0].name, self.files[-1].name
        return first if first == last else f"{first} to {last}"

    def __call__(self, seen: Seen) -> Packed:
        """Exact."""
        sums = self.work.zero()
        self.work.add(sums, self.files, seen)
        return Packed.of(sums)


def _elsewhere(
    work: Summation, parts: Sequence[Path], total: Partial, resources: Resources, snapshot: Snapshot
) -> Iterator[None]:
    """Groups in the order in which others finish them."""
    assert resources.elsewhere is not None

    def seen(rows: int) -> None:
        total.rows += rows

    size = min(work.together, math.ceil(len(parts) / (_GROUPS_EACH * resources.elsewhere.together))) or 1
    groups = (SumParts(work, parts[first : first + size]) for first in range(0, len(parts), size))
    for group, sums in resources.elsewhere.each(groups, seen):
        sums.add_to(total.sums)
        total.done.update(part.name for part in group.files)
        if resources.progress is not None:
            resources.progress(total.rows, snapshot.rows)
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
