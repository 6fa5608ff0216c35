"""First pass of ingest: each row to one temporary file a partition, by a keyed hash of its user, in bounded memory."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false
from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.declaration.card import AnyCard, CardError
from pipeline.files import open_private, private_folder, sync_all, whole_file, write_file
from pipeline.logs import rules
from pipeline.logs.contribution_bounding import keyed_hash
from pipeline.logs.elsewhere import Seen
from pipeline.logs.screening import file_all
from pipeline.logs.sources import Sources, read_batches
from pipeline.logs.store import quarantine_schema
from pipeline.logs.work import SIZES, Share, Work, allow_files, reader_digest, spill_file

# rows of one person in one ingest; as many as make a usual partition
MOST_ROWS = 1 << 20
_USER = "raw_user"
_PLACE: dict[str, pl.DataType] = {"file": pl.Int32(), "line": pl.Int64()}


@dataclass(frozen=True, repr=False)
class ReadFiles:
    """See :class:`~pipeline.logs.elsewhere.Task`: rows of consecutive files, to one file a partition.

    Parameters
    ----------
    sources, card
        Of :func:`~pipeline.logs.sources.examine` the card.
    first, last
        Of the files, by their places; ``last`` is not among them.
    folder
        Of the work in progress.
    partitions
        Files to be written.
    reader
        Digest of the module of a reader of your own; empty without.
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
        """The source files."""
        return self.sources.paths[self.first : self.last]

    @property
    def named(self) -> str:
        """Source files, as the quarantine calls them."""
        names = self.sources.names[self.first : self.last]
        return f"{names[0]} to {names[-1]}" if len(names) > 1 else "".join(names)

    def __call__(self, seen: Seen) -> Share:
        """Read every record once; file those that are nobody's as ``malformed.parquet`` beside.

        Raises
        ------
        LogError
            If a file cannot be read to its end.
        """
        if self.reader != reader_digest(self.card):
            raise CardError(f"{self.card.source.format}: a worker has another text of it; install the same everywhere")
        # whoever does the same, because a worker seemed dead, writes elsewhere
        name, card, names = f"spilt-{secrets.token_hex(8)}", self.card, self.sources.names
        folder, read, counted = private_folder(self.folder / name), 0, Counter[str]()
        allow_files(self.partitions)
        with ExitStack() as stack:
            spills: dict[int, _Spill] = {}
            filed: Any = None
            for index in range(self.first, self.last):
                for batch, frame in read_batches(self.sources, card, index):
                    frame = frame.with_columns(
                        pl.lit(index, dtype=pl.Int32).alias("file"), pl.Series("line", batch.lines, dtype=pl.Int64)
                    )
                    nobodys = [_malformed(batch.malformed, names[index], card)]
                    for partition, piece in _split(frame, card.name, self.partitions):
                        if partition is None:
                            nobodys.append(file_all("null_user", piece, card, names))
                            continue
                        if partition not in spills:
                            sink = stack.enter_context(open_private(spill_file(folder, partition)))
                            spills[partition] = stack.enter_context(closing(_Spill(sink)))
                        spills[partition].write(piece)
                    for found in nobodys:
                        if len(found):
                            if filed is None:
                                filed = stack.enter_context(_nobodys(folder, found.to_arrow().schema))
                            filed.write_table(found.to_arrow())
                            counted[found["rule"][0]] += len(found)
                    read += len(frame) + len(batch.malformed)
                    seen(len(frame) + len(batch.malformed))
        sizes = {i: spill_file(folder, i).stat().st_size for i in sorted(spills)}
        write_file(folder / SIZES, json.dumps(sizes), private=True)
        sync_all(folder)
        return Share(name, read, dict(counted))


@contextmanager
def _nobodys(folder: Path, schema: pa.Schema) -> Generator[pq.ParquetWriter]:
    """Where rows of nobody known are filed."""
    with open_private(folder / "malformed.parquet") as sink, pq.ParquetWriter(sink, schema, compression="zstd") as file:
        yield file


def gather_nobodys(work: Work) -> None:
    """Rows of nobody known, of all shares, as one file of the snapshot; in its order, whoever read them."""
    parts = [path for share in work.shares if (path := work.folder / share.name / "malformed.parquet").exists()]
    if not parts:
        return
    with open_private(work.built / "quarantine-malformed.parquet") as sink, ExitStack() as stack:
        writer = None
        for path in parts:
            with pq.ParquetFile(path) as file:
                writer = writer or stack.enter_context(pq.ParquetWriter(sink, file.schema_arrow, compression="zstd"))
                for group in range(file.num_row_groups):
                    writer.write_table(file.read_row_group(group))


def _split(frame: pl.DataFrame, salt: str, partitions: int) -> list[tuple[int | None, pl.DataFrame]]:
    """Pieces of a batch by partition, None of nobody known; rows in their order, integers as narrow as they can be."""
    narrow = [cells.name for cells in frame if cells.dtype.is_integer() and cells.name != _USER]
    frame = frame.with_columns(frame[name].shrink_dtype() for name in narrow)
    # rows of one person mostly stand together: one look-up a stretch of them, one hash a person
    first = (frame[_USER] != frame[_USER].shift()).fill_null(value=True)
    coded = frame[_USER].filter(first).to_arrow().dictionary_encode()
    people = pl.Series(_USER, coded.dictionary).to_frame()
    hashes = keyed_hash(people[_USER].cast(pl.String), salt) if partitions > 1 else pl.lit(0, dtype=pl.UInt64)
    homes = people.select(pl.when(~rules.null_user(pl.col(_USER))).then(hashes % partitions).cast(pl.Int16)).to_series()
    home = homes.gather(pl.Series(coded.indices)).gather(first.cum_sum() - 1)
    if partitions == 1 and not home.null_count():
        return [(0, frame)] if len(frame) else []
    with_home = frame.with_columns(home.alias("home"))
    pieces = with_home.partition_by("home", as_dict=True, include_key=False, maintain_order=True)
    return [(None if home is None else int(str(home)), piece) for (home,), piece in pieces.items()]


class _Spill:
    """Temporary file of a partition, small and quickly written: Arrow streams, a new one where types change.

    Stretches of one user hold the id once.
    """

    def __init__(self, sink: BinaryIO) -> None:
        self._sink, self._stream, self._schema = sink, None, None

    def write(self, rows: pl.DataFrame) -> None:
        """Append rows."""
        table = rows.rechunk().to_arrow()
        users = pc.call_function("run_end_encode", [table.column(_USER).combine_chunks()])
        table = table.set_column(table.schema.get_field_index(_USER), _USER, users)
        if table.schema != self._schema:
            self.close()
            self._stream, self._schema = pa.ipc.new_stream(self._sink, table.schema), table.schema
        self._stream.write_table(table)

    def close(self) -> None:
        """End the stream, not the file."""
        if self._stream is not None:
            self._stream.close()


def _spilt(files: Sequence[Path], sources: Sources, roles: Sequence[str] | None = None) -> Iterator[pl.DataFrame]:
    """Rows of a partition, batch after batch, in the order of the log, as narrow as they lie there; of some roles."""
    names = list(_columns(sources))
    wanted = names if roles is None else [f"raw_{role}" for role in roles]
    options = pa.ipc.IpcReadOptions(included_fields=[names.index(name) for name in wanted])
    for file in files:
        with pa.OSFile(str(file)) as streams:
            while streams.tell() < streams.size():
                for batch in pa.ipc.open_stream(streams, options=options):
                    cells = {name: batch.column(name) for name in wanted}
                    cells[_USER] = pc.call_function("run_end_decode", [cells[_USER]])
                    yield pl.DataFrame(pl.from_arrow(pa.table(cells)))


def _columns(sources: Sources) -> dict[str, pl.DataType]:
    return {f"raw_{role}": dtype for role, dtype in sources.dtypes.items()} | _PLACE


def read_users(files: Sequence[Path], sources: Sources) -> pl.Series:
    """Whose the rows of a partition are, in the order of the log."""
    empty = pl.Series("raw_user", [], dtype=sources.dtypes["user"])
    return pl.concat([empty, *(rows["raw_user"] for rows in _spilt(files, sources, ["user"]))])


def read_partition(files: Sequence[Path], more: Path, sources: Sources, card: AnyCard) -> tuple[pl.DataFrame, int]:
    """Rows of a partition, of each user the first ``MOST_ROWS``; the number of the others, which are filed as ``more``.

    One person's rows are screened all at once: without a cut they would take as much memory as there are of them.
    """
    kept, beyond, writer = list[pl.DataFrame](), 0, None
    with ExitStack() as stack:
        for rows, over in _cut(_spilt(files, sources)):
            kept.append(rows.filter(~over) if over.any() else rows)
            if over.any():
                table = file_all("too_many_rows", rows.filter(over), card, sources.names).to_arrow()
                if writer is None:
                    fresh = stack.enter_context(whole_file(more, private=True, alone=False))
                    sink = stack.enter_context(open_private(fresh))
                    writer = stack.enter_context(pq.ParquetWriter(sink, table.schema, compression="zstd"))
                writer.write_table(table)
                beyond += len(table)
    columns = _columns(sources)
    if not kept:
        return pl.DataFrame(schema=columns), 0
    return pl.concat(kept, how="vertical_relaxed", rechunk=True).cast(pl.Schema(columns)), beyond


def _cut(batches: Iterator[pl.DataFrame]) -> Iterator[tuple[pl.DataFrame, pl.Series]]:
    """Rows with the mark of those that stand behind ``MOST_ROWS`` of the same user."""
    held, seen = list[pl.DataFrame](), pl.DataFrame()
    for batch in batches:
        held.append(batch)
        # as long as there are not so many in all, nobody has more
        if seen.is_empty() and sum(map(len, held)) <= MOST_ROWS:
            continue
        rows, held = pl.concat(held, how="vertical_relaxed"), list[pl.DataFrame]()
        users = rows.select("raw_user", pl.int_range(pl.len(), dtype=pl.Int64).over("raw_user").alias("place"))
        if len(seen):
            before = users.join(seen, on="raw_user", how="left", maintain_order="left")["before"].fill_null(0)
            users = users.with_columns(pl.col("place") + before)
        yield rows, users["place"] >= MOST_ROWS
        ends = users.group_by("raw_user").agg((pl.col("place").max() + 1).alias("before"))
        seen = ends if seen.is_empty() else pl.concat([seen, ends]).group_by("raw_user").agg(pl.col("before").max())
    if held:
        rows = pl.concat(held, how="vertical_relaxed")
        yield rows, pl.Series([False], dtype=pl.Boolean).new_from_index(0, len(rows))


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
