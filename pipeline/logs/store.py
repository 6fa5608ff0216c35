"""The operator's store: numbered snapshots of a lineage and the columns of their rows; folders 0700, files 0600.

A snapshot's number is its *edition*: given by each ingest that somebody asks for and by each scheduled night, whatever
came in, so that numbers tell nothing about the rows (privacy.md §0.2-1).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from pipeline.declaration.card import AnyCard
from pipeline.declaration.toml import DamagedError
from pipeline.files import write_file

SCHEMA_VERSION = 1

# user_id is String or Int64, as the files say; null next_state: unknown, the row counts in no table.
CANONICAL: dict[str, type[pl.DataType]] = {
    "user_id": pl.String,
    "episode_id": pl.Int64,
    "step": pl.Int32,
    "state": pl.Int32,
    "action": pl.Int32,
    "reward": pl.Float64,
    "next_state": pl.Int32,
    "terminated": pl.Boolean,
    "truncated": pl.Boolean,
    "behavior_prob": pl.Float64,
}

# beside them where the card declares an observation, in units of its scales
OBSERVED: dict[str, pl.DataType] = {"observation": pl.List(pl.Float32), "next_observation": pl.List(pl.Float32)}

# of a log of vectors: in units of the declared scales; a null next_observation counts nowhere
VECTORS: dict[str, pl.DataType | type[pl.DataType]] = {
    "user_id": pl.String,
    "episode_id": pl.Int64,
    "step": pl.Int32,
    "observation": pl.List(pl.Float32),
    "action": pl.List(pl.Float32),
    "reward": pl.Float64,
    "next_observation": pl.List(pl.Float32),
    "terminated": pl.Boolean,
    "truncated": pl.Boolean,
    "behavior_prob": pl.Float64,
}

QUARANTINE_HEAD: dict[str, type[pl.DataType]] = {
    "rule": pl.String,
    "effect": pl.String,
    "file": pl.String,
    "line": pl.Int64,
    "text": pl.String,
}

MANIFEST = "manifest.json"
# absent in those of older versions
_DIGEST = "sha256"
# left out of a manifest where they are empty, as in those of older versions
_LATER = ("night", "unread", "source_hash", "set_aside", "claimed")


@dataclass(frozen=True)
class Snapshot:
    """One ingest of a lineage.  Counts are the operator's: they enter no report.

    Parameters
    ----------
    dataset, number
        Name of the lineage, and the number of this ingest, 1 first.
    folder
        ``store/<dataset>/snapshot-<number>``.
    kind
        ``real`` or ``synthetic``, as the card said.
    domain_hash
        Sha256 of what the card declares and the ledger registered (design §5.1).
    source_digest, data_digest
        Sha256 of what was read (files and what the card says of them) and of the part files.
    source_rows, rows, users, episodes
        Rows read; canonical rows, and whose.
    quarantined
        Rows filed under each rule that was broken at all; coerced rows are among ``rows`` too.
    partitions
        Number of part files, disjoint in users.
    night
        The date of the scheduled night that made it (ISO); empty where somebody asked for it.
    unread
        Why that night's files could not be read; its rows are then those of the snapshot before it.
    source_hash
        Of the card's [source] (:func:`source_hash`); empty in those of older versions.
    set_aside
        How many people broke which rules: see :func:`~pipeline.logs.second_pass.count_people`.
    claimed
        1, and the ledger's entry since which these people are claimed for the lineage; 0: they are not.
    """

    dataset: str
    number: int
    folder: Path
    kind: str
    domain_hash: str
    source_digest: str
    data_digest: str
    source_rows: int
    rows: int
    users: int
    episodes: int
    quarantined: dict[str, int]
    partitions: int
    night: str = ""
    unread: str = ""
    source_hash: str = ""
    set_aside: dict[str, int] = field(default_factory=dict[str, int])
    claimed: int = 0

    @property
    def part_files(self) -> list[Path]:
        """Canonical Parquet files; each user is whole in one of them."""
        return [part_file(self.folder, i) for i in range(self.partitions)]


_SNAPSHOT = TypeAdapter(Snapshot)


def part_file(folder: Path, partition: int) -> Path:
    """Canonical rows of one partition."""
    return folder / f"part-{partition:04d}.parquet"


def quarantine_schema(card: AnyCard) -> dict[str, pl.DataType | type[pl.DataType]]:
    """Columns of a quarantine file: the rule and the place, then the raw source values as text."""
    source = pl.Struct({column: pl.String() for column in card.log.roles.values()})
    return {**QUARANTINE_HEAD, "source": source}


def source_hash(card: AnyCard) -> str:
    """Sha256 of how a card says its log is read; a key left at its default is as good as absent."""
    told = card.source.model_dump(mode="json", exclude_defaults=True)
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def numbers(store: Path, dataset: str) -> list[int]:
    """Numbers of the snapshots that are there, readable or not, oldest first."""
    names = (p.name for p in (store / dataset).glob("snapshot-*"))
    return sorted(int(name[9:]) for name in names if re.fullmatch(r"snapshot-\d{4,}", name))


def snapshots(store: Path, dataset: str, *, after: int = 0, readable: bool = False) -> list[Snapshot]:
    """Snapshots of a lineage, oldest first.

    Parameters
    ----------
    store
        The operator's folder.
    dataset
        Name of the lineage.
    after
        Those with a higher number only.
    readable
        Whether one with a damaged manifest is passed over.

    Raises
    ------
    DamagedError
        If a manifest is damaged, and ``readable`` is not set.
    """
    found: list[Snapshot] = []
    for number in (n for n in numbers(store, dataset) if n > after):
        try:
            found.append(load(snapshot_folder(store / dataset, number)))
        except DamagedError:
            if not readable:
                raise
    return found


def latest(store: Path, dataset: str) -> Snapshot | None:
    """The newest snapshot, or None."""
    there = numbers(store, dataset)
    return load(snapshot_folder(store / dataset, there[-1])) if there else None


def find_snapshot(store: Path, dataset: str, number: int) -> Snapshot | None:
    """The snapshot of an edition; None if there never was one, or it was purged.

    Parameters
    ----------
    store, dataset, number
        The operator's folder, the name of the lineage, and the edition, 1 first.
    """
    folder = snapshot_folder(store / dataset, number)
    return load(folder) if folder.is_dir() else None


def snapshot_folder(lineage: Path, number: int) -> Path:
    """Where the snapshot of an edition lies in a lineage's folder of the store."""
    return lineage / f"snapshot-{number:04d}"


def intact(snapshot: Snapshot) -> bool:
    """Whether the part files are there and, to the last byte, those that were written."""
    try:
        check_parts(snapshot)
    except DamagedError:
        return False
    return True


def check_parts(snapshot: Snapshot) -> None:
    """Read every byte of a snapshot, and refuse one that is not what ingest wrote.

    Raises
    ------
    DamagedError
        If a part file is gone, cannot be read, or holds other bytes.
    """
    whole, what = hashlib.sha256(), f"{snapshot.dataset}: snapshot {snapshot.number}"
    for part in snapshot.part_files:
        try:
            with part.open("rb") as file:
                whole.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as e:
            raise DamagedError(
                f"{what}: {part.name} cannot be read ({e.strerror}); ingest the log again. Nothing was charged"
            ) from None
    if whole.hexdigest() != snapshot.data_digest:
        raise DamagedError(
            f"{what}: its part files are not those that ingest wrote; ingest the log again. Nothing was charged"
        )


def sound(waiting: Sequence[Snapshot]) -> list[Snapshot]:
    """The snapshots whose rows can be read; a damaged one is passed over where a later one was made of the same log.

    Raises
    ------
    DamagedError
        If another one is damaged.
    """
    found = [s for s in waiting if intact(s)]
    there = {s.source_digest: s.number for s in found}
    for s in waiting:
        if s not in found and there.get(s.source_digest, 0) < s.number:
            check_parts(s)
    return found


def load(folder: Path) -> Snapshot:
    """Read a snapshot's manifest.

    Raises
    ------
    DamagedError
        If it is missing or damaged.
    """
    where = folder / MANIFEST
    try:
        content: Any = json.loads(where.read_text(encoding="utf-8"))
        if content["schema_version"] != SCHEMA_VERSION:
            raise DamagedError(
                f"{where}: schema_version {content['schema_version']}, not {SCHEMA_VERSION}; ingest again"
            )
        if content.get(_DIGEST, stated := _digest_of(content)) != stated:
            raise ValueError(_DIGEST)
        return _SNAPSHOT.validate_json(json.dumps({**content, "folder": str(folder)}), strict=True)
    except (OSError, ValueError, KeyError, TypeError):
        raise DamagedError(f"{where}: missing or damaged; ingest the log again. Nothing was charged") from None


def write_manifest(snapshot: Snapshot) -> None:
    """Write the manifest into the snapshot's folder."""
    content = {"schema_version": SCHEMA_VERSION, **asdict(snapshot)}
    for name in ["folder", *(n for n in _LATER if not content[n])]:
        del content[name]
    content[_DIGEST] = _digest_of(content)
    write_file(snapshot.folder / MANIFEST, json.dumps(content, indent=1, sort_keys=True) + "\n", private=True)


def _digest_of(content: dict[str, Any]) -> str:
    """Sha256 of a manifest but for the key that holds it: the gate's counts of people stand in nothing else."""
    told = {name: value for name, value in content.items() if name != _DIGEST}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
