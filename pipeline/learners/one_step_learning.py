"""From the sums of targets to the second query, to a policy, and to its facts in report.json; reads no rows.

One-step agents: the value of current practice, the gain of actions over it, and one step of improvement, in stages.

Where held-out people evaluate and the log is large beside the noise, groups of states are queried before states: their
number and their share of the budget follow from declared numbers alone (:func:`with_groups`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.agents import one_step
from pipeline.agents.one_step import SPREAD, VERSION
from pipeline.agents.one_step_pooling import group_states, pooled_shares, pooled_step
from pipeline.agents.one_step_value import Seen
from pipeline.arrays import Array, Integers
from pipeline.declaration.card import AnyCard, Card, CardError, require_tabular, task_of
from pipeline.facts import learnt as learnt_facts
from pipeline.facts.promise import Joint, present
from pipeline.learners import policy_files
from pipeline.learners.learner import Quote, described, fitting_rho, joint_quote, listed_facts, priced
from pipeline.learners.terms import OneStep, Terms, check_gaussian
from pipeline.ledger.chain import Body
from pipeline.logs.rules import gated_rules
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.logs.target_sums import sum_targets
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import NoiseSource, RealDataError, admit_release
from pipeline.privacy.release import Release
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import even_visits
from pipeline.statistics.private_sum import joining_facts
from pipeline.statistics.target_plan import VALUE_STEPS, TargetPlan, TargetQuestion, window
from pipeline.statistics.target_plan import Stage as StageName
from pipeline.transaction.drawing import Stage

if TYPE_CHECKING:
    from pipeline.audits.attack import AuditTarget, WholePlan
    from pipeline.learners.one_step_evaluation import OneStepEvaluation
    from pipeline.worlds.surrogate import SimulatedRun

# in ``policy.json``
KIND = "one_step"
# least share of a state's rows that a recommended action must have where held-out people confirm it
CONFIRMED = 0.1
# options of a recipe that make another policy of the same release
_FREE = ("pessimism", "support", "floor")


@dataclass(frozen=True)
class LearntStep:
    """Recommendations, and current practice elsewhere."""

    plan: TargetPlan
    terms: Terms
    release: Release
    found: one_step.Plan

    @property
    def policy(self) -> Policy:
        return self.found.policy

    def files(self) -> policy_files.PolicyFiles:
        labels = {**policy_files.decision_labels(self.plan.card), "kind": KIND}
        return policy_files.PolicyFiles(labels, {"policy": policy_files.decision_columns(self.policy)})

    def facts(self) -> learnt_facts.LearntFacts:
        """Facts without an estimate of the value: no released number gives one."""
        no_ties = np.zeros(self.policy.abstains.shape, dtype=bool)
        joint = priced(self.release.joint_rho, self.plan.joint())
        return learnt_facts.LearntFacts(
            constants=_constants(self.plan, self.terms),
            value=_value(self.plan.card),
            model_baselines={},
            joint=Joint.model_validate(joint),
            policy=policy_files.decision_facts(self.policy, no_ties),
            # differences are cut before they are summed: no sum of theirs bounds what whole ones gain
            best=learnt_facts.Best(math.inf, measured=True),
        )

    def truth(self, world: str, behaviour: str) -> learnt_facts.Truth:
        return policy_files.tabular_truth(self.plan.card, world, behaviour, self.policy)


def _answer(plan: TargetPlan, release: Release, stage: StageName) -> one_step.Answer:
    steps = plan.layout(stage).steps
    count, total = (release.tables[f"{stage}_{name}"].astype(np.float64) for name in ("count", "sum"))
    drawn = next(m for m in release.mechanisms if m.table == f"{stage}_count")
    return one_step.Answer(count, total / steps, (drawn.variance or 0) ** 0.5)


def next_question(plan: TargetPlan, first: Release) -> TargetQuestion:
    """The query of the later stages, made from the released answer of the first."""
    low, high = plan.span
    features = plan.card.domain.state_features
    values = one_step.practice_values(_answer(plan, first, "v"), np.array(plan.returns), features)
    lattice_values = np.rint((values - low) / (high - low) * VALUE_STEPS).astype(np.int64)
    question = TargetQuestion(lattice_values, window(first.tables["v_count"], lattice_values, plan.spread))
    if not plan.groups:
        return question
    rows = first.tables["v_count"][0].astype(np.float64)
    return replace(question, group=group_states(features, lattice_values[0], rows, plan.groups))


def standing_question(plan: TargetPlan, release: Release) -> TargetQuestion:
    """The query of the later stages, as the release records it."""
    values = release.derived["v_value"]
    return TargetQuestion(
        values, window(release.tables["v_count"], values, plan.spread), release.derived.get("c_group")
    )


def drawn_stages(plan: TargetPlan, answer: Callable[[StageName, TargetQuestion | None], Release]) -> Release:
    """Draw all stages by ``answer``; later ones query the values and groups that the first answer makes."""
    first = answer("v", None)
    question = next_question(plan, first)
    groups = [answer("c", question)] if plan.groups else []
    return plan.joined((first, *groups, answer("q", replace(question, group=None))), question)


def seen_of(learnt: LearntStep, action: Integers) -> Seen:
    """Frequency of an action in each state, of the people who learn, where states are pooled.

    ``action`` ``(L,)``: of each state.
    """
    plan, release = learnt.plan, learnt.release
    fine, states = _answer(plan, release, "q"), np.arange(len(action))
    share, rows = pooled_shares(fine, _visits(release), release.derived["c_group"], plan.groups)
    frequency = share[states, action]
    visits = rows[states, action] / np.maximum(frequency, 1e-9)
    least = one_step.least_rows(_settings(plan, learnt.terms).support, fine.sd)
    return Seen(frequency, fine.rows[0, states, action], visits, fine.sd, least)


def _visits(release: Release) -> Array:
    return release.tables["v_count"][0].astype(np.float64)


def learn_step(plan: TargetPlan, terms: Terms, release: Release) -> LearntStep:
    """The policy of a release of all stages.

    Raises ValueError if the release was drawn on other terms.
    """
    derived = {"v_value", "c_group"} if plan.groups else {"v_value"}
    if release.mechanisms != plan.mechanisms or not derived <= set(release.derived):
        raise ValueError("this release was drawn on other terms")
    question, settings, d = standing_question(plan, release), _settings(plan, terms), plan.card.domain
    constants, width = one_step.Constants(settings.pessimism, settings.support, settings.floor), plan.width(question)
    fine = _answer(plan, release, "q")
    if question.group is not None and plan.groups:
        coarse, visits = _answer(plan, release, "c"), _visits(release)
        improvement = pooled_step(fine, coarse, question.group, visits, width, d.horizon, d.allowed, constants)
    else:
        improvement = one_step.one_step(fine, width, d.horizon, d.allowed, d.state_features, constants)
    return LearntStep(plan, terms, release, improvement)


def mean_error(plan: TargetPlan, release: Release) -> float:
    """Mean over released rows of reward plus next value minus the value of the state, reward units.

    Where each step has values of its own these are right on average, and it is 0.
    """
    if plan.card.domain.dynamics == "per_step":
        return 0.0
    answer, width = _answer(plan, release, "c" if plan.groups else "q"), plan.width(standing_question(plan, release))
    return width * float(np.clip(answer.targets.sum() / max(float(answer.rows.sum()), 1.0), -1, 1))


def _settings(plan: TargetPlan, terms: Terms) -> OneStep:
    """The recipe's settings, with a floor at which held-out people can confirm an action."""
    settings = terms.one_step or OneStep()
    settings = settings.by_groups() if plan.groups else settings
    return settings.model_copy(update={"floor": max(settings.floor, CONFIRMED)}) if terms.held_out else settings


def settings_of(plan: TargetPlan, terms: Terms) -> tuple[Any, ...]:
    """Settings of recipe and card that make the policy of a release, beside the plan: free without held-out people.

    Returns plain values that differ from the defaults, so that the key of a recipe without settings stays as it was.
    """
    options = {} if terms.one_step is None else terms.one_step.model_dump(mode="json", exclude_defaults=True)
    if plan.groups:
        options = _settings(plan, terms).model_dump(mode="json")
    policy_options = {name: value for name, value in options.items() if name in _FREE}
    vetoes = [[str(s), str(a)] for s, a in plan.card.domain.vetoes]
    return (*([policy_options] if policy_options else []), *([vetoes] if vetoes else []))


def _constants(plan: TargetPlan, terms: Terms) -> learnt_facts.TabularConstants:
    settings = _settings(plan, terms)
    simulated = "posterior standard deviations; chosen on simulated logs that no figure uses"
    exceeded = "standard deviations of noise that the rows of an action exceed: chosen by us"
    sourced = {
        "pessimism": (settings.pessimism, simulated),
        "support": (settings.support, exceeded),
        "floor": (settings.floor, "practice must know what it does: chosen by us"),
        "rows of a person": (plan.rows, "the recipe's, or 3/5 of all; part of the release"),
        "cap": (plan.cap, "rows a state (or a state and action); part of the release"),
        "share of the first stage": (settings.value_share, "of the budget; part of the release"),
    }
    return learnt_facts.TabularConstants(
        policy=learnt_facts.Preset.of("one step", sourced),
        bounds=None,
        failure_probability=terms.planner.failure,
        threshold=settings.floor,
        seed_of_ties=terms.planner.seed,
    )


def _value(card: Card) -> learnt_facts.ValueFacts:
    """No interval: the rows that made the policy cannot say what it is worth (they chose it)."""
    least, most = task_of(card).value_range(0)
    assumes = [
        "nothing is claimed but what declared rewards allow: an estimate from the rows that chose the policy would be "
        "too high",
        "the declared states hold all that drives both what is done and what comes of it",
        "a return is what the log holds from a row to the end of its episode",
        *policy_files.total_assumed(card),
    ]
    start = "released" if card.domain.start == "released" else "declared"
    return learnt_facts.ValueFacts.unclaimed(least, most, assumes, start)


# rows of a person that count, of all that one may have: later ones cost more than they teach
_ROWS = 0.6
# declared people times the root of rho from which groups of states are queried too
POOLED = 9900.0
# of a plan with groups: another arithmetic from its answers to groups, or to a policy, makes another query
_POOLED_VERSION = 2
# groups: least and most of them, states of each at least, and deviations of noise by which an average key stands out
_GROUPS, _STATES_EACH, _OUT = (8, 64), 4, 4.0
# least and most share of groups in the budget of gains
_COARSE = Fraction(1, 20), Fraction(9, 10)

# quantity drawn in each stage
STAGES: dict[StageName, str] = {"v": "value of practice", "c": "gain of actions by group", "q": "gain of actions"}


class OneStepLearner:
    """See :class:`~pipeline.learners.learner.Learner`."""

    continual, section = False, "one_step"

    def check(self, terms: Terms) -> None:
        agent, p = terms.agent, terms.privacy
        check_gaussian(agent, p)
        if p is not None and (p.calibration, p.release) != ("tight", "one_table"):
            raise ValueError(f"[privacy]: 'calibration' and 'release' do not apply: {agent} has one release, tight")

    def plan(self, card: AnyCard, terms: Terms) -> OneStepRun:
        card, chosen = require_tabular(card), terms.one_step or OneStep()
        d, rho = card.domain, terms.ask_for(card).zcdp()
        if card.kind == "real" and rho is None:
            raise RealDataError(f"{card.name} is registered as real: {terms.agent} adds no noise; ask for a budget")
        if d.dynamics == "stationary" and not d.states.ends:
            raise CardError(
                f"{card.name}: dynamics = 'stationary' without ends: a return then depends on the step, and "
                f"{terms.agent} pools steps; declare 'per_step', or ends"
            )
        rows = chosen.rows or math.ceil(_ROWS * card.unit.episodes_per_user * d.horizon)
        ask = Ask(rho, split={"v": Fraction(str(chosen.value_share))})
        plan = TargetPlan(card, ask, rows, chosen.cap, SPREAD, VERSION)
        run = OneStepRun(with_groups(plan, terms), terms)
        try:
            _ = run.plan.mechanisms
        except ValueError as e:
            raise CardError(f"{terms.where}: [privacy]: {e}") from None
        return run


def with_groups(plan: TargetPlan, terms: Terms) -> TargetPlan:
    """The plan with groups of states, where held-out people evaluate one policy of all steps and are enough.

    K groups, so that an average group and action stands some deviations out of its noise; of the budget they get
    1 / (1 + t), t the deviations by which an average state and action stands out alone.
    """
    card, rho = plan.card, plan.rho
    d, people = card.domain, card.unit.users_public
    if rho is None or not terms.held_out or d.dynamics != "stationary" or people * math.sqrt(rho) < POOLED:
        return plan
    fine, share = plan.layout("q"), plan.ask.share("v", Fraction(3, 20))
    L, A = len(d.live_states), len(d.action_labels)
    learning_people, root_rho = people * float(terms.teaching), math.sqrt(float(rho * (1 - share)))
    groups = round(learning_people * root_rho / (_OUT * A * math.sqrt(fine.square)))
    groups = min(max(_GROUPS[0], groups), _GROUPS[1], max(1, L // _STATES_EACH))
    t = learning_people * fine.most_rows / (L * A) / (math.sqrt(2 * fine.square) / root_rho)
    coarse = min(max(_COARSE[0], Fraction(round(100 / (1 + t)), 100)), _COARSE[1])
    return replace(plan, groups=groups, ask=replace(plan.ask, split={"v": share, "c": coarse}), version=_POOLED_VERSION)


def _up(x: float) -> int:
    """Rounded up to two digits."""
    unit = 10 ** max(0, math.floor(math.log10(max(x, 1.0))) - 1)
    return math.ceil(x / unit) * unit


@dataclass(frozen=True)
class OneStepRun:
    """Stages, each bounded jointly; later ones adapt."""

    plan: TargetPlan
    terms: Terms
    what = "sums of targets"
    reference = "current practice"

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages, in order."""
        return tuple(STAGES[stage] for stage in self.plan.stages)

    @property
    def exact(self) -> bool:
        return self.plan.rho is None

    def admit(self, noise: NoiseSource) -> None:
        admit_release(noise, self.plan.card.name, self.plan.card.kind, self.exact)

    def _joint(self) -> dict[str, object]:
        return priced(self.plan.cost, self.plan.joint())

    def spec(self) -> list[Any]:
        """The mechanisms, and the joint facts that make the second query."""
        return [self._joint(), described(self.plan.mechanisms)]

    def charge(self) -> tuple[Fraction | None, Body]:
        """Charge all stages at once, whatever the first answers."""
        body: Body = {"joint": self._joint(), "epsilon": None, "mechanisms": described(self.plan.mechanisms)}
        joining_costs = [s.joining_cost for s in self.plan.stages.values()]
        return self.plan.cost, body | joining_facts(self.plan.card.kind, joining_costs)

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        plan = self.plan

        def answer(which: StageName, question: TargetQuestion | None) -> Release:
            exact = partial(sum_targets, snapshot, plan, question, resources)
            return stage(STAGES[which], lambda noise: plan.stages[which].draw(exact(), noise))

        return drawn_stages(plan, answer)

    def evaluation(self) -> OneStepEvaluation:
        from pipeline.evaluation.coverage import ONE_STEP, measured_elsewhere
        from pipeline.learners.one_step_evaluation import LEAST, OneStepEvaluation

        card = self.plan.card
        evaluation = OneStepEvaluation(self.plan, self.terms.judging(card), settings_of(self.plan, self.terms))
        if evaluation.signal < LEAST and self.plan.rho is not None:
            share, declared, rho = float(evaluation.share), card.unit.users_public, float(self.plan.rho)
            # what is asked for pays the gate too
            gated = card.kind == "real" and not self.terms.taken and gated_rules(card)
            left = 1 - float(self.terms.gate) if gated else 1.0
            # a rho above 1 brings no run inside of what was measured
            needed = LEAST / math.sqrt(min(left * rho, 1.0))
            budget = ", or ask for a larger rho, up to 1" if share * declared * math.sqrt(left) > LEAST else ""
            larger = math.ceil(100 * needed / declared) / 100
            judges = f", hold out {larger:g} of them" if larger <= self.terms.reserve else ""
            counts = measured_elsewhere(ONE_STEP, card, share, self.plan.rho)
            raise CardError(
                f"{self.terms.where}: [evaluate] people = {float(self.terms.held_out):g} of "
                f"{declared:,} declared people, times the root of rho, is {evaluation.signal:,.0f}: below "
                f"{LEAST:,.0f} nothing is measured beside the noise; take it out{judges}, "
                f"or have {_up(needed / share):,} people{budget}"
                + ("; dp-apvi was measured for such a card and so few people" if counts else "")
            )
        return evaluation

    def quote(self) -> Quote:
        card, mechanisms = self.plan.card, self.plan.mechanisms
        return joint_quote(
            listed_facts(mechanisms),
            self.plan.cost,
            card.budget.delta,
            self._joint(),
            visits_per_cell_if_even=even_visits(card, self.terms.teachers(card)),
            noise_per_cell={m.table: m.standard_deviation for m in mechanisms},
            **present(steps_that_teach=self._steps_that_teach()),
        )

    def _steps_that_teach(self) -> int | None:
        """First steps of an episode, where a person's only episode has more of them than rows count; None: all."""
        d, rows = self.plan.card.domain, self.plan.rows
        apart = d.dynamics == "per_step" and self.plan.card.unit.episodes_per_user == 1
        return rows if apart and rows < d.horizon else None

    def fitting(self, left: Fraction) -> Mapping[str, float] | None:
        return fitting_rho(left)

    def learn(self, release: Release) -> LearntStep:
        return learn_step(self.plan, self.terms, release)

    def recompute_derived(self, release: Release) -> Mapping[str, Integers]:
        """See :class:`~pipeline.learners.learner.Adaptive`."""
        return next_question(self.plan, release).derived

    def unforeseen(self) -> str | None:
        """People are simulated row by row, in any world."""
        return None

    def log_size(self, episodes: int) -> int:
        """Rows, and the world that is made up or loaded."""
        d = self.plan.card.domain
        return episodes * d.horizon + len(d.action_labels) * len(d.state_labels) ** 2

    def forecast(self, episodes: int, seeds: Sequence[int]) -> list[SimulatedRun]:
        from pipeline.learners.forecast import foresee_one_step

        # held-out people confirm the policy that is published
        held_out = self.terms.held_out
        judges = max(1, round(episodes * held_out / self.terms.teaching)) if held_out else 0
        confirming = (self.evaluation(), judges) if held_out else None
        return foresee_one_step(self.plan, self.terms, episodes, seeds, confirming)

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """Each stage, later ones for a query of their own."""
        from pipeline.audits.tables import stage_target

        return [stage_target(self.plan, stage) for stage in self.plan.stages]

    def whole_plan(self) -> WholePlan | None:
        if self.plan.cost is None or self.plan.rho is None:
            return None
        from pipeline.audits.attack import WholePlan

        return WholePlan("Each stage alone", self.plan.cost, self.plan.rho)
