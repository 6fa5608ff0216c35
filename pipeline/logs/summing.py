"""Exact sums over the partitions of a snapshot: in groups, in this process or on workers.

All sums are of integers, so they do not depend on the order of partitions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Protocol

from pipeline.arrays import Integers
from pipeline.logs.elsewhere import Elsewhere, Packed, Seen
from pipeline.logs.parts import Split
from pipeline.logs.store import Snapshot

Sums = Mapping[str, Integers]
Progress = Callable[[int, int | None], None]

# groups for each worker: many, so that the last one to finish is short
_GROUPS_EACH = 4
DEFAULT_MEMORY = 2 << 30


class Summation(Protocol):
    """A sum of integers over part files: a small value, which may be sent to a worker on another machine."""

    @property
    def together(self) -> int:
        """Number of part files that are read together."""
        ...

    def zero(self) -> dict[str, Integers]:
        """Tables of zeros."""
        ...

    def add(self, sums: Sums, parts: Sequence[Path], seen: Seen) -> None:
        """Add the rows of ``parts`` in place; call ``seen`` with the number of rows, batch after batch."""
        ...


@dataclass(frozen=True)
class Resources:
    """Resources that the operator gives to ingest and to sums; only ``split`` may change an integer.

    ``elsewhere``: workers that read and sum rows; None: this machine.
    ``split``: from the share of people who evaluate to their evaluation split, by the ledger that charges.
    """

    memory: int = DEFAULT_MEMORY
    elsewhere: Elsewhere | None = None
    progress: Progress | None = None
    say: Callable[[str], None] = lambda _: None
    split: Callable[[Fraction], Split] | None = None

    def ready(self, snapshot: Snapshot) -> None:
        """Refuse workers that would fail after the charge."""
        if self.elsewhere is not None:
            self.elsewhere.ready(snapshot.part_files)


HERE = Resources()


def reporter(progress: Progress | None, total: int | None, seen: int = 0) -> Seen:
    """Return a function that adds up rows and reports the progress."""

    def add(rows: int) -> None:
        nonlocal seen
        seen += rows
        if progress is not None:
            progress(seen, total)

    return add


def sum_snapshot(work: Summation, snapshot: Snapshot, resources: Resources = HERE) -> Sums:
    """Sum a snapshot group by group, in this process or on workers."""
    sums, parts, seen = work.zero(), snapshot.part_files, reporter(resources.progress, snapshot.rows)
    if resources.elsewhere is None:
        for first in range(0, len(parts), work.together):
            work.add(sums, parts[first : first + work.together], seen)
        return sums
    size = min(work.together, math.ceil(len(parts) / (_GROUPS_EACH * resources.elsewhere.together))) or 1
    groups = [SumParts(work, parts[first : first + size]) for first in range(0, len(parts), size)]
    summed = 0
    for group, packed in resources.elsewhere.each(groups, seen):
        packed.add_to(sums)
        summed += len(group.files)
    if summed != len(parts):
        raise RuntimeError(f"{snapshot.dataset}: some partitions are in no sum; nothing was drawn")
    return sums


@dataclass(frozen=True, repr=False)
class SumParts:
    """Task that sums a group of partitions."""

    work: Summation
    files: Sequence[Path]

    @property
    def named(self) -> str:
        """Names of the first and the last file."""
        first, last = self.files[0].name, self.files[-1].name
        return first if first == last else f"{first} to {last}"

    def __call__(self, seen: Seen) -> Packed:
        """Sum the files exactly."""
        sums = self.work.zero()
        self.work.add(sums, self.files, seen)
        return Packed.of(sums)
