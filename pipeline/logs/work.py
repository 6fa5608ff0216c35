"""Work in progress of an ingest: how many partitions, the rows spilt into them, and what of them is finished.

The first pass sends each row to one temporary file a partition, chosen by a keyed hash of the user, in bounded memory;
an ingest that was killed continues where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import resource
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.declaration.card import AnyCard, Card, CardError
from pipeline.declaration.plugins import is_plugin, plugin_digest
from pipeline.files import open_private, private_folder, remove_tree, whole_file, write_file
from pipeline.logs import rules
from pipeline.logs.decode import keyed_hash
from pipeline.logs.screening import quarantine_rows
from pipeline.logs.sources import Sources, read_batches
from pipeline.logs.store import SCHEMA_VERSION, part_file, quarantine_schema

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
    own = {"reader": plugin_digest(card.source.format)} if is_plugin(card.source.format) else {}
    return {"schema_version": SCHEMA_VERSION, **told, **own}


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


Progress = Callable[[int, int | None], None]


def spill(sources: Sources, card: AnyCard, work: Work, progress: Progress | None) -> None:
    """Read every record once; file those that are nobody's as ``quarantine-malformed.parquet`` in ``work.built``.

    Fills in ``source_rows``, ``filed`` and ``spills``.

    Raises
    ------
    LogError
        If a file cannot be read to its end.
    """
    with ExitStack() as stack:
        writers: dict[int, Any] = {}
        filed: Any = None
        for index, name in enumerate(sources.names):
            for batch, frame in read_batches(sources, index):
                frame = frame.with_columns(
                    pl.lit(index, dtype=pl.Int32).alias("file"), pl.Series("line", batch.lines, dtype=pl.Int64)
                )
                nobody = frame.select(rules.null_user(pl.col("raw_user"))).to_series()
                for partition, piece in _split(
                    frame.filter(~nobody) if nobody.any() else frame, card.name, work.partitions
                ):
                    table = piece.to_arrow()
                    if partition not in writers:
                        sink = stack.enter_context(open_private(spill_file(work.folder, partition)))
                        lz4 = pa.ipc.IpcWriteOptions(compression="lz4")
                        writers[partition] = stack.enter_context(pa.ipc.new_stream(sink, table.schema, options=lz4))
                    writers[partition].write_table(table)
                for found in (_malformed(batch.malformed, name, card), _nobodys(frame, nobody, card, sources.names)):
                    if len(found):
                        table, rule = found.to_arrow(), found["rule"][0]
                        if filed is None:
                            sink = stack.enter_context(open_private(work.built / "quarantine-malformed.parquet"))
                            filed = stack.enter_context(pq.ParquetWriter(sink, table.schema, compression="zstd"))
                        filed.write_table(table)
                        work.filed[rule] = work.filed.get(rule, 0) + len(found)
                work.source_rows += len(frame) + len(batch.malformed)
                if progress is not None:
                    progress(work.source_rows, sources.rows)
    files = [spill_file(work.folder, i) for i in range(work.partitions)]
    work.spills = [file.stat().st_size if file.exists() else 0 for file in files]


def _split(frame: pl.DataFrame, salt: str, partitions: int) -> list[tuple[int, pl.DataFrame]]:
    """Pieces of a batch, rows in their order."""
    if partitions == 1 or frame.is_empty():
        return [(0, frame)] if len(frame) else []
    users = frame.select(pl.col("raw_user").unique())
    hashes = keyed_hash(users["raw_user"].cast(pl.String), salt)
    users = users.with_columns((hashes % partitions).cast(pl.Int32).alias("partition"))
    with_home = frame.join(users, on="raw_user", how="left", maintain_order="left")
    pieces = with_home.partition_by("partition", as_dict=True, include_key=False, maintain_order=True)
    return [(int(str(key[0])), piece) for key, piece in pieces.items()]


def _nobodys(frame: pl.DataFrame, nobody: pl.Series, card: AnyCard, names: tuple[str, ...]) -> pl.DataFrame:
    rule = rules.BY_NAME["null_user"]
    at = nobody.arg_true().cast(pl.Int64).alias("row").to_frame()
    entries = at.with_columns(rule=pl.lit(rule.name), effect=pl.lit(str(rule.effect)), text=pl.lit(None, pl.String))
    return quarantine_rows(frame, entries, card, names)


def _malformed(lines: pl.DataFrame, name: str, card: AnyCard) -> pl.DataFrame:
    rule = rules.BY_NAME["malformed_line"]
    schema = quarantine_schema(card)
    return lines.select(
        pl.lit(rule.name).alias("rule"),
        pl.lit(str(rule.effect)).alias("effect"),
        pl.lit(name).alias("file"),
        "line",
        "text",
        pl.lit(None, dtype=schema["source"]).alias("source"),
    )
