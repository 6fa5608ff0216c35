"""Ingest and sums as logs grow: ``python -P -m tests.benchmarks.scale_speed``.

Logs of H = 20, S = 100, A = 10 in files of a million rows are ingested, then counted (per step; pooled with a cap a
person) and read by a linear and an LQ plan.  Every measurement is a fresh process, so that its peak memory is its own;
seconds are of CPU, because the machine may be busy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipeline.declaration.card import Card
from pipeline.logs.aggregate import aggregate
from pipeline.logs.ingest import ingest
from pipeline.logs.regression_sums import tally
from pipeline.logs.store import Snapshot, latest
from pipeline.logs.summing import forget
from tests.benchmarks.count_speed import A, H, S, make_rows

SIZES = (1_000_000, 10_000_000, 50_000_000)
EACH = 1_000_000
LATER = {"cell_cap": 4, "dynamics": "stationary"}


def write_log(folder: Path, rows: int, form: str) -> None:
    """Source files of a million rows; ids are text, as most logs have them."""
    rng = np.random.default_rng(20261121)
    for i in range(max(1, rows // EACH)):
        made = make_rows(min(rows, EACH) // H, i * (EACH // H), rng).select(
            pl.format("person-{}", "user_id").alias("u"),
            pl.col("episode_id").alias("e"),
            pl.col("step").alias("t"),
            pl.col("state").alias("s"),
            pl.col("action").alias("a"),
            pl.col("reward").alias("r"),
            pl.col("next_state").alias("n"),
        )
        path = folder / f"log-{i:04d}.{form}"
        made.write_parquet(path) if form == "parquet" else made.write_csv(path)


def card(folder: Path, form: str, **domain: Any) -> Card:
    """The card of these files."""
    declared: dict[str, Any] = {
        "schema_version": 1,
        "name": "scale",
        "kind": "synthetic",
        "unit": {"user": "u", "users_public": 100_000},
        "domain": {
            "horizon": H,
            "states": {"column": "s", "labels": S},
            "actions": {"column": "a", "labels": A},
            **domain,
        },
        "reward": {"range": [0.0, 1.0], "steps": 10},
        "source": {
            "files": [f"log-*.{form}"],
            "columns": {"user_id": "u", "episode_id": "e", "step": "t", "reward": "r", "next_state": "n"},
        },
        "budget": {"rho": 1.0},
    }
    found = Card.model_validate(declared)
    found._folder = folder
    return found


def do_nothing(folder: Path, form: str) -> int:
    """What the imports take."""
    return 0


def do_ingest(folder: Path, form: str) -> int:
    """Source files to a snapshot."""
    partitions = int(os.environ.get("PARTITIONS", "0")) or None
    return ingest(card(folder, form), folder / "store", partitions=partitions).rows


def made(folder: Path) -> Snapshot:
    """The snapshot, without what an earlier sum of it kept."""
    found = latest(folder / "store", "scale")
    assert found is not None
    forget(found)
    return found


def do_count(folder: Path, form: str) -> int:
    """Counts and rewards, a table a step."""
    return int(aggregate(made(folder), card(folder, form)).tables["n_sas"].sum())


def do_capped(folder: Path, form: str) -> int:
    """One pooled table, at most four steps of a person at a (state, action)."""
    return int(aggregate(made(folder), card(folder, form, **LATER)).tables["n_sas"].sum())


def do_tally(folder: Path, form: str) -> int:
    """Sums of a linear plan with halves."""
    return int(tally(made(folder), card(folder, form), 1024, (0, 1024), split=True)["D"].visits.sum())


WORK: dict[str, Callable[[Path, str], int]] = {
    "imports": do_nothing,
    "ingest": do_ingest,
    "counts": do_count,
    "counts, capped": do_capped,
    "linear sums": do_tally,
}


def peak_megabytes() -> float:
    """High-water mark of this process alone."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def one(what: str, folder: Path, form: str) -> dict[str, Any]:
    """Do it once in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = WORK[what](folder, form)
    return {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "peak": peak_megabytes(),
        "found": found,
    }


def fresh(what: str, folder: Path, form: str) -> dict[str, Any]:
    """:func:`one` in a process of its own."""
    call = [sys.executable, "-P", "-m", "tests.benchmarks.scale_speed", "--one", what, str(folder), form]
    limits = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(call, env=os.environ | limits, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    """One line a size, format and piece of work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES)
    parser.add_argument("--form", nargs="+", default=["parquet", "csv"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one(asked.one[0], Path(asked.one[1]), asked.one[2])))
        return
    print(f"H = {H}, S = {S}, A = {A}; 1 thread; load {os.getloadavg()[0]:.1f}")
    print(f"{'rows':>11} {'files':8} {'work':15} {'wall s':>8} {'CPU s':>8} {'Mrow/CPU s':>11} {'peak MB':>8}")
    for rows in asked.rows:
        for form in asked.form:
            with tempfile.TemporaryDirectory() as place:
                folder = Path(place)
                write_log(folder, rows, form)
                for what in WORK:
                    # an ingest of the same files is none
                    rounds = 1 if what == "ingest" else asked.rounds
                    runs = [fresh(what, folder, form) for _ in range(rounds)]
                    wall, cpu, peak = (float(np.median([r[m] for r in runs])) for m in ("wall", "cpu", "peak"))
                    print(
                        f"{rows:>11,} {form:8} {what:15} {wall:>8.2f} {cpu:>8.2f} {rows / max(cpu, 1e-9) / 1e6:>11.2f} "
                        f"{peak:>8.0f}",
                        flush=True,
                    )
    print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
