"""One-step agents: what practice is worth, what actions gain over it, and one step of improvement, in stages.

Where other people judge and all is enough to be heard, groups of states are asked before states: how many groups, and
their share of the budget, follow from declared numbers alone (:func:`groups_asked`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from pipeline.agents.one_step import SPREAD, VERSION
from pipeline.declaration.card import AnyCard, CardError, require_tabular
from pipeline.facts.promise import Joint
from pipeline.learners.learner import Outlook, Quote, fitting_rho, joint_cost, listed_facts
from pipeline.learners.one_step_learning import (
    Integers,
    LearntStep,
    drawn_stages,
    learn_step,
    next_question,
    settings_of,
)
from pipeline.learners.terms import OneStep, Terms, check_gaussian
from pipeline.ledger.chain import Body
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.logs.target_sums import sum_targets
from pipeline.privacy.noise import NoiseSource, RealDataError, admit_release
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import even_visits
from pipeline.statistics.private_sum import tell_joining
from pipeline.statistics.target_plan import Stage as Which
from pipeline.statistics.target_plan import TargetPlan, TargetQuestion
from pipeline.transaction.drawing import Stage

if TYPE_CHECKING:
    from pipeline.audits.attack import AuditTarget, WholePlan
    from pipeline.learners.one_step_evaluation import OneStepEvaluation
    from pipeline.worlds.surrogate import SimulatedRun

# rows of a person that count, of all that one may have: later ones cost more than they teach
_ROWS = 0.6
# declared people times the root of rho from which groups of states are asked too
POOLED = 9900.0
# of the plan that asks groups: another arithmetic from its answers to groups, or to a policy, asks another question
_POOLED_VERSION = 2
# groups: least and most of them, states of each at least, and deviations of noise by which an average key stands out
_GROUPS, _STATES_EACH, _OUT = (8, 64), 4, 4.0
# least and most share of groups in what gains are paid with
_COARSE = Fraction(1, 20), Fraction(9, 10)

# what is drawn in a stage
STAGES: dict[Which, str] = {"v": "value of practice", "c": "gain of actions by group", "q": "gain of actions"}


@dataclass(frozen=True)
class OneStepLearner:
    """See :class:`~pipeline.learners.learner.Learner`."""

    continual: bool = False
    section: str | None = "one_step"

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
        run = OneStepRun(groups_asked(plan, terms), terms)
        try:
            _ = run.plan.mechanisms
        except ValueError as e:
            raise CardError(f"{terms.where}: [privacy]: {e}") from None
        return run


def groups_asked(plan: TargetPlan, terms: Terms) -> TargetPlan:
    """The plan with groups of states, where other people judge a policy of all steps alike and are heard.

    K groups, so that an average group and action stands some deviations out of its noise; of the budget they get
    1 / (1 + t), t the deviations by which an average state and action stands out alone.
    """
    card, rho = plan.card, plan.rho
    d, people = card.domain, card.unit.users_public
    if rho is None or not terms.held_out or d.dynamics != "stationary" or people * math.sqrt(rho) < POOLED:
        return plan
    fine, share = plan.layout("q"), plan.ask.share("v", Fraction(3, 20))
    L, A = len(d.live_states), len(d.action_labels)
    taught, heard = people * float(terms.teaching), math.sqrt(float(rho * (1 - share)))
    groups = round(taught * heard / (_OUT * A * math.sqrt(fine.square)))
    groups = min(max(_GROUPS[0], groups), _GROUPS[1], max(1, L // _STATES_EACH))
    t = taught * fine.most_rows / (L * A) / (math.sqrt(2 * fine.square) / heard)
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
        """Names of what is drawn, in order."""
        return tuple(STAGES[stage] for stage in self.plan.stages)

    @property
    def exact(self) -> bool:
        return self.plan.rho is None

    def admit(self, noise: NoiseSource) -> None:
        admit_release(noise, self.plan.card.name, self.plan.card.kind, self.exact)

    def _joint(self) -> dict[str, object]:
        cost = self.plan.cost
        return {"rho_exact": None if cost is None else str(cost), **self.plan.joint()}

    def _described(self) -> list[dict[str, object]]:
        return [describe_mechanism(m) for m in self.plan.mechanisms]

    def spec(self) -> list[Any]:
        """What is drawn, and what asks the second question."""
        return [self._joint(), self._described()]

    def charge(self) -> tuple[Fraction | None, Body]:
        """All stages at once, whatever the first answers."""
        told: Body = {"joint": self._joint(), "epsilon": None, "mechanisms": self._described()}
        joined = [s.joining_cost for s in self.plan.stages.values()]
        return self.plan.cost, told | tell_joining(self.plan.card.kind, joined)

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        plan = self.plan

        def answer(which: Which, asked: TargetQuestion | None) -> Release:
            exact = partial(sum_targets, snapshot, plan, asked, resources)
            return stage(STAGES[which], lambda noise: plan.stages[which].draw(exact(), noise))

        return drawn_stages(plan, answer)

    def evaluation(self) -> OneStepEvaluation:
        from pipeline.learners.one_step_evaluation import LEAST, OneStepEvaluation

        card = self.plan.card
        found = OneStepEvaluation(self.plan, self.terms.judging(card), settings_of(self.plan, self.terms))
        if found.signal < LEAST and self.plan.rho is not None:
            share, declared, rho = float(found.share), card.unit.users_public, float(self.plan.rho)
            people, budget = LEAST / (share * math.sqrt(rho)), (LEAST / (share * declared)) ** 2
            raise CardError(
                f"{self.terms.where}: [evaluate] people = {float(self.terms.held_out):g} of "
                f"{declared:,} declared people, times the root of rho, is {found.signal:,.0f}: below "
                f"{LEAST:,.0f} nothing is measured beside the noise; take it out, or have {_up(people):,} people, "
                f"or ask for rho = {_up(budget * 1000) / 1000:g}"
            )
        return found

    def quote(self) -> Quote:
        card, mechanisms = self.plan.card, self.plan.mechanisms
        outlook = Outlook(
            visits_per_cell_if_even=even_visits(card, self.terms.teachers(card)),
            noise_per_cell={m.table: m.standard_deviation for m in mechanisms},
            what_if=[],
            people_needed={},
        )
        joint, cost = Joint.model_validate(self._joint()), joint_cost(self.plan.cost, card.budget.delta)
        return Quote(listed_facts(mechanisms), self.plan.cost, cost, joint, outlook)

    def fitting(self, left: Fraction) -> Mapping[str, float] | None:
        return fitting_rho(left)

    def learn(self, release: Release) -> LearntStep:
        return learn_step(self.plan, self.terms, release)

    def asked_again(self, release: Release) -> Mapping[str, Integers]:
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

        # what is published is what others confirm
        held_out = self.terms.held_out
        judges = max(1, round(episodes * held_out / self.terms.teaching)) if held_out else 0
        confirming = (self.evaluation(), judges) if held_out else None
        return foresee_one_step(self.plan, self.terms, episodes, seeds, confirming)

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """Each stage, later ones for a question of their own."""
        from pipeline.audits.tables import stage_target

        return [stage_target(self.plan, stage) for stage in self.plan.stages]

    def whole_plan(self) -> WholePlan | None:
        if self.plan.cost is None or self.plan.rho is None:
            return None
        from pipeline.audits.attack import WholePlan

        return WholePlan("Each stage alone", self.plan.cost, self.plan.rho)
