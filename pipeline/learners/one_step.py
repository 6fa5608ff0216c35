"""One-step agents: what practice is worth, what actions gain over it, and one step of improvement, in two stages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pipeline.agents.one_step import SPREAD, VERSION
from pipeline.audits.attack import AuditTarget, WholePlan
from pipeline.audits.sums import LEAVES
from pipeline.audits.tables import stage_target
from pipeline.declaration.card import AnyCard, CardError, require_tabular
from pipeline.learners.learner import Outlook, Quote, fitting_rho, joint_cost, listed_facts
from pipeline.learners.linear import check_gaussian
from pipeline.learners.one_step_evaluation import LEAST, OneStepEvaluation
from pipeline.learners.one_step_learning import LearntStep, learn_step, next_question, settings_of, standing_question
from pipeline.learners.terms import OneStep, Terms
from pipeline.ledger.chain import Body
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.logs.target_sums import TargetLeaf, TargetSums, sum_targets
from pipeline.privacy.epochs import Epochs
from pipeline.privacy.noise import NoiseSource, RealDataError, admit_release
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import even_visits
from pipeline.statistics.private_sum import PrivateSum, tell_joining
from pipeline.statistics.target_layout import Stage as Which
from pipeline.statistics.target_plan import Question, TargetPlan
from pipeline.transaction.drawing import Stage
from reports.facts.promise import Joint

if TYPE_CHECKING:
    from pipeline.simulation.surrogate import Drawn

# rows of a person that count, of all that one may have: later ones cost more than they teach
_ROWS = 0.6


@dataclass(frozen=True)
class OneStepLearner:
    """See :class:`~pipeline.learners.learner.Learner`."""

    continual: bool = True
    section: str | None = "one_step"

    def check(self, terms: Terms) -> None:
        """See :class:`~pipeline.learners.learner.Learner`."""
        agent, p = terms.agent, terms.privacy
        check_gaussian(agent, p)
        if p is not None and (p.calibration, p.release) != ("tight", "one_table"):
            raise ValueError(f"[privacy]: 'calibration' and 'release' do not apply: {agent} has one release, tight")

    def plan(self, card: AnyCard, terms: Terms) -> OneStepRun:
        """See :class:`~pipeline.learners.learner.Learner`."""
        card, chosen = require_tabular(card), terms.one_step or OneStep()
        d, rho = card.domain, terms.ask_for(card).zcdp()
        if card.kind == "real" and rho is None:
            raise RealDataError(f"{card.name} is registered as real: {terms.agent} adds no noise; ask for a budget")
        if d.dynamics == "stationary" and not d.states.ends:
            raise CardError(
                f"{card.name}: dynamics = 'stationary' without ends: a return then depends on the step, and "
                f"{terms.agent} pools steps; declare 'per_step', or ends"
            )
        if terms.nightly is not None and card.unit.recurs != "never":
            raise CardError(
                f"{card.name}: [nightly] of {terms.agent} caps a person's rows over all nights, and nobody keeps "
                "how many of each state they had, so a person must be in one leaf. Declare unit.recurs = 'never', or "
                "run without it"
            )
        rows = chosen.rows or math.ceil(_ROWS * card.unit.episodes_per_user * d.horizon)
        ask = Ask(rho, split={"v": Fraction(str(chosen.value_share))}, counter=_epochs(terms))
        run = OneStepRun(TargetPlan(card, ask, rows, chosen.cap, SPREAD, VERSION), terms)
        try:
            _ = run.plan.mechanisms
        except ValueError as e:
            raise CardError(f"{terms.where}: [privacy]: {e}") from None
        return run


@dataclass(frozen=True)
class OneStepRun:
    """See :class:`~pipeline.learners.learner.RunPlan`: two stages, each bounded jointly; the second adapts."""

    plan: TargetPlan
    terms: Terms
    what = "sums of targets"
    reference = "current practice"
    stages = ("value of practice", "gain of actions")

    @property
    def exact(self) -> bool:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        return self.plan.rho is None

    def admit(self, noise: NoiseSource) -> None:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        admit_release(noise, self.plan.card.name, self.plan.card.kind, self.exact)

    def _joint(self) -> dict[str, object]:
        cost = self.plan.cost
        return {"rho_exact": None if cost is None else str(cost), **self.plan.joint()}

    def _described(self) -> list[dict[str, object]]:
        return [describe_mechanism(m) for m in self.plan.mechanisms]

    def spec(self) -> list[Any]:
        """See :class:`~pipeline.transaction.drawing.Drawing`: what is drawn, and what asks the second question."""
        return [self._joint(), self._described()]

    def charge(self) -> tuple[Fraction | None, Body]:
        """See :class:`~pipeline.transaction.drawing.Drawing`: both stages at once, whatever the first answers."""
        told: Body = {"joint": self._joint(), "epsilon": None, "mechanisms": self._described()}
        joined = [s.joining_cost for s in self.plan.stages.values()]
        return self.plan.cost, told | tell_joining(self.plan.card.kind, joined)

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        plan, (value, gain) = self.plan, self.stages

        def answer(which: Which, asked: Question | None, noise: NoiseSource) -> Release:
            return plan.stages[which].draw(sum_targets(snapshot, plan, asked, resources), noise)

        first = stage(value, lambda noise: answer("v", None, noise))
        asked = next_question(plan, first)
        return plan.joined((first, stage(gain, lambda noise: answer("q", asked, noise))), asked)

    def nightly(self) -> TargetNights:
        """See :class:`~pipeline.learners.learner.Continual`."""
        return TargetNights(self.plan, self._joint())

    def evaluation(self) -> OneStepEvaluation:
        """See :class:`~pipeline.learners.evaluation.Evaluable`."""
        card = self.plan.card
        if self.terms.nightly is not None:
            raise CardError(
                f"{self.terms.where}: [evaluate] people, under [nightly]: nights of {self.terms.agent} are measured by "
                "nobody yet; take it out, or evaluate a run without a counter"
            )
        found = OneStepEvaluation(self.plan, self.terms.held_out, settings_of(self.terms, card))
        if found.signal < LEAST:
            raise CardError(
                f"{self.terms.where}: [evaluate] people = {float(self.terms.held_out):g} of "
                f"{card.unit.users_public:,} declared people, times the root of rho, is {found.signal:,.0f}: below "
                f"{LEAST:,.0f} nothing is measured beside the noise; take it out, or ask for more"
            )
        return found

    def quote(self) -> Quote:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        card, mechanisms = self.plan.card, self.plan.mechanisms
        outlook = Outlook(
            visits_per_cell_if_even=even_visits(card, card.unit.users_public),
            noise_per_cell={m.table: m.standard_deviation for m in mechanisms},
            what_if=[],
            people_needed={},
        )
        joint, cost = Joint.model_validate(self._joint()), joint_cost(self.plan.cost, card.budget.delta)
        return Quote(listed_facts(mechanisms), self.plan.cost, cost, joint, outlook)

    def fitting(self, left: Fraction) -> Mapping[str, float] | None:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        return fitting_rho(left)

    def learn(self, release: Release) -> LearntStep:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        return learn_step(self.plan, self.terms, release)

    def unforeseen(self) -> str | None:
        """See :class:`~pipeline.learners.learner.RunPlan`: people are simulated row by row, in any world."""
        return None

    def log_size(self, episodes: int) -> int:
        """See :class:`~pipeline.learners.learner.RunPlan`: rows, and the world that is made up or loaded."""
        d = self.plan.card.domain
        return episodes * d.horizon + len(d.action_labels) * len(d.state_labels) ** 2

    def forecast(self, episodes: int, seeds: Sequence[int]) -> list[Drawn]:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        from pipeline.learners.forecast import foresee_one_step

        return foresee_one_step(self.plan, self.terms, episodes, seeds)

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """See :class:`~pipeline.learners.learner.RunPlan`: each stage, the second for a question of its own."""
        n, plan = self.terms.nightly, self.plan
        if n is not None:
            nights = min(n.nights, LEAVES)
            few = n.model_copy(update={"nights": nights, "epoch": None if n.epoch is None else min(n.epoch, nights)})
            plan = replace(plan, ask=replace(plan.ask, counter=_epochs(replace(self.terms, nightly=few))))
        return [stage_target(plan, stage) for stage in ("v", "q")]

    def whole_plan(self) -> WholePlan | None:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        n = self.terms.nightly
        if self.plan.cost is None or self.plan.rho is None:
            return None
        few = f", of a counter of {LEAVES} of {n.nights} nights" if n is not None and n.nights > LEAVES else ""
        return WholePlan(f"Each stage alone{few}", self.plan.cost, self.plan.rho)


@dataclass(frozen=True)
class TargetNights:
    """See :class:`~pipeline.transaction.continual_release.NightlySums`: values when an epoch opens, gains within it.

    A night's gains are asked with the values that opened its epoch, as they were released then.
    """

    plan: TargetPlan
    joint: Body

    @property
    def stages(self) -> Mapping[str, PrivateSum]:
        """See :class:`~pipeline.transaction.continual_release.NightlySums`."""
        return dict(zip(OneStepRun.stages, self.plan.stages.values(), strict=True))

    def leaf(self, stage: str, answers: Sequence[Release]) -> TargetLeaf:
        """See :class:`~pipeline.transaction.continual_release.NightlySums`."""
        asked = standing_question(self.plan, answers[0]) if answers else None
        return TargetLeaf(TargetSums(self.plan, asked))

    def answered(self, stage: str, drawn: Release) -> Release:
        """See :class:`~pipeline.transaction.continual_release.NightlySums`."""
        if stage != OneStepRun.stages[0]:
            return drawn
        return replace(drawn, derived={"v_value": next_question(self.plan, drawn).values})


def _epochs(terms: Terms) -> Epochs | None:
    """Of a counter, its epochs: one of all nights where the recipe names none."""
    n = terms.nightly
    return None if n is None else Epochs(n.nights, n.epoch or n.nights, n.counter)
