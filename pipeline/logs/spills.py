"""First pass of ingest: each row to one temporary file a partition, by a keyed hash of its user, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.declaration.card import AnyCard
from pipeline.files import open_private
from pipeline.logs import rules
from pipeline.logs.decode import keyed_hash
from pipeline.logs.screening import quarantine_rows
from pipeline.logs.sources import Sources, read_batches
from pipeline.logs.store import quarantine_schema
from pipeline.logs.work import Work, spill_file

Progress = Callable[[int, int | None], None]
# rows of one person in one ingest; as many as make a usual partition
MOST_ROWS = 1 << 20


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
                for found in (
                    _malformed(batch.malformed, name, card),
                    _filed("null_user", frame, nobody, card, sources.names),
                ):
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
    # people's rows mostly stand together: one look-up a stretch of them, one hash a person
    first = (frame["raw_user"] != frame["raw_user"].shift()).fill_null(value=True)
    stretches = frame.select(pl.col("raw_user").filter(first))
    users = stretches.unique()
    hashes = keyed_hash(users["raw_user"].cast(pl.String), salt)
    users = users.with_columns((hashes % partitions).cast(pl.Int32).alias("partition"))
    homes = stretches.join(users, on="raw_user", how="left", maintain_order="left")["partition"]
    with_home = frame.with_columns(homes.gather(first.cum_sum() - 1))
    pieces = with_home.partition_by("partition", as_dict=True, include_key=False, maintain_order=True)
    return [(int(str(key[0])), piece) for key, piece in pieces.items()]


def read_spill(work: Work, partition: int, sources: Sources, card: AnyCard) -> tuple[pl.DataFrame, int]:
    """Rows of a partition, of each user the first ``MOST_ROWS``, and the number of the others, which are filed.

    One person's rows are screened all at once: without a cut they would take as much memory as there are of them.
    """
    file = spill_file(work.folder, partition)
    if not file.exists():
        schema = {f"raw_{role}": dtype for role, dtype in sources.dtypes.items()}
        return pl.DataFrame(schema={**schema, "file": pl.Int32(), "line": pl.Int64()}), 0
    with file.open("rb") as stream, ExitStack() as stack:
        kept, beyond, writer = list[pl.DataFrame](), 0, None
        for rows, over in _cut(pl.DataFrame(pl.from_arrow(batch)) for batch in pa.ipc.open_stream(stream)):
            kept.append(rows.filter(~over) if over.any() else rows)
            if over.any():
                table = _filed("too_many_rows", rows, over, card, sources.names).to_arrow()
                if writer is None:
                    sink = stack.enter_context(open_private(work.built / f"quarantine-{partition:04d}-more.parquet"))
                    writer = stack.enter_context(pq.ParquetWriter(sink, table.schema, compression="zstd"))
                writer.write_table(table)
                beyond += len(table)
        return pl.concat(kept), beyond


def _cut(batches: Iterator[pl.DataFrame]) -> Iterator[tuple[pl.DataFrame, pl.Series]]:
    """Rows with the mark of those that stand behind ``MOST_ROWS`` of the same user."""
    held, seen = list[pl.DataFrame](), pl.DataFrame()
    for batch in batches:
        held.append(batch)
        # as long as there are not so many in all, nobody has more
        if seen.is_empty() and sum(map(len, held)) <= MOST_ROWS:
            continue
        rows, held = pl.concat(held), list[pl.DataFrame]()
        users = rows.select("raw_user", pl.int_range(pl.len(), dtype=pl.Int64).over("raw_user").alias("place"))
        if len(seen):
            before = users.join(seen, on="raw_user", how="left", maintain_order="left")["before"].fill_null(0)
            users = users.with_columns(pl.col("place") + before)
        yield rows, users["place"] >= MOST_ROWS
        ends = users.group_by("raw_user").agg((pl.col("place").max() + 1).alias("before"))
        seen = ends if seen.is_empty() else pl.concat([seen, ends]).group_by("raw_user").agg(pl.col("before").max())
    if held:
        rows = pl.concat(held)
        yield rows, pl.Series([False], dtype=pl.Boolean).new_from_index(0, len(rows))


def _filed(rule: str, rows: pl.DataFrame, odd: pl.Series, card: AnyCard, names: tuple[str, ...]) -> pl.DataFrame:
    """Quarantine of the rows that ``odd`` marks."""
    at = odd.arg_true().cast(pl.Int64).alias("row").to_frame()
    effect = str(rules.BY_NAME[rule].effect)
    entries = at.with_columns(rule=pl.lit(rule), effect=pl.lit(effect), text=pl.lit(None, pl.String))
    return quarantine_rows(rows, entries, card, names)


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
