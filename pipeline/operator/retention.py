"""Retention: raw rows that are no longer needed leave the store; the ledger and the releases stay."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

NOT_UNDONE = (
    "the budget that was spent on these rows stays spent",
    "the releases, policies and reports made from them stay where they went, and give away what they gave away",
    "copies outside this store (the source files, backups, freed disk blocks) are not touched",
)

# of a lineage with nightly counters
COUNTERS_STAY = "a nightly counter keeps its exact leaf tables and the hashes of who was counted (docs/nightly.md)"


@dataclass(frozen=True)
class Purge:
    """What goes: numbers of whole snapshots, and all folders and files to remove, relative to the lineage's folder."""

    snapshots: list[int]
    paths: list[str]
    size: int


def plan_purge(lineage: Path, *, keep: int, quarantine_only: bool) -> Purge:
    """What a purge would remove; touches nothing.

    Parameters
    ----------
    lineage
        The lineage's folder in the store.
    keep
        Newest snapshots that stay.
    quarantine_only
        Rows set aside by ingest go; snapshots stay.

    Raises
    ------
    ValueError
        If ``keep`` is negative.
    """
    if keep < 0:
        raise ValueError(f"keep must be 0 or more; got {keep}")
    folders = {int(p.name[9:]): p for p in lineage.glob("snapshot-*") if re.fullmatch(r"snapshot-\d{4,}", p.name)}
    old = sorted(folders)[: max(0, len(folders) - keep)]
    if quarantine_only:
        gone = [q for number in sorted(folders) for q in sorted(folders[number].glob("quarantine-*.parquet"))]
        old = []
    else:
        gone = [folders[number] for number in old]
    gone += [p for p in (lineage / "refused", lineage / ".ingest") if p.exists()]
    # what an earlier purge had renamed when it died
    gone += sorted(lineage.glob(".purging-*"))
    size = sum(f.stat().st_size for p in gone for f in ([p] if p.is_file() else p.rglob("*")) if f.is_file())
    return Purge(old, [str(p.relative_to(lineage)) for p in gone], size)


def carry_out(purge: Purge, lineage: Path) -> None:
    """Remove what :func:`plan_purge` named; a folder leaves its name first, so that it is there whole or not at all.

    Parameters
    ----------
    purge
        Of :func:`plan_purge`.
    lineage
        The lineage's folder in the store.
    """
    for name in purge.paths:
        path = lineage / name
        if path.is_dir():
            path = path.rename(lineage / f".purging-{path.name.lstrip('.')}")
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for left in lineage.glob(".purging-*"):
        shutil.rmtree(left)
