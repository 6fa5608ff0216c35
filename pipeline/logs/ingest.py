"""From a card's source files to a numbered snapshot of canonical rows and the quarantine of the others."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from pipeline.declaration.card import AnyCard, Card, CardError
from pipeline.declaration.toml import LogError
from pipeline.disk import DISK
from pipeline.files import open_private, private_folder, put_in_place, remove_file, remove_tree, sync_all
from pipeline.logs.rules import check_names, check_tolerance
from pipeline.logs.screening import screen
from pipeline.logs.sources import Sources, digest, examine
from pipeline.logs.store import (
    Snapshot,
    latest,
    next_number,
    note_number,
    part_file,
    write_manifest,
)
from pipeline.logs.summing import DEFAULT_MEMORY
from pipeline.logs.vectors import screen_vectors
from pipeline.logs.work import (
    Progress,
    Screened,
    Work,
    allow_files,
    begin,
    likely_partitions,
    meaning,
    most_partitions,
    resume,
    spill,
    spill_file,
    stamp,
    sweep,
)

ROWS_PER_GROUP = 1 << 18


Say = Callable[[str], None]


def ingest(
    card: AnyCard,
    store: Path,
    *,
    progress: Progress | None = None,
    partitions: int | None = None,
    lenient: bool = False,
    memory: int = DEFAULT_MEMORY,
    say: Say = lambda _: None,
) -> Snapshot:
    """Read the card's files, apply the rules, publish a snapshot; memory holds one partition at a time.

    An ingest that was killed is continued where the files and the card are as they were: what was read is not read
    again, partitions that were done stay, and the snapshot is the same to the last byte.

    Parameters
    ----------
    card
        What the files hold, and what is done with the rest.
    store
        The operator's folder; snapshots go to ``store/<card.name>/``.
    progress
        Called with (rows so far, total or None if unknown), once over all rows while reading and once more, from the
        start, while the rules are applied.
    partitions
        1 to 256; by default about a million rows each, or fewer, so that ingest stays within ``memory``.
    lenient
        Publish whatever can be read, even if that is no row, and even if more rows break the rules than the card
        tolerates.  For a nightly counter that has begun: one person's rows must not decide whether the rows of all the
        others count tonight.
    memory
        Bytes this process may take, as far as the number of rows can be told beforehand.
    say
        Called with a sentence: what was resumed, or that another ingest of the lineage is waited for.

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
    if isinstance(card, Card) and card.source.columns.next_bin is not None and card.source.columns.next_state is None:
        raise CardError(f"{card.name}: source.columns.next_bin needs next_state, which tells the ends; map it too")
    if partitions is not None and not 1 <= partitions <= most_partitions():
        raise ValueError(f"partitions must be 1 to {most_partitions()}; got {partitions}")
    home = private_folder(private_folder(store) / card.name)
    with lock_lineage(home, say):
        sources = examine(card, lenient=lenient)
        now, folder = stamp(sources, card, partitions), home / ".ingest"
        left = resume(folder, now)
        source_digest = left.source_digest if left is not None else _source_digest(sources, card)
        previous = latest(store, card.name)
        if previous is not None and previous.source_digest == source_digest:
            sweep(folder)
            if not lenient:
                # the tolerance may have changed since
                check_tolerance(card, previous.folder, previous.quarantined, previous.source_rows)
            return previous
        # its number may be noted already, but as long as its work is there no snapshot took it
        if left is not None and (previous is None or left.number > previous.number):
            say(
                f"resuming an ingest of {card.name} that stopped: its files are read, "
                f"{len(left.done)} of {left.partitions} partitions are done"
            )
            work = left
        else:
            number, cut = next_number(store, card.name), partitions or likely_partitions(card, sources, memory)
            work = begin(folder, now, source_digest, number, cut)
        try:
            if work is not left:
                _read(card, sources, work, partitions, progress)
            if work.source_rows == 0 and not lenient:
                raise LogError(f"{card.name}: the files hold no rows ({', '.join(sources.names)}); put the log there")
            snapshot = _screen(card, sources, work, progress)
            if not lenient:
                _refuse_beyond_tolerance(card, snapshot, home)
                _refuse_empty(card, snapshot)
            note_number(store, card.name, work.number)
            published = _publish(snapshot, home / f"snapshot-{work.number:04d}")
        except BaseException as e:
            # a log that is refused, or was not read to its end, leaves nothing to continue with
            if isinstance(e, LogError) or not work.resumable:
                sweep(folder)
            raise
        sweep(folder)
        return published


def write_rows(rows: pl.DataFrame, path: Path) -> None:
    """Write canonical rows: a dictionary for every column, rewards too, so that counting reads few bytes; 0600."""
    with open_private(path) as file:
        pq.write_table(rows.to_arrow(), file, compression="zstd", row_group_size=ROWS_PER_GROUP)


def _read(card: AnyCard, sources: Sources, work: Work, partitions: int | None, progress: Progress | None) -> None:
    """First pass: rows to the temporary files of their partitions; afterwards the source files are not needed."""
    allow_files(work.partitions)
    spill(sources, card, work, progress)
    if stamp(sources, card, partitions) != work.stamp:
        raise LogError(f"{card.name}: a file changed while it was read; ingest again when the files are complete")
    sync_all(work.folder)
    work.save()


def _screen(card: AnyCard, sources: Sources, work: Work, progress: Progress | None) -> Snapshot:
    """Second pass: apply the rules, from the first partition that is not done."""
    seen = sum(work.filed.values()) + sum(one.spilt for one in work.done)
    for i in range(len(work.done), work.partitions):
        raw = _read_spill(spill_file(work.folder, i), sources)
        judge = screen(raw, card, sources.names) if isinstance(card, Card) else screen_vectors(raw, card, sources.names)
        canonical, quarantine = judge
        write_rows(canonical, part_file(work.built, i))
        _write(quarantine, work.built / f"quarantine-{i:04d}.parquet")
        with part_file(work.built, i).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        work.done.append(
            Screened(
                spilt=len(raw),
                rows=len(canonical),
                users=canonical["user_id"].n_unique(),
                episodes=canonical.select("user_id", "episode_id").n_unique(),
                filed=dict(quarantine.group_by("rule").len().iter_rows()),
                digest=digest,
                bytes=part_file(work.built, i).stat().st_size,
            )
        )
        work.save()
        remove_file(spill_file(work.folder, i))
        seen += len(raw)
        if progress is not None:
            progress(seen, work.source_rows)
    return _summarise(card, work)


def _summarise(card: AnyCard, work: Work) -> Snapshot:
    filed = Counter(work.filed)
    data = hashlib.sha256()
    for one in work.done:
        filed.update(one.filed)
        data.update(bytes.fromhex(one.digest))
    return Snapshot(
        dataset=card.name,
        number=work.number,
        folder=work.built,
        kind=card.kind,
        domain_hash=card.domain_hash(),
        source_digest=work.source_digest,
        data_digest=data.hexdigest(),
        source_rows=work.source_rows,
        rows=sum(one.rows for one in work.done),
        users=sum(one.users for one in work.done),
        episodes=sum(one.episodes for one in work.done),
        quarantined=dict(sorted(filed.items())),
        partitions=work.partitions,
    )


def _read_spill(file: Path, sources: Sources) -> pl.DataFrame:
    """Rows of a partition."""
    if not file.exists():
        schema = {f"raw_{role}": dtype for role, dtype in sources.dtypes.items()}
        return pl.DataFrame(schema={**schema, "file": pl.Int32(), "line": pl.Int64()})
    with file.open("rb") as stream:
        return pl.read_ipc_stream(stream)


def _write(frame: pl.DataFrame, path: Path) -> None:
    with open_private(path) as file:
        frame.write_parquet(file, compression="zstd")
    DISK.sync(path)


def _refuse_beyond_tolerance(card: AnyCard, snapshot: Snapshot, home: Path) -> None:
    try:
        check_tolerance(card, snapshot.folder, snapshot.quarantined, snapshot.source_rows)
    except LogError as e:
        for part in snapshot.part_files:
            remove_file(part)
        refused = home / "refused"
        # no folder of raw rows is left under a name that `store purge` does not know
        remove_tree(refused)
        put_in_place(snapshot.folder, refused)
        raise LogError(f"{e}.  Nothing was published; the rows are in {refused}") from None


def _refuse_empty(card: AnyCard, snapshot: Snapshot) -> None:
    """A snapshot of real people without a row would spend their budget on pure noise."""
    if card.kind == "real" and not snapshot.rows:
        most = max(snapshot.quarantined, key=lambda rule: snapshot.quarantined[rule], default="none")
        raise LogError(
            f"{card.name}: not one of {snapshot.source_rows:,} rows is left (most broke {most}); "
            "do the card's labels and columns fit the files?"
        )


def _publish(snapshot: Snapshot, folder: Path) -> Snapshot:
    write_manifest(snapshot)
    put_in_place(snapshot.folder, folder)
    return replace(snapshot, folder=folder)


def _source_digest(sources: Sources, card: AnyCard) -> str:
    text = json.dumps({"files": digest(sources), **meaning(card)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def lock_lineage(home: Path, say: Say = lambda _: None) -> Generator[None, None, None]:
    """Wait until no other ingest of the lineage whose folder is ``home`` runs, nor a purge that takes its files.

    Parameters
    ----------
    home
        The lineage's folder in the store.
    say
        Called with a sentence, if another ingest is waited for.
    """
    with open_private(home / ".lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another ingest of {home.name} is running; waiting for it to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
