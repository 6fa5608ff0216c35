"""How the knobs of the linear mixture agents were chosen: ``python -P -m tests.campaigns.tune_online [runs] [agent]``.

One knob at a time around the defaults of :mod:`pipeline.simulation.mixture_settings`, on RiverSwim, S = 3, K = 10^4,
delta = 1e-5, seeds from 1000 on, which no reported figure uses.  Writes ``pipeline/studies/tuned_online.csv``, which
studies print.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pipeline.simulation.mixture_settings import KINDS, settings_of
from pipeline.simulation.registry import run
from pipeline.simulation.trial import Plain, Trial
from pipeline.studies.paper_001 import TABLE

FIRST_SEED, EPISODES, DELTA = 1000, 10_000, 1e-5
WORLDS = ("riverswim_homogeneous", "riverswim_inhomogeneous")
KEY = ("agent", "world", "epsilon", "knob", "value")

_STEPS: tuple[Plain, ...] = (1, 3, 10, 30, 100)
_SHAPE: dict[str, tuple[Plain, ...]] = {
    "prior": (0, 0.5, 1, 1.5),
    "shift": ("floor", "edge", "paper"),
    "growth": (1.005, 1.02, 1.05, 1.2),
    "gram_share": (0.1, 0.2, 0.3),
}
GRIDS: dict[str, tuple[tuple[float | None, ...], dict[str, tuple[Plain, ...]]]] = {
    "ucrl-vtr": ((None,), {"bonus": (0.005, 0.01, 0.015, 0.02, 0.03, 0.1), "growth": (1.005, 1.02, 1.05)}),
    "linopt-po": ((None,), {"bonus": (0, 0.003, 0.01, 0.03), "eta": _STEPS}),
    "private-linopt-vi": (
        (1.0, 10.0),
        {
            "bonus": (0, 0.01, 0.03, 0.1, 0.3),
            **_SHAPE,
            "counter": ("plain", "bottom-up", "square-root"),
            "leaf": ("batch", "episode"),
        },
    ),
    "private-linopt-po": ((1.0, 10.0), {"bonus": (0, 0.01), "eta": _STEPS}),
    "ldp-ucrl-vtr": ((1.0, 10.0), {"bonus": (0, 0.001, 0.003, 0.01, 0.03), **_SHAPE}),
}


def cells(agent: str) -> Iterator[tuple[str, float | None, str, Plain]]:
    """World, epsilon, knob and value; the bonus in both chains, the rest in the homogeneous one."""
    budgets, knobs = GRIDS[agent]
    for knob, values in knobs.items():
        for value in values:
            for epsilon in budgets:
                for world in WORLDS if knob == "bonus" else WORLDS[:1]:
                    yield world, epsilon, knob, value


def measured(agent: str, world: str, epsilon: float | None, knob: str, value: Plain, runs: int) -> dict[str, Plain]:
    """Mean and spread of the regret over the tuning seeds."""
    private = (None, None) if epsilon is None else (DELTA, "tight")
    trials = [
        Trial(agent, world, (("states", 3),), EPISODES, epsilon, *private, ((knob, value),), FIRST_SEED + i)
        for i in range(runs)
    ]
    totals = np.array([run(t).regret[-1] for t in trials])
    default = getattr(settings_of(replace(trials[0], options=())), knob)
    taken = value == (KINDS[agent].c if default is None else default)
    return {
        "agent": agent,
        "world": world,
        "epsilon": epsilon,
        "knob": knob,
        "value": value,
        "taken": taken,
        "mean": round(float(totals.mean()), 1),
        "std": round(float(totals.std(ddof=1)), 1),
        "worst": round(float(totals.max()), 1),
        "runs": runs,
        "seeds": f"{FIRST_SEED}..{FIRST_SEED + runs - 1}",
    }


def main(runs: int, agents: list[str]) -> None:
    """Print and keep a line a cell; cells that the table has already are found again (delete it to start anew)."""
    kept = list(csv.DictReader(TABLE.open(encoding="utf-8"))) if TABLE.is_file() else []
    rows = {tuple(r[k] for k in KEY): r for r in kept}
    for agent in agents:
        for cell in cells(agent):
            world, epsilon, knob, value = ("" if x is None else str(x) for x in cell)
            if (agent, world, epsilon, knob, value) in rows:
                continue
            row = measured(agent, *cell, runs)
            rows[agent, world, epsilon, knob, value] = {k: "" if v is None else str(v) for k, v in row.items()}
            print(*row.values(), flush=True)
            _write(list(rows.values()))


def _write(rows: list[dict[str, str]]) -> None:
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6, sys.argv[2:] or list(GRIDS))
