"""Regret by size, counter and budget: ``python -P -m tests.campaigns.online_sizes [runs] [what ...]``.

``sizes``: RiverSwim at S = 3, 5 and 10.  ``counters``: the ways to count, at S = 3.  ``mixture``: a mixture of five
kernels, from which epsilon or K it learns.  Seeds from 0 on, delta = 1e-5, tight noise, the agents' defaults.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

from pipeline.simulation.registry import run
from pipeline.simulation.trial import Plain, Trial
from pipeline.studies.paper_001 import MIXTURE

Options = tuple[tuple[str, Plain], ...]
Cell = tuple[str, str, Options, int, float | None, Options]
DELTA = 1e-5


def sizes() -> Iterator[Cell]:
    """Both chains, three sizes."""
    for states in (3, 5, 10):
        for chain in ("riverswim_homogeneous", "riverswim_inhomogeneous"):
            place = chain, (("states", states),), 10_000
            yield "uniform", *place, None, ()
            yield "ucrl-vtr", *place, None, ()
            for epsilon in (1.0, 10.0):
                yield "private-linopt-vi", *place, epsilon, ()
                yield "private-linopt-po", *place, epsilon, ()


def counters() -> Iterator[Cell]:
    """Every counter and leaf, and value iteration as findings/online.md ran it."""
    for chain in ("riverswim_homogeneous", "riverswim_inhomogeneous"):
        place = chain, (("states", 3),), 10_000
        for epsilon in (1.0, 10.0):
            for counter in ("plain", "bottom-up", "square-root"):
                for leaf in ("batch", "episode"):
                    yield "private-linopt-vi", *place, epsilon, (("counter", counter), ("leaf", leaf))
            before = (("gram_share", 0.1), ("growth", 1.005), ("leaf", "episode"), ("prior", 0), ("shift", "edge"))
            yield "private-linopt-vi", *place, epsilon, before


def mixture() -> Iterator[Cell]:
    """Five unknowns a step instead of 192."""
    place = MIXTURE
    for episodes in (10_000, 100_000, 1_000_000):
        yield "uniform", *place, episodes, None, ()
        yield "ucrl-vtr", *place, episodes, None, ()
        for agent in ("private-linopt-vi", "ldp-ucrl-vtr"):
            for epsilon in (1.0, 10.0, 100.0):
                yield agent, *place, episodes, epsilon, ()
            yield "no-data", *place, episodes, 1.0, (("of", agent),)


def main(runs: int, asked: list[str]) -> None:
    """One line a cell."""
    for what in asked:
        for agent, world, params, episodes, epsilon, options in {"sizes": sizes, "counters": counters}.get(
            what, mixture
        )():
            private = (None, None) if epsilon is None else (DELTA, "tight")
            n = 1 if agent == "uniform" else runs
            outcomes = [
                run(Trial(agent, world, params, episodes, epsilon, *private, tuple(sorted(options)), seed))
                for seed in range(n)
            ]
            totals = np.array([o.regret[-1] for o in outcomes])
            ends = np.array([(o.regret[-1] - o.regret[-2]) / (o.marks[-1] - o.marks[-2]) for o in outcomes])
            said = " ".join(f"{k}={v}" for k, v in (*params, *options))
            spread = totals.std(ddof=1) if n > 1 else 0.0
            print(
                f"{world:24} K={episodes:<7} {agent:18} eps={epsilon} {said:60} {totals.mean():8.1f} ± {spread:6.1f} "
                f"worst {totals.max():8.1f} end {ends.mean():.5f} runs {n}",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10, sys.argv[2:] or ["sizes", "counters", "mixture"])
