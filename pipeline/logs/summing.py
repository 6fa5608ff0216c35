"""Exact sums over the partitions of a snapshot: in groups, here or elsewhere.

Every sum is of integers, so it does not matter who adds which partition when: the same integers come out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pipeline.arrays import Integers
from pipeline.files import remove_file, remove_tree
from pipeline.logs.elsewhere import Elsewhere, Packed, Seen
from pipeline.logs.store import Snapshot

if TYPE_CHECKING:
    from pipeline.logs.parts import Split

Sums = Mapping[str, Integers]
Progress = Callable[[int, int | None], None]

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

    def zero(self) -> dict[str, Integers]:
        """What no row adds up to."""
        ...

    def add(self, sums: Sums, parts: Sequence[Path], seen: Seen) -> None:
        """Add the rows of ``parts`` in place; call ``seen`` with the number of rows, batch after batch."""
        ...


@dataclass(frozen=True)
class Resources:
    """What the operator gives to ingest and to sums; none of it changes an integer, but for the split.

    ``elsewhere``: where rows are read and summed; None: on this machine.
    ``split``: from the share of the people who evaluate to who learns and who evaluates, by the ledger that charges; it
    alone of these may change an integer.
    """

    memory: int = DEFAULT_MEMORY
    elsewhere: Elsewhere | None = None
    progress: Progress | None = None
    say: Callable[[str], None] = lambda _: None
    split: Callable[[Fraction], Split] | None = None

    def ready(self, snapshot: Snapshot) -> None:
        """Refuse what would only fail after the charge."""
        if self.elsewhere is not None:
            self.elsewhere.ready(snapshot.part_files)


HERE = Resources()


def sum_snapshot(work: Summation, snapshot: Snapshot, resources: Resources = HERE) -> Sums:
    """The sums of a snapshot: in this process group after group, elsewhere in the order in which groups are done."""
    sums, parts, rows = work.zero(), snapshot.part_files, 0

    def seen(more: int) -> None:
        nonlocal rows
        rows += more
        if resources.progress is not None:
            resources.progress(rows, snapshot.rows)

    if resources.elsewhere is None:
        for first in range(0, len(parts), work.together):
            work.add(sums, parts[first : first + work.together], seen)
        return sums
    size = min(work.together, math.ceil(len(parts) / (_GROUPS_EACH * resources.elsewhere.together))) or 1
    groups = [SumParts(work, parts[first : first + size]) for first in range(0, len(parts), size)]
    summed = 0
    for group, found in resources.elsewhere.each(groups, seen):
        found.add_to(sums)
        summed += len(group.files)
    if summed != len(parts):
        raise RuntimeError(f"{snapshot.dataset}: some partitions are in no sum; nothing was drawn")
    return sums


def forget(snapshot: Snapshot) -> None:
    """Remove rows that were written in parts, and partial sums of an older version."""
    for path in snapshot.folder.glob(".sums*"):
        remove_file(path)
    for folder in snapshot.folder.glob(f"{PARTS}*"):
        remove_tree(folder)


@dataclass(frozen=True, repr=False)
class SumParts:
    """The sums of a group of partitions."""

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
