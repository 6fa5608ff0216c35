"""Tables of docs/lab of online agents: ``python -P -m tests.campaigns.online_tables [TABLE [runs]]``.

``figures`` (tabular.md), ``sizes``, ``counters``, ``mixture`` (online.md) and ``beta`` (lq-online.md) have seeds from
0 on; ``noise``, ``users``, ``pace``, ``plain`` and ``shuffle``, by which DP-UCBVI's bonus, counter and batches were
chosen, from 1000 on, which no reported figure uses; ``bold`` (tabular.md) from 8000 on.  Tight noise, delta = 1e-5.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from pipeline.simulation.registry import run
from pipeline.simulation.trial import Plain, Trial
from pipeline.studies.paper_001 import MIXTURE
from tests.campaigns.rows import write

Options = Mapping[str, Plain]
World = tuple[str, tuple[tuple[str, Plain], ...]]
# agent, world, K, epsilon, options
Cell = tuple[str, World, int, float | None, Options]
BAD = 0.1
FIVE = ("least", "quarter", "median", "three quarters", "largest")
RANDOM: World = "random", (("actions", 3), ("horizon", 5), ("seed", 1), ("states", 5), ("successors", 3))
TREE: Options = {"mechanism": "bottom-up"}
POOLED: Options = {"pooled": True}
IGNORED: Options = {"visits": float("inf")}
NOISE: Sequence[Options] = (
    {},
    *({"noise": c, "z": z} for c, z in ((0.0, 0.0), (0.0, 1.0), (0.5, 1.0), (1.0, 0.0), (1.0, 0.5), (1.0, 1.0))),
    *({"noise": c, "z": z} for c, z in ((1.0, 2.0), (2.0, 1.0))),
    {"constants": "paper", "growth": 2.0, "visits": 1.0},
)
# beside the taken c 0.2, noise 0.41 at K = 10^4 and 2.1 at 10^6; c 0.1 without noise was taken before
LOCAL: Sequence[Options] = (
    {},
    *({"c": c} for c in (0.1, 0.4)),
    *({"noise": c} for c in (0.2, 0.5, 1.0)),
    {"c": 0.1, "noise": 0.0},
    POOLED,
)
ENDS: Sequence[Options] = (
    {},
    IGNORED,
    {"growth": 1.05, **IGNORED},
    *({"growth": growth} for growth in (1.05, 1.3, 4.0)),
    *({"visits": more} for more in (0.5, 3.0)),
    *({"first": episodes} for episodes in (1, 16, 64)),
)
PACE: Sequence[Options] = (*ENDS, TREE, {"mechanism": "fresh"}, {"mechanism": "plain"}, {"leaves": "episodes"})
PLAIN: Sequence[Options] = (
    {},
    *({"c": c, "iota": 1.0} for c in (0.1, 0.2, 0.4, 1.0)),
    {"iota": 5.0},
    {"constants": "paper", "growth": 2.0, "visits": 1.0},
)


def river(states: int, chain: str = "homogeneous") -> World:
    """RiverSwim."""
    return f"riverswim_{chain}", (("states", states),)


HOM, INHOM = [river(s) for s in (3, 5)], [river(s, "inhomogeneous") for s in (3, 5)]
BOTH = (1.0, 10.0)


def figures() -> Iterator[Cell]:
    """UCBVI under every trust model."""
    K, ucbvi, joint, local, shuffle = 10**4, "ucbvi", "dp-ucbvi-jdp", "dp-ucbvi-ldp", "counts-shuffle"
    yield from product([ucbvi], HOM + INHOM, [K], [None], ({}, {"c": 0.1, "iota": 1.0}))
    yield ucbvi, HOM[0], K, None, POOLED
    yield from product([joint], HOM + INHOM, [K], BOTH, [{}])
    yield from product([joint], HOM, [K], BOTH, (POOLED, TREE))
    yield from product([joint], HOM[:1], [K], BOTH, ({**TREE, **POOLED}, {"rewards": "learnt"}, PACE[-1]))
    yield from product([shuffle], HOM + INHOM, [K], BOTH, [{}])
    yield from product([local], (HOM[0], INHOM[0]), (K, 10**5, 10**6), (*BOTH, 3.0), [{}])
    yield from product([local], HOM[:1], (K, 10**6), BOTH, [POOLED])
    yield from product([joint, shuffle], HOM[:1], (10**5, 10**6, 10**7), [1.0], [{}])
    yield from product([joint, shuffle], HOM[:1], [10**7], [1.0], [IGNORED])


def tuning(agent: str, options: Sequence[Options], budgets: Sequence[float | None]) -> Iterator[Cell]:
    """One knob beside the defaults; all worlds without noise, where a run is cheap."""
    worlds = [*HOM, *INHOM, RANDOM] if budgets == (None,) else [HOM[0], INHOM[1], RANDOM]
    for world, K, epsilon, chosen in product(worlds, (10**4, 10**6), budgets, options):
        if "leaves" not in chosen or K <= 10**4:
            yield agent, world, K, epsilon, chosen


def sizes() -> Iterator[Cell]:
    """Linear mixture agents by the number of states."""
    for states, chain in product((3, 5, 10), ("homogeneous", "inhomogeneous")):
        yield from product(("uniform", "ucrl-vtr"), [river(states, chain)], [10**4], [None], [{}])
        yield from product(("private-linopt-vi", "private-linopt-po"), [river(states, chain)], [10**4], BOTH, [{}])


def counters() -> Iterator[Cell]:
    """Every counter and leaf, and value iteration with its first settings."""
    ways: list[Options] = [
        {"counter": counter, "leaf": leaf}
        for counter, leaf in product(("plain", "bottom-up", "square-root"), ("batch", "episode"))
    ]
    before: Options = {"gram_share": 0.1, "growth": 1.005, "leaf": "episode", "prior": 0, "shift": "edge"}
    yield from product(["private-linopt-vi"], (HOM[0], INHOM[0]), [10**4], BOTH, [*ways, before])


def mixture() -> Iterator[Cell]:
    """Five kernels, from which epsilon or K it learns."""
    for K in (10**4, 10**5, 10**6):
        yield from product(("uniform", "ucrl-vtr"), [MIXTURE], [K], [None], [{}])
        for agent in ("private-linopt-vi", "ldp-ucrl-vtr"):
            yield from product([agent], [MIXTURE], [K], (1.0, 10.0, 100.0), [{}])
            yield "no-data", MIXTURE, K, 1.0, {"of": agent}


def beta() -> Iterator[Cell]:
    """The two volumes of OFU-RL's beta_k, and two growths."""
    ways: list[Options] = [{"growth": g, "constants": c} for c, g in product(("practical", "paper"), (1.2, 1.05))]
    yield from product(["ofu-rl"], [("lq", (("instance", n),)) for n in range(1, 6)], [10**4], [None], ways)


def other(states: int, actions: int, horizon: int, successors: int, seed: int) -> World:
    """A random world in which nothing was chosen."""
    params = {"actions": actions, "horizon": horizon, "seed": seed, "states": states, "successors": successors}
    return "random", tuple(params.items())


OTHERS = [other(4, 2, 10, 2, 21), other(8, 3, 8, 3, 22), other(6, 3, 15, 2, 23), other(5, 3, 5, 3, 24)]


def bold() -> Iterator[Cell]:
    """The default bonus and batches of joint noise beside those of all others, which were its own until they won."""
    ways: list[Options] = [{}, {"c": 0.4, "visits": 1.0}]
    yield from product(["dp-ucbvi-jdp"], [*HOM, *INHOM, RANDOM, *OTHERS], (10**4, 10**6), BOTH, ways)


# name -> cells, runs, first seed
TABLES: dict[str, tuple[Iterable[Cell], int, int]] = {
    "figures": (figures(), 20, 0),
    "noise": (tuning("dp-ucbvi-jdp", NOISE, BOTH), 16, 1000),
    "users": (tuning("dp-ucbvi-ldp", LOCAL, BOTH), 16, 1000),
    "pace": (tuning("dp-ucbvi-jdp", PACE, (1.0,)), 16, 1000),
    "plain": (tuning("ucbvi", PLAIN, (None,)), 16, 1000),
    "shuffle": (tuning("counts-shuffle", ENDS, (1.0,)), 16, 1000),
    "sizes": (sizes(), 3, 0),
    "counters": (counters(), 6, 0),
    "mixture": (mixture(), 3, 0),
    "beta": (beta(), 4, 0),
    "bold": (bold(), 20, 8000),
}


def measured(cell: Cell, seeds: range) -> dict[str, str]:
    """Total regret; the share of runs that emit a bad policy, where that is told; what an episode costs in the end."""
    agent, (world, params), K, epsilon, options = cell
    private = (None, None) if epsilon is None else (1e-5, "tight")
    knobs = tuple(sorted(options.items()))
    found = [run(Trial(agent, world, params, K, epsilon, *private, knobs, seed)) for seed in seeds]
    totals = np.array([o.regret[-1] for o in found])
    bad: Any = [o.facts["final_loss"] > BAD * o.facts["optimum"] for o in found if "optimum" in o.facts]
    ends = [(o.regret[-1] - o.regret[-2]) / (o.marks[-1] - o.marks[-2]) for o in found]
    said = [", ".join(f"{k} {v}" for k, v in each) or "–" for each in (params, knobs)]
    spread = f"{totals.std(ddof=1):.3g}" if len(found) > 1 else "–"
    five = np.quantile(totals, [0, 0.25, 0.5, 0.75, 1])
    return {
        "agent": agent,
        "world": world,
        "of": said[0],
        "K": f"{K:g}",
        "ε": "–" if epsilon is None else f"{epsilon:g}",
        "options": said[1],
        "mean ± sd": f"{totals.mean():.4g} ± {spread}",
        **{name: f"{q:.4g}" for name, q in zip(FIVE, five, strict=True)},
        "bad": f"{np.mean(bad):.2f}" if bad else "–",
        "end": f"{np.mean(ends):.5f}",
    }


def main(name: str, runs: int | None) -> None:
    """Print a line a cell, and keep the rows; uniform choice is the same in every run."""
    cells, usual, first = TABLES[name]
    rows = list[dict[str, str]]()
    for cell in cells:
        seeds = range(first, first + (1 if cell[0] == "uniform" else runs or usual))
        rows.append(measured(cell, seeds))
        if len(rows) == 1:
            print("| " + " | ".join(rows[0]) + f" |\n|{'---|' * len(rows[0])}")
        print("| " + " | ".join(rows[-1].values()) + " |", flush=True)
    if runs is None:
        write(f"online_{name}", rows, f"{first} .. {first + usual - 1}")


if __name__ == "__main__":
    for table in sys.argv[1:2] or TABLES:
        main(table, int(sys.argv[2]) if len(sys.argv) > 2 else None)
