"""Closed form against cvxpy, per cell, side by side in one run: ``python -P -m tests.benchmarks.consistency_speed``.

Three routes at S = 10 and 100: the vectorised closed form, the DPP-parametrised cvxpy problem cell by cell, and one
block programme over many cells.  Prints medians of five rounds; ratios are within a round.
"""

from __future__ import annotations

import time

import numpy as np

from pipeline.statistics.consistency import consistent_counts, consistent_counts_cvxpy

ROUNDS, CELLS = 5, {10: 100_000, 100: 20_000}
SAMPLED, BLOCK = {10: 200, 100: 100}, {10: 1000, 100: 200}


def cells(n: int, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Noisy cells in which all three cases occur."""
    parts = np.maximum(rng.poisson(5, (n, size)) + rng.normal(0, 6, (n, size)).round(), 0.0)
    return np.maximum(parts.sum(-1) + rng.normal(0, 6 * size**0.5, n).round(), 0.0), parts


def block(total: np.ndarray, parts: np.ndarray, slack: float) -> np.ndarray:
    """All cells in one linear programme: the sum of their t's separates."""
    import cvxpy as cp

    n, size = parts.shape
    x, t = cp.Variable((n, size), nonneg=True), cp.Variable(n)
    shown = cp.reshape(t, (n, 1), order="C") @ np.ones((1, size))
    problem = cp.Problem(
        cp.Minimize(cp.sum(t)), [cp.abs(x - parts) <= shown, cp.abs(cp.sum(x, axis=1) - total) <= slack]
    )
    problem.solve(solver="HIGHS")
    return np.asarray(x.value)


def seconds(work, *args) -> tuple[float, np.ndarray]:
    """Wall seconds and result."""
    began = time.perf_counter()
    result = work(*args)
    return time.perf_counter() - began, result


def main() -> None:
    """Print one line a route and size."""
    rng = np.random.default_rng(20261121)
    consistent_counts_cvxpy(*(a[:1] for a in cells(1, 10, rng)), 3.0)
    print(f"{'S':>4} {'route':28} {'us a cell':>10} {'ratio':>9} {'max rel diff':>13}")
    for size in (10, 100):
        rows: dict[str, list[float]] = {"closed form": [], "cvxpy, DPP, cell by cell": [], "cvxpy, block": []}
        worst = {"cvxpy, DPP, cell by cell": 0.0, "cvxpy, block": 0.0}
        consistent_counts_cvxpy(*(a[:1] for a in cells(1, size, rng)), 3.0)
        for _ in range(ROUNDS):
            total, parts = cells(CELLS[size], size, rng)
            t, x = seconds(consistent_counts, total, parts, 3.0)
            rows["closed form"].append(1e6 * t / CELLS[size])
            for name, n, route in (
                ("cvxpy, DPP, cell by cell", SAMPLED[size], consistent_counts_cvxpy),
                ("cvxpy, block", BLOCK[size], block),
            ):
                t, y = seconds(route, total[:n], parts[:n], 3.0)
                rows[name].append(1e6 * t / n)
                worst[name] = max(
                    worst[name], float((np.abs(y - x[:n]).max(-1) / np.maximum(1, parts[:n].max(-1))).max())
                )
        for name, times in rows.items():
            ratio = np.median(np.array(times) / np.array(rows["closed form"]))
            print(f"{size:>4} {name:28} {np.median(times):>10.3f} {ratio:>8.0f}x {worst.get(name, 0.0):>13.1e}")


if __name__ == "__main__":
    main()
