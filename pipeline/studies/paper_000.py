"""A bench for paper 000, which prints no experiment: Private-LinOpt-VI and -PO, known and learnt rewards.

Both calibrations at delta = 1e-5, K = 10 000: RiverSwim of paper 001 with S = 3, the same with S = 5, and mixtures of
five known kernels over 8 and over 32 states, for the claim that regret does not depend on the number of states.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pipeline.simulation.trial import Trial
from pipeline.studies.paper_001 import DELTA, EPISODES, HOM, MIXTURE, RUNS, THREE, Params, Place

SMALL: Place = (HOM, THREE)
# chosen as paper_001.MIXTURE was
LARGE: Place = ("random_mixture", (("dimension", 5), ("seed", 28), ("states", 32), ("successors", 1)))
WIDE: Place = (HOM, (("states", 5),))
BUDGETS, MORE_BUDGETS = (1.0, 10.0), (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
AGENTS = ("private-linopt-vi", "private-linopt-po")
PLAIN = ("ucrl-vtr", "linopt-po")
CALIBRATIONS: tuple[Literal["paper", "tight"], ...] = ("paper", "tight")


def grid(runs: int = RUNS, episodes: int = EPISODES) -> list[Trial]:
    """All trials of the default run."""
    return [*_beside(runs, episodes, (SMALL, MIXTURE, LARGE)), *_private(runs, episodes, BUDGETS, (SMALL, MIXTURE))] + [
        t
        for agent in AGENTS
        for epsilon in BUDGETS
        for t in joint(agent, LARGE, "tight", epsilon, episodes, runs, "known")
    ]


def full_grid(runs: int = RUNS) -> list[Trial]:
    """The same with more budgets, counters and S = 5."""
    counters = [
        t
        for counter in ("plain", "square-root")
        for epsilon in MORE_BUDGETS
        for t in joint(AGENTS[0], SMALL, "tight", epsilon, EPISODES, runs, "known", (("counter", counter),))
    ]
    places = (SMALL, WIDE, MIXTURE)
    return [
        *_beside(runs, EPISODES, (*places, LARGE)),
        *_private(runs, EPISODES, MORE_BUDGETS, places),
        *counters,
    ]


def _beside(runs: int, episodes: int, places: tuple[Place, ...]) -> Iterator[Trial]:
    for name, params in places:
        for control in ("uniform", "always-right") if name == HOM else ("uniform",):
            yield Trial(control, name, params, episodes)
        for seed in range(runs):
            for agent in PLAIN:
                yield Trial(agent, name, params, episodes, seed=seed)
            deaf = (("of", "private-linopt-vi"),)
            yield Trial("no-data", name, params, episodes, 1.0, DELTA, "tight", deaf, seed)


def _private(runs: int, episodes: int, budgets: tuple[float, ...], places: tuple[Place, ...]) -> Iterator[Trial]:
    for place in places:
        for agent in AGENTS:
            for rewards in ("known", "learnt"):
                for calibration in CALIBRATIONS:
                    for epsilon in budgets:
                        yield from joint(agent, place, calibration, epsilon, episodes, runs, rewards)


def joint(
    agent: str,
    place: Place,
    calibration: Literal["paper", "tight"],
    epsilon: float,
    episodes: int,
    runs: int,
    rewards: str,
    options: Params = (),
) -> Iterator[Trial]:
    """Trials of one private agent."""
    name, params = place
    knobs = tuple(sorted((*options, ("rewards", rewards))))
    for seed in range(runs):
        yield Trial(agent, name, params, episodes, epsilon, DELTA, calibration, knobs, seed)
