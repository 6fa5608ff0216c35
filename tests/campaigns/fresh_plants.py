"""Adaptive LQR on plants made at random, in regret over the zero controller's.

``python -P -m tests.campaigns.fresh_plants [FIRST]`` plays forty plants of two to four states, one run of 10^4 episodes
each: at epsilon = 1 (delta = 1e-5), and with exact sums beside explore-then-commit at epsilon = 10^6.  Seeds of plants
count from FIRST on, else from 3000; what was chosen was chosen on plants below 2040.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from pipeline.online.registry import run
from pipeline.online.trial import Trial

PLANTS, EPISODES, DELTA = 40, 10_000, 1e-5
PLAYED = (
    ("private-adaptive-lqr", 1.0),
    ("explore-then-commit", 1.0),
    ("adaptive-lqr", None),
    ("explore-then-commit", 1e6),
)


def plant(seed: int) -> tuple[tuple[str, Any], ...]:
    """Parameters of a plant: A of norm .4 to .92, B fills .3 to 1 of the room that Assumption 1 leaves it."""
    rng = np.random.default_rng([77, seed])
    n, d, horizon = int(rng.integers(2, 5)), int(rng.integers(1, 3)), int(rng.choice([10, 15, 20]))
    A = rng.normal(size=(n, n))
    if seed % 2 == 0:
        A = np.triu(rng.normal(size=(n, n)) * 0.1, 1) + np.diag(rng.uniform(0.2, 0.92, n))
    size, noise = rng.uniform(0.4, 0.92), float(np.round(rng.uniform(0.01, 0.05), 3))
    B = rng.normal(size=(n, d))
    B *= 0.999 * rng.uniform(0.3, 1.0) * max(1 - size - noise, 0.02) / np.linalg.norm(B, 2)
    R = (float(rng.choice([0.01, 0.03, 0.1, 1.0])),) * d
    start = rng.normal(size=n)
    found = {"A": rows(A * size / np.linalg.norm(A, 2)), "B": rows(B), "R": R, "horizon": horizon, "noise": noise}
    return tuple(sorted({**found, "start": rows(start / (np.linalg.norm(start) * 1.0001))}.items()))


def rows(M: np.ndarray) -> Any:
    """Of a recipe: decimals, as tuples."""
    found = np.round(M, 6).tolist()
    return tuple(tuple(row) if isinstance(row, list) else row for row in found)


def ratio(agent: str, params: tuple[tuple[str, Any], ...], epsilon: float | None) -> float:
    """Regret over zero's, seed 0."""
    budget: tuple[Any, ...] = () if epsilon is None else (epsilon, DELTA, "tight")
    idle = run(Trial("zero", "plant", params, EPISODES)).regret[-1]
    return run(Trial(agent, "plant", params, EPISODES, *budget)).regret[-1] / idle


if __name__ == "__main__":
    first = int(sys.argv[1]) if sys.argv[1:] else 3000
    print("| agent | ε | median | three in four | largest | above 1 | above 1.3 |\n" + "| --- " * 7 + "|")
    found: dict[tuple[str, float | None], np.ndarray] = {}
    for who, epsilon in PLAYED:
        found[who, epsilon] = x = np.array([ratio(who, plant(s), epsilon) for s in range(first, first + PLANTS)])
        middle, most = np.quantile(x, [0.5, 0.75])
        print(
            f"| {who} | {epsilon} | {middle:.2f} | {most:.2f} | {x.max():.3g} | {(x > 1).sum()} | {(x > 1.3).sum()} |",
            flush=True,
        )
    exact = found["adaptive-lqr", None] / found["explore-then-commit", 1e6]
    print(f"exact sums over explore-then-commit's, most: {exact.max():.2f}")
    private = found["private-adaptive-lqr", 1.0] / found["explore-then-commit", 1.0]
    print(f"at ε = 1 over explore-then-commit's, most: {private.max():.2f}; above 1.1: {(private > 1.1).sum()}")
