"""What a small budget buys on the clinicians' log: ``python -P -m tests.campaigns.one_step_budgets``.

It writes ``results/one_step_budgets.csv``.  A row is a size and a budget: 20 fresh logs each, noise of the operating
system.  "better" is the statistical answer at the first look; the card pays at the end of an episode, so the page puts
a condition beside it.
"""

import statistics

from pipeline.privacy.budget import epsilon_from_rho
from pipeline.privacy.noise import OsNoise
from tests.campaigns.one_step_evaluation import Cell, runs
from tests.campaigns.rows import write

# people, rho and the share of them who evaluate, as ``people = "auto"`` has it; no other campaign has these seeds
ROWS = ((100_000, 0.01, 0.5), (100_000, 0.024356, 0.32), (100_000, 0.1, 0.3), (100_000, 1.0, 0.3))
ROWS += ((20_000, 0.3, 0.46), (20_000, 1.0, 0.3))
FIRST, LOGS, DELTA = 9700, 20, 1e-6
HEAD = ("people", "rho", "epsilon", "evaluate", "logs", "gain", "half-width", "better", "gain held", "value held")


def row(people, rho, share):
    cell, told = Cell("clinicians", people, rho, share, "learnt"), list[tuple[float, ...]]()
    for seed in range(FIRST, FIRST + LOGS):
        for _, found in runs(people, seed, [cell], lambda _: OsNoise()):
            _, worth, practice, _, value_low, value_high, gain, low, high, *_ = found
            true = worth - practice
            inside = low <= true <= high, value_low <= worth <= value_high
            told.append((true, high - gain, low > 0, *inside))
    gains, halves, better, *held = zip(*told, strict=True)
    gain = f"{statistics.mean(gains):.4f} ({statistics.stdev(gains) / LOGS**0.5:.4f})"
    counts = [sum(x) for x in (better, *held)]
    half, epsilon = f"{statistics.mean(halves):.4f}", f"{epsilon_from_rho(rho, DELTA):.2f}"
    return dict(zip(HEAD, (f"{people:,}", rho, epsilon, share, LOGS, gain, half, *counts), strict=True))


if __name__ == "__main__":
    write("one_step_budgets", [row(*r) for r in ROWS])
