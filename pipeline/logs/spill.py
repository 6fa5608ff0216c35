"""First pass: rows go to one temporary file a partition, chosen by a keyed hash of the user; bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.declaration.card import AnyCard
from pipeline.files import open_private
from pipeline.logs import rules
from pipeline.logs.errors import LogError
from pipeline.logs.keyed_hash import keyed_hash
from pipeline.logs.schema import quarantine_schema
from pipeline.logs.sources import Sources, batches
from pipeline.logs.work import Work, spill_file

Progress = Callable[[int, int | None], None]


def spill(sources: Sources, card: AnyCard, work: Work, progress: Progress | None) -> None:
    """Read every row once; file malformed lines as ``quarantine-malformed.parquet`` in ``work.built``.

    Fills in ``source_rows`` (malformed lines included), ``malformed`` and ``spills``.

    Raises
    ------
    LogError
        If a row has no user id (rule ``null_user``), or a file cannot be read to its end.
    """
    with ExitStack() as stack:
        writers: dict[int, Any] = {}
        filed: Any = None
        for index, name in enumerate(sources.names):
            for batch, frame in batches(sources, index, card):
                _refuse_null_users(frame, batch.lines.tolist, name, card)
                frame = frame.with_columns(
                    pl.lit(index, dtype=pl.Int32).alias("file"), pl.Series("line", batch.lines, dtype=pl.Int64)
                )
                for partition, piece in _split(frame, card.name, work.partitions):
                    table = piece.to_arrow()
                    if partition not in writers:
                        sink = stack.enter_context(open_private(spill_file(work.folder, partition)))
                        lz4 = pa.ipc.IpcWriteOptions(compression="lz4")
                        writers[partition] = stack.enter_context(pa.ipc.new_stream(sink, table.schema, options=lz4))
                    writers[partition].write_table(table)
                if len(batch.malformed):
                    table = _malformed(batch.malformed, name, card).to_arrow()
                    if filed is None:
                        sink = stack.enter_context(open_private(work.built / "quarantine-malformed.parquet"))
                        filed = stack.enter_context(pq.ParquetWriter(sink, table.schema, compression="zstd"))
                    filed.write_table(table)
                work.malformed += len(batch.malformed)
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


def _refuse_null_users(frame: pl.DataFrame, lines: Callable[[], list[int]], name: str, card: AnyCard) -> None:
    nobody = frame.select(rules.null_user(pl.col("raw_user")).alias("nobody"))["nobody"]
    if nobody.any():
        at = ", ".join(str(lines()[i]) for i in nobody.arg_true()[:5])
        raise LogError(
            f"{name}: column {card.unit.user!r}, line {at}: null_user: a row without a user id can be nobody's record; "
            "give every row its user id or take the row out"
        )


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
