"""Private adaptive LQR on made-up plants, some of which grow by themselves: what a run costs beside doing nothing.

``python -P -m tests.campaigns.adaptive_plants [FIRST]`` prints a table: five plants of each of four kinds with ten runs
on each, and forty plants of the paper's Assumption 1 with one.  Seeds of plants and of runs count from FIRST on, else
from 0; what was chosen was chosen on seeds below 30, and plants of the last kind below 2040 were looked at.
"""

import sys
from typing import Any

import numpy as np

from pipeline.online.registry import run
from pipeline.online.trial import Trial
from tests.agents.lq_plants import SPREAD, plant, regret
from tests.campaigns.rows import markdown, markdown_row

KINDS = ((2, 1, 0.7), (3, 2, 0.8), (3, 2, 1.1), (2, 1, 1.2))
PLANTS, RUNS = 5, 10
ASSUMED, EPISODES = 40, 10_000
HEAD = ("states, controls", "largest eigenvalue", "runs", "median", "nine in ten")
Params = tuple[tuple[str, Any], ...]


def assumed(seed: int) -> Params:
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


def beside_zero(params: Params) -> float:
    """Regret over that of the controller that does nothing; ε = 1, δ = 1e-5, seed 0."""
    idle = run(Trial("zero", "plant", params, EPISODES)).regret[-1]
    return run(Trial("private-adaptive-lqr", "plant", params, EPISODES, 1.0, 1e-5, "tight")).regret[-1] / idle


def show(size: str, largest: object, costs: np.ndarray) -> None:
    ends = ", ".join(f"{x:.3g}" for x in np.sort(costs)[:-4:-1])
    middle, most = (f"{x:.2g}" for x in np.quantile(costs, [0.5, 0.9]))
    print(markdown_row([size, largest, len(costs), middle, most, ends, (costs > 1).sum()]), flush=True)


def main(first: int) -> None:
    print(markdown([*HEAD, "three largest", "worse than nothing"]))
    for n, d, largest in KINDS:
        made = [plant(n, d, largest, seed) for seed in range(first, first + PLANTS)]
        seeds = range(first, first + RUNS)
        show(f"{n}, {d}", largest, np.array([regret(one, SPREAD, seed) for one in made for seed in seeds]))
    drawn = [beside_zero(assumed(seed)) for seed in range(first, first + ASSUMED)]
    show("2 to 4, 1 to 2", "at most 0.92", np.array(drawn))


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 0)
