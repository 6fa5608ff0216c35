"""How the bonus and the batches of DP-UCBVI were chosen: ``python -P -m tests.campaigns.tune_ucbvi [runs] [what]``.

On seeds from 1000 on, which no reported figure uses.  ``what`` is one of the tables below, or ``all``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline.simulation.registry import run
from pipeline.simulation.trial import Trial

SEED, BAD = 1000, 0.1
RIVER, RIVER_5 = (("states", 3),), (("states", 5),)
WORLDS = {
    "hom 3": ("riverswim_homogeneous", RIVER),
    "hom 5": ("riverswim_homogeneous", RIVER_5),
    "inhom 3": ("riverswim_inhomogeneous", RIVER),
    "inhom 5": ("riverswim_inhomogeneous", RIVER_5),
    "random 5": ("random", (("actions", 3), ("horizon", 5), ("seed", 1), ("states", 5), ("successors", 3))),
}
PLACES = tuple((name, K, eps) for name in WORLDS for K in (10**4, 10**6) for eps in (1.0, 10.0))
NOISE: Mapping[str, Mapping[str, Any]] = {
    "taken": {},
    "c_noise 0, z 0": {"noise": 0.0, "z": 0.0},
    "c_noise 0, z 1": {"noise": 0.0, "z": 1.0},
    "c_noise 0.5, z 1": {"noise": 0.5, "z": 1.0},
    "c_noise 1, z 0": {"noise": 1.0, "z": 0.0},
    "c_noise 1, z 0.5": {"noise": 1.0, "z": 0.5},
    "c_noise 1, z 1": {"noise": 1.0, "z": 1.0},
    "c_noise 1, z 2": {"noise": 1.0, "z": 2.0},
    "c_noise 2, z 1": {"noise": 2.0, "z": 1.0},
    "theory": {"constants": "theory"},
}
LOCAL: Mapping[str, Mapping[str, Any]] = {
    "taken: c 0.1, c_noise 0": {},
    "c 0.03, c_noise 0": {"c": 0.03},
    "c 0.2, c_noise 0": {"c": 0.2},
    "c 0.1, c_noise 0.5": {"noise": 0.5},
    "c 0.4, c_noise 1": {"c": 0.4, "noise": 1.0},
    "pooled": {"pooled": True},
}
COUNTERS: Mapping[str, Mapping[str, Any]] = {
    "taken: square root": {},
    "bottom-up tree": {"mechanism": "bottom-up"},
    "pooled": {"pooled": True},
    "pooled, bottom-up tree": {"pooled": True, "mechanism": "bottom-up"},
}
PACE: Mapping[str, Mapping[str, Any]] = {
    "growth 2, visits x 2 (taken)": {},
    "growth 2, visits ignored": {"visits": float("inf")},
    "growth 1.05, visits ignored": {"growth": 1.05, "visits": float("inf")},
    "growth 1.05, visits x 2": {"growth": 1.05},
    "growth 1.3, visits x 2": {"growth": 1.3},
    "growth 4, visits x 2": {"growth": 4.0},
    "growth 2, visits x 1.5": {"visits": 0.5},
    "growth 2, visits x 4": {"visits": 3.0},
    "first batch 1": {"first": 1},
    "first batch 16": {"first": 16},
    "first batch 64": {"first": 64},
    "bottom-up tree": {"mechanism": "bottom-up"},
    "fresh noise a batch": {"mechanism": "fresh"},
    "plain tree": {"mechanism": "plain"},
    "a leaf an episode (K = 10^4 only)": {"leaves": "episodes"},
}
PLAIN: Mapping[str, Mapping[str, Any]] = {
    "taken: c 0.4, iota log10(K) / 2": {},
    "c 0.1, iota 1": {"c": 0.1, "iota": 1.0},
    "c 0.2, iota 1": {"c": 0.2, "iota": 1.0},
    "c 0.4, iota 1": {"iota": 1.0},
    "c 1, iota 1": {"c": 1.0, "iota": 1.0},
    "c 0.4, iota 5": {"iota": 5.0},
    "theory": {"constants": "theory"},
}


def totals(agent: str, place: tuple[str, int, float | None], options: Mapping[str, Any], runs: int) -> tuple[Any, Any]:
    """Total regret ``(runs,)``, and the loss of the emitted policies as a share of the optimum."""
    name, K, eps = place
    world, params = WORLDS[name]
    budget = (None, None, None) if eps is None else (eps, 1e-5, "tight")
    knobs = tuple(sorted(options.items()))
    found = [run(Trial(agent, world, params, K, *budget, knobs, SEED + i)) for i in range(runs)]
    return np.array([o.regret[-1] for o in found]), np.array(
        [o.facts["final_loss"] / o.facts["optimum"] for o in found]
    )


def line(agent: str, place: tuple[str, int, float | None], options: Mapping[str, Any], runs: int) -> str:
    """Mean, median and largest total regret, and the share of bad policies."""
    regret, loss = totals(agent, place, options, runs)
    return f"{regret.mean():9.4g} {np.median(regret):9.4g} {regret.max():9.4g} {np.mean(loss > BAD):5.2f}"


def show(title: str, agent: str, variants: Mapping[str, Mapping[str, Any]], places: Any, runs: int) -> None:
    """Print a block a place."""
    print(f"\n## {title}: {agent}, {runs} runs from seed {SEED}")
    for place in places:
        name, K, eps = place
        print(f"\n{name}, K = {K:g}" + ("" if eps is None else f", epsilon = {eps:g}"))
        print(f"{'':34} {'mean':>9} {'median':>9} {'largest':>9}   bad")
        for what, options in variants.items():
            if "leaves" not in options or K <= 10**4:
                print(f"{what:34} {line(agent, place, options, runs)}", flush=True)


def main(runs: int, what: str) -> None:
    """Print the tables asked for."""
    plain = [(name, K, None) for name in WORLDS for K in (10**4, 10**6)]
    few = [p for p in PLACES if p[0] in ("hom 3", "inhom 5", "random 5")]
    ends = {key: value for key, value in PACE.items() if set(value) <= {"growth", "visits", "first"}}
    tables = {
        "noise": ("the bonus under noise", "dp-ucbvi-jdp", NOISE, few),
        "pace": ("where batches end", "dp-ucbvi-jdp", PACE, [p for p in few if p[2] == 1.0]),
        "plain": ("the bonus without noise", "ucbvi", PLAIN, plain),
        "local": ("the bonus under noise", "dp-ucbvi-ldp", LOCAL, [p for p in PLACES if p[0].endswith("om 3")]),
        "counter": ("the counter", "dp-ucbvi-jdp", COUNTERS, [p for p in PLACES if p[0].startswith("hom")]),
        "shuffle": ("where batches end", "counts-shuffle", ends, [p for p in few if p[2] == 1.0]),
    }
    for name, (title, agent, variants, places) in tables.items():
        if what in (name, "all"):
            show(title, agent, variants, places, runs)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, sys.argv[2] if len(sys.argv) > 2 else "all")
