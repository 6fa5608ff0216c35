"""Ingest beside reading and grouping: ``python -P -m tests.benchmarks.ingest_speed [ROWS [ROUNDS]]``.

The anchor reads all columns, leads the state by one within an episode, and groups by step, state, action and lead; by
polars, and by DuckDB where it is installed.  Processor seconds, least of the rounds, in one run; POLARS_MAX_THREADS=1
keeps all of them to one thread.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.logs.elsewhere import Here
from pipeline.logs.ingest import ingest
from pipeline.logs.summing import Resources
from tests.benchmarks import count_speed, scale_speed

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


def seconds(work: Callable[..., object], *given: object) -> float:
    """Of the processor."""
    began = time.process_time()
    work(*given)
    return time.process_time() - began


def measure(folder: Path, rows: int, rounds: int) -> tuple[float, float, float]:
    """Least seconds of ingest, polars and DuckDB (nan where it is not installed)."""
    scale_speed.write_log(folder, rows, "parquet")
    card, there = scale_speed.card(folder, "parquet"), find_spec("duckdb") is not None
    found = [
        (
            seconds(lambda store: ingest(card, store, resources=Resources(elsewhere=Here())), folder / f"store{i}"),
            seconds(by_polars, folder),
            seconds(by_duckdb, folder) if there else float("nan"),
        )
        for i in range(rounds)
    ]
    ours, polars, duckdb = (min(times) for times in zip(*found, strict=True))
    return ours, polars, duckdb


def main(rows: int = 1_000_000, rounds: int = 3) -> None:
    """Print a line a horizon."""
    print(f"{'rows':>12}{'H':>4}{'ingest s':>10}{'us a row':>10}{'polars s':>10}{'x polars':>10}{'x DuckDB':>10}")
    for horizon in (20, 2):
        scale_speed.H = count_speed.H = horizon
        with tempfile.TemporaryDirectory() as place:
            ours, polars, duckdb = measure(Path(place), rows, rounds)
        told = f"{ours:10.2f}{ours / rows * 1e6:10.2f}{polars:10.2f}{ours / polars:10.2f}{ours / duckdb:10.2f}"
        print(f"{rows:12,}{horizon:4}{told}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
