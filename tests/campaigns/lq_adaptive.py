"""Private adaptive LQR on systems that tuned nothing: ``python -P -m tests.campaigns.lq_adaptive [RUNS] [SEED..]``.

A table of regret over the zero controller's at K = 10^4, epsilon = 1, delta = 1e-5: median and worst of RUNS runs (5)
of each of the five instances, a line a seed of the systems (11, 99, 123), with explore-then-commit beside.  The
constants of the planner were chosen on seeds 21 to 24, 290 and 388.  ``offline`` alone: dp-lqr and dp-residual-lqr,
seed 11.
"""

from __future__ import annotations

import sys

import numpy as np

from pipeline.simulation.registry import run
from pipeline.simulation.trial import Trial

EPISODES, EPSILON, DELTA = 10_000, 1.0, 1e-5
AGENTS = ("private-adaptive-lqr", "explore-then-commit")
OFFLINE = ("dp-lqr", "dp-residual-lqr")


def ratios(agent: str, number: int, system: int, runs: int) -> list[float]:
    """Regret of each run over zero's."""
    params = (("instance", number), ("seed", system))
    zero = run(Trial("zero", "lq", params, EPISODES)).regret[-1]
    asked = (Trial(agent, "lq", params, EPISODES, EPSILON, DELTA, "tight", (), seed) for seed in range(runs))
    return [run(trial).regret[-1] / zero for trial in asked]


def show(system: int, agent: str, runs: int, digits: int) -> str:
    """Cells of one line: an instance each."""
    found = [ratios(agent, number, system, runs) for number in range(1, 6)]
    return " | ".join(f"{np.median(f):.{digits}f} ({max(f):.{digits}f})" for f in found)


if __name__ == "__main__":
    instances = " | ".join(f"lq-{number}" for number in range(1, 6))
    if sys.argv[1:] == ["offline"]:
        print(f"| agent | {instances} |\n{'| --- ' * 6}|")
        for chosen in OFFLINE:
            print(f"| {chosen} | {show(11, chosen, 10, 5)} |", flush=True)
        sys.exit()
    print(f"| seed | agent | {instances} |\n{'| --- ' * 7}|")
    times, *systems = [int(a) for a in sys.argv[1:]] or [5]
    for one in systems or (11, 99, 123):
        for chosen in AGENTS:
            print(f"| {one} | {chosen} | {show(one, chosen, times, 2)} |", flush=True)
