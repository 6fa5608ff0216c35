"""Peak memory of the sums as a snapshot grows: ``python -P -m tests.benchmarks.flat_memory``.

Four part files of a million rows (H = 20, S = 100, A = 10, ids are text) are linked under as many names as wanted: more
rows, no more disk.  Every sum is a fresh process of one thread that keeps nothing; seconds are of CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.logs import summing
from pipeline.logs.aggregate import CountSums
from pipeline.logs.regression_sums import TallySums
from pipeline.logs.second_pass import write_rows
from pipeline.logs.store import Snapshot, part_file
from tests.benchmarks.count_speed import H, make_rows
from tests.benchmarks.scale_speed import EACH, LATER, card, peak_megabytes

FILES = 4
PARTS = (1, 10, 50, 200)
SUMS = ("counts", "counts, capped", "linear sums")


def one(what: str, folder: Path, parts: int) -> tuple[float, float]:
    """CPU seconds and peak megabytes of a sum in this process."""
    summing.KEEP_AFTER = float("inf")
    declared = card(folder, "parquet", **(LATER if "capped" in what else {}))
    work = TallySums(declared, 1024, (0, 1024), split=True) if "linear" in what else CountSums(declared)
    made = Snapshot("scale", 1, folder, "synthetic", "", "", "", 0, 0, 0, 0, {}, parts)
    began = time.process_time()
    summing.sum_snapshot(work, made)
    return time.process_time() - began, peak_megabytes()


def main() -> None:
    """One line a size and sum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", type=int, nargs="+", default=PARTS)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one(asked.one[0], Path(asked.one[1]), int(asked.one[2]))))
        return
    limits = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    print(f"{'rows':>12} {'sum':15} {'CPU s':>7} {'ns a row':>9} {'peak MB':>8}")
    with tempfile.TemporaryDirectory() as place:
        rng, base = np.random.default_rng(20261121), Path(place)
        for i in range(FILES):
            text = pl.format("person-{}", pl.col("user_id").cast(pl.String).str.zfill(9))
            write_rows(make_rows(EACH // H, i * (EACH // H), rng).with_columns(text.alias("user_id")), base / str(i))
        for parts in asked.parts:
            folder = base / f"of-{parts}"
            folder.mkdir()
            for i in range(parts):
                os.link(base / str(i % FILES), part_file(folder, i))
            for what in SUMS:
                call = [sys.executable, "-P", "-m", "tests.benchmarks.flat_memory", "--one", what]
                done = subprocess.run(
                    [*call, str(folder), str(parts)],
                    env=os.environ | limits,
                    capture_output=True,
                    text=True,
                    check=True,
                )
                cpu, peak = json.loads(done.stdout)
                rows = parts * EACH
                print(f"{rows:>12,} {what:15} {cpu:>7.2f} {cpu / rows * 1e9:>9.0f} {peak:>8.0f}", flush=True)


if __name__ == "__main__":
    main()
