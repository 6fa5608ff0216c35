"""What quality to expect of an LQ run before anything is spent: its declared plant, simulated.

A card declares no A and B, so that without a declared world there is no plant to simulate.  Reads no rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipeline.agents.dp_lqr import certainty_equivalence
from pipeline.environments.lq_catalog import check_world, explorer, load_lq_world
from pipeline.environments.lq_systems import simulate
from pipeline.learners.lq_request import LqRequest
from pipeline.privacy.noise import SeededNoise
from pipeline.simulation.surrogate import Drawn
from pipeline.statistics.lq_moments import Episodes, SimulatedRows, release_lq_moments


def foreseen_lq(request: LqRequest, world: str, behaviour: str, episodes: int, draws: Sequence[int]) -> list[Drawn]:
    """A simulated run for each seed of ``draws``: what its gains cost above the optimum, beside those without noise.

    Raises
    ------
    CardError
        If there is no such world or behaviour, or the card declares another plant.
    """
    system = load_lq_world(world)
    check_world(system, request.card)
    best, zero = (system.expected_cost(K) for K in (system.optimal_gains(), system.zero_gains()))
    asked = replace(request.plan, domain=replace(request.plan.domain, kind="synthetic"))
    exact = replace(asked, ask=replace(asked.ask, rho=None))
    found: list[Drawn] = []
    for seed in draws:
        of_log, of_noise = np.random.SeedSequence((seed,)).spawn(2)
        x, u = simulate(system, explorer(system, behaviour), episodes, np.random.default_rng(of_log))
        rows = SimulatedRows((Episodes(x, u, np.full(episodes, system.horizon)),))
        losses: list[float] = []
        for plan in (asked, exact):
            moments = release_lq_moments(plan, rows, SeededNoise(of_noise))
            gains = certainty_equivalence(moments, request.task, request.constants).gains
            losses.append(system.expected_cost(gains) - best)
        found.append(Drawn(losses[0], losses[1], zero - best, -best, 0.0))
    return found
