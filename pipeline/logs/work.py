"""Work in progress of an ingest: how many partitions, and what of them is finished.

An ingest that was killed continues where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import resource
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline.declaration.card import AnyCard, Card, CardError
from pipeline.declaration.plugins import is_plugin, plugin_digest
from pipeline.files import json_text, private_folder, remove_tree, whole_file, write_file
from pipeline.logs.set_aside import Claims
from pipeline.logs.sources import Sources, digest
from pipeline.logs.store import SCHEMA_VERSION, Snapshot, part_file
from reports.facts.dataset import RECORD, Made, record_of

_STATE = "state.json"
_VERSION = 2


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
    source_rows, filed
        Records read, and those among them that were filed before anybody knew whose they are, by rule.
    spills
        Bytes of each partition's spill file; 0 for none.
    """

    folder: Path
    stamp: str
    source_digest: str
    partitions: int
    source_rows: int = 0
    filed: dict[str, int] = field(default_factory=dict[str, int])
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
            write_file(fresh, json.dumps(state))

    @property
    def resumable(self) -> bool:
        """Whether a later ingest could continue from here."""
        return (self.folder / _STATE).exists()


def stamp(sources: Sources, card: AnyCard, partitions: int | None, claims: Claims | None = None) -> str:
    """Sha256 of what makes two ingests the same without reading a file: paths, sizes, times, card, version."""
    stats = [(str(path.resolve()), path.stat()) for path in sources.paths]
    files = [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats]
    told = {"files": files, "names": sources.names, "partitions": partitions, **meaning(card, claims)}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def meaning(card: AnyCard, claims: Claims | None = None) -> dict[str, Any]:
    """What of a card decides the canonical rows, from whom it was declared disjoint, and the version of the code."""
    told = card.model_dump(mode="json", include={"source", "domain", "unit", "reward"})
    if isinstance(card, Card) and card.source.layout == "wide":
        told["source"]["first_step"] = card.source.starts_at
    elif isinstance(card, Card) and card.source.first_step is None:
        del told["source"]["first_step"]
    own = {"reader": plugin_digest(card.source.format)} if is_plugin(card.source.format) else {}
    apart = {} if claims is None or not claims.apart else {"apart": list(claims.apart), "since": claims.since}
    return {"schema_version": SCHEMA_VERSION, **told, **own, **apart}


def source_digest_of(files: str, card: AnyCard, claims: Claims | None = None) -> str:
    """Of the files and of what the card says of them: two snapshots of one digest hold the same rows.

    Parameters
    ----------
    files
        From :func:`~pipeline.logs.sources.digest`.
    card, claims
        See :func:`meaning`.
    """
    return hashlib.sha256(json.dumps({"files": files, **meaning(card, claims)}, sort_keys=True).encode()).hexdigest()


def begin(folder: Path, work_stamp: str, source_digest: str, partitions: int) -> Work:
    """Start over in an empty folder."""
    sweep(folder)
    work = Work(private_folder(folder), work_stamp, source_digest, partitions)
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
    remove_tree(folder)


def spill_file(folder: Path, partition: int) -> Path:
    """Temporary file of a partition; absent if the partition has no row."""
    return folder / f"spill-{partition:04d}.arrow"


ROWS_PER_PARTITION = 1_000_000
# one open file each while rows are spilt
MOST_PARTITIONS = 2048
_OTHER_FILES = 128
# measured with room to spare (docs/lab/scale.md): libraries and batches; a row while the rules look at it
_BASE_BYTES = 512 << 20
_ROW_BYTES, _NUMBER_BYTES = 512, 64


def likely_partitions(card: AnyCard, sources: Sources, memory: int) -> int:
    """About a million rows each, fewer where ``memory`` (bytes) asks for it, more where there are too many.

    Raises
    ------
    CardError
        If a partition of even the largest number of them would not fit.
    """
    steps = card.domain.horizon if card.source.layout == "wide" else 1
    rows, most = sources.likely_rows * steps, most_partitions()
    fit = max(1, (memory - _BASE_BYTES) // _row_bytes(card))
    if rows > fit * most:
        needed = _BASE_BYTES + _row_bytes(card) * rows // most
        raise CardError(
            f"{card.name}: about {rows:,} rows in at most {most:,} partitions need about {needed / (1 << 30):.1f} GiB; "
            "give --memory more, or raise the limit of open files (ulimit -n)"
        )
    return min(most, 1 + rows // min(ROWS_PER_PARTITION, fit))


def most_partitions() -> int:
    """As many as this process may open files for, with room for others."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_PARTITIONS if hard == resource.RLIM_INFINITY else max(1, min(MOST_PARTITIONS, hard - _OTHER_FILES))


def allow_files(partitions: int) -> None:
    """Raise this process's own limit of open files where it is below what the partitions need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = partitions + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


def _row_bytes(card: AnyCard) -> int:
    if isinstance(card, Card):
        return _ROW_BYTES
    return _ROW_BYTES + _NUMBER_BYTES * (2 * card.domain.observation.size + card.domain.action.size)


def write_record(folder: Path, world: str, behaviour: str, seed: int, episodes: int, files: Sequence[Path]) -> None:
    """Note how a log was made.

    Parameters
    ----------
    folder
        Of the log.
    world, behaviour, seed, episodes
        World and policy that made it, seed of the draws, and how many there are.
    files
        The log, in the order in which an ingest reads it.
    """
    made = Made(world=world, behaviour=behaviour, seed=seed, episodes=episodes, sha256=digest(files))
    (folder / RECORD).write_text(json_text(made.model_dump()), encoding="utf-8")


def made_of(card: AnyCard, snapshot: Snapshot | None) -> Made | None:
    """The record of the log that a snapshot was read from; None for any other log under the same card.

    Parameters
    ----------
    card
        Of the snapshot.
    snapshot
        None: of several, or none at all.
    """
    file = record_of(card)
    if card.kind == "real" or snapshot is None or not file.is_file():
        return None
    try:
        made = Made.model_validate_json(file.read_bytes())
    except ValidationError:
        return None
    return made if snapshot.source_digest == source_digest_of(made.sha256, card) else None
