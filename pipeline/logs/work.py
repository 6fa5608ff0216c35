"""Work in progress of an ingest: how many partitions, and what of them is finished.

An ingest that was killed continues where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import ValidationError

from pipeline.declaration.card import AnyCard, Card, CardError
from pipeline.declaration.code import is_plugin, plugin_digest
from pipeline.files import json_text, private_folder, remove_tree, whole_file, write_file
from pipeline.logs.sources import Sources, digest
from pipeline.logs.store import SCHEMA_VERSION, Snapshot, part_file
from reports.facts.dataset import RECORD, Made, record_of

_STATE = "state.json"
# in the folder of a share: bytes by partition, not part of the state, which is written anew after each partition
SIZES = "sizes.json"
# of the state, and of the spill files that it vouches for
_VERSION = 4


class Claims(Protocol):
    """Which people are of a lineage, where others were declared disjoint from it: the ledger knows."""

    @property
    def since(self) -> int:
        """Entry of the ledger by which the lineage was declared disjoint last; 0: never."""
        ...

    @property
    def apart(self) -> Sequence[str]:
        """Names of the lineages that share nobody with this one."""
        ...

    def claim(self, users: Sequence[str]) -> Sequence[bool]:
        """Take people for the lineage, for good; False for whoever another one has."""
        ...


@dataclass(frozen=True)
class Share:
    """Of consecutive files: name of the folder of their rows, records, and those among them that were filed by rule."""

    name: str
    rows: int
    filed: dict[str, int]


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
    shares
        What was read, in the order of the files.
    done
        Finished partitions.
    """

    folder: Path
    stamp: str
    source_digest: str
    partitions: int
    shares: list[Share] = field(default_factory=list[Share])
    done: dict[int, Screened] = field(default_factory=dict[int, Screened])

    @property
    def source_rows(self) -> int:
        """Records read."""
        return sum(share.rows for share in self.shares)

    @property
    def left(self) -> list[int]:
        """Partitions that are not finished."""
        return [i for i in range(self.partitions) if i not in self.done]

    def spill_files(self, partition: int) -> list[Path]:
        """Where rows of a partition are, in the order of the log."""
        files = (spill_file(self.folder / share.name, partition) for share in self.shares)
        return [file for file in files if file.exists()]

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
    own = {"reader": reader_digest(card)} if is_plugin(card.source.format) else {}
    apart = {} if claims is None or not claims.apart else {"apart": list(claims.apart), "since": claims.since}
    return {"schema_version": SCHEMA_VERSION, **told, **own, **apart}


def reader_digest(card: AnyCard) -> str:
    """Of the module of a reader of your own; empty for the others."""
    return plugin_digest(card.source.format) if is_plugin(card.source.format) else ""


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
        done = {int(i): Screened(**one) for i, one in state.pop("done").items()}
        work = Work(folder=folder, done=done, shares=[Share(**one) for one in state.pop("shares")], **state)
        whole = all(part_file(work.built, i).stat().st_size == one.bytes for i, one in done.items())
        left = set(work.left)
        for share in work.shares:
            told = json.loads((folder / share.name / SIZES).read_text(encoding="utf-8"))
            at = {int(i): size for i, size in told.items() if int(i) in left}
            whole &= all(spill_file(folder / share.name, i).stat().st_size == size for i, size in at.items())
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    return work if whole else None


def sweep(folder: Path) -> None:
    """Remove all work in progress."""
    remove_tree(folder)


def spill_file(folder: Path, partition: int) -> Path:
    """Temporary file of a partition in the folder of a share; absent if it has no row there."""
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


def likely_processes(card: AnyCard, sources: Sources, partitions: int, memory: int) -> int:
    """As many as there are processors for, and ``memory`` (bytes) holds partitions of; each has two, of usual size."""
    rows = sources.likely_rows * (card.domain.horizon if card.source.layout == "wide" else 1)
    each = _BASE_BYTES + _row_bytes(card) * rows // partitions
    return max(1, min(len(os.sched_getaffinity(0)), memory // each, min(partitions, rows // ROWS_PER_PARTITION) // 2))


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
