"""Work in progress of an ingest: what is finished, so that one that was killed continues where it stopped."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipeline.declaration.card import AnyCard, Card
from pipeline.files import private_folder, whole_file
from pipeline.logs.schema import SCHEMA_VERSION
from pipeline.logs.sources import Sources
from pipeline.logs.store import part_file

_STATE = "state.json"
_VERSION = 1


@dataclass(frozen=True)
class Screened:
    """One finished partition: rows spilt, canonical rows and whose, rows filed by rule, sha256 and size of its file."""

    spilt: int
    rows: int
    users: int
    episodes: int
    filed: dict[str, int]
    digest: str
    bytes: int


@dataclass
class Work:
    """What an ingest has finished; written after each step, read by the next ingest.

    Parameters
    ----------
    folder
        Spill files; ``built`` in it becomes the snapshot.
    stamp
        What must not have changed: files (path, size, time), what the card says of them, version of the code.
    spills
        Bytes of each partition's spill file; 0 for none.
    """

    folder: Path
    stamp: str
    source_digest: str
    number: int
    partitions: int
    source_rows: int = 0
    malformed: int = 0
    spills: list[int] = field(default_factory=list[int])
    done: list[Screened] = field(default_factory=list[Screened])

    @property
    def built(self) -> Path:
        """The snapshot that is being made."""
        return self.folder / "built"

    def save(self) -> None:
        """Replace the state file at once; what it vouches for is on the disk already."""
        state = {**asdict(self), "version": _VERSION}
        del state["folder"]
        with whole_file(self.folder / _STATE, private=True) as fresh:
            fresh.write_text(json.dumps(state), encoding="utf-8")

    @property
    def resumable(self) -> bool:
        """Whether a later ingest could continue from here."""
        return (self.folder / _STATE).exists()


def stamp(sources: Sources, card: AnyCard, partitions: int | None) -> str:
    """Sha256 of what makes two ingests the same without reading a file: paths, sizes, times, card, version."""
    stats = [(str(path.resolve()), path.stat()) for path in sources.paths]
    files = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats]
    told = {"files": files, "names": sources.names, "partitions": partitions, **meaning(card)}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def meaning(card: AnyCard) -> dict[str, Any]:
    """What of a card decides the canonical rows, and the version of the code that makes them."""
    told = card.model_dump(mode="json", include={"source", "domain", "unit", "reward"})
    if isinstance(card, Card) and card.source.layout == "long":
        del told["source"]["first_step"]
    return {"schema_version": SCHEMA_VERSION, **told}


def begin(folder: Path, work_stamp: str, source_digest: str, number: int, partitions: int) -> Work:
    """Start over in an empty folder."""
    sweep(folder)
    work = Work(private_folder(folder), work_stamp, source_digest, number, partitions)
    private_folder(work.built)
    return work


def resume(folder: Path, work_stamp: str) -> Work | None:
    """The work that an ingest of the same files, card and code left, if all of it is still there."""
    try:
        state: dict[str, Any] = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        if state.pop("version") != _VERSION or state["stamp"] != work_stamp:
            return None
        done = [Screened(**one) for one in state.pop("done")]
        work = Work(folder=folder, done=done, **state)
        whole = all(part_file(work.built, i).stat().st_size == one.bytes for i, one in enumerate(done))
        left = [i for i in range(len(done), work.partitions) if work.spills[i]]
        whole &= all(spill_file(folder, i).stat().st_size == work.spills[i] for i in left)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    return work if whole else None


def sweep(folder: Path) -> None:
    """Remove all work in progress."""
    shutil.rmtree(folder, ignore_errors=True)


def spill_file(folder: Path, partition: int) -> Path:
    """Temporary file of a partition; absent if the partition has no row."""
    return folder / f"spill-{partition:04d}.arrow"
