"""Paper 002, Table I: regret of one planner under four trust models, beside SDP-PE, against K and epsilon.

Everybody plays the same two worlds, learns the rewards as well as the transitions, and has the same (epsilon, delta).
Counts are drawn batch by batch and never episodes, so that 10^9 of them cost what 10^4 do.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.simulation.trial import Plain, Trial

DELTA = 1e-5
EPISODES = (10**4, 10**5, 10**6, 10**7, 10**8, 10**9)
BUDGETS, AT = (0.1, 0.3, 1.0, 3.0, 10.0), 10**7
RUNS, MORE_RUNS = 10, 40

World = tuple[str, tuple[tuple[str, Plain], ...]]
WORLDS: tuple[World, ...] = (
    ("riverswim_homogeneous", (("states", 3),)),
    ("random", (("actions", 2), ("horizon", 3), ("seed", 5), ("states", 2), ("successors", 2))),
)
PLANNERS = ("ucbvi", "dp-ucbvi-jdp", "counts-shuffle", "dp-ucbvi-ldp")
PRIVATE = (*PLANNERS[1:], "sdp-pe")


def grid(
    episodes: Sequence[int] = EPISODES, budgets: Sequence[float] = BUDGETS, runs: int = RUNS, at: int = AT
) -> list[Trial]:
    """All K at epsilon = 1, all epsilon at K = ``at``; SDP-PE without noise and uniform choice beside."""
    cells = [(K, 1.0) for K in episodes] + [(at, eps) for eps in budgets if eps != 1.0]
    plain = [
        _trial(agent, world, K, None, seed)
        for agent in ("ucbvi", "sdp-pe")
        for world in WORLDS
        for K in episodes
        for seed in range(runs)
    ]
    private = [
        _trial(agent, world, K, eps, seed)
        for agent in PRIVATE
        for world in WORLDS
        for K, eps in cells
        for seed in range(runs)
    ]
    control = [Trial("uniform", *world, K) for world in WORLDS for K in episodes]
    return plain + private + control


def full_grid() -> list[Trial]:
    """The same with more runs."""
    return grid(runs=MORE_RUNS)


def _trial(agent: str, world: World, K: int, epsilon: float | None, seed: int) -> Trial:  # noqa: N803
    # its linear programme is checked in its own study
    options: tuple[tuple[str, Plain], ...] = (("certify", 0),) if agent == "sdp-pe" else (("rewards", "learnt"),)
    if epsilon is None:
        none = (*options, ("trust", "none")) if agent == "sdp-pe" else options
        return Trial(agent, *world, K, options=none, seed=seed)
    return Trial(agent, *world, K, epsilon, DELTA, "tight", options, seed)
