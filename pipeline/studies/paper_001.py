"""The bench of paper 001, section 6: LDP-UCRL-VTR in two RiverSwim chains, K = 10 000, mean and spread over runs.

The paper prints neither S nor its budgets nor c.  Chosen here: S = 3, and 5 for the inhomogeneous chain; epsilon 1, 2,
5 and 10 at its delta = 0.1; c by :mod:`pipeline.studies.tuning`.  Beside: the noise ``tight``, at delta = 1e-5, up to
K = 10^6; a mixture of five known kernels, where S^2 A = 192 unknowns become five; the controls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from pipeline.simulation.trial import Plain, Trial

Params = tuple[tuple[str, Plain], ...]
Place = tuple[str, Params]

HOM, INHOM = "riverswim_homogeneous", "riverswim_inhomogeneous"
THREE: Params = (("states", 3),)
RIVERS: tuple[Place, ...] = ((HOM, THREE), (INHOM, THREE))
WIDE: Place = (INHOM, (("states", 5),))
# in the median instance whoever knows the kernels loses 1 % of what uniform choice loses, without any data; of 200
# seeds this is the one where data is worth most
MIXTURE: Place = ("random_mixture", (("dimension", 5), ("seed", 176), ("successors", 1)))
EPISODES, LONG, LONGEST = 10_000, 100_000, 1_000_000
PRINTED_DELTA, DELTA = 0.1, 1e-5
BUDGETS, TIGHT_BUDGETS = (1.0, 2.0, 5.0, 10.0), (1.0, 10.0, 50.0)
RUNS, LONG_RUNS = 10, 4
MORE_BUDGETS, BONUSES = (0.1, 1.0, 2.0, 5.0, 10.0, 50.0, 200.0), (0.0, 0.001, 0.003, 0.01, 0.03, 0.1)
CONTROLS = ("uniform", "always-right")


def grid(runs: int = RUNS, episodes: int = EPISODES) -> list[Trial]:
    """All trials of the default run."""
    return [*_short(runs, episodes), *(_long(min(runs, LONG_RUNS)) if episodes == EPISODES else ())]


def full_grid(runs: int = RUNS) -> list[Trial]:
    """The same with every budget and bonus in both chains."""
    more = [
        t
        for place in RIVERS
        for calibration, delta in (("paper", PRINTED_DELTA), ("tight", DELTA))
        for epsilon in MORE_BUDGETS
        for c in BONUSES
        for t in ldp(place, calibration, epsilon, delta, EPISODES, runs, (("bonus", c),))
    ]
    return [*grid(runs), *more]


def _short(runs: int, episodes: int) -> Iterator[Trial]:
    for place in (*RIVERS, WIDE, MIXTURE):
        yield from plain("ucrl-vtr", place, episodes, runs)
        # a control without randomness needs no second run
        for name in CONTROLS if place != MIXTURE else CONTROLS[:1]:
            yield from plain(name, place, episodes, 1)
        deaf: Params = (("of", "ldp-ucrl-vtr"),)
        yield from _runs("no-data", place, episodes, runs, 1.0, PRINTED_DELTA, "paper", deaf)
        few = place in (WIDE, MIXTURE)
        for epsilon in (1.0, 10.0) if few else BUDGETS:
            yield from ldp(place, "paper", epsilon, PRINTED_DELTA, episodes, runs)
        for epsilon in TIGHT_BUDGETS:
            yield from ldp(place, "tight", epsilon, DELTA, episodes, runs)
    for place in RIVERS:
        yield from plain("ucrl-vtr", place, episodes, runs, (("bonus", "paper-experiment"),))
        dense: Params = (("features", "dense"),)
        yield from ldp(place, "paper", 10.0, PRINTED_DELTA, episodes, runs, dense)


def _long(runs: int) -> Iterator[Trial]:
    """Does patience help?  The same budgets with ten and a hundred times the episodes."""
    for place in RIVERS:
        for episodes in (LONG, LONGEST):
            yield from plain("uniform", place, episodes, 1)
            yield from ldp(place, "tight", 1.0, DELTA, episodes, runs)
            yield from ldp(place, "tight", 10.0, DELTA, episodes, runs)
            yield from ldp(place, "paper", 10.0, PRINTED_DELTA, episodes, runs)


def plain(agent: str, place: Place, episodes: int, runs: int, options: Params = ()) -> Iterator[Trial]:
    """Trials without privacy."""
    yield from _runs(agent, place, episodes, runs, None, None, None, options)


def ldp(
    place: Place,
    calibration: str,
    epsilon: float,
    delta: float,
    episodes: int,
    runs: int,
    options: Params = (),
) -> Iterator[Trial]:
    """Trials of LDP-UCRL-VTR."""
    said: Literal["paper", "tight"] = "paper" if calibration == "paper" else "tight"
    yield from _runs("ldp-ucrl-vtr", place, episodes, runs, epsilon, delta, said, options)


def _runs(
    agent: str,
    place: Place,
    episodes: int,
    runs: int,
    epsilon: float | None,
    delta: float | None,
    calibration: Literal["tight", "paper"] | None,
    options: Params,
) -> Iterator[Trial]:
    name, params = place
    for seed in range(runs):
        yield Trial(agent, name, params, episodes, epsilon, delta, calibration, tuple(sorted(options)), seed)


def worlds(places: Sequence[Place]) -> list[str]:
    """Names as rows carry them."""
    return [Trial("uniform", name, params, 1).place for name, params in places]
