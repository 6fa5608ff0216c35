"""Counting against reading, side by side in one run: ``python -P -m tests.benchmarks.count_speed``.

Canonical rows (H = 20, S = 100, A = 10, sorted by user, a million a partition, as ``ingest`` writes them) to the exact
tables, by five routes; in every round each runs in a fresh process that imports and warms up outside the timing.
Prints medians of the rounds; fractions are of CPU time within a round, so that a busy machine bends them least.
One thread each.  DuckDB comes with the extra `benchmark`: without it its line is left out.
"""

import importlib.util
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
from pipeline.logs.ingest import write_rows
from pipeline.logs.spills import ROWS_PER_PARTITION
from pipeline.logs.store import CANONICAL, Snapshot, part_file
from tests.campaigns.rows import markdown, markdown_row
from tests.conftest import card_dict

H, S, A, STEPS = 20, 100, 10, 10
SIZES, ROUNDS = (10_000_000, 50_000_000), 5
CELLS = {"transitions": ["step", "state", "action", "next_state"]}
CELLS["transitions and rewards"] = [*CELLS["transitions"], "reward"]
# read as well by whatever must not believe that caps hold; a group-by believes it
WHOSE = ("user_id", "episode_id")
Tables = tuple[np.ndarray, np.ndarray | None] | None


def make_rows(users: int, first: int, rng: np.random.Generator, horizon: int = H) -> pl.DataFrame:
    """Whole users: Beta states at first, uniform actions, successors nearby, rewards on a lattice of ten steps."""
    n = users * horizon
    path = np.empty((users, horizon + 1), dtype=int)
    path[:, 0] = np.minimum(rng.beta(2, 5, users) * S, S - 1)
    for h in range(horizon):
        path[:, h + 1] = np.clip(path[:, h] + rng.integers(-3, 4, users), 0, S - 1)
    columns = {
        "user_id": np.repeat(np.arange(first, first + users), horizon),
        "episode_id": np.zeros(n, dtype=int),
        "step": np.tile(np.arange(horizon), users),
        "state": path[:, :-1].ravel(),
        "action": rng.integers(A, size=n),
        "reward": rng.integers(STEPS + 1, size=n) / STEPS,
        "next_state": path[:, 1:].ravel(),
        "terminated": np.zeros(n, dtype=bool),
        "truncated": np.zeros(n, dtype=bool),
        "behavior_prob": np.full(n, 1 / A),
    }
    return pl.DataFrame(columns).cast(CANONICAL | {"user_id": pl.Int64})  # pyright: ignore[reportArgumentType]


def make_partitions(folder: Path, rows: int) -> None:
    """Part files as a snapshot has them."""
    rng, each = np.random.default_rng(20261121), min(rows, ROWS_PER_PARTITION) // H
    for i in range(max(1, rows // ROWS_PER_PARTITION)):
        write_rows(make_rows(each, i * each, rng), part_file(folder, i))


def make_card(rewards: bool) -> Card:
    """Rewards estimated, or declared and not read."""
    declared = {} if rewards else {"kind": "table", "table": [[0.0] * A] * S}
    domain = {"horizon": H, "states": {"column": "s", "labels": S}, "actions": {"column": "a", "labels": A}}
    reward = {"range": [0.0, 1.0], "steps": STEPS} | declared
    columns = {"user_id": "u", "episode_id": "e", "step": "t", "reward": "r", "next_state": "n"}
    source = {"files": ["x"], "columns": columns}
    unit = {"user": "u", "users_public": 1000}
    return Card.model_validate(card_dict(name="speed", unit=unit, domain=domain, reward=reward, source=source))


def pyarrow_read(files: list[Path], columns: list[str]) -> Tables:
    import pyarrow.parquet as pq

    for file in files:
        opened = pq.ParquetFile(file)
        for i in range(opened.num_row_groups):
            opened.read_row_group(i, columns=[*WHOSE, *columns], use_threads=False)


def polars_read(files: list[Path], columns: list[str]) -> Tables:
    for file in files:
        pl.read_parquet(file, columns=[*WHOSE, *columns])


def ours(files: list[Path], columns: list[str]) -> Tables:
    from pipeline.logs.aggregate import aggregate
    from pipeline.logs.parts import forget

    rewards = "reward" in columns
    snapshot = Snapshot("speed", 1, files[0].parent, "synthetic", "", "", "", 0, 0, 0, 0, {}, len(files))
    # a sum of more than two seconds of wall time keeps what it has
    forget(snapshot)
    tables = aggregate(snapshot, make_card(rewards)).tables
    return tables["n_sas"], tables["r_sa"] if rewards else None


def dense(groups: dict[str, np.ndarray], rewards: bool) -> Tables:
    """Groups of a query as tables."""
    at = groups["step"].astype(int), groups["state"].astype(int), groups["action"].astype(int)
    n_sas, k = np.zeros((H, S, A, S), dtype=np.int64), np.zeros((H, S, A), dtype=np.int64)
    n_sas[(*at, groups["next_state"].astype(int))] = groups["n"]
    if rewards:
        np.add.at(k, at, groups["k"].astype(np.int64))
    return n_sas, 2 * k - STEPS * n_sas.sum(-1) if rewards else None


def polars_group_by(files: list[Path], columns: list[str]) -> Tables:
    sums = [pl.len().alias("n")]
    if rewards := "reward" in columns:
        sums.append((pl.col("reward") * STEPS + 1e-9).floor().cast(pl.Int64).sum().alias("k"))
    found = pl.scan_parquet(files).group_by(CELLS["transitions"]).agg(sums).collect(engine="streaming")
    return dense({c: found[c].to_numpy() for c in found.columns}, rewards)


def duckdb_group_by(files: list[Path], columns: list[str]) -> Tables:
    import duckdb

    group, rewards = ", ".join(CELLS["transitions"]), "reward" in columns
    k = f", sum(cast(floor(reward * {STEPS} + 1e-9) as bigint))::bigint as k" if rewards else ""
    with duckdb.connect(config={"threads": 1}) as base:
        query = f"select {group}, count(*) as n{k} from read_parquet(?) group by {group}"
        return dense(base.execute(query, [[str(f) for f in files]]).fetchnumpy(), rewards)


ROUTES: dict[str, Callable[[list[Path], list[str]], Tables]] = {
    "pyarrow, read only": pyarrow_read,
    "polars, read only": polars_read,
    "aggregate": ours,
    "polars group_by, streaming": polars_group_by,
    "DuckDB group by": duckdb_group_by,
}


def checked(n_sas: np.ndarray, r_sa: np.ndarray | None) -> list[int]:
    """Totals and position-weighted sums: routes that agree on them agree on the tables."""
    out = [int(n_sas.sum()), int(n_sas.reshape(-1) @ np.arange(1, n_sas.size + 1))]
    if r_sa is not None:
        out += [int(r_sa.sum()), int(r_sa.reshape(-1) @ np.arange(1, r_sa.size + 1))]
    return out


def timed(route: str, what: str, folder: Path) -> dict[str, Any]:
    """Run one route once, after a warm-up on the first part."""
    files, columns = sorted(folder.glob("part-*.parquet")), CELLS[what]
    ROUTES[route](files[:1], columns)
    wall, cpu = time.perf_counter(), time.process_time()
    tables = ROUTES[route](files, columns)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    # not getrusage: a process inherits its parent's peak there
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    return {"wall": wall, "cpu": cpu, "peak": peak, "totals": checked(*tables) if tables else None}


def in_fresh_process(route: str, what: str, folder: Path) -> dict[str, Any]:
    limits = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    call = [sys.executable, "-P", "-m", "tests.benchmarks.count_speed", route, what, str(folder)]
    done = subprocess.run(call, env=os.environ | limits, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def compare(rows: int, what: str, folder: Path) -> None:
    """Interleave the routes and print a line each."""
    routes = [r for r in ROUTES if "DuckDB" not in r or importlib.util.find_spec("duckdb")]
    runs: dict[str, list[dict[str, Any]]] = {r: [] for r in routes}
    for _ in range(ROUNDS):
        for route in routes:
            runs[route].append(in_fresh_process(route, what, folder))
    totals = {json.dumps(run["totals"]) for of in runs.values() for run in of if run["totals"]}
    assert len(totals) == 1, f"the routes disagree: {totals}"
    for route, of in runs.items():
        wall, cpu, peak = (np.median([run[m] for run in of]) for m in ("wall", "cpu", "peak"))
        shares = [
            np.median([base["cpu"] / run["cpu"] for base, run in zip(runs[read], of, strict=True)])
            for read in ("polars, read only", "pyarrow, read only")
        ]
        told = [f"{wall:.2f}", f"{cpu:.2f}", f"{rows / cpu / 1e6:.1f}", *(f"{s:.2f}" for s in shares), f"{peak:.0f}"]
        print(markdown_row([f"{rows:,}", what, route, *told]), flush=True)


def main() -> None:
    if sys.argv[1:]:
        route, what, folder = sys.argv[1:]
        print(json.dumps(timed(route, what, Path(folder))))
        return
    shares = ("of polars' reading", "of pyarrow's reading")
    print(markdown(["rows", "tables", "route", "wall s", "CPU s", "Mrow/CPU s", *shares, "peak MB"]))
    for rows in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            make_partitions(Path(folder), rows)
            for what in CELLS:
                compare(rows, what, Path(folder))


if __name__ == "__main__":
    main()
