"""What an LQ run learnt: its gains, what report.json says of them, and exact values where the plant is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.agents.dp_lqr import certainty_equivalence
from pipeline.environments.lq_catalog import check_world, explorer, explorer_value, load_lq_world, wrong_models
from pipeline.environments.lq_systems import LqSystem, simulate
from pipeline.learners.gains import gain_files
from pipeline.learners.lq_learning import Array, LqLearnt
from pipeline.learners.lq_request import LqRequest
from pipeline.learners.policy_files import PolicyFiles
from pipeline.learners.terms import Lq
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.lq_moments import release_lq_moments
from pipeline.statistics.lq_rows import Episodes, SimulatedRows
from reports.facts.learnt import Baseline, LearntFacts, PlantConstants, PlantModel, PolicyFacts, Truth, ValueFacts
from reports.facts.policy import Gains
from reports.facts.promise import Joint

# of the log that certainty equivalence without noise is given: made up anew, so that no row of this run is read
_SEED = 0
# episodes of it at most: without noise more change nothing that four digits show
_EPISODES = 20_000


@dataclass(frozen=True)
class LearntGains:
    """See :class:`~pipeline.learners.learner.Learnt`."""

    request: LqRequest
    learnt: LqLearnt

    def files(self) -> PolicyFiles:
        """See :class:`~pipeline.learners.learner.Learnt`."""
        return gain_files(self.request.card, self.learnt.result.gains, self.request.plan.domain.bounds)

    def facts(self) -> LearntFacts:
        """See :class:`~pipeline.learners.learner.Learnt`: a linear controller neither abstains nor ties."""
        r = self.learnt.result
        return LearntFacts(
            constants=PlantConstants.model_validate(planner_facts(self.request, self.learnt)),
            value=ValueFacts.model_validate(value_facts(self.learnt)),
            model_baselines={name: Baseline.model_validate(b) for name, b in self.learnt.baselines.items()},
            joint=Joint.model_validate(self.request.joint()),
            model=PlantModel(A=r.A.tolist(), B=r.B.tolist()),
            policy=PolicyFacts(abstain_share=0.0, tie_share=0.0, left_zero=self.learnt.left_zero),
        )

    def view(self) -> Gains:
        """See :class:`~pipeline.learners.learner.Learnt`."""
        d = self.request.card.domain
        return Gains(d.observation.labels, d.action.labels, self.learnt.result.gains)

    def truth(self, world: str, behaviour: str) -> Truth:
        """See :class:`~pipeline.learners.learner.Learnt`."""
        return Truth.model_validate(lq_truth(self.request, world, behaviour, self.learnt.result.gains))


def planner_facts(request: LqRequest, learnt: LqLearnt) -> dict[str, Any]:
    """The ``constants`` of report.json."""
    c, plan, domain = request.constants, request.plan, request.plan.domain
    radius = request.card.domain.observation.radius
    source = {
        "ridge": "chosen by us, in sums of squares of (x, u), balls of radius 1",
        "floor": "chosen by us: multiples of the noise's spectral norm below which a direction is not trusted",
        "cut of x": "chosen on simulated plants that no figure uses; part of the release",
        "cut of next x": "chosen on simulated plants that no figure uses; part of the release",
        "share of the Gram matrix": "chosen on simulated plants that no figure uses; part of the release",
        "lattice steps": "chosen by us; part of the release",
    }
    usual = Lq()
    if (chosen := (domain.state_bound / radius, domain.successor_bound / radius)) != tuple(usual.cut):
        source |= dict.fromkeys(("cut of x", "cut of next x"), "the recipe's; part of the release")
    if float(plan.gram_share) != usual.gram_share:
        source["share of the Gram matrix"] = "the recipe's; part of the release"
    values = {
        "ridge": c.ridge,
        "floor": c.floor,
        "cut of x": chosen[0],
        "cut of next x": chosen[1],
        "share of the Gram matrix": float(plan.gram_share),
        "lattice steps": plan.steps,
    }
    return {
        "policy": {"preset": "certainty equivalence", "values": values, "source": source},
        "bounds": None,
        "gamma": request.task.gamma,
        "parameter_norm": request.card.domain.parameter_norm,
        "directions": list(learnt.directions),
        "floor": learnt.floor,
        "raised": learnt.result.raised,
    }


def value_facts(learnt: LqLearnt) -> dict[str, Any]:
    """The ``value`` of report.json: minus the expected cost in the released model; an estimate, never a bound."""
    return dict(learnt.value) | {
        "gap": None,
        "lower_flag": "trivial",
        "upper_flag": "trivial",
        "status": "estimate",
        "assumes": [
            "values are rewards: minus the expected summed cost of one episode, x'Qx + u'Ru a step",
            "the plant is the one estimated from the released sums, as if it were the truth (certainty equivalence)",
            "first state and noise are as the card declares them; the noise has mean 0 and does not depend on the past",
            "observations stay in their declared ball, so controls are never cut",
            "the lower end is the least that declared balls allow; no interval is claimed",
        ],
        "start": "declared",
    }


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
    exact = replace(plan.without_noise(), domain=replace(plan.domain, kind="synthetic"))
    seen = release_lq_moments(exact, rows, SeededNoise(_SEED))
    return certainty_equivalence(seen, request.task, request.constants).gains
