"""Exact values in a known plant: rewards, that is minus expected costs.  Synthetic data only; reads no rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipeline.agents.dp_lqr import certainty_equivalence
from pipeline.environments.lq_catalog import check_world, explorer, explorer_value, load_lq_world, wrong_models
from pipeline.environments.lq_systems import LqSystem, simulate
from pipeline.learners.lq_learning import Array
from pipeline.learners.lq_request import LqRequest
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.lq_moments import release_lq_moments
from pipeline.statistics.lq_rows import Episodes, SimulatedRows

# of the log that certainty equivalence without noise is given: made up anew, so that no row of this run is read
_SEED = 0
# episodes of it at most: without noise more change nothing that four digits show
_EPISODES = 20_000


def lq_truth(request: LqRequest, world: str, behaviour: str, gains: Array) -> dict[str, float]:
    """True values of the policy and of controllers to compare it with.

    Returns
    -------
    ``v_star``, ``v_policy``, ``v_policy_model`` (the same: the states are the plant's), ``suboptimality``,
    ``v_behavior``, ``v_uniform`` (controls uniform on their sphere), ``v_zero``, ``v_fixed_gain`` (mean over gains of
    models 30 % wrong), ``v_certainty`` (no privacy, on as many simulated episodes).

    Raises
    ------
    CardError
        If there is no such world or behaviour, or the card declares another plant.
    """
    system = load_lq_world(world)
    check_world(system, request.card)
    best, mine = (0.0 - system.expected_cost(K) for K in (system.optimal_gains(), gains))
    return {
        "v_star": best,
        "v_policy": mine,
        "v_policy_model": mine,
        "suboptimality": best - mine,
        "v_behavior": explorer_value(system, behaviour),
        "v_uniform": explorer_value(system, "sphere"),
        "v_zero": 0.0 - system.expected_cost(system.zero_gains()),
        "v_fixed_gain": 0.0 - float(np.mean([system.expected_cost(K) for K in wrong_models(system)])),
        "v_certainty": 0.0 - system.expected_cost(_certain(request, system, behaviour)),
    }


def _certain(request: LqRequest, system: LqSystem, behaviour: str) -> Array:
    """Gains of certainty equivalence on the exact moments of a simulated log."""
    plan, episodes = request.plan, min(request.plan.domain.episodes, _EPISODES)
    x, u = simulate(system, explorer(system, behaviour), episodes, np.random.default_rng(_SEED))
    rows = SimulatedRows((Episodes(x, u, np.full(episodes, system.horizon)),))
    exact = replace(plan, domain=replace(plan.domain, kind="synthetic"), ask=replace(plan.ask, rho=None))
    seen = release_lq_moments(exact, rows, SeededNoise(_SEED))
    return certainty_equivalence(seen, request.task, request.constants).gains
