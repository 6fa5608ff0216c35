"""Linear agents: regressions on declared features, queried one by one by an adaptive planner, or all at once.

First the queries of a run (card, agent, plan, constants and costs; no rows are read), then how rows become a release,
and a release a policy.

The planner runs twice.  Once against the interactive mechanism that holds the rows (adaptive agents: its queries
follow earlier noisy answers), and once against the recorded answers: the published policy comes from the second, so a
replay makes the same policy and nothing but the release can enter it.
"""

# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pipeline.agents import linear_backup
from pipeline.agents.suboptimality import best_seen
from pipeline.agents.support import floor
from pipeline.agents.vapvi import pevi, vapvi
from pipeline.arrays import Array, Bools, Integers
from pipeline.declaration.card import AnyCard, Card, CardError, declared_start, require_tabular
from pipeline.declaration.domain import Domain, Vector
from pipeline.facts import learnt as learnt_facts
from pipeline.facts.answers import CallFacts
from pipeline.facts.promise import Joint, MechanismFacts, vector_facts
from pipeline.learners import policy_files
from pipeline.learners.learner import Quote, described, fitting_rho, joint_quote, listed_facts, priced, table_size
from pipeline.learners.tabular_learning import simple_policies
from pipeline.learners.terms import Linear, Terms, check_gaussian
from pipeline.ledger.chain import Body
from pipeline.logs.regression_sums import ObservedRows, tally
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.mdp.features import FeatureMap, ObservedMap
from pipeline.mdp.policy import Policy, best_actions
from pipeline.privacy.noise import WIDEST_SCALE, NoiseSource, RealDataError, SeededNoise, admit_release
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics import linear_sums
from pipeline.statistics.ask import Ask
from pipeline.statistics.count_layout import StartLayout, reward_lattice
from pipeline.statistics.linear_plan import GRAM_SHARE, VARIANCE_SHARE, LinearDomain, LinearPlan, LinearTerms
from pipeline.statistics.private_sum import PrivateSum, joining_facts
from pipeline.statistics.regression import InteractiveMechanism
from pipeline.transaction.drawing import WHOLE, Stage

if TYPE_CHECKING:
    from pipeline.audits.attack import AuditTarget, WholePlan
    from pipeline.learners.linear_evaluation import LinearEvaluation
    from pipeline.learners.observed_evaluation import ObservedEvaluation
    from pipeline.worlds.surrogate import Logged, SimulatedRun

LinearMethod = Literal["vapvi", "pevi", "one-shot"]

# part of an adaptive release's key: another planner makes other queries (privacy.md §0.1-4)
PLANNER_VERSION = 1
# share of the budget on the first states where the card does not declare them
_START_SHARE = Fraction(1, 50)
_WIDEST = 1000
# coordinates of an observation that a page names
_SHOWN = 6


@dataclass(frozen=True)
class Points:
    """Points at which a linear policy is shown and valued: all live states, or public observations.

    ``allowed``: ``(M, A)``.
    ``first``: number of declared first observations at the front, each in every live state; 0: points are live states.
    """

    names: tuple[str, ...]
    allowed: Bools
    first: int


def first_observations(d: Domain, vector: Vector) -> Array:
    """Declared first observations ``(k, p)``, scaled; the middle of the ball where none is declared."""
    logged = d.first_observations or [vector.centers]
    return (np.array(logged, dtype=np.float64) - vector.centers) / vector.scales


def point_name(logged: Array, state: str, d: Domain) -> str:
    """A public observation as logged, with its live state where there are several."""
    numbers = f"({', '.join(f'{x:.3g}' for x in logged[:_SHOWN])}{', …' if len(logged) > _SHOWN else ''})"
    return numbers if len(d.live_states) == 1 else f"{state} {numbers}"


@dataclass(frozen=True)
class LinearRequest:
    """One linear run: regressions, bounded together.  Rewards are in units of the declared range's width.

    ``start_rho``: budget of the released first states; None where the card declares them or nothing is private.
    ``beta``: PEVI's multiplier; None: C √d, which is VAPVI's (the theorem's pushes every value to its least).
    """

    card: Card
    terms: Terms
    method: LinearMethod
    plan: LinearPlan
    constants: linear_backup.LinearConstants
    start_rho: Fraction | None = None
    beta: float | None = None
    what = "sums"
    reference = "uniform choice"
    stages = WHOLE

    @property
    def exact(self) -> bool:
        return self.plan.rho is None

    @property
    def adaptive(self) -> bool:
        """True where the planner's constants are part of the release."""
        return self.plan.terms.variant != "one_shot"

    @property
    def unit(self) -> float:
        """Reward of one unit of value."""
        low, high = self.card.reward.range
        return high - low

    @cached_property
    def observed(self) -> ObservedMap | None:
        """The map of observations, where the card declares them."""
        d, f = self.card.domain, self.card.features
        if d.observation is None or f is None:
            return None
        return f.observed(len(d.live_states), len(d.action_labels), d.observation)

    @cached_property
    def points(self) -> Points:
        """The states of the finite map, or the public observations that stand for all."""
        d = self.card.domain
        if self.observed is None or d.observation is None:
            return Points(tuple(d.live_states), d.allowed, 0)
        observations, states = self.observed.sample(first_observations(d, d.observation))
        logged = observations * d.observation.scales + d.observation.centers
        names = tuple(point_name(x, d.live_states[s], d) for x, s in zip(logged, states.tolist(), strict=True))
        return Points(names, d.allowed[states], len(first_observations(d, d.observation)))

    @cached_property
    def task(self) -> linear_backup.LinearTask:
        """The declared process with its vetoes."""
        allowed = self.card.domain.allowed if self.observed is None else self.card.domain.allowed[:1]
        return replace(linear_backup.linear_task(self.plan), allowed=None if allowed.all() else allowed)

    @property
    def multiplier(self) -> float:
        """PEVI's β."""
        return self.constants.C * math.sqrt(self.task.dimension) if self.beta is None else self.beta

    @property
    def rho(self) -> Fraction | None:
        """Exact cost of the whole release, first states included."""
        linear = linear_sums.true_rho(self.plan) if self.adaptive else linear_sums.one_shot_sum(self.plan).rho
        return linear if linear is None or self.start is None else linear + (self.start.rho or 0)

    def joining(self) -> list[Fraction | None]:
        """Exact cost of the release to a person who is added or removed, part by part."""
        sums = linear_sums.joining_rho(self.plan) if self.adaptive else linear_sums.one_shot_sum(self.plan).joining_cost
        return [sums, *([] if self.start is None else [self.start.joining_cost])]

    @property
    def start(self) -> PrivateSum | None:
        """The first states, where they are released."""
        if self.observed is not None or self.card.domain.start != "released":
            return None
        layout = StartLayout(self.card)
        (table,) = layout.tables
        variance = None if self.start_rho is None else math.ceil(table.replace.l2_squared / (2 * self.start_rho))
        return PrivateSum(layout, (table.mechanism(variance),))

    def mechanisms(self) -> tuple[Mechanism, ...] | None:
        """The released tables where they are known beforehand; None where scales follow answers."""
        if self.adaptive:
            return None
        return linear_sums.one_shot_sum(self.plan).mechanisms + (() if self.start is None else self.start.mechanisms)

    def joint(self) -> dict[str, object]:
        """Facts behind the joint cost, as the release records them."""
        return priced(self.rho, linear_sums.joint_facts(self.plan))

    def calls(self) -> list[dict[str, object]]:
        """The planned calls of an adaptive release, exact costs as text, and the table of first states."""
        calls = list(linear_sums.planned_calls(self.plan))
        if self.start is not None:
            (first,) = self.start.mechanisms
            facts = {"name": "first states", "sensitivity": first.rule, "adaptive": False, "rho": str(first.rho)}
            calls.append({**facts, "tables": ["n_0"], "variance": first.variance})
        return calls

    def planner_facts(self) -> learnt_facts.PlannerFacts:
        """Everything besides the data that an adaptive planner's queries depend on."""
        c, terms = self.constants, self.plan.terms
        return learnt_facts.PlannerFacts(
            agent=self.terms.agent,
            version=PLANNER_VERSION,
            constants={"C": c.C, "D": c.D, "ridge": c.ridge, "shift": c.shift, "failure": c.failure},
            beta=self.multiplier if self.method == "pevi" else None,
            seed_of_ties=self.terms.planner.seed,
            variant=terms.variant,
            calibration=terms.ask.calibration,
            split=terms.halves,
            variance=terms.variance,
            shares=[str(GRAM_SHARE), str(VARIANCE_SHARE)],
            steps=[terms.value_steps, terms.weight_steps],
            bounds=list(self.plan.domain.bounds),
            can_end=self.plan.domain.can_end,
            episodes=self.plan.domain.taught,
            vetoes=[(str(s), str(a)) for s, a in self.card.domain.vetoes],
        )

    def admit(self, noise: NoiseSource) -> None:
        admit_release(noise, self.card.name, self.card.kind, self.exact)

    def spec(self) -> list[Any]:
        """The release's own terms where re-planning is free; the whole planner where it is not (privacy.md §0.1-4)."""
        if (listed := self.mechanisms()) is not None:
            return [self.joint(), described(listed)]
        return [self.joint(), self.calls(), self.planner_facts().model_dump()]

    def charge(self) -> tuple[Fraction | None, Body]:
        """Planned calls, or the mechanisms where they are known."""
        body = {"joint": self.joint(), "epsilon": None, **joining_facts(self.card.kind, self.joining())}
        if (listed := self.mechanisms()) is not None:
            return self.rho, body | {"mechanisms": described(listed)}
        return self.rho, body | {"planned_calls": self.calls(), "planner": self.planner_facts().model_dump()}

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        terms, steps = self.plan.terms, self.plan.reward_steps
        if self.observed is not None:
            onto = None if self.adaptive else self.plan.onto
            batches = ObservedRows(snapshot, self.card, self.observed, resources, onto)
            observed = linear_sums.StreamRows(batches, self.observed.dimension, snapshot.kind)
            return stage("release", lambda noise: draw_linear(self, observed, noise))

        def sums() -> dict[linear_sums.Side, linear_sums.Tallies]:
            split = terms.halves and self.adaptive
            return tally(snapshot, self.card, terms.value_steps, steps, split=split, resources=resources)

        rows = linear_sums.TalliedRows(self.plan.features, sums, snapshot.kind)
        return stage("release", lambda noise: draw_linear(self, rows, noise))

    def quote(self) -> Quote:
        """One row a call, or a table where nothing adapts."""
        return joint_quote(_planned(self), self.rho, self.card.budget.delta, self.joint())

    def fitting(self, left: Fraction) -> Mapping[str, float] | None:
        return fitting_rho(left)

    def learn(self, release: Release) -> LinearLearnt:
        """Plan on the recorded answers, and value the plan."""
        result, policy, threshold = plan_linear(self, release)
        return LinearLearnt(self, result, policy, threshold, *_values(self, release, result, threshold))

    def part(self) -> Body | None:
        rho, joining = self.rho, self.joining()
        if rho is None or None in joining:
            return None
        joining_cost = sum((c for c in joining if c is not None), Fraction(0))
        return {"rho_exact": str(rho), "rho_add_remove": str(joining_cost), "sums": [], "regressions": self.joint()}

    def evaluation(self) -> LinearEvaluation | ObservedEvaluation:
        if self.observed is not None:
            from pipeline.learners.observed_evaluation import ObservedEvaluation

            return ObservedEvaluation(self, self.terms)
        if (cells := table_size(self.card)) > _MOST_COUNTED:
            raise CardError(
                f"{self.terms.where}: [evaluate] people = {float(self.terms.held_out):g}: who evaluates is counted by "
                f"step, state, action and successor, which are {cells:,} cells; up to {_MOST_COUNTED:,} are drawn"
            )
        from pipeline.learners.linear_evaluation import LinearEvaluation

        return LinearEvaluation(self, self.terms)

    def unforeseen(self) -> str | None:
        features, observed = self.card.features, self.observed is not None
        if observed and self.terms.known is not None:
            return "no world of [evaluate] shows observations; leave it out for a made-up one that does"
        if features is None or (features.kind != "one_hot" and self.terms.known is None and not observed):
            return "a made-up world is not linear in these features; declare one in [evaluate], or one_hot features"
        if self.terms.linear is not None and self.terms.linear.halves:
            return "halves = true: a log is simulated as sums, which cannot be split by person"
        return None

    def log_size(self, episodes: int) -> int:
        """The size of its tables, however many episodes."""
        if self.observed is None:
            return table_size(self.card)
        from pipeline.worlds.surrogate import places_of

        return table_size(places_of(self.card).card)

    def forecast(self, episodes: int, seeds: Sequence[int]) -> list[SimulatedRun]:
        from pipeline.learners.forecast import Seed, foresee
        from pipeline.worlds.surrogate import places_of

        request, ball = self, None
        if request.observed is not None:
            places = places_of(request.card)
            plan, ball = replace(request.plan, features=places.features), places.ball
            request = replace(request, card=places.card, plan=plan)
        silent = replace(request, plan=request.plan.without_noise(), start_rho=None)

        def learn(logged: Logged, of_log: Seed, noise: Seed, _: Seed) -> list[Policy]:
            visits = logged.visits_and_rewards(episodes, np.random.default_rng(of_log))
            tallies: dict[linear_sums.Side, linear_sums.Tallies] = {"both": _tallies(request, *visits)}
            rows = linear_sums.TalliedRows(request.plan.features, lambda: tallies, "synthetic")
            return [plan_linear(r, draw_linear(r, rows, SeededNoise(noise)))[1] for r in (request, silent)]

        return foresee(request.card, self.terms, seeds, learn, ball=ball)

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """Every step is released alike, and by the same code."""
        from pipeline.audits.tables import linear_target

        plan = self.plan
        # a plan of two steps has each kind of call
        return [linear_target(replace(plan, domain=replace(plan.domain, horizon=min(plan.domain.horizon, _STEPS))))]

    def whole_plan(self) -> WholePlan | None:
        plan = self.plan
        claimed = linear_sums.true_rho(plan)
        if claimed is None or plan.domain.horizon <= _STEPS:
            return None
        from pipeline.audits.attack import WholePlan
        from pipeline.audits.tables import linear_cost

        return WholePlan(f"A plan of {_STEPS} of {plan.domain.horizon} steps", linear_cost(plan), claimed)


def _map_of(card: Card) -> FeatureMap:
    """The declared finite map, or the public sample of one of observations."""
    d, f = card.domain, card.features
    assert f is not None
    sizes = len(d.live_states), len(d.action_labels)
    declared = f.feature_map(*sizes) if d.observation is None else f.observed(*sizes, d.observation)
    if declared.dimension > _WIDEST:
        raise ValueError(f"{declared.dimension} features; at most {_WIDEST} fit a Gram matrix a step")
    if isinstance(declared, FeatureMap):
        return declared
    assert d.observation is not None
    return declared.feature_map(first_observations(d, d.observation))


# a direction with at most this multiple of ridge and shift behind it may have no row
_UNSEEN = 2


def draw_linear(
    request: LinearRequest, rows: linear_sums.TalliedRows | linear_sums.StreamRows, noise: NoiseSource
) -> Release:
    """Draw the whole release from the rows, once, at the joint cost that was charged."""
    if request.adaptive:
        mechanism = linear_sums.InteractiveRegression(request.plan, rows, noise)
        _plan_on(request, mechanism)
        release = mechanism.release()
    else:
        release = linear_sums.draw_one_shot(request.plan, rows, noise)
    if (first := request.start) is None:
        return release
    assert isinstance(rows, linear_sums.TalliedRows)
    return replace(
        release,
        mechanisms=(*release.mechanisms, *first.mechanisms),
        tables={**release.tables, **first.perturb({"n_0": rows.tallies["both"].first}, noise, rows)},
        joint_rho=request.rho,
    )


@dataclass(frozen=True)
class LinearLearnt:
    """A linear policy and its released value, in reward units.

    ``threshold``: rows that the released Gram matrix must hold of an action, ridge and shift included, for it to count
    as seen.
    """

    request: LinearRequest
    result: linear_backup.LinearResult
    policy: Policy
    threshold: float
    value: Mapping[str, float | None]
    baselines: Mapping[str, learnt_facts.Baseline]
    best: learnt_facts.Best | None

    def files(self) -> policy_files.PolicyFiles:
        """The decisions have a digest of their own."""
        policy, d = self.policy, self.request.plan.features.dimension
        upper = np.triu_indices(d)
        weights = np.stack([np.concatenate([b.w, b.inverse[upper]]) for b in self.result.backups])
        return policy_files.PolicyFiles(
            {**policy_files.decision_labels(self.request.card, self.request.points.names), **_weight_labels(self)},
            {"policy": policy_files.columns_by_step(weights), "decisions": policy_files.decision_columns(policy)},
        )

    def facts(self) -> learnt_facts.LearntFacts:
        r, map_ = self.request, self.request.card.features
        assert map_ is not None
        return learnt_facts.LearntFacts(
            constants=_constants(self),
            value=_value(self),
            model_baselines=dict(self.baselines),
            joint=Joint(rho_exact=None if r.rho is None else str(r.rho)),
            features=learnt_facts.FeatureFacts(
                kind=map_.kind, dimension=r.plan.features.dimension, balanced=map_.balanced
            ),
            policy=policy_files.decision_facts(self.policy, self.result.tied),
            best=self.best,
        )

    def truth(self, world: str, behaviour: str) -> learnt_facts.Truth:
        return policy_files.tabular_truth(self.request.card, world, behaviour, self.policy)


def plan_linear(request: LinearRequest, release: Release) -> tuple[linear_backup.LinearResult, Policy, float]:
    """The plan, its policy where an action has evidence, and the threshold of that; answers must be of this plan."""
    task, c, allowed = request.task, request.constants, request.points.allowed
    sds = [m.standard_deviation for m in release.mechanisms if m.table == "gram" or m.table.startswith("gram_D_")]
    W = request.plan.weight("D") if request.adaptive else 1
    # of one row along a direction of length 1; off the diagonal noise is smaller by the root of 2
    sd = max(sds) * float(request.plan.features.unit_squared) / W
    empty = c.ridge + linear_backup.shift_of(sd / math.sqrt(2), task.dimension, task.horizon, c)
    # an untried action's own part of its features has ``empty`` behind it: it is then less than half of them
    # of observations evidence is leverage, weighted: no number of rows, and no verdict rests on it
    rows = floor(sd, task.horizon * allowed.size) if request.observed is None else 0.0
    threshold = empty + max((_UNSEEN - 1) * empty, rows)
    if request.adaptive:
        result = _plan_on(request, linear_sums.RecordedRegression(request.plan, release))
    else:
        statistics = linear_sums.released_statistics(request.plan, release)
        rng = np.random.default_rng(request.terms.planner.seed)
        result = linear_backup.one_shot(statistics, task, c, rng, threshold)
    seen = allowed & (np.stack([b.evidence(task.reference) for b in result.backups]) > threshold)
    return result, Policy(_among(request, result, seen), np.asarray(~seen.any(-1))), threshold


def _among(request: LinearRequest, result: linear_backup.LinearResult, seen: Bools) -> Array:
    """The planner's choices ``(H, M, A)``; where its choice is not ``seen``, the best ``seen`` action instead.

    An adaptive planner's queries follow its own greedy values and stay as they are: another choice here is free.
    """
    rng, task = np.random.default_rng(request.terms.planner.seed), request.task
    chosen = result.policy.probabilities.copy()
    for h, backup in enumerate(result.backups):
        Q, clipped = backup.q(task.reference)
        best, _ = best_actions(clipped, Q, seen[h], rng, max(map(abs, task.value_range(0))))
        other = seen[h].any(-1) & ((chosen[h] > 0) & ~seen[h]).any(-1)
        chosen[h, other] = np.eye(Q.shape[1])[best[other]]
    return chosen


def _plan_on(request: LinearRequest, mechanism: InteractiveMechanism) -> linear_backup.LinearResult:
    # the seed of ties is a constant of the mechanism; it protects nobody
    rng, centred = np.random.default_rng(request.terms.planner.seed), request.plan.centred
    if request.method == "pevi":
        return pevi(mechanism, request.task, request.constants, rng, request.multiplier, centred=centred)
    return vapvi(mechanism, request.task, request.constants, rng, centred=centred)


def first_weights(request: LinearRequest, release: Release) -> Array:
    """Weight ``(M,)`` of every point at the first step: the start, as declared or released (uniform where all are 0).

    Of public observations the declared first ones weigh alike, in the declared first states.
    """
    points, declared = request.points, declared_start(request.card)
    if points.first:
        each = np.eye(len(request.card.domain.live_states))[0] if declared is None else declared
        weights = np.zeros(len(points.names))
        weights[: points.first * len(each)] = np.tile(each, points.first) / points.first
        return weights
    if declared is not None:
        return declared
    n_0 = np.maximum(release.tables["n_0"], 0).astype(np.float64)
    return n_0 / n_0.sum() if n_0.sum() > 0 else np.full(n_0.shape, 1 / n_0.size)


def _values(
    request: LinearRequest, release: Release, result: linear_backup.LinearResult, threshold: float
) -> tuple[dict[str, float | None], dict[str, learnt_facts.Baseline], learnt_facts.Best | None]:
    """The pessimistic value; upper values and baselines only where another query costs nothing."""
    task, c, p = request.task, request.constants, first_weights(request, release)
    least, most = task.value_range(0)
    total = request.card.reward.total
    highest = most * request.unit if total is None else min(most * request.unit, total)
    trivial = {"lower_trivial": least * request.unit, "upper_trivial": highest}
    if request.adaptive:
        lower = min(float(p @ result.V[0]) * request.unit, highest)
        return {"lower": lower, "upper": None, "estimate": None, "optimal_upper": None, **trivial}, {}, None
    statistics = linear_sums.released_statistics(request.plan, release)

    def interval_of(policy: Policy) -> dict[str, float]:
        values = (
            float(p @ linear_backup.policy_bound(statistics, task, c, policy, sign)[0]) * request.unit
            for sign in (-1, 1, 0)
        )
        lower, upper, estimate = (min(value, highest) for value in values)
        return {"lower": lower, "upper": upper, "estimate": estimate, **trivial}

    best = min(float(p @ linear_backup.optimal_upper(statistics, task, c)[0]) * request.unit, highest)
    d, allowed = request.card.domain, request.points.allowed
    seen = min(float(p @ best_seen(statistics, task, c, threshold)) * request.unit, highest)
    simple = simple_policies(allowed, d.horizon, d.action_labels, interval_of)
    value: dict[str, float | None] = {**interval_of(result.policy), "optimal_upper": best}
    return value, simple, learnt_facts.Best(seen, measured=False)


def _constants(learnt: LinearLearnt) -> learnt_facts.TabularConstants:
    request, c = learnt.request, learnt.request.constants
    sourced = {
        "C": (c.C, "paper 003 leaves it universal; chosen on simulated instances that no figure uses"),
        "D": (c.D, "paper 003's would clip every value below 10^8 episodes"),
        "ridge": (c.ridge, "relative to features of norm 1"),
    }
    if request.method == "pevi":
        source = "C √d, as VAPVI's" if request.beta is None else "declared in the recipe"
        sourced["beta"] = (request.multiplier, source)
    return learnt_facts.TabularConstants(
        policy=learnt_facts.Preset.of(f"linear, {c.shift} shift", sourced),
        bounds=None,
        failure_probability=c.failure,
        threshold=learnt.threshold,
        seed_of_ties=request.terms.planner.seed,
        part_of_the_release=request.adaptive,
        planner=request.planner_facts(),
    )


def _value(learnt: LinearLearnt) -> learnt_facts.ValueFacts:
    """Always an estimate; of an adaptive release there is no upper end but the trivial one."""
    request, card = learnt.request, learnt.request.card
    observed = request.observed is not None
    released = card.domain.start == "released" and not observed
    upper, lower = learnt.value["upper"], learnt.value["lower"]
    assert lower is not None
    one_hot = card.features is not None and card.features.kind == "one_hot"
    assumes = [
        "start: the declared first observations, alike"
        if observed
        else "start distribution: " + ("a released table of first states" if released else "declared on the card"),
        "rewards and values were rounded down to the lattice of the recipe before anything was summed",
        policy_files.process_assumed(card),
        "rewards and transitions are linear in the declared features: "
        + ("true of any process, one feature a pair" if one_hot else "declared, not checked"),
        learnt_facts.UNMEASURED,
        *policy_files.total_assumed(card),
    ]
    if observed and not request.adaptive:
        assumes.append("values of what follows were fitted by the declared features: both ends leave the misfit out")
    if learnt.policy.abstains.any():
        assumes.append("where the policy keeps current practice, the planner's own choice there stands for it")
    if ((learnt.policy.probabilities != learnt.result.policy.probabilities).any(-1) & ~learnt.policy.abstains).any():
        assumes.append(
            "where too few people did what the planner would do, its own choice there stands for the policy's"
        )
    if request.plan.rho is not None:
        assumes.append(
            "the width leaves out the noise of the targets: with little budget the lower end can be too high"
        )
    if upper is None:
        assumes.append("no upper end: asking an adaptive planner for one would be a release of its own")
    interval = {
        "gap": None if upper is None else upper - lower,
        "upper_flag": "trivial" if upper is None else None,
        "status": "modelled",
        "assumes": assumes,
        "start": "released" if released else "declared",
    }
    return learnt_facts.ValueFacts.model_validate({**learnt.value, **interval})


def _weight_labels(learnt: LinearLearnt) -> Body:
    """Fields of ``policy.json`` that turn ``policy.parquet`` into decisions: scale, feature map and clips."""
    request, backups = learnt.request, learnt.result.backups
    f, x = request.task.reference, request.plan.features
    feature_map = {"integers": f.astype(np.int64).tolist(), "square": x.square, "unit_squared": str(x.unit_squared)}
    return {
        "kind": "linear" if request.observed is None else policy_files.OBSERVED_KIND,
        "dimension": int(f.shape[-1]),
        "weights": "index below d: w; from d on: the upper triangle of the inverse Gram matrix, row by row",
        "rule": "Q = phi.w + offset - multiplier (phi.inverse.phi)^1/2 - constant, clipped; phi = unit x integers; "
        "the greatest Q among allowed actions with evidence, then the greatest unclipped one, then chance",
        "reward_unit": request.unit,
        "unit": request.task.unit,
        "offset": [b.offset for b in backups],
        "multiplier": [b.multiplier for b in backups],
        "constant": [b.constant for b in backups],
        "clip": [list(b.clip) for b in backups],
        "features": feature_map if x.sample_of is None else {**feature_map, "sample_of": x.sample_of},
        **_observed_labels(learnt),
        "decisions": "decisions.parquet: the same policy, state by state",
    }


def _observed_labels(learnt: LinearLearnt) -> Body:
    """Further fields for ``policy act --observation``: the map, names and scales, and the evidence of an advice."""
    request, vector = learnt.request, learnt.request.card.domain.observation
    if request.observed is None or vector is None:
        return {}
    return {
        "observation": vector_facts(vector).model_dump(),
        "live_states": request.card.domain.live_states,
        "never": [str(a) for a in np.array(request.card.domain.action_labels)[~request.points.allowed[0]]],
        "threshold": learnt.threshold,
        "advised": policy_files.ADVISED,
        "lattice": request.task.lattice,
        "states_are": "public observations, as logged: the declared first ones, the axes of the ball, and a draw in it",
    }


# of a plan under attack
_STEPS = 2
# most cells of the counts of held-out people: more are lost in noise, and take minutes
_MOST_COUNTED = 10_000_000


@dataclass(frozen=True)
class LinearLearner:
    """See :class:`~pipeline.learners.learner.Learner`."""

    method: LinearMethod
    continual, section = False, "linear"

    def check(self, terms: Terms) -> None:
        agent, p, chosen = terms.agent, terms.privacy, terms.linear or Linear()
        check_gaussian(agent, p)
        if p is not None and p.calibration == "paper" and chosen.targets != "paper":
            raise ValueError("[privacy]: calibration = 'paper' needs [linear] targets = 'paper'")
        if chosen.beta is not None and self.method != "pevi":
            raise ValueError(f"[linear]: 'beta' belongs to pevi; {agent} has C")
        if self.method == "one-shot" and (chosen.targets, chosen.halves) != ("centred", False):
            raise ValueError(
                f"[linear]: 'targets' and 'halves' belong to dp-vapvi; {agent} asks once, whatever the targets"
            )

    def plan(self, card: AnyCard, terms: Terms) -> LinearRequest:
        card = require_tabular(card)
        ask, options, agent = terms.ask_for(card), terms.linear or Linear(), terms.agent
        rho = ask.zcdp()
        d, (low, high) = card.domain, card.reward.range
        if card.features is None:
            raise CardError(f"{card.name}: [features] is missing; {agent} needs a feature map, e.g. kind = 'one_hot'")
        if card.reward.on_entering is not None:
            raise CardError(f"{card.name}: reward.on_entering is for agents of counts; {agent} sums rewards of rows")
        if card.kind == "real" and rho is None:
            raise RealDataError(f"{card.name} is registered as real: {agent} adds no noise; ask for a finite budget")
        observed = d.observation is not None
        if observed and (d.allowed != d.allowed[0]).any():
            raise CardError(f"{card.name}: vetoes by state need declared states alone; {agent} reads an observation")
        share = None if rho is None or observed or d.start != "released" else rho * _START_SHARE
        domain = LinearDomain(
            card.name,
            card.kind,
            d.horizon,
            card.unit.users_public,
            (low / (high - low), high / (high - low)),
            card.unit.episodes_per_user,
            can_end=bool(d.states.ends),
            teaching=1 - terms.reserve,
        )
        queries = LinearTerms(
            Ask(None if rho is None else rho - (share or 0), calibration=ask.calibration),
            "one_shot" if self.method == "one-shot" else options.targets,
            options.halves,
            variance=self.method == "vapvi",
            value_steps=options.steps,
        )
        try:
            plan = LinearPlan(domain, queries, _map_of(card))
            if self.method == "one-shot" and plan.successors > len(plan.landings):
                raise ValueError(
                    f"values are fitted on {len(plan.landings)} public observations by {plan.successors} features of "
                    "one; declare fewer features, or use dp-vapvi"
                )
            if linear_sums.widest_variance(plan) > WIDEST_SCALE**2:
                raise OverflowError("noise leaves 64-bit integers; ask for more, or for fewer [linear] steps")
            c = linear_backup.LinearConstants(options.C, options.D, options.ridge, options.shift, terms.planner.failure)
            request = LinearRequest(card, terms, self.method, plan, c, share, options.beta)
            if card.kind == "real" and (request.rho is None or rho is None or request.rho > rho):
                raise ValueError(
                    "these scales would spend more than was asked; a real dataset needs calibration = 'tight'"
                )
        except (ValueError, OverflowError) as e:
            raise CardError(f"{card.name}: {agent}: {e}") from None
        return request


def _tallies(request: LinearRequest, visits: Integers, paid: Integers) -> linear_sums.Tallies:
    """Sums on the recipe's lattice: ``paid`` lattice steps of the card above the least reward."""
    lattice, steps = reward_lattice(request.card), request.plan.terms.value_steps
    n = visits.sum(-1)
    least = request.plan.reward_steps[0]
    rewards = np.floor(paid * (steps / lattice.steps)).astype(np.int64) + least * n
    ends = bool(request.card.domain.states.ends)
    L = visits.shape[1]
    onto = np.concatenate([visits[..., :L], visits[..., L:].sum(-1, keepdims=True)], axis=-1) if ends else visits
    return linear_sums.Tallies(onto, rewards, n[0].sum(-1))


def _planned(request: LinearRequest) -> Sequence[MechanismFacts | CallFacts]:
    if (listed := request.mechanisms()) is not None:
        return listed_facts(listed)
    rows: list[CallFacts] = []
    for call in request.calls():
        exact = None if call["rho"] == "None" else call["rho"]
        described = {key: call[key] for key in ("name", "sensitivity", "tables", "adaptive")}
        cost = {"rho": None if exact is None else float(Fraction(str(exact))), "rho_exact": exact}
        rows.append(CallFacts.model_validate(described | cost))
    return rows
