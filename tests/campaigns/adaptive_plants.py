"""Private adaptive LQR on made-up plants, some of which grow by themselves: what a run costs beside doing nothing.

``python -P -m tests.campaigns.adaptive_plants [FIRST]`` prints a table: five plants of each kind, and twenty runs on
each.  Seeds of plants and of runs count from FIRST on, else from 0; what was chosen was chosen on seeds below 30.
"""

from __future__ import annotations

import sys

import numpy as np

from tests.agents.lq_plants import SPREAD, plant, regret

KINDS = ((2, 1, 0.7), (3, 2, 0.8), (3, 2, 1.1), (2, 1, 1.2))
PLANTS, RUNS = 5, 20


def main(first: int) -> None:
    """Print a row a kind of plant."""
    print(
        "| states, controls | largest eigenvalue | runs | median | nine in ten | three largest | worse than nothing |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for n, d, largest in KINDS:
        made = [plant(n, d, largest, seed) for seed in range(first, first + PLANTS)]
        costs = np.sort([regret(one, SPREAD, seed) for one in made for seed in range(first, first + RUNS)])
        ends = ", ".join(f"{x:.3g}" for x in costs[:-4:-1])
        middle, most = np.quantile(costs, [0.5, 0.9])
        print(f"| {n}, {d} | {largest} | {len(costs)} | {middle:.2g} | {most:.2g} | {ends} | {(costs > 1).sum()} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 0)
