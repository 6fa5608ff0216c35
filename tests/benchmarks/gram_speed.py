"""Exact Gram sums against numpy's GEMM, side by side in one run: ``python -P -m tests.benchmarks.gram_speed``.

First: integer rows in cache, ours (blocks, int64 sums, one target) against a bare float64 ``X.T @ Y`` of the same shape
(general product) and against ``X.T @ X`` (symmetric: numpy does half the work).  GFLOP/s are nominal, 2 n d^2.  Then:
finite (s, a) through counts.  Last: peak memory of a whole desk call over 10^6 and 10^7 rows, each in a fresh process.
Medians of nine rounds; ratios are within a round.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from pipeline.mdp.features import FeatureMap, quantise
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.gram import Extent, counted_sums, exact_sums
from pipeline.statistics.interactive import InteractiveRegression
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms
from pipeline.statistics.regression import Window
from pipeline.statistics.regression_rows import Batch, StreamRows

ROUNDS, ROWS, STEPS = 9, 16_384 * 8, 256


def seconds(work, *args) -> float:
    """Wall seconds."""
    began = time.perf_counter()
    work(*args)
    return time.perf_counter() - began


def speed() -> None:
    """One line a dimension."""
    rng = np.random.default_rng(0)
    print(f"{'d':>3} {'ours GF/s':>10} {'X.T@Y GF/s':>11} {'ratio':>6} {'X.T@X GF/s':>11} {'ratio':>6} {'Mrow/s':>8}")
    for d in (10, 32, 64):
        block = 16_384
        X = rng.integers(-30, 31, (block, d)).astype(np.float64)
        Y, y = X.copy(), rng.integers(-500, 500, (1, block)).astype(np.float64)
        extent, times = Extent(10**7, STEPS**2, 1, 1024), []
        for _ in range(ROUNDS):
            n = ROWS // block
            ours = sum(seconds(exact_sums, extent, X, y) for _ in range(n))
            general = sum(seconds(np.matmul, X.T, Y) for _ in range(n))
            symmetric = sum(seconds(np.matmul, X.T, X) for _ in range(n))
            times.append((ours, general, symmetric))
        at = np.array(times)
        rate = 2 * ROWS * d * d / np.median(at, axis=0) / 1e9
        share = np.median(at[:, 1:] / at[:, :1], axis=0)
        print(
            f"{d:>3} {rate[0]:>10.1f} {rate[1]:>11.1f} {share[0]:>6.2f} {rate[2]:>11.1f} {share[1]:>6.2f} "
            f"{ROWS / np.median(at[:, 0]) / 1e6:>8.1f}"
        )
    for d in (10, 32, 64):
        f = rng.integers(-30, 31, (1000, d))
        cell = rng.integers(1000, size=10**6)
        rows = f[cell].astype(np.float64)
        targets = np.ones((1, 10**6))
        by_rows, by_counts = [], []
        for _ in range(ROUNDS):
            by_rows.append(seconds(exact_sums, Extent(10**7, STEPS**2, 1, 1024), rows, targets))

            def counted(f=f, cell=cell) -> None:
                n = np.bincount(cell, minlength=1000)
                counted_sums(f, n, n[None])

            by_counts.append(seconds(counted))
        ratio = np.median(np.array(by_rows) / np.array(by_counts))
        rate = 1 / np.median(by_counts)
        print(f"10^6 rows of 1000 (s, a), d = {d}: {rate:.0f} Mrow/s by counts, {ratio:.0f}x the rows' rate")


def peak_kilobytes() -> int:
    """High-water mark of this process alone (getrusage would remember the parent's)."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


def one_call(rows: int, d: int) -> None:
    """Peak resident memory of a desk call over generated batches, in this process."""
    fmap = FeatureMap(STEPS * np.eye(2, d, dtype=np.int64)[None], STEPS**2, Fraction(1, STEPS**2))
    rng = np.random.default_rng(0)

    def batches(h: int, side: str) -> Iterator[Batch]:
        for start in range(0, rows, 16_384):
            n = min(16_384, rows - start)
            seen = rng.random((n, d)) / d**0.5
            both = np.stack([quantise(seen, STEPS), quantise(seen * 0.5, STEPS)], axis=1)
            f = both[np.arange(n), rng.integers(2, size=n)]
            yield Batch(f, rng.random(n), both, np.zeros(n, dtype=bool))

    plan = LinearPlan(
        LinearDomain("bench", "synthetic", 2, rows),
        LinearTerms(Ask(Fraction(1)), variance=False, value_steps=256),
        fmap,
    )
    desk = InteractiveRegression(plan, StreamRows(batches, d, "synthetic"), SeededNoise(0))
    before = peak_kilobytes()
    took = seconds(desk.regression, 1, lambda f: f.sum(-1).max(-1) / STEPS, Window(0, 1))
    peak = peak_kilobytes()
    grown = (peak - before) / 1024
    print(f"{rows:>9} rows, d = {d}: {took:6.1f} s, peak {peak / 1024:.0f} MB, {grown:.0f} MB above the start")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        one_call(int(sys.argv[1]), int(sys.argv[2]))
    else:
        speed()
        for size in (10**6, 10**7):
            command = [sys.executable, "-P", "-m", "tests.benchmarks.gram_speed", str(size), "32"]
            print(subprocess.run(command, check=True, capture_output=True, text=True).stdout, end="")
