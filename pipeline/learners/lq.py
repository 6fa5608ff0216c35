"""LQ agents: sums of squares of observations and controls, and certainty equivalence on them.

An LQ release yields gains, their facts in report.json, and exact values in a known plant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.agents.dp_lqr import LqConstants, LqResult, LqTask, certainty_equivalence
from pipeline.arrays import Array
from pipeline.declaration.card import AnyCard, CardError, LqCard, require_linear_quadratic
from pipeline.facts import learnt as learnt_facts
from pipeline.facts.promise import Joint
from pipeline.learners.learner import Quote, described, fitting_rho, joint_quote, listed_facts, priced
from pipeline.learners.policy_files import PolicyFiles, gain_files
from pipeline.learners.terms import Lq, Terms, check_gaussian
from pipeline.ledger.chain import Body
from pipeline.logs.regression_sums import lazy_lq_sums
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.mdp.riccati import expected_cost
from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.budget import fraction_of
from pipeline.privacy.noise import NoiseSource, RealDataError, SeededNoise
from pipeline.privacy.release import Release
from pipeline.statistics.lq import LqSums, draw_lq, gram_deviation, lq_layout, lq_sum, released_moments
from pipeline.statistics.private_sum import PrivateSum, joining_facts
from pipeline.transaction.drawing import WHOLE, Stage
from pipeline.worlds import plants

if TYPE_CHECKING:
    from pipeline.audits.attack import AuditTarget, WholePlan
    from pipeline.worlds.surrogate import SimulatedRun


# seed of the simulated log for certainty equivalence without noise: no row of this run is read
_SEED = 0
# most episodes of it: more change nothing in the first four digits
_EPISODES = 20_000


@dataclass(frozen=True)
class LqLearnt:
    """Gains, the model they are optimal for, and values in that model: rewards, that is minus costs.

    ``directions``: eigenvalues of the released Gram matrix, largest first: sums of squares along a direction of (x, u),
    balls of radius 1, to which a row adds at most 2.  Those below the run's floor are too noisy and were raised to it.
    """

    run: LqRun
    result: LqResult
    directions: list[float]

    def _estimate(self, gains: Array) -> float:
        """Value of gains in the released model."""
        r, card = self.result, self.run.card
        first, noise = card.domain.first_moment(), card.domain.noise()
        # 0.0 + turns a minus zero of a free controller into a zero
        return 0.0 - expected_cost(r.A, r.B, card.quadratic, gains, first, noise)

    def files(self) -> PolicyFiles:
        return gain_files(self.run.card, self.result.gains, self.run.layout.bounds)

    def facts(self) -> learnt_facts.LearntFacts:
        """A linear controller neither abstains nor ties."""
        r, least = self.result, least_value(self.run.card)
        value = learnt_facts.ValueFacts.unclaimed(least, 0.0, list(_ASSUMES), "declared", self._estimate(r.gains))
        return learnt_facts.LearntFacts(
            constants=self._constants(),
            value=value,
            model_baselines={"zero": learnt_facts.Baseline(estimate=self._estimate(np.zeros_like(r.gains)))},
            joint=Joint.model_validate(self.run.joint()),
            model=learnt_facts.PlantModel(A=r.A.tolist(), B=r.B.tolist()),
            policy=learnt_facts.PolicyFacts(abstain_share=0.0, tie_share=0.0, left_zero=bool(np.any(r.gains))),
        )

    def truth(self, world: str, behaviour: str) -> learnt_facts.Truth:
        return lq_truth(self.run, world, behaviour, self.result.gains)

    def _constants(self) -> learnt_facts.PlantConstants:
        c, layout, domain, defaults = self.run.constants, self.run.layout, self.run.card.domain, Lq()
        share, radius = float(layout.gram_share), domain.observation.radius
        cut = layout.bounds[0] / radius, layout.bounds[2] / radius
        tuned = "chosen on simulated plants that no figure uses; part of the release"
        from_recipe = "the recipe's; part of the release"
        sourced = {
            "ridge": (c.ridge, "chosen by us, in sums of squares of (x, u), balls of radius 1"),
            "floor": (
                c.floor,
                "chosen by us: multiples of the noise's spectral norm below which a direction is not trusted",
            ),
            "cut of x": (cut[0], tuned if cut == tuple(defaults.cut) else from_recipe),
            "cut of next x": (cut[1], tuned if cut == tuple(defaults.cut) else from_recipe),
            "share of the Gram matrix": (share, tuned if share == defaults.gram_share else from_recipe),
            "lattice steps": (layout.steps, "chosen by us; part of the release"),
        }
        return learnt_facts.PlantConstants(
            policy=learnt_facts.Preset.of("certainty equivalence", sourced),
            bounds=None,
            gamma=self.run.task.gamma,
            parameter_norm=domain.parameter_norm,
            directions=self.directions,
            floor=self.run.floor,
            raised=self.result.raised,
        )


# the value is an estimate, never a bound
_ASSUMES = (
    "values are rewards: minus the expected summed cost of one episode, x'Qx + u'Ru a step",
    "the plant is the one estimated from the released sums, as if it were the truth (certainty equivalence)",
    "first state and noise are as the card declares them; the noise has mean 0 and does not depend on the past",
    "observations stay in their declared ball, so controls are never cut",
    "the lower end is the least that declared balls allow; no interval is claimed",
)


def least_value(card: LqCard) -> float:
    """Minus the largest cost of one episode whose observations and controls stay in their declared balls."""
    cost, d = card.quadratic, card.domain
    worst = [np.linalg.eigvalsh(M)[-1] * v.radius**2 for M, v in ((cost.Q, d.observation), (cost.R, d.action))]
    return -float(d.horizon * sum(worst))


def lq_truth(run: LqRun, world: str, behaviour: str, gains: Array) -> learnt_facts.Truth:
    """True values of the policy and of controllers to compare it with.

    Returns ``v_star``, ``v_policy``, ``v_policy_model`` (the same: the states are the plant's), ``suboptimality``,
    ``v_behavior``, ``v_uniform`` (controls uniform on their sphere), ``v_zero``, ``v_fixed_gain`` (mean over gains of
    models 30 % wrong), ``v_certainty`` (no privacy, on as many simulated episodes).
    Raises CardError if there is no such world or behaviour, or the card declares another plant.
    """
    system = plants.load_lq_world(world)
    plants.check_world(system, run.card)
    best, value = (0.0 - system.expected_cost(K) for K in (system.optimal_gains(), gains))
    return learnt_facts.Truth(
        v_star=best,
        v_policy=value,
        v_policy_model=value,
        suboptimality=best - value,
        v_behavior=plants.explorer_value(system, behaviour),
        v_uniform=plants.explorer_value(system, "sphere"),
        v_zero=0.0 - system.expected_cost(system.zero_gains()),
        v_fixed_gain=0.0 - float(np.mean([system.expected_cost(K) for K in plants.wrong_models(system)])),
        v_certainty=0.0 - system.expected_cost(_certain(run, system, behaviour)),
    )


def _certain(run: LqRun, system: plants.LqSystem, behaviour: str) -> Array:
    """Gains of certainty equivalence on the exact moments of a simulated log."""
    episodes = min(run.layout.episodes, _EPISODES)
    x, u = plants.simulate(system, plants.explorer(system, behaviour, episodes), np.random.default_rng(_SEED))
    return _gains(run, run.silent, [LqBatch(x, u, episodes)], SeededNoise(_SEED))


def _gains(run: LqRun, summed: PrivateSum, rows: Sequence[LqBatch], noise: NoiseSource) -> Array:
    """Gains of a release of simulated rows."""
    return certainty_equivalence(released_moments(summed, draw_lq(summed, rows, noise)), run.task, run.constants).gains


class LqLearner:
    """See :class:`~pipeline.learners.learner.Learner`."""

    continual, section = False, "lq"

    def check(self, terms: Terms) -> None:
        agent, p = terms.agent, terms.privacy
        check_gaussian(agent, p)
        if p is not None and (p.calibration, p.release) != ("tight", "one_table"):
            raise ValueError(f"[privacy]: 'calibration' and 'release' do not apply: {agent} makes one release, tight")

    def plan(self, card: AnyCard, terms: Terms) -> LqRun:
        card, agent, chosen = require_linear_quadratic(card), terms.agent, terms.lq or Lq()
        rho, d, m = terms.ask_for(card).zcdp(), card.domain, card.unit.episodes_per_user
        if card.kind == "real" and rho is None:
            raise RealDataError(f"{card.name} is registered as real: {agent} adds no noise; ask for a finite budget")
        state, successor = (d.observation.radius * cut for cut in chosen.cut)
        try:
            layout = LqSums(
                d.observation.size,
                d.action.size,
                d.horizon,
                (state, d.action.radius, successor),
                chosen.steps,
                card.unit.users_public * m,
                m,
                fraction_of(chosen.gram_share),
                card.name,
                card.kind,
            )
            return LqRun(card, terms, lq_sum(layout, rho), LqConstants(chosen.ridge, chosen.floor))
        except (ValueError, OverflowError) as e:
            raise CardError(f"{card.name}: {agent}: {e}") from None


@dataclass(frozen=True)
class LqRun:
    """See :class:`~pipeline.learners.learner.RunPlan`: two tables of sums, bounded together."""

    card: LqCard
    terms: Terms
    summed: PrivateSum
    constants: LqConstants
    what = "sums of rows"
    reference = "no control"
    stages = WHOLE

    @property
    def task(self) -> LqTask:
        """The declared cost and bounds; ||K_h|| <= gamma, so that |u| stays in its ball wherever |x| is in its own."""
        d = self.card.domain
        return LqTask(self.card.quadratic, d.action.radius / d.observation.radius, d.parameter_norm or math.inf)

    @property
    def layout(self) -> LqSums:
        return lq_layout(self.summed)

    @property
    def silent(self) -> PrivateSum:
        """The same sums of simulated people, without noise."""
        return lq_sum(replace(self.layout, data_kind="synthetic"), None)

    @property
    def floor(self) -> float:
        """Least sum of squares of a direction, balls of radius 1, that exceeds the noise; 0 without noise."""
        return self.constants.floor * gram_deviation(self.summed) * math.sqrt(self.layout.dimension)

    def joint(self) -> dict[str, object]:
        """Facts behind the joint cost, as the release records them."""
        return priced(self.summed.rho, self.layout.joint())

    @property
    def exact(self) -> bool:
        return self.summed.exact

    def admit(self, noise: NoiseSource) -> None:
        self.summed.admit(noise)

    def spec(self) -> list[Any]:
        """The clips of rows, and the mechanisms."""
        return [self.joint(), described(self.summed.mechanisms)]

    def charge(self) -> tuple[Fraction | None, Body]:
        body = {"joint": self.joint(), "epsilon": None, "mechanisms": described(self.summed.mechanisms)}
        return self.summed.rho, body | joining_facts(self.card.kind, [self.summed.joining_cost])

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        rows = lazy_lq_sums(self.layout, snapshot, self.card, resources)
        return stage("release", lambda noise: draw_lq(self.summed, rows, noise))

    def quote(self) -> Quote:
        """Release and cost, and the largest sum of squares beside the one that exceeds the noise."""
        most = round(2 * self.layout.episodes * self.layout.horizon * (1 - self.terms.reserve))
        squares = {"most_squares": most, "squares_a_direction_needs": self.floor}
        listed, rho = listed_facts(self.summed.mechanisms), self.summed.rho
        return joint_quote(listed, rho, self.card.budget.delta, self.joint(), **squares)

    def fitting(self, left: Fraction) -> Mapping[str, float] | None:
        return fitting_rho(left)

    def learn(self, release: Release) -> LqLearnt:
        """Estimate the plant on the released sums, and take its optimal gains.

        Raises ValueError if the release was drawn on other terms.
        """
        moments = released_moments(self.summed, release)
        result = certainty_equivalence(moments, self.task, self.constants)
        return LqLearnt(self, result, np.linalg.eigvalsh(moments.gram)[::-1].tolist())

    def unforeseen(self) -> str | None:
        if self.terms.known is None:
            return "the card declares no A and B: without [evaluate] there is no plant to simulate"
        return None

    def log_size(self, episodes: int) -> int:
        d = self.card.domain
        return episodes * d.horizon * (d.observation.size + d.action.size) // 4

    def forecast(self, episodes: int, seeds: Sequence[int]) -> list[SimulatedRun]:
        """Cost of its gains, and of those without noise, above the optimum in the declared plant.

        Raises CardError if there is no such world or behaviour, or the card declares another plant.
        """
        from pipeline.worlds.surrogate import SimulatedRun

        declared = self.terms.known
        assert declared is not None
        system = plants.load_lq_world(declared.world)
        plants.check_world(system, self.card)
        best, zero = (system.expected_cost(K) for K in (system.optimal_gains(), system.zero_gains()))
        noisy, runs = replace(self.summed, layout=self.silent.layout), list[SimulatedRun]()
        for seed in seeds:
            of_log, of_noise = np.random.SeedSequence((seed,)).spawn(2)
            logged = plants.explorer(system, declared.behaviour, episodes)
            x, u = plants.simulate(system, logged, np.random.default_rng(of_log))
            gains = (_gains(self, s, [LqBatch(x, u, episodes)], SeededNoise(of_noise)) for s in (noisy, self.silent))
            private, exact = (system.expected_cost(K) - best for K in gains)
            runs.append(SimulatedRun(private, exact, zero - best, -best, 0.0))
        return runs

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        from pipeline.audits.tables import lq_target

        return [lq_target(self.summed)]

    def whole_plan(self) -> WholePlan | None:
        """The plan itself is attacked."""
        return None
