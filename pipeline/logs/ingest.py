"""From a card's source files to a numbered snapshot of canonical rows and the quarantine of the others."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from pipeline.card import Card, CardError
from pipeline.logs.errors import LogError
from pipeline.logs.schema import SCHEMA_VERSION
from pipeline.logs.screen import screen
from pipeline.logs.sources import Sources, digest, examine
from pipeline.logs.spill import Progress, spill, spill_file
from pipeline.logs.store import (
    Snapshot,
    latest,
    open_private,
    part_file,
    private_folder,
    settle,
    snapshots,
    write_manifest,
)
from pipeline.logs.tolerance import check_names, check_tolerance

ROWS_PER_PARTITION = 1_000_000
MOST_PARTITIONS = 256
ROWS_PER_GROUP = 1 << 18


def ingest(card: Card, store: Path, *, progress: Progress | None = None, partitions: int | None = None) -> Snapshot:
    """Read the card's files, apply the rules, publish a snapshot; memory holds one partition at a time.

    Parameters
    ----------
    store
        The operator's folder; snapshots go to ``store/<card.name>/``.
    progress
        Called with (rows so far, total or None if unknown), once over all rows while reading and once more, from the
        start, while the rules are applied.
    partitions
        1 to 256; by default about a million rows each.

    Returns
    -------
    The new snapshot, or the latest one if it was made from the same files and the same declarations.

    Raises
    ------
    CardError
        If the card names files or rules that do not exist.
    LogError
        If a file cannot be read, or the rows break a rule beyond the card's tolerance; nothing is published then, and
        the quarantine is kept in ``store/<card.name>/refused/``.
    """
    check_names(card)
    if card.source.columns.next_bin is not None and card.source.columns.next_state is None:
        raise CardError(f"{card.name}: source.columns.next_bin needs next_state, which tells the ends; map it too")
    if partitions is not None and not 1 <= partitions <= MOST_PARTITIONS:
        raise ValueError(f"partitions must be 1 to {MOST_PARTITIONS}; got {partitions}")
    sources = examine(card)
    source_digest = _source_digest(sources, card)
    home = private_folder(private_folder(store) / card.name)
    with _alone(home):
        previous = latest(store, card.name)
        if previous is not None and previous.source_digest == source_digest:
            # the tolerance may have changed since
            check_tolerance(card, previous.folder, previous.quarantined, previous.source_rows)
            return previous
        number = 1 + max((s.number for s in snapshots(store, card.name)), default=0)
        work = private_folder(home / ".ingest")
        try:
            parts = partitions or min(MOST_PARTITIONS, 1 + sources.likely_rows // ROWS_PER_PARTITION)
            snapshot = _build(card, sources, source_digest, number, work, parts, progress)
            _refuse_beyond_tolerance(card, snapshot, home)
            return _publish(snapshot, home / f"snapshot-{number:04d}")
        finally:
            shutil.rmtree(work, ignore_errors=True)


def write_rows(rows: pl.DataFrame, path: Path) -> None:
    """Write canonical rows: a dictionary for every column, rewards too, so that counting reads few bytes; 0600."""
    with open_private(path) as file:
        pq.write_table(rows.to_arrow(), file, compression="zstd", row_group_size=ROWS_PER_GROUP)


def _build(
    card: Card, sources: Sources, source_digest: str, number: int, work: Path, parts: int, progress: Progress | None
) -> Snapshot:
    source_rows = spill(sources, card, work, parts, progress)
    if source_rows == 0:
        raise LogError(f"{card.name}: the files hold no rows ({', '.join(sources.names)}); put the log there")
    malformed = work / "quarantine-malformed.parquet"
    filed: Counter[str] = Counter()
    done = rows = users = episodes = 0
    if malformed.exists():
        done = pl.scan_parquet(malformed).select(pl.len()).collect().item()
        filed["malformed_line"] = done
    data = hashlib.sha256()
    for i in range(parts):
        raw = _spilt(spill_file(work, i), sources)
        canonical, quarantine = screen(raw, card, sources.names)
        write_rows(canonical, part_file(work, i))
        _write(quarantine, work / f"quarantine-{i:04d}.parquet")
        with part_file(work, i).open("rb") as file:
            data.update(hashlib.file_digest(file, "sha256").digest())
        filed.update(dict(quarantine.group_by("rule").len().iter_rows()))
        rows += len(canonical)
        users += canonical["user_id"].n_unique()
        episodes += canonical.select("user_id", "episode_id").n_unique()
        done += len(raw)
        if progress is not None:
            progress(done, source_rows)
    return Snapshot(
        dataset=card.name,
        number=number,
        folder=work,
        kind=card.kind,
        domain_hash=card.domain_hash(),
        source_digest=source_digest,
        data_digest=data.hexdigest(),
        source_rows=source_rows,
        rows=rows,
        users=users,
        episodes=episodes,
        quarantined=dict(sorted(filed.items())),
        partitions=parts,
    )


def _spilt(file: Path, sources: Sources) -> pl.DataFrame:
    """Rows of a partition; its temporary file is gone afterwards."""
    if not file.exists():
        schema = {f"raw_{role}": dtype for role, dtype in sources.dtypes.items()}
        return pl.DataFrame(schema={**schema, "file": pl.Int32(), "line": pl.Int64()})
    with file.open("rb") as stream:
        raw = pl.read_ipc_stream(stream)
    file.unlink()
    return raw


def _write(frame: pl.DataFrame, path: Path) -> None:
    with open_private(path) as file:
        frame.write_parquet(file, compression="zstd")


def _refuse_beyond_tolerance(card: Card, snapshot: Snapshot, home: Path) -> None:
    try:
        check_tolerance(card, snapshot.folder, snapshot.quarantined, snapshot.source_rows)
    except LogError as e:
        for part in snapshot.part_files:
            part.unlink()
        refused = home / "refused"
        shutil.rmtree(refused, ignore_errors=True)
        snapshot.folder.rename(refused)
        raise LogError(f"{e}.  Nothing was published; the rows are in {refused}") from None


def _publish(snapshot: Snapshot, folder: Path) -> Snapshot:
    write_manifest(snapshot)
    settle(snapshot.folder)
    snapshot.folder.rename(folder)
    settle(folder.parent)
    return replace(snapshot, folder=folder)


def _source_digest(sources: Sources, card: Card) -> str:
    told = card.model_dump(mode="json", include={"source", "domain", "unit", "reward"})
    text = json.dumps({"schema_version": SCHEMA_VERSION, "files": digest(sources), **told}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def _alone(home: Path) -> Generator[None, None, None]:
    """Wait until no other ingest of the lineage runs; then what it left unfinished is of no use."""
    with open_private(home / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(home / ".ingest", ignore_errors=True)
        yield
