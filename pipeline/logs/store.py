"""The operator's store: numbered snapshots of a lineage and the columns of their rows; folders 0700, files 0600.

A snapshot's number is its *edition*: each requested ingest and each scheduled night takes one, whatever the files hold.
No number is used twice.  It stands in the ledger, in run keys and on published pages, so it must not depend on the rows
(privacy.md §0.2-1).
"""

import fcntl
import hashlib
import json
import os
import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from pipeline.declaration.card import AnyCard, CardError
from pipeline.declaration.toml import DamagedError, LogError
from pipeline.files import remove_file, remove_tree, whole_file, write_file
from pipeline.logs.rules import check_tolerance

SCHEMA_VERSION = 1

Dtype = pl.DataType | type[pl.DataType]
# user_id is String or Int64, as in the files
_PLACE: dict[str, Dtype] = {"user_id": pl.String, "episode_id": pl.Int64, "step": pl.Int32}
_FLAGS: dict[str, Dtype] = {"terminated": pl.Boolean, "truncated": pl.Boolean, "behavior_prob": pl.Float64}
_VECTOR = pl.List(pl.Float32)
# a row with a null next_state counts in no table, but for a last step where sums differ by step (aggregate.successor)
CANONICAL: dict[str, Dtype] = (
    _PLACE | {"state": pl.Int32, "action": pl.Int32, "reward": pl.Float64, "next_state": pl.Int32} | _FLAGS
)
# further columns if the card declares an observation, in units of its scales
OBSERVED: dict[str, Dtype] = {"observation": _VECTOR, "next_observation": _VECTOR}
# columns of a log of vectors, in units of the declared scales; a row with a null next_observation is in no sum
VECTORS: dict[str, Dtype] = (
    _PLACE | {"observation": _VECTOR, "action": _VECTOR, "reward": pl.Float64, "next_observation": _VECTOR} | _FLAGS
)

MANIFEST = "manifest.json"
# key of a manifest's digest, absent in older versions
_DIGEST = "sha256"
# left out of a manifest if empty, as in older versions
_LATER = ("night", "unread", "source_hash", "set_aside", "claimed", "ids", "cells")


@dataclass(frozen=True)
class Snapshot:
    """One ingest of a lineage.  Counts are the operator's: they enter no report.

    ``dataset``, ``number``: name of the lineage, and the number of this ingest, 1 first.
    ``domain_hash``: sha256 of the card's declarations that the ledger registered (design §5.1).
    ``source_digest``, ``data_digest``: sha256 of the source (files and the card's declarations of them) and of the
    part files.
    ``night``: the date of the scheduled night that made it (ISO); empty for a requested ingest.
    ``source_hash``: sha256 of the card's [source] (:func:`source_hash`); empty in older versions.
    ``set_aside``: people by broken rules: see :func:`~pipeline.logs.ingest.count_people`.
    ``claimed``: 1 + the ledger's entry since which these people are claimed for the lineage; 0: they are not.
    ``ids``: version of the canonical form of user ids (:mod:`~pipeline.logs.contribution_bounding`); 0: as delivered.
    ``cells``: version of how cells are read (:data:`~pipeline.logs.decode.CELLS`); 0: as an older version did.
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
    ids: int = 0
    cells: int = 0

    @property
    def part_files(self) -> list[Path]:
        """Canonical Parquet files; each user is whole in one of them."""
        return [part_file(self.folder, i) for i in range(self.partitions)]


_SNAPSHOT = TypeAdapter(Snapshot)


def part_file(folder: Path, partition: int) -> Path:
    """Path of the canonical rows of one partition."""
    return folder / f"part-{partition:04d}.parquet"


def quarantine_schema(card: AnyCard) -> dict[str, Dtype]:
    """Columns of a quarantine file: the rule and the place, then the raw source values as text."""
    texts = dict.fromkeys(("rule", "effect", "file"), pl.String)
    source = pl.Struct({column: pl.String() for column in card.log.roles.values()})
    return {**texts, "line": pl.Int64, "text": pl.String, "source": source}


def source_hash(card: AnyCard) -> str:
    """Compute the sha256 of a card's [source]; a key at its default counts as absent."""
    declared = card.source.model_dump(mode="json", exclude_defaults=True)
    return hashlib.sha256(json.dumps(declared, sort_keys=True).encode()).hexdigest()


def check_source(snapshot: Snapshot, card: AnyCard) -> None:
    """Refuse a snapshot that was read by another [source] than the card's.

    Raises CardError if [source] was edited since.
    """
    if snapshot.source_hash not in ("", source_hash(card)):
        raise CardError(
            f"{card.name}: [source] was edited since snapshot {snapshot.number} was ingested; ingest again, or put "
            "[source] back. Nothing was charged"
        )


def numbers(store: Path, dataset: str) -> list[int]:
    """Numbers of the existing snapshots, readable or not, oldest first."""
    names = (p.name for p in (store / dataset).glob("snapshot-*"))
    return sorted(int(name[9:]) for name in names if re.fullmatch(r"snapshot-\d{4,}", name))


def snapshots(store: Path, dataset: str, *, after: int = 0, readable: bool = False) -> list[Snapshot]:
    """Snapshots of a lineage, oldest first.

    ``after``: those with a higher number only.
    Raises DamagedError if a manifest is damaged, and ``readable`` is not set.
    """
    loaded: list[Snapshot] = []
    for number in (n for n in numbers(store, dataset) if n > after):
        try:
            loaded.append(load(snapshot_folder(store / dataset, number)))
        except DamagedError:
            if not readable:
                raise
    return loaded


def latest(store: Path, dataset: str) -> Snapshot | None:
    """Newest snapshot, or None."""
    existing = numbers(store, dataset)
    return load(snapshot_folder(store / dataset, existing[-1])) if existing else None


def find_snapshot(store: Path, dataset: str, number: int) -> Snapshot | None:
    """Snapshot of an edition; None if there never was one, or it was purged.

    ``store``, ``dataset``, ``number``: the operator's folder, the name of the lineage, and the edition, 1 first.
    """
    folder = snapshot_folder(store / dataset, number)
    return load(folder) if folder.is_dir() else None


def snapshot_folder(lineage: Path, number: int) -> Path:
    """Folder of the snapshot of an edition, in a lineage's folder of the store."""
    return lineage / f"snapshot-{number:04d}"


def intact(snapshot: Snapshot) -> bool:
    """Whether the part files exist and hold, to the last byte, what was written."""
    try:
        check_parts(snapshot)
    except DamagedError:
        return False
    return True


def check_parts(snapshot: Snapshot) -> None:
    """Read every byte of a snapshot, and refuse one that differs from what ingest wrote.

    Raises DamagedError if a part file is missing, cannot be read, or holds other bytes.
    """
    total, name = hashlib.sha256(), f"{snapshot.dataset}: snapshot {snapshot.number}"
    for part in snapshot.part_files:
        try:
            with part.open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as e:
            raise _damaged(f"{name}: {part.name} cannot be read ({e.strerror})") from None
    if total.hexdigest() != snapshot.data_digest:
        raise _damaged(f"{name}: its part files are not those that ingest wrote")


def _damaged(what: str) -> DamagedError:
    return DamagedError(f"{what}; ingest the log again. Nothing was charged")


def sound(waiting: Sequence[Snapshot]) -> list[Snapshot]:
    """Snapshots whose rows can be read; a damaged one is skipped if a later one was made of the same log.

    Raises DamagedError if another one is damaged.
    """
    readable = [s for s in waiting if intact(s)]
    newest = {s.source_digest: s.number for s in readable}
    for s in waiting:
        if s not in readable and newest.get(s.source_digest, 0) < s.number:
            check_parts(s)
    return readable


def load(folder: Path) -> Snapshot:
    """Read a snapshot's manifest.

    Raises DamagedError if it is missing or damaged.
    """
    manifest = folder / MANIFEST
    try:
        content: Any = json.loads(manifest.read_text(encoding="utf-8"))
        if content["schema_version"] != SCHEMA_VERSION:
            raise DamagedError(
                f"{manifest}: schema_version {content['schema_version']}, not {SCHEMA_VERSION}; ingest again"
            )
        if content.get(_DIGEST, stated := _digest_of(content)) != stated:
            raise ValueError(_DIGEST)
        return _SNAPSHOT.validate_json(json.dumps({**content, "folder": str(folder)}), strict=True)
    except (OSError, ValueError, KeyError, TypeError):
        raise _damaged(f"{manifest}: missing or damaged") from None


def write_manifest(snapshot: Snapshot) -> None:
    """Write the manifest into the snapshot's folder."""
    content = {"schema_version": SCHEMA_VERSION, **asdict(snapshot)}
    for name in ["folder", *(n for n in _LATER if not content[n])]:
        del content[name]
    content[_DIGEST] = _digest_of(content)
    write_file(snapshot.folder / MANIFEST, json.dumps(content, indent=1, sort_keys=True) + "\n", private=True)


def _digest_of(content: dict[str, Any]) -> str:
    """Compute the sha256 of a manifest without the key that holds it."""
    contents = {name: value for name, value in content.items() if name != _DIGEST}
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


_UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, LookupError, AttributeError)
# file of a number that is noted, and perhaps not published yet
_BEGUN = ".edition"
# folder of the raw rows of an ingest in progress
WORK = ".ingest"


def take_number(store: Path, dataset: str) -> int:
    """Number of the edition that begins now; the caller holds the lineage's lock.

    It is above every earlier one, purged ones included.  A number that was noted and never published is that of the
    next ingest: the number of a retry depends on no row.

    Raises LogError if the note of the highest number is damaged.
    """
    begun = _begun(store / dataset)
    if begun is not None:
        return begun
    note = _number_note(store, dataset)
    try:
        highest = int(note.read_text(encoding="utf-8")) if note.exists() else 0
    except ValueError:
        raise LogError(f"{note}: damaged; write the highest snapshot number ever given into it") from None
    return 1 + max([highest, *numbers(store, dataset)])


def note_number(store: Path, dataset: str, number: int) -> None:
    """Note a number before its snapshot is published; the note lies beside the lineage's folder and outlives it."""
    for note in (store / dataset / _BEGUN, _number_note(store, dataset)):
        with whole_file(note, private=True) as fresh:
            write_file(fresh, f"{number}\n")


def end_edition(lineage: Path) -> bool:
    """Remove the note of a number whose snapshot is published; return whether there was one."""
    begun = _begun(lineage)
    if begun is None or not snapshot_folder(lineage, begun).is_dir():
        return False
    remove_file(lineage / _BEGUN)
    return True


def leftovers(lineage: Path) -> list[Path]:
    """Files that a killed ingest left (rows), and that older versions left of a sum (exact sums)."""
    return [p for p in (lineage / WORK, *sorted(lineage.glob("snapshot-*/.sums*"))) if p.exists()]


def sweep(lineage: Path) -> None:
    """Remove the leftovers; the caller holds the lineage's lock."""
    for path in leftovers(lineage):
        (remove_tree if path.is_dir() else remove_file)(path)


@contextmanager
def lock_lineage(home: Path, say: Callable[[str], None] = lambda _: None) -> Generator[None]:
    """Wait until no other ingest of the lineage whose folder is ``home`` runs, nor a purge that takes its files."""
    # a lock file has no content, so it needs no sync
    with os.fdopen(os.open(home / ".lock", os.O_RDWR | os.O_CREAT, 0o600), "r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another ingest of {home.name} is running; waiting for it to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        # published, but killed before it was tidied away
        if end_edition(home):
            remove_tree(home / WORK)
        yield


@contextmanager
def set_aside(snapshot: Snapshot) -> Generator[list[Path]]:
    """Quarantine files of a snapshot, to be read in the context, during which no purge happens; none after a purge.

    Raises DamagedError instead of a reading error if one of the files or parts cannot be read.
    """
    with lock_lineage(snapshot.folder.parent):
        files = sorted(snapshot.folder.glob("quarantine-*.parquet"))
        try:
            yield files
        except _UNREADABLE:
            for file in files:
                _read_whole(file, snapshot)
            check_parts(snapshot)
            raise


def _read_whole(file: Path, snapshot: Snapshot) -> None:
    try:
        pl.read_parquet(file).select("rule", "effect", "file", "line", pl.col("source").struct.unnest())
    except _UNREADABLE as e:
        raise DamagedError(
            f"{snapshot.dataset}: {file}: damaged ({type(e).__name__}); ingest the log again, or remove what was set "
            "aside: `reticent store purge CARD --quarantine-only`"
        ) from None


def check_delivery(card: AnyCard, snapshot: Snapshot, *, may_be_empty: bool = False) -> None:
    """Refuse a log that does not fit its card; for the operator only, as one person's rows may be the cause.

    Raises LogError if its files could not be read, no row is left, or more rows break a rule than the card accepts.
    """
    if snapshot.unread:
        raise LogError(f"{snapshot.unread}.  The rows of the edition before it stand")
    if not snapshot.source_rows and not may_be_empty:
        raise LogError(f"{card.name}: the files hold no rows; put the log there")
    with set_aside(snapshot) as files:
        check_tolerance(card, files, snapshot.quarantined, snapshot.source_rows)
    if not snapshot.rows and not may_be_empty:
        most = max(snapshot.quarantined, key=lambda rule: snapshot.quarantined[rule], default="none")
        raise LogError(
            f"{card.name}: not one of {snapshot.source_rows:,} rows is left (most broke {most}); "
            "do the card's labels and columns fit the files?"
        )


def earlier_twin(store: Path, snapshot: Snapshot) -> int | None:
    """First edition that was made of the same bytes under the same declarations; for the operator only."""
    earlier = (s for s in snapshots(store, snapshot.dataset, readable=True) if s.number < snapshot.number)
    return next((s.number for s in earlier if s.source_digest == snapshot.source_digest), None)


def same_rows(store: Path, snapshot: Snapshot) -> list[str]:
    """Names of the other datasets of a store with an edition of the very same rows; for the operator only."""
    others = (p.name for p in sorted(store.iterdir()) if p.is_dir() and p.name != snapshot.dataset)
    return [
        name
        for name in others
        if any(s.rows and s.data_digest == snapshot.data_digest for s in snapshots(store, name, readable=True))
    ]


def _begun(lineage: Path) -> int | None:
    note = lineage / _BEGUN
    try:
        return int(note.read_text(encoding="utf-8")) if note.exists() else None
    except ValueError:
        raise LogError(f"{note}: damaged; remove it") from None


def _number_note(store: Path, dataset: str) -> Path:
    return store / f".last-snapshot-{dataset}"
