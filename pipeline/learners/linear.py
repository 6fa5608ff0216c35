"""Linear agents: regressions on declared features, asked one by one by an adaptive planner, or all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

from pipeline.audits.attack import AuditTarget, WholePlan
from pipeline.audits.regressions import linear_cost, linear_target
from pipeline.declaration.card import AnyCard, CardError, require_tabular
from pipeline.learners.learner import Outlook, Quote, fitting_rho, joint_cost, listed_facts, table_size
from pipeline.learners.linear_evaluation import LinearEvaluation
from pipeline.learners.linear_learning import LinearLearnt, drawn, learn_linear
from pipeline.learners.linear_request import LinearMethod, LinearRequest, linear_request
from pipeline.learners.terms import Linear, Privacy, Terms
from pipeline.ledger.chain import Body
from pipeline.logs.observed_rows import ObservedRows
from pipeline.logs.regression_sums import tally
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.privacy.noise import NoiseSource, admit_release
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.held_out import PartFacts
from pipeline.statistics.joint_loss import RegressionFacts
from pipeline.statistics.linear_calibration import true_rho
from pipeline.statistics.private_sum import tell_joining
from pipeline.statistics.regression_rows import Side, StreamRows, TalliedRows, Tallies
from pipeline.transaction.drawing import WHOLE, Stage
from reports.facts.plan import CallFacts
from reports.facts.promise import Joint, MechanismFacts

if TYPE_CHECKING:
    from pipeline.simulation.surrogate import Drawn

# of a plan under attack
_STEPS = 2
# cells of the counts by which other people evaluate: more drown in noise, and take minutes
_MOST_COUNTED = 10_000_000


@dataclass(frozen=True)
class LinearLearner:
    """See :class:`~pipeline.learners.learner.Learner`.

    Parameters
    ----------
    method
        The planner, which decides what is asked.
    """

    method: LinearMethod
    continual: bool = False
    section: str | None = "linear"

    def check(self, terms: Terms) -> None:
        """See :class:`~pipeline.learners.learner.Learner`."""
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

    def plan(self, card: AnyCard, terms: Terms) -> LinearRun:
        """See :class:`~pipeline.learners.learner.Learner`."""
        return LinearRun(linear_request(require_tabular(card), terms, self.method), terms)


def check_gaussian(agent: str, p: Privacy | None) -> None:
    """Refuse settings that only count tables have.

    Parameters
    ----------
    agent
        Its name, for the message.
    p
        The budget; None of an agent without noise.

    Raises
    ------
    ValueError
        If the budget is pure, or splits or samples as only count tables do.
    """
    if p is not None and p.rho is None and not p.delta:
        raise ValueError(f"[privacy]: {agent} draws Gaussian noise: give 'rho', or 'epsilon' with 'delta'")
    if p is not None and (p.split is not None or p.sampler == "table"):
        raise ValueError("[privacy]: 'split' and sampler = 'table' belong to count tables")


@dataclass(frozen=True)
class LinearRun:
    """See :class:`~pipeline.learners.learner.RunPlan`: the calls of a planner, bounded together."""

    request: LinearRequest
    terms: Terms
    what = "sums"
    reference = "uniform choice"
    stages = WHOLE

    @property
    def exact(self) -> bool:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        return self.request.plan.rho is None

    def admit(self, noise: NoiseSource) -> None:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        admit_release(noise, self.request.card.name, self.request.card.kind, self.exact)

    def spec(self) -> list[Any]:
        """The release's own terms where re-planning is free; the whole planner where it is not (privacy.md §0.1-4)."""
        r = self.request
        if (listed := r.mechanisms()) is not None:
            return [r.joint(), [describe_mechanism(m) for m in listed]]
        return [r.joint(), r.calls(), r.planner_facts().model_dump()]

    def charge(self) -> tuple[Fraction | None, Body]:
        """See :class:`~pipeline.transaction.drawing.Drawing`: planned calls, or mechanisms where known."""
        r = self.request
        told = {"joint": r.joint(), "epsilon": None, **tell_joining(r.card.kind, r.joining())}
        if (listed := r.mechanisms()) is not None:
            return r.rho, told | {"mechanisms": [describe_mechanism(m) for m in listed]}
        return r.rho, told | {"planned_calls": r.calls(), "planner": r.planner_facts().model_dump()}

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        r, asked = self.request, self.request.plan.terms
        split = asked.halves and r.adaptive

        if r.observed is not None:
            batches = ObservedRows(snapshot, r.card, r.observed, resources, None if r.adaptive else r.plan.onto)
            observed = StreamRows(batches, r.observed.dimension, snapshot.kind)
            return stage("release", lambda noise: drawn(r, observed, noise))

        def sums() -> dict[Side, Tallies]:
            steps = r.plan.reward_steps
            return tally(snapshot, r.card, asked.value_steps, steps, split=split, resources=resources)

        return stage("release", lambda noise: drawn(r, TalliedRows(r.features, sums, snapshot.kind), noise))

    def quote(self) -> Quote:
        """See :class:`~pipeline.learners.learner.RunPlan`: one row a call, or a table where nothing adapts."""
        r = self.request
        joint, cost = Joint.model_validate(r.joint()), joint_cost(r.rho, r.card.budget.delta)
        return Quote(_planned(r), r.rho, cost, joint, Outlook(what_if=[], people_needed={}))

    def fitting(self, left: Fraction) -> Mapping[str, float] | None:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        return fitting_rho(left)

    def learn(self, release: Release) -> LinearLearnt:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        return learn_linear(self.request, release)

    def part(self) -> PartFacts | None:
        """See :class:`~pipeline.learners.evaluation.Regressing`."""
        rho, joining = self.request.rho, self.request.joining()
        if rho is None or None in joining:
            return None
        whole = sum((c for c in joining if c is not None), Fraction(0))
        facts = cast("RegressionFacts", self.request.joint())
        return {"rho_exact": str(rho), "rho_add_remove": str(whole), "sums": [], "regressions": facts}

    def evaluation(self) -> LinearEvaluation:
        """See :class:`~pipeline.learners.evaluation.Evaluable`."""
        if (cells := table_size(self.request.card)) > _MOST_COUNTED:
            raise CardError(
                f"{self.terms.where}: [evaluate] people = {float(self.terms.held_out):g}: who evaluates is counted by "
                f"step, state, action and successor, which are {cells:,} cells; up to {_MOST_COUNTED:,} are drawn"
            )
        return LinearEvaluation(self.request, self.terms)

    def unforeseen(self) -> str | None:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        features, observed = self.request.card.features, self.request.observed is not None
        if observed and self.terms.known is not None:
            return "no world of [evaluate] shows observations; leave it out for a made-up one that does"
        if features is None or (features.kind != "one_hot" and self.terms.known is None and not observed):
            return "a made-up world is not linear in these features; declare one in [evaluate], or one_hot features"
        if self.terms.linear is not None and self.terms.linear.halves:
            return "halves = true: a log is simulated as sums, which cannot be split by person"
        return None

    def log_size(self, episodes: int) -> int:
        """See :class:`~pipeline.learners.learner.RunPlan`: that of its tables, however many episodes."""
        card = self.request.card
        if self.request.observed is not None:
            from pipeline.simulation.surrogate import places_of

            card = places_of(card).card
        return table_size(card)

    def forecast(self, episodes: int, seeds: Sequence[int]) -> list[Drawn]:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        from pipeline.learners.forecast import foresee_linear

        return foresee_linear(self.request, self.terms, episodes, seeds)

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """See :class:`~pipeline.learners.learner.RunPlan`: every step is released alike, and by the same code."""
        plan = self.request.plan
        # a plan of two steps has each kind of call
        return [linear_target(replace(plan, domain=replace(plan.domain, horizon=min(plan.domain.horizon, _STEPS))))]

    def whole_plan(self) -> WholePlan | None:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        plan = self.request.plan
        claimed = true_rho(plan)
        if claimed is None or plan.domain.horizon <= _STEPS:
            return None
        return WholePlan(f"A plan of {_STEPS} of {plan.domain.horizon} steps", linear_cost(plan), claimed)


def _planned(request: LinearRequest) -> Sequence[MechanismFacts | CallFacts]:
    if (listed := request.mechanisms()) is not None:
        return listed_facts(listed)
    rows: list[CallFacts] = []
    for call in request.calls():
        rho = None if call["rho"] in (None, "None") else Fraction(str(call["rho"]))
        told = {key: call[key] for key in ("name", "sensitivity", "tables", "adaptive")}
        exact = {"rho": None if rho is None else float(rho), "rho_exact": None if rho is None else str(rho)}
        rows.append(CallFacts.model_validate(told | exact))
    return rows
