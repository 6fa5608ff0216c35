"""Ingest beside reading and grouping: ``python -P -m tests.benchmarks.ingest_speed [ROWS [ROUNDS]]``.

The anchor reads all columns, leads the state by one within an episode, and groups by step, state, action and lead; by
polars, and by DuckDB where it is installed.  The floor is what no ingest of these files to these parts can save: all is
read by pyarrow, taken over by polars, each id hashed once, the finished parts written, files and parts digested; no
row is moved to its partition, sorted or looked at.  Processor seconds, least of the rounds, in one run;
POLARS_MAX_THREADS=1 keeps all of them to one thread.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from pipeline.logs.contribution_bounding import keyed_hash
from pipeline.logs.elsewhere import Here
from pipeline.logs.ingest import ingest, write_rows
from pipeline.logs.sources import digest
from pipeline.logs.summing import Resources
from tests.benchmarks.scale_log import write_log
from tests.benchmarks.start_up import processor_seconds
from tests.campaigns.rows import markdown, markdown_row

_SQL = (
    "select t, s, a, later, count(*), sum(r) from (select *, lead(s) over (partition by u, e order by t) as later "
    "from read_parquet('{}')) group by all"
)


def by_polars(folder: Path) -> object:
    """The anchor."""
    rows = pl.read_parquet(folder / "log-*.parquet")
    return (
        rows.with_columns(pl.col("s").shift(-1).over("u", "e").alias("lead"))
        .group_by("t", "s", "a", "lead")
        .agg(pl.len(), pl.col("r").sum())
    )


def by_duckdb(folder: Path) -> object:
    """The same by DuckDB, which need not be installed."""
    duckdb: Any = __import__("duckdb")
    with duckdb.connect() as there:
        there.execute("set threads = 1")
        return there.execute(_SQL.format(folder / "log-*.parquet")).fetchall()


def read_and_hash(folder: Path) -> object:
    """The floor of a first pass: files digested, batches read, each id hashed once."""
    paths, ids = sorted(folder.glob("log-*.parquet")), list[pl.Series]()
    for path in paths:
        with pq.ParquetFile(path) as file:
            ids.extend(pl.DataFrame(pl.from_arrow(batch))["u"].unique() for batch in file.iter_batches(1 << 18))
    return digest(paths), [keyed_hash(batch, "scale") for batch in ids]


def write_again(part: pl.DataFrame, path: Path) -> str:
    """The floor of a second pass: a finished part written and digested."""
    write_rows(part, path)
    return digest([path])


def floor(folder: Path, parts: Sequence[Path]) -> tuple[float, float]:
    """Seconds of reading and hashing, and of writing."""
    again = folder / "again.parquet"
    written = sum(seconds(write_again, pl.read_parquet(part), again) for part in parts)
    return seconds(read_and_hash, folder), written


def seconds(work: Callable[..., object], *given: object) -> float:
    """Of the processor."""
    began = time.process_time()
    work(*given)
    return time.process_time() - began


def measure(folder: Path, rows: int, rounds: int, horizon: int) -> list[float]:
    """Least seconds of ingest, both halves of its floor, polars and DuckDB (nan where it is not installed)."""
    card, there = write_log(folder, rows, horizon), find_spec("duckdb") is not None
    found = [
        (
            seconds(lambda store: ingest(card, store, resources=Resources(elsewhere=Here())), folder / f"store{i}"),
            *floor(folder, sorted((folder / f"store{i}").glob("scale/snapshot-*/part-*"))),
            seconds(by_polars, folder),
            seconds(by_duckdb, folder) if there else float("nan"),
        )
        for i in range(rounds)
    ]
    return [min(times) for times in zip(*found, strict=True)]


def command_beside_process(folder: Path, rows: int, rounds: int) -> float:
    """The command ``ingest`` over the same ingest in this process, which has imported; medians of processor time."""
    card = write_log(folder, rows)
    command = ["-m", "flows.cli", "--home", "{}", "ingest", str(folder / "card.toml")]
    within, whole = list[float](), list[float]()
    for i in range(rounds):
        store, home = folder / f"store{i}", str(folder / f"home{i}")
        within.append(seconds(lambda at: ingest(card, at, resources=Resources(elsewhere=Here())), store))
        whole.append(processor_seconds([part.format(home) for part in command]))
    return statistics.median(whole) / statistics.median(within)


def main(rows: int = 1_000_000, rounds: int = 3) -> None:
    """Print a line a horizon: microseconds a row, and how many times the anchors' ingest and floor take."""
    names = ("ingest", "reading", "writing", "polars", "DuckDB", "x polars", "x DuckDB", "floor x")
    print(markdown(["rows", "H", *names]))
    for horizon in (20, 2):
        with tempfile.TemporaryDirectory() as place:
            ours, reading, writing, polars, duckdb = found = measure(Path(place), rows, rounds, horizon)
        told = [*(s / rows * 1e6 for s in found), ours / polars, ours / duckdb, (reading + writing) / duckdb]
        print(markdown_row([f"{rows:,}", horizon, *(f"{number:.2f}" for number in told)]), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
