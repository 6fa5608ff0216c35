"""From a card's source files to an edition: a numbered snapshot of canonical rows, and the quarantine of the others."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path

from pipeline.declaration.card import AnyCard, Card, CardError
from pipeline.declaration.toml import LogError
from pipeline.files import private_folder, put_in_place, remove_file, remove_tree, share
from pipeline.logs.contribution_bounding import IDS
from pipeline.logs.elsewhere import Elsewhere, Here, OnProcesses, Seen
from pipeline.logs.rules import check_names
from pipeline.logs.second_pass import Claims, Screened, ScreenPartition, count_people, find_others, readable_quarantine
from pipeline.logs.sources import Sources, digest, examine, reader_digest, source_digest_of
from pipeline.logs.spills import (
    IngestWork,
    ReadFiles,
    Share,
    gather_nobodys,
    likely_partitions,
    likely_processes,
    most_partitions,
    read_users,
)
from pipeline.logs.store import (
    WORK,
    Snapshot,
    end_edition,
    intact,
    lock_lineage,
    note_number,
    snapshot_folder,
    snapshots,
    source_hash,
    sweep,
    take_number,
    write_manifest,
)
from pipeline.logs.summing import HERE, Progress, Resources

# shares of the files a worker: enough that a slow one at the end is short
_SHARES_EACH = 4

Say = Callable[[str], None]


def ingest(
    card: AnyCard,
    store: Path,
    *,
    night: date | None = None,
    partitions: int | None = None,
    resources: Resources = HERE,
    claims: Claims | None = None,
    files: Sequence[Path] | None = None,
) -> Snapshot:
    """Make the next edition: read the card's files, apply the rules, publish a snapshot, whatever came in.

    A process holds one partition at a time.  Files that an earlier edition was made of are not read again: their rows
    are stored once.  Whatever a killed ingest or a killed sum left is removed.

    Whether the log fits its card is not asked here: see :func:`~pipeline.logs.store.check_delivery`.

    ``night``: the date of a scheduled night: it has one edition, so a second call reads nothing and finds that; where
    the files cannot be read, it has the rows of the edition before it.  None: somebody asked for it.
    ``partitions``: 1 to 256; by default about a million rows each, or fewer, so that ingest stays within the memory
    there is.
    ``resources``: memory: of this process and those it starts, as far as the number of rows can be told beforehand.
    Who reads and screens; None: as many processes of this machine as are worth it and the memory holds.  The snapshot
    is the same to the last byte.  Progress is told once over all rows while reading and once more, from the start,
    while the rules are applied; what is said is also that another ingest of the lineage is waited for.
    Raises CardError if the card names files or rules that do not exist.
    Raises RuntimeError if processes die over the same rows.
    Raises LogError if a file cannot be read; nothing is published then, and the next ingest takes the edition's number.
    """
    check_names(card)
    if isinstance(card, Card) and card.source.columns.next_bin is not None and card.source.columns.next_state is None:
        raise CardError(f"{card.name}: source.columns.next_bin needs next_state, which tells the ends; map it too")
    if partitions is not None and not 1 <= partitions <= most_partitions():
        raise ValueError(f"partitions must be 1 to {most_partitions()}; got {partitions}")
    home, date_of = private_folder(private_folder(store) / card.name), "" if night is None else night.isoformat()
    with lock_lineage(home, resources.say):
        sweep(home)
        there = snapshots(store, card.name, readable=True)
        before = [s for s in there if (s.domain_hash, s.kind) == (card.domain_hash(), card.kind)]
        tonight = (s for s in before if s.night == date_of and s.source_hash in ("", source_hash(card)))
        if night is not None and (made := next(tonight, None)) is not None:
            return made
        number = take_number(store, card.name)
        try:
            made = _make(card, home, there, partitions, resources, claims, files)
        except (CardError, LogError) as e:
            last = next((s for s in reversed(before) if intact(s)), None)
            if night is None or last is None:
                raise
            made = replace(_repeat(last, card, home / WORK), unread=str(e))
        note_number(store, card.name, number)
        made = replace(made, number=number, night=date_of, source_hash=source_hash(card))
        published = _publish(made, snapshot_folder(home, number))
        remove_tree(home / WORK)
        end_edition(home)
        return published


def _make(
    card: AnyCard,
    home: Path,
    there: Sequence[Snapshot],
    partitions: int | None,
    resources: Resources,
    claims: Claims | None,
    files: Sequence[Path] | None,
) -> Snapshot:
    """The snapshot of the card's files as they are, in the work folder; its number is not settled."""
    sources, folder = examine(card, files), home / WORK
    before = _stats(sources)
    apart = {"apart": list(claims.apart), "since": claims.since} if claims is not None and claims.apart else None
    source_digest = source_digest_of(digest(sources.paths), card, apart)
    # what is damaged is made anew, and so are parts of people who were not claimed, or whose ids have not one form
    of_form = (s for s in reversed(there) if s.source_digest == source_digest and s.ids == IDS)
    of_them = (s for s in of_form if claims is None or s.claimed)
    same = (s for s in of_them if intact(s) and readable_quarantine(s.folder))
    if (twin := next(same, None)) is not None:
        return _repeat(twin, card, folder)
    private_folder(private_folder(folder) / "built")
    work = IngestWork(folder, partitions or likely_partitions(card, sources, resources.memory))
    try:
        with _crew(resources.elsewhere, likely_processes(card, sources, work.partitions, resources.memory)) as crew:
            _read(card, sources, work, resources.progress, crew)
            if _stats(sources) != before:
                raise LogError(f"{card.name}: a file changed while it was read; ingest again when all are complete")
            made = _screen(card, sources, work, resources.progress, claims, crew)
    except BaseException:
        remove_tree(folder)
        raise
    return replace(made, source_digest=source_digest)


def _stats(sources: Sources) -> list[tuple[int, int]]:
    """Size and time of each file: what changes where somebody writes to it."""
    return [(stat.st_size, stat.st_mtime_ns) for stat in (path.stat() for path in sources.paths)]


@contextmanager
def _crew(elsewhere: Elsewhere | None, processes: int) -> Generator[Elsewhere]:
    """Who works: who was asked for, else processes of this machine, where there is enough to do for more than one."""
    if elsewhere is not None or processes == 1:
        yield elsewhere or Here()
        return
    with OnProcesses(processes) as crew:
        yield crew


def _repeat(of: Snapshot, card: AnyCard, work: Path) -> Snapshot:
    """The rows of an earlier edition once more, in the work folder: its files under a second name."""
    folder = private_folder(private_folder(work) / "built")
    for file in [*of.part_files, *of.folder.glob("quarantine-*.parquet")]:
        share(file, folder / file.name)
    # an older version did not count people
    people = of.set_aside or count_people(of.folder, card)
    return replace(of, folder=folder, kind=card.kind, unread="", set_aside=people)


def _read(card: AnyCard, sources: Sources, work: IngestWork, progress: Progress | None, crew: Elsewhere) -> None:
    """First pass: rows to the temporary files of their partitions; afterwards the source files are not needed."""
    crew.ready(sources.paths)
    # each share has a file of every partition: not more of them than keep everybody busy
    count, each = len(sources.files), 1 if isinstance(crew, Here) else _SHARES_EACH * crew.together
    ends = [i * count // min(count, each) for i in range(min(count, each) + 1)] if count else []
    reader, told = reader_digest(card), _counter(progress, 0, sources.rows)
    tasks = [ReadFiles(sources, card, *of, work.folder, work.partitions, reader) for of in pairwise(ends)]
    found: dict[int, Share] = {task.first: share for task, share in crew.each(tasks, told)}
    work.shares = [found[task.first] for task in tasks]
    gather_nobodys(work)


def _screen(
    card: AnyCard, sources: Sources, work: IngestWork, progress: Progress | None, claims: Claims | None, crew: Elsewhere
) -> Snapshot:
    """Second pass: apply the rules to one partition after the other."""
    told = _counter(progress, sum(sum(share.filed.values()) for share in work.shares), work.source_rows)

    def task(partition: int) -> ScreenPartition:
        files = tuple(work.spill_files(partition))
        claimed = None if claims is None else find_others(read_users(files, sources), claims)
        return ScreenPartition(sources, card, partition, files, work.built, claimed)

    screened: dict[int, Screened] = {}
    for done, result in crew.each(map(task, range(work.partitions)), lambda _: None):
        screened[done.partition] = result
        told(result.spilt)
        for file in done.files:
            remove_file(file)
    return _summarise(card, work, [screened[i] for i in range(work.partitions)], claims)


def _counter(progress: Progress | None, seen: int, total: int | None) -> Seen:
    """Adds up rows, and tells of them."""

    def told(rows: int) -> None:
        nonlocal seen
        seen += rows
        if progress is not None:
            progress(seen, total)

    return told


def _summarise(card: AnyCard, work: IngestWork, done: Sequence[Screened], claims: Claims | None) -> Snapshot:
    filed, data = Counter[str](), hashlib.sha256()
    for nobodys in work.shares:
        filed.update(nobodys.filed)
    for one in done:
        filed.update(one.filed)
        data.update(bytes.fromhex(one.digest))
    return Snapshot(
        dataset=card.name,
        number=0,
        folder=work.built,
        kind=card.kind,
        domain_hash=card.domain_hash(),
        source_digest="",
        data_digest=data.hexdigest(),
        source_rows=work.source_rows,
        rows=sum(one.rows for one in done),
        users=sum(one.users for one in done),
        episodes=sum(one.episodes for one in done),
        quarantined=dict(sorted(filed.items())),
        partitions=work.partitions,
        set_aside=count_people(work.built, card),
        claimed=0 if claims is None else 1 + claims.since,
        ids=IDS,
    )


def _publish(snapshot: Snapshot, folder: Path) -> Snapshot:
    write_manifest(snapshot)
    put_in_place(snapshot.folder, folder)
    return replace(snapshot, folder=folder)
