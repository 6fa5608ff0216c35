"""Ingest and counts by one process, by two, and by two Dask workers: ``python -P -m tests.benchmarks.dask_speed``.

All on this machine.  Ingest by processor seconds, of this process and of all: what this process must do alone bounds
what any number of workers gain, ``most = all / (here + rest / 2)``.  Sums by wall seconds: what Dask adds to them.
Snapshots are compared by the digest of their bytes, integers to the last unit.
"""

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pipeline.declaration.card import load_card
from pipeline.logs.aggregate import CountSums
from pipeline.logs.elsewhere import Elsewhere, Here, OnDask, OnProcesses
from pipeline.logs.ingest import ingest
from pipeline.logs.parts import forget
from pipeline.logs.store import latest
from pipeline.logs.summing import Resources, sum_snapshot
from tests.benchmarks.scale_log import write_log
from tests.campaigns.rows import markdown, markdown_row
from tests.logs.dask_cluster import Cluster, dask_cluster

Measured = tuple[str, float, float]


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def used(cluster: Cluster | None) -> tuple[float, float]:
    """Processor seconds of this process, and of all that work for it."""
    here, ended = time.process_time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    workers = [] if cluster is None else cluster.workers
    stats = [Path(f"/proc/{p.pid}/stat").read_text().rpartition(")")[2].split() for p in workers]
    ticks = sum(int(user) + int(system) for *_, user, system in (stat[:13] for stat in stats))
    return here, here + ended.ru_utime + ended.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def compare_ingest(
    folder: Path, rows: int, name: str, crew: Elsewhere, alone: Measured | None, cluster: Cluster | None = None
) -> Measured:
    before, began = used(cluster), time.perf_counter()
    made = ingest(load_card(folder / "card.toml"), folder / name, resources=Resources(elsewhere=crew))
    if isinstance(crew, OnProcesses):
        # what a child used is told when it has ended
        crew.__exit__()
    wall, after = time.perf_counter() - began, used(cluster)
    here, whole = after[0] - before[0], after[1] - before[1]
    alone = alone or (made.data_digest, wall, whole)
    same = "the same bytes" if made.data_digest == alone[0] else "OTHER BYTES"
    most = alone[2] / (here + (whole - here) / crew.together)
    told = (f"{number:.2f}" for number in (wall, here, whole, whole / alone[2], most, alone[1] / wall))
    print(markdown_row(["ingest", f"{rows:,}", name, *told, same]), flush=True)
    return alone


def compare_sums(folder: Path, rows: int, cluster: Cluster, rounds: int) -> None:
    """Print two lines: seconds of the clock, as Dask workers' processors are not told apart."""
    work, made = CountSums(load_card(folder / "card.toml")), latest(folder / "here", "scale")
    assert made is not None
    elsewhere = OnDask(cluster.address)
    there, here = (dict(sum_snapshot(work, made, r)) for r in (Resources(elsewhere=elsewhere), Resources()))
    equal = "equal" if all((there[name] == here[name]).all() for name in here) else "NOT EQUAL"
    times: list[tuple[float, ...]] = []
    for _ in range(rounds):
        forget(made)
        alone = seconds(lambda: sum_snapshot(work, made))
        forget(made)
        ready = seconds(lambda: elsewhere.ready(made.part_files))
        both = seconds(lambda: sum_snapshot(work, made, Resources(elsewhere=elsewhere)))
        times.append((alone, ready, both, ready + both - alone / 2))
    alone, ready, both, adds = np.median(np.array(times), axis=0)
    for name, wall, faster, said in (
        ("here", alone, 1.0, ""),
        ("2 Dask workers", both, alone / both, f"{equal}; ready after {ready:.2f} s, the crew adds {adds:.2f} s"),
    ):
        print(markdown_row(["counts", f"{rows:,}", name, f"{wall:.2f}", *[""] * 4, f"{faster:.2f}", said]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=(10_000_000, 50_000_000))
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    times = ("wall s", "CPU here", "CPU all", "x here", "x most", "x faster")
    print(markdown(["work", "rows", "by", *times, "result"]))
    for rows in asked.rows:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write_log(folder, rows)
            (folder / "dask").mkdir()
            alone = compare_ingest(folder, rows, "here", Here(), None)
            compare_ingest(folder, rows, "2 processes", OnProcesses(2), alone)
            with dask_cluster(folder / "dask") as cluster:
                compare_ingest(folder, rows, "2 Dask workers", OnDask(cluster.address), alone, cluster)
                compare_sums(folder, rows, cluster, asked.rounds)


if __name__ == "__main__":
    main()
