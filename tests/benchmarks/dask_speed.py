"""The same counts here and on two Dask workers, side by side: ``python -P -m tests.benchmarks.dask_speed``.

A scheduler and two workers of one thread each are started on this machine; what is measured is what Dask adds, not what
more machines gain.  Wall seconds, because the work is in other processes; the integers are compared to the last unit.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipeline.logs.aggregate import CountSums
from pipeline.logs.on_dask import OnDask
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources, forget, sum_snapshot
from tests.benchmarks.count_speed import make_card, make_partitions
from tests.logs.dask_cluster import dask_cluster


def seconds(work: Callable[[], object]) -> float:
    """Wall seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """One line a size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=(1_000_000, 10_000_000, 50_000_000))
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    print(f"median of {asked.rounds}; load {os.getloadavg()[0]:.1f}")
    print(f"{'rows':>11} {'here s':>8} {'ready s':>8} {'2 workers s':>12} {'adds s':>8}  integers")
    for rows in asked.rows:
        with tempfile.TemporaryDirectory() as place, dask_cluster(Path(place)) as cluster:
            store = Path(place) / "parts"
            store.mkdir()
            make_partitions(store, rows)
            parts = len(list(store.glob("part-*.parquet")))
            made = Snapshot("speed", 1, store, "synthetic", "", "", "", rows, rows, 0, 0, {}, parts)
            work, elsewhere = CountSums(make_card(rewards=True)), OnDask(cluster.address)
            there, here = [
                dict(sum_snapshot(work, made, resources)) for resources in (Resources(elsewhere=elsewhere), Resources())
            ]
            equal = all((there[name] == here[name]).all() for name in here)
            times = []
            for _ in range(asked.rounds):
                forget(made)
                alone = seconds(lambda work=work, made=made: sum_snapshot(work, made))
                forget(made)
                ready = seconds(lambda elsewhere=elsewhere, made=made: elsewhere.ready(made.part_files))
                resources = Resources(elsewhere=elsewhere)
                both = seconds(lambda work=work, made=made, resources=resources: sum_snapshot(work, made, resources))
                times.append((alone, ready, both, ready + both - alone / 2))
            alone, ready, both, adds = np.median(np.array(times), axis=0)
            print(
                f"{rows:>11,} {alone:>8.2f} {ready:>8.2f} {both:>12.2f} {adds:>8.2f}  "
                f"{'equal' if equal else 'NOT EQUAL'}: {here['visits'].sum():,} rows",
                flush=True,
            )
    print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
