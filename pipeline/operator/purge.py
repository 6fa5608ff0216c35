"""What leaves the store: raw rows that are purged.

Retention removes snapshots and what ingest set aside; the ledger and the releases stay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pipeline.disk import DISK
from pipeline.files import remove_file, remove_tree
from pipeline.logs.store import leftovers
from pipeline.operator.ingest_report import PAGE

NOT_UNDONE = (
    "the budget that was spent on these rows stays spent",
    "the releases, policies and reports made from them stay where they went, and give away what they gave away",
    "copies outside this store (the source files, backups, freed disk blocks) are not touched",
)

# what a folder's name begins with from the moment it goes
_GOING = ".purging-"
# of a lineage with nightly counters
COUNTERS_STAY = "a nightly counter keeps its exact leaf tables and the hashes of who was counted (docs/privacy.md)"


@dataclass(frozen=True)
class Purge:
    """What goes: numbers of whole snapshots, and all folders and files to remove, relative to the lineage's folder."""

    snapshots: list[int]
    paths: list[str]
    size: int

    @property
    def noted(self) -> bool:
        """Whether an earlier purge, which died, said in the ledger that all of this goes."""
        return all(name.startswith(_GOING) for name in self.paths)


def plan_purge(lineage: Path, *, keep: int, quarantine_only: bool) -> Purge:
    """What a purge would remove; touches nothing.

    Raises ValueError if ``keep`` is negative.
    """
    if keep < 0:
        raise ValueError(f"keep must be 0 or more; got {keep}")
    folders = {int(p.name[9:]): p for p in lineage.glob("snapshot-*") if re.fullmatch(r"snapshot-\d{4,}", p.name)}
    old = sorted(folders)[: max(0, len(folders) - keep)]
    if quarantine_only:
        told = ("quarantine-*.parquet", PAGE)
        gone = [q for number in sorted(folders) for name in told for q in sorted(folders[number].glob(name))]
        old = []
    else:
        gone = [folders[number] for number in old]
    gone += [p for p in (lineage / "refused", *sorted(lineage.glob(".frame-*"))) if p.exists()]
    gone += [p for p in leftovers(lineage) if p.parent not in gone]
    # rows of people who evaluate, of a night that was killed
    gone += sorted(lineage.glob("counters/*/evaluate/*"))
    # first, so that the names are free: what an earlier purge had renamed when it died
    gone = sorted(lineage.glob(f"{_GOING}*")) + gone
    size = sum(f.stat().st_size for p in gone for f in ([p] if p.is_file() else p.rglob("*")) if f.is_file())
    return Purge(old, [str(p.relative_to(lineage)) for p in gone], size)


def carry_out(purge: Purge, lineage: Path) -> None:
    """Remove what :func:`plan_purge` named; a folder leaves its name first, so that it is there whole or not at all."""
    going, held = list[Path](), {lineage}
    for path in (lineage / name for name in purge.paths):
        if not path.is_dir():
            remove_file(path)
            held.add(path.parent)
        elif path.name.startswith(_GOING):
            remove_tree(path)
        else:
            going.append(lineage / f"{_GOING}{path.name.lstrip('.')}")
            DISK.move(path, going[-1])
    # before the first file goes: a power cut would give a folder in pieces its old name back
    DISK.sync(lineage)
    for path in going:
        remove_tree(path)
    for folder in sorted(held):
        DISK.sync(folder)
