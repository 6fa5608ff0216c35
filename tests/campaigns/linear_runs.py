"""One simulated run of a linear agent in a finite linear world: what figures and campaigns are made of.

Simulation only: counts are drawn from the exact law, noise is seeded, nothing is private and the result says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from pipeline.agents.linear_backup import LinearConstants, LinearResult, linear_task
from pipeline.agents.one_shot import one_shot
from pipeline.agents.pevi import pevi
from pipeline.agents.vapvi import vapvi
from pipeline.environments.linear_003 import LinearWorld, split_halves
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.interactive import InteractiveRegression
from pipeline.statistics.linear_calibration import true_rho
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms
from pipeline.statistics.one_shot_tables import release_one_shot
from pipeline.statistics.regression_rows import CountRows, Integers, Side


@dataclass(frozen=True)
class LinearRun:
    """A run and what it cost.

    Attributes
    ----------
    suboptimality
        v* - v of the policy, in the world itself.
    true_rho
        Recomputed loss of the whole plan; None without noise.
    """

    result: LinearResult
    suboptimality: float
    true_rho: Fraction | None

    @property
    def tied(self) -> float:
        """Share of (h, s) in which clipping left several best actions."""
        return float(self.result.tied.mean())


def run_linear(
    world: LinearWorld,
    terms: LinearTerms,
    episodes: int,
    seed: tuple[int, ...],
    constants: LinearConstants,
    agent: Literal["vapvi", "pevi"] = "vapvi",
    beta: float | None = None,
) -> LinearRun:
    """Log ``episodes``, ask, plan, evaluate.

    Parameters
    ----------
    terms
        ``rho`` None gives VAPVI (or PEVI), else their private forms; variant ``one_shot`` plans on one release.
    seed
        Of this run; logs, noise, halves and ties get streams of their own, so private and baseline runs share logs.
    beta
        PEVI's multiplier; C √d where None, which is VAPVI's.
    """
    log, noise, halves, ties = np.random.SeedSequence(seed).spawn(4)
    domain = LinearDomain("simulated", "synthetic", world.mdp.horizon, episodes)
    plan = LinearPlan(domain, terms, world.features)
    both = world.counts(episodes, np.random.default_rng(log))
    visits: dict[Side, Integers] = split_halves(both, np.random.default_rng(halves)) if terms.halves else {"both": both}
    rows, task, rng = (
        CountRows(world.features, visits, world.mdp.rewards),
        linear_task(plan),
        np.random.default_rng(ties),
    )
    if terms.variant == "one_shot":
        result = one_shot(release_one_shot(plan, rows, SeededNoise(noise)), task, constants, rng)
    else:
        mechanism, centred = InteractiveRegression(plan, rows, SeededNoise(noise)), terms.variant == "centred"
        if agent == "pevi":
            multiplier = constants.C * math.sqrt(task.dimension) if beta is None else beta
            result = pevi(mechanism, task, constants, rng, multiplier, centred=centred)
        else:
            result = vapvi(mechanism, task, constants, rng, centred=centred)
    best = float(world.mdp.start @ optimal_values(world.mdp)[1][0])
    return LinearRun(result, best - policy_value(world.mdp, result.policy), true_rho(plan))
