"""First pass of ingest: rows to a temporary file for each partition, by a keyed hash of the user, in bounded memory."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false
import os
import resource
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.declaration.card import AnyCard, Card, CardError
from pipeline.files import open_private, private_folder, whole_file
from pipeline.logs import decode, elsewhere, store
from pipeline.logs.contribution_bounding import DELIVERED, USER, keyed_hash
from pipeline.logs.rules import BY_NAME, null_user
from pipeline.logs.sources import Sources, read_batches, reader_digest

# most rows of one person in one ingest: those of a usual partition
MOST_ROWS = 1 << 20
_PLACE: dict[str, pl.DataType] = {"file": pl.Int32(), "line": pl.Int64()}


@dataclass(frozen=True)
class Share:
    """Consecutive files that were read: folder of their rows, number of records, and records filed by rule."""

    name: str
    rows: int
    filed: dict[str, int]


@dataclass
class IngestWork:
    """An ingest in progress: its folder, the number of partitions, and the shares, in the order of the files."""

    folder: Path
    partitions: int
    shares: list[Share] = field(default_factory=list[Share])

    @property
    def source_rows(self) -> int:
        """Number of records read."""
        return sum(share.rows for share in self.shares)

    def spill_files(self, partition: int) -> list[Path]:
        """Files with rows of a partition, in the order of the log."""
        files = (spill_file(self.folder / share.name, partition) for share in self.shares)
        return [file for file in files if file.exists()]

    @property
    def built(self) -> Path:
        """Folder of the snapshot that is being made."""
        return self.folder / "built"


def spill_file(folder: Path, partition: int) -> Path:
    """Temporary file of a partition in the folder of a share; absent if it has no row there."""
    return folder / f"spill-{partition:04d}.arrow"


ROWS_PER_PARTITION = 1_000_000
# each is an open file while rows are spilt
MOST_PARTITIONS = 2048
_OTHER_FILES = 128
# measured, with a margin: libraries and batches; a row while rules are applied
_BASE_BYTES = 512 << 20
_ROW_BYTES, _NUMBER_BYTES = 512, 64


def likely_partitions(card: AnyCard, sources: Sources, memory: int) -> int:
    """Number of partitions of about a million rows each; more and smaller ones if ``memory`` (bytes) is short.

    Raises CardError if partitions would not fit even if there are as many as possible.
    """
    rows, most = sources.likely_rows, most_partitions()
    fit = max(1, (memory - _BASE_BYTES) // _row_bytes(card))
    if rows > fit * most:
        needed = _BASE_BYTES + _row_bytes(card) * rows // most
        raise CardError(
            f"{card.name}: about {rows:,} rows in at most {most:,} partitions need about {needed / (1 << 30):.1f} GiB; "
            "give --memory more, or raise the limit of open files (ulimit -n)"
        )
    return min(most, 1 + rows // min(ROWS_PER_PARTITION, fit))


def likely_processes(card: AnyCard, sources: Sources, partitions: int, memory: int) -> int:
    """Number of processes: limited by processors, by ``memory`` (bytes), and by two usual partitions for each."""
    rows = sources.likely_rows
    size = _BASE_BYTES + _row_bytes(card) * rows // partitions
    return max(1, min(len(os.sched_getaffinity(0)), memory // size, min(partitions, rows // ROWS_PER_PARTITION) // 2))


def most_partitions() -> int:
    """Largest number of partitions, by the files that this process may open besides others."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_PARTITIONS if hard == resource.RLIM_INFINITY else max(1, min(MOST_PARTITIONS, hard - _OTHER_FILES))


def allow_files(partitions: int) -> None:
    """Raise this process's soft limit of open files to the number that the partitions need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = partitions + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def _row_bytes(card: AnyCard) -> int:
    if isinstance(card, Card):
        return _ROW_BYTES
    return _ROW_BYTES + _NUMBER_BYTES * (2 * card.domain.observation.size + card.domain.action.size)


@dataclass(frozen=True, repr=False)
class ReadFiles:
    """Task that spills the rows of consecutive files to one file for each partition.

    ``reader``: digest of the module of a plug-in reader; empty without one.
    """

    sources: Sources
    card: AnyCard
    first: int
    last: int
    folder: Path
    partitions: int
    reader: str = ""

    @property
    def files(self) -> Sequence[Path]:
        """Source files."""
        return self.sources.paths[self.first : self.last]

    @property
    def named(self) -> str:
        """Names of the first and last source file in the quarantine."""
        names = self.sources.names[self.first : self.last]
        return f"{names[0]} to {names[-1]}" if len(names) > 1 else "".join(names)

    def __call__(self, seen: elsewhere.Seen) -> Share:
        """Read every record once; file those without a known person as ``malformed.parquet`` beside.

        Raises LogError if a file cannot be read to its end.
        """
        if self.reader != reader_digest(self.card):
            raise CardError(f"{self.card.source.format}: a worker has another text of it; install the same everywhere")
        # a random name: another worker may do the same task because this one seemed dead
        name, card, names = f"spilt-{secrets.token_hex(8)}", self.card, self.sources.names
        folder, records, filed = private_folder(self.folder / name), 0, Counter[str]()
        allow_files(self.partitions)
        with ExitStack() as stack:
            spills: dict[int, _Spill] = {}
            writer: Any = None
            for index in range(self.first, self.last):
                for batch, frame in read_batches(self.sources, card, index):
                    frame = frame.with_columns(
                        pl.lit(index, dtype=pl.Int32).alias("file"), pl.Series("line", batch.lines, dtype=pl.Int64)
                    )
                    nameless = [_malformed(batch.malformed, names[index], card)]
                    for partition, piece in _split(frame, card.name, self.partitions):
                        if partition is None:
                            inexact = piece[USER].is_null() & piece[DELIVERED].is_not_null()
                            nameless.append(file_all("null_user", piece.filter(~inexact), card, names))
                            nameless.append(file_all("inexact_user", piece.filter(inexact), card, names))
                            continue
                        if partition not in spills:
                            sink = stack.enter_context(open_private(spill_file(folder, partition)))
                            spills[partition] = stack.enter_context(closing(_Spill(sink)))
                        spills[partition].write(piece)
                    for entries in nameless:
                        if len(entries):
                            table = entries.to_arrow()
                            if writer is None:
                                sink = stack.enter_context(open_private(folder / "malformed.parquet"))
                                writer = stack.enter_context(pq.ParquetWriter(sink, table.schema, compression="zstd"))
                            writer.write_table(table)
                            filed[entries["rule"][0]] += len(entries)
                    records += len(frame) + len(batch.malformed)
                    seen(len(frame) + len(batch.malformed))
        return Share(name, records, dict(filed))


def gather_nameless(work: IngestWork) -> None:
    """Gather the rows without a known person of all shares in one file of the snapshot, in the order of the log."""
    parts = [path for share in work.shares if (path := work.folder / share.name / "malformed.parquet").exists()]
    if not parts:
        return
    sink = open_private(work.built / "quarantine-malformed.parquet")
    with sink as file, pq.ParquetWriter(file, pq.read_schema(parts[0]), compression="zstd") as writer:
        for path in parts:
            with pq.ParquetFile(path) as part:
                for group in range(part.num_row_groups):
                    writer.write_table(part.read_row_group(group))


def _split(frame: pl.DataFrame, salt: str, partitions: int) -> list[tuple[int | None, pl.DataFrame]]:
    """Split a batch by partition (None: no known person); rows keep their order, integers are shrunk."""
    narrow = [cells.name for cells in frame if cells.dtype.is_integer() and cells.name != USER]
    frame = frame.with_columns(frame[name].shrink_dtype() for name in narrow)
    # rows of one person mostly stand together: one look-up for each stretch, one hash for each person
    first = (frame[USER] != frame[USER].shift()).fill_null(value=True)
    stretches = frame.select(pl.col(USER).filter(first))
    people = stretches.drop_nulls().unique(maintain_order=True)
    hashes = keyed_hash(people[USER].cast(pl.String), salt) if partitions > 1 else pl.lit(0, dtype=pl.UInt64)
    home = pl.when(~null_user(pl.col(USER))).then(hashes % partitions).cast(pl.Int16).alias("home")
    homes = people.with_columns(home)
    if len(people) < len(stretches):
        homes = stretches.join(homes, on=USER, how="left", maintain_order="left")
    home = homes["home"].gather(first.cum_sum() - 1)
    if partitions == 1 and not home.null_count():
        return [(0, frame)] if len(frame) else []
    with_home = frame.with_columns(home.alias("home"))
    pieces = with_home.partition_by("home", as_dict=True, include_key=False, maintain_order=True)
    return [(None if home is None else int(str(home)), piece) for (home,), piece in pieces.items()]


class _Spill:
    """Temporary file of a partition: Arrow streams, a new one when types change; ids are run-end encoded."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink, self._stream, self._schema = sink, None, None

    def write(self, rows: pl.DataFrame) -> None:
        """Append rows."""
        table = rows.rechunk().to_arrow()
        for name in (USER, DELIVERED):
            if rows[name].dtype != pl.Null:
                runs = rows[name].rle().struct
                ends, ids = runs.field("len").cum_sum().cast(pl.Int32), runs.field("value")
                cells = pa.RunEndEncodedArray.from_arrays(ends.to_arrow(), ids.to_arrow())
                table = table.set_column(table.schema.get_field_index(name), name, cells)
        if table.schema != self._schema:
            self.close()
            self._stream, self._schema = pa.ipc.new_stream(self._sink, table.schema), table.schema
        self._stream.write_table(table)

    def close(self) -> None:
        """Close the stream, not the file."""
        if self._stream is not None:
            self._stream.close()


def _spilt(files: Sequence[Path], sources: Sources, columns: Sequence[str] | None = None) -> Iterator[pl.DataFrame]:
    """Yield batches of some columns of a partition, in the order of the log, with the narrow types of the files."""
    names = list(_columns(sources))
    wanted = names if columns is None else columns
    options = pa.ipc.IpcReadOptions(included_fields=[names.index(name) for name in wanted])
    for file in files:
        with pa.OSFile(str(file)) as streams:
            while streams.tell() < streams.size():
                for batch in pa.ipc.open_stream(streams, options=options):
                    yield pl.DataFrame([_decoded(name, batch.column(name)) for name in wanted])


def _decoded(name: str, cells: Any) -> pl.Series:
    """Decode a column of a stream without ``pyarrow.compute``, whose import is a tenth of a start."""
    plain = not pa.types.is_run_end_encoded(cells.type)
    values = pl.DataFrame(pa.RecordBatch.from_arrays([cells if plain else cells.values], names=[name]))[name]
    if plain:
        return values
    lengths = np.diff(cells.run_ends.to_numpy(), prepend=0)
    return values.gather(np.repeat(np.arange(len(lengths)), lengths))


def _columns(sources: Sources) -> dict[str, pl.DataType]:
    return {f"raw_{role}": dtype for role, dtype in sources.dtypes.items()} | {DELIVERED: pl.String()} | _PLACE


def read_users(files: Sequence[Path], sources: Sources) -> pl.DataFrame:
    """Read the users of the rows of a partition, in the order of the log, and their ids as delivered."""
    empty = pl.DataFrame(schema={USER: sources.dtypes["user"], DELIVERED: pl.String()})
    return pl.concat([empty, *_spilt(files, sources, [USER, DELIVERED])], how="vertical_relaxed")


def read_partition(files: Sequence[Path], more: Path, sources: Sources, card: AnyCard) -> tuple[pl.DataFrame, int]:
    """Read a partition, of each user the first ``MOST_ROWS`` rows; the others are filed as ``more`` and counted.

    Column ``delivered`` is present if an id was delivered in another spelling.

    One person's rows are screened all at once: without a cut their memory would have no bound.
    """
    parts, beyond, writer = list[pl.DataFrame](), 0, None
    with ExitStack() as stack:
        for rows, over in _cut(_spilt(files, sources)):
            parts.append(rows.filter(~over) if over.any() else rows)
            if over.any():
                table = file_all("too_many_rows", rows.filter(over), card, sources.names).to_arrow()
                if writer is None:
                    fresh = stack.enter_context(whole_file(more, private=True, alone=False))
                    sink = stack.enter_context(open_private(fresh))
                    writer = stack.enter_context(pq.ParquetWriter(sink, table.schema, compression="zstd"))
                writer.write_table(table)
                beyond += len(table)
    columns = _columns(sources)
    if not parts:
        return pl.DataFrame(schema=columns), 0
    rows = pl.concat(parts, how="vertical_relaxed", rechunk=True).cast(pl.Schema(columns))
    return rows.drop(DELIVERED) if rows[DELIVERED].null_count() == len(rows) else rows, beyond


def _cut(batches: Iterator[pl.DataFrame]) -> Iterator[tuple[pl.DataFrame, pl.Series]]:
    """Yield rows with the mark of those behind the first ``MOST_ROWS`` of their user."""
    pending, past = list[pl.DataFrame](), pl.DataFrame()
    for batch in batches:
        pending.append(batch)
        # no user has more rows than there are in all
        if past.is_empty() and sum(map(len, pending)) <= MOST_ROWS:
            continue
        rows, pending = pl.concat(pending, how="vertical_relaxed"), list[pl.DataFrame]()
        users = rows.select("raw_user", pl.int_range(pl.len(), dtype=pl.Int64).over("raw_user").alias("place"))
        if len(past):
            before = users.join(past, on="raw_user", how="left", maintain_order="left")["before"].fill_null(0)
            users = users.with_columns(pl.col("place") + before)
        yield rows, users["place"] >= MOST_ROWS
        ends = users.group_by("raw_user").agg((pl.col("place").max() + 1).alias("before"))
        past = ends if past.is_empty() else pl.concat([past, ends]).group_by("raw_user").agg(pl.col("before").max())
    if pending:
        rows = pl.concat(pending, how="vertical_relaxed")
        yield rows, pl.Series([False], dtype=pl.Boolean).new_from_index(0, len(rows))


def _malformed(lines: pl.DataFrame, name: str, card: AnyCard) -> pl.DataFrame:
    rule, empty = BY_NAME["malformed_line"], pl.lit(None, dtype=store.quarantine_schema(card)["source"])
    head = {"rule": pl.lit(rule.name), "effect": pl.lit(str(rule.effect)), "file": pl.lit(name)}
    return lines.select(**head, line="line", text="text", source=empty)


def quarantine_rows(raw: pl.DataFrame, entries: pl.DataFrame, card: AnyCard, names: tuple[str, ...]) -> pl.DataFrame:
    """Rows of the quarantine: rule, effect and place of each entry, and the raw cells as text."""
    source = {column: f"raw_{role}" for role, column in reversed(card.log.roles.items())}
    cells = [_as_text(role, raw.schema).alias(column) for column, role in source.items()]
    rows = pl.concat([entries, raw[entries["row"]]], how="horizontal")
    rows = rows.with_columns(file=pl.lit(pl.Series(names)).gather(pl.col("file")), source=pl.struct(cells))
    return rows.select(pl.col(name).cast(dtype) for name, dtype in store.quarantine_schema(card).items())


def file_all(rule: str, raw: pl.DataFrame, card: AnyCard, names: tuple[str, ...]) -> pl.DataFrame:
    """Rows of the quarantine for rows that are all set aside under one rule."""
    entries = pl.DataFrame({"row": pl.int_range(len(raw), dtype=pl.Int64, eager=True)}).with_columns(
        rule=pl.lit(rule), effect=pl.lit(str(BY_NAME[rule].effect)), text=pl.lit(None, dtype=pl.String)
    )
    return quarantine_rows(raw, entries, card, names)


def _as_text(column: str, schema: pl.Schema) -> pl.Expr:
    if isinstance(schema[column], pl.List):
        return decode.list_text(pl.col(column))
    text = pl.col(column).cast(pl.String)
    return pl.coalesce(DELIVERED, text) if column == USER and DELIVERED in schema else text
