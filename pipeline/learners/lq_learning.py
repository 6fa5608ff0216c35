"""What an LQ release teaches: gains, what report.json says of them, and exact values in a known plant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.dp_lqr import LqConstants, LqResult, LqTask, certainty_equivalence
from pipeline.declaration.card import CardError, LqCard
from pipeline.environments.lq_catalog import check_world, explorer, explorer_value, load_lq_world, wrong_models
from pipeline.environments.lq_systems import LqSystem, simulate
from pipeline.learners.gains import gain_files
from pipeline.learners.policy_files import PolicyFiles
from pipeline.learners.terms import Lq
from pipeline.mdp.riccati import expected_cost
from pipeline.privacy.budget import fraction_of
from pipeline.privacy.noise import RealDataError, SeededNoise
from pipeline.privacy.release import Release
from pipeline.statistics.ask import Ask
from pipeline.statistics.lq_layout import LqDomain, LqPlan
from pipeline.statistics.lq_moments import draw_lq, released_moments
from pipeline.statistics.lq_rows import Episodes, SimulatedRows
from reports.facts.learnt import Baseline, LearntFacts, PlantModel, PolicyFacts, Truth, ValueFacts
from reports.facts.policy import Gains, PlantConstants, Preset
from reports.facts.promise import Joint

Array = NDArray[np.float64]

# of the log that certainty equivalence without noise is given: made up anew, so that no row of this run is read
_SEED = 0
# episodes of it at most: without noise more change nothing that four digits show
_EPISODES = 20_000


@dataclass(frozen=True)
class LqRequest:
    """One LQ run: card, agent, plan and constants."""

    card: LqCard
    agent: str
    plan: LqPlan
    constants: LqConstants

    @property
    def task(self) -> LqTask:
        """The declared cost and bounds; ||K_h|| <= gamma, so that |u| stays in its ball wherever |x| is in its own."""
        d = self.card.domain
        gamma = d.action.radius / d.observation.radius
        return LqTask(self.card.quadratic, gamma, d.parameter_norm or math.inf)

    @property
    def rho(self) -> Fraction | None:
        """Exact cost of the release."""
        return self.plan.summed.rho

    @property
    def floor(self) -> float:
        """What a direction's squares must sum to, balls of radius 1, to be told from the noise; 0 without noise."""
        if self.plan.rho is None:
            return 0.0
        deviation = math.sqrt(self.plan.variances[0] / 2) / self.plan.steps**2
        return self.constants.floor * deviation * math.sqrt(self.plan.domain.dimension)

    def joint(self) -> dict[str, object]:
        """What the joint cost rests on, as the release will say it."""
        return {"rho_exact": None if self.rho is None else str(self.rho), **self.plan.joint()}


def lq_request(card: LqCard, agent: str, rho: Fraction | None, chosen: Lq) -> LqRequest:
    """Check an LQ run against its card; reads no rows.

    Parameters
    ----------
    card, agent
        What is declared, and the agent's name.
    rho
        Its zCDP budget; None: no noise.
    chosen
        The recipe's ``[lq]``: how rows are cut, the lattice, shares and the planner's constants.

    Raises
    ------
    CardError
        If the sums would not fit.
    RealDataError
        If the data is real and no budget is given.
    """
    if card.kind == "real" and rho is None:
        raise RealDataError(f"{card.name} is registered as real: {agent} adds no noise; ask for a finite budget")
    d, m = card.domain, card.unit.episodes_per_user
    domain = LqDomain(
        card.name,
        card.kind,
        d.observation.size,
        d.action.size,
        d.horizon,
        card.unit.users_public * m,
        d.observation.radius * chosen.cut[0],
        d.action.radius,
        d.observation.radius * chosen.cut[1],
        m,
    )
    ask = Ask(rho, split={"gram": fraction_of(chosen.gram_share)})
    try:
        return LqRequest(card, agent, LqPlan(domain, ask, chosen.steps), LqConstants(chosen.ridge, chosen.floor))
    except (ValueError, OverflowError) as e:
        raise CardError(f"{card.name}: {agent}: {e}") from None


@dataclass(frozen=True)
class LqLearnt:
    """Gains, the model they are optimal for, and values in that model: rewards, that is minus costs.

    Parameters
    ----------
    request
        What was asked.
    result
        Gains and model.
    value
        ``estimate`` of the policy, and the least and greatest values that declared balls allow.
    baselines
        Name -> ``estimate`` of simple controllers in the same released model.
    directions
        Eigenvalues of the released Gram matrix, largest first: sums of squares along a direction of (x, u), balls of
        radius 1, to which a row adds at most 2.  Those below ``floor`` are too noisy and were raised to it.
    """

    request: LqRequest
    result: LqResult
    value: Mapping[str, float | None]
    baselines: Mapping[str, Mapping[str, float]]
    directions: tuple[float, ...]
    floor: float

    @property
    def left_zero(self) -> bool:
        """Whether any gain differs from doing nothing."""
        return bool(np.any(self.result.gains))

    def files(self) -> PolicyFiles:
        """See :class:`~pipeline.learners.learner.Learnt`."""
        return gain_files(self.request.card, self.result.gains, self.request.plan.domain.bounds)

    def facts(self) -> LearntFacts:
        """See :class:`~pipeline.learners.learner.Learnt`: a linear controller neither abstains nor ties."""
        r = self.result
        return LearntFacts(
            constants=_constants(self),
            value=_value(self),
            model_baselines={name: Baseline.model_validate(b) for name, b in self.baselines.items()},
            joint=Joint.model_validate(self.request.joint()),
            model=PlantModel(A=r.A.tolist(), B=r.B.tolist()),
            policy=PolicyFacts(abstain_share=0.0, tie_share=0.0, left_zero=self.left_zero),
        )

    def view(self) -> Gains:
        """See :class:`~pipeline.learners.learner.Learnt`."""
        d = self.request.card.domain
        return Gains(d.observation.labels, d.action.labels, self.result.gains)

    def truth(self, world: str, behaviour: str) -> Truth:
        """See :class:`~pipeline.learners.learner.Learnt`."""
        return Truth.model_validate(lq_truth(self.request, world, behaviour, self.result.gains))


def learn_lq(request: LqRequest, release: Release) -> LqLearnt:
    """Estimate the plant on the released sums, and take its optimal gains.

    Raises
    ------
    ValueError
        If the release was drawn on other terms.
    """
    moments = released_moments(request.plan, release)
    result = certainty_equivalence(moments, request.task, request.constants)
    card = request.card

    def estimate(gains: Array) -> float:
        # 0.0 + turns a minus zero of a free controller into a zero
        return 0.0 - expected_cost(
            result.A, result.B, card.quadratic, gains, card.domain.first_moment(), card.domain.noise()
        )

    least = least_value(card)
    value = {"lower": least, "upper": None, "estimate": estimate(result.gains)}
    value |= {"optimal_upper": None, "lower_trivial": least, "upper_trivial": 0.0}
    directions = np.linalg.eigvalsh(moments.gram)[::-1]
    baselines = {"zero": {"estimate": estimate(np.zeros_like(result.gains))}}
    return LqLearnt(request, result, value, baselines, tuple(map(float, directions)), request.floor)


def least_value(card: LqCard) -> float:
    """Minus the largest cost of one episode whose observations and controls stay in their declared balls."""
    cost, d = card.quadratic, card.domain
    worst = [np.linalg.eigvalsh(M)[-1] * v.radius**2 for M, v in ((cost.Q, d.observation), (cost.R, d.action))]
    return -float(d.horizon * sum(worst))


def _constants(learnt: LqLearnt) -> PlantConstants:
    request = learnt.request
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
    return PlantConstants(
        policy=Preset(preset="certainty equivalence", values=values, source=source),
        bounds=None,
        gamma=request.task.gamma,
        parameter_norm=request.card.domain.parameter_norm,
        directions=list(learnt.directions),
        floor=learnt.floor,
        raised=learnt.result.raised,
    )


def _value(learnt: LqLearnt) -> ValueFacts:
    """Minus the expected cost in the released model; an estimate, never a bound."""
    told = {
        "gap": None,
        "lower_flag": "trivial",
        "upper_flag": "trivial",
        "status": "modelled",
        "assumes": [
            "values are rewards: minus the expected summed cost of one episode, x'Qx + u'Ru a step",
            "the plant is the one estimated from the released sums, as if it were the truth (certainty equivalence)",
            "first state and noise are as the card declares them; the noise has mean 0 and does not depend on the past",
            "observations stay in their declared ball, so controls are never cut",
            "the lower end is the least that declared balls allow; no interval is claimed",
        ],
        "start": "declared",
    }
    return ValueFacts.model_validate({**learnt.value, **told})


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
    seen = released_moments(exact, draw_lq(exact, rows, SeededNoise(_SEED)))
    return certainty_equivalence(seen, request.task, request.constants).gains
