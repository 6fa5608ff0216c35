"""The figures of docs/lab/tabular.md: ``python -P -m tests.campaigns.tabular_figures [runs]``; seeds from 0."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline.simulation.registry import run
from pipeline.simulation.trial import Trial

HOM, INHOM = "riverswim_homogeneous", "riverswim_inhomogeneous"
SQUARE, POOLED, LEARNT = {"mechanism": "square-root"}, {"pooled": True}, {"rewards": "learnt"}
BAD = 0.1
# agent, world, states, K, epsilon, options
ROWS: list[tuple[str, str, int, int, float | None, Mapping[str, Any]]] = [
    *(("ucbvi", w, s, 10**4, None, o) for w in (HOM, INHOM) for s in (3, 5) for o in ({}, {"c": 0.1, "iota": 1.0})),
    ("ucbvi", HOM, 3, 10**4, None, POOLED),
    *(("dp-ucbvi-jdp", w, s, 10**4, e, {}) for w in (HOM, INHOM) for s in (3, 5) for e in (1.0, 10.0)),
    *(("dp-ucbvi-jdp", HOM, s, 10**4, e, o) for s in (3, 5) for e in (1.0, 10.0) for o in (POOLED, SQUARE)),
    *(
        ("dp-ucbvi-jdp", HOM, 3, 10**4, e, o)
        for e in (1.0, 10.0)
        for o in (SQUARE | POOLED, LEARNT, {"leaves": "episodes"})
    ),
    *(("counts-shuffle", w, s, 10**4, e, {}) for w in (HOM, INHOM) for s in (3, 5) for e in (1.0, 10.0)),
    *(("dp-ucbvi-ldp", w, 3, K, e, {}) for w in (HOM, INHOM) for K in (10**4, 10**6) for e in (1.0, 10.0)),
    ("dp-ucbvi-ldp", HOM, 3, 10**4, 10.0, POOLED),
    *((a, HOM, 3, K, 1.0, {}) for a in ("dp-ucbvi-jdp", "counts-shuffle") for K in (10**5, 10**6, 10**7)),
    ("dp-ucbvi-jdp", HOM, 3, 10**7, 1.0, {"visits": float("inf")}),
    ("counts-shuffle", HOM, 3, 10**7, 1.0, {"visits": float("inf")}),
]


def main(runs: int) -> None:
    """Print a line a setting."""
    head = "agent | world | S | K | epsilon | options | mean ± sd | least | quarter | median | quarter | largest | bad"
    print(f"| {head} |\n|{'---|' * 13}")
    for agent, world, states, K, eps, options in ROWS:
        budget = (None, None, None) if eps is None else (eps, 1e-5, "tight")
        place = world, (("states", states),), K
        outcomes = [run(Trial(agent, *place, *budget, tuple(sorted(options.items())), seed)) for seed in range(runs)]
        totals = np.array([o.regret[-1] for o in outcomes])
        bad = np.mean([o.facts["final_loss"] > BAD * o.facts["optimum"] for o in outcomes])
        five = " | ".join(f"{q:.4g}" for q in np.quantile(totals, [0, 0.25, 0.5, 0.75, 1]))
        said = ", ".join(f"{key} {value}" for key, value in options.items()) or "–"
        print(
            f"| {agent} | {world.split('_')[1][:5]} | {states} | {K:g} | {'–' if eps is None else f'{eps:g}'} | {said} "
            f"| {totals.mean():.4g} ± {totals.std(ddof=1):.3g} | {five} | {bad:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
