"""LQ agents: sums of squares of observations and controls, and certainty equivalence on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pipeline.audits.attack import AuditTarget, WholePlan
from pipeline.audits.regressions import lq_target
from pipeline.declaration.card import AnyCard, require_linear_quadratic
from pipeline.learners.learner import Outlook, Quote, fitting_rho, joint_cost, listed_facts
from pipeline.learners.linear import check_gaussian
from pipeline.learners.lq_learning import LqLearnt, LqRequest, learn_lq, lq_request
from pipeline.learners.terms import Lq, Terms
from pipeline.ledger.chain import Body
from pipeline.logs.regression_sums import lazy_lq_sums
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.privacy.noise import NoiseSource, admit_release
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.lq_moments import draw_lq
from pipeline.statistics.private_sum import tell_joining
from pipeline.transaction.drawing import WHOLE, Stage
from reports.facts.promise import Joint

if TYPE_CHECKING:
    from pipeline.simulation.surrogate import Drawn


@dataclass(frozen=True)
class LqLearner:
    """See :class:`~pipeline.learners.learner.Learner`."""

    continual: bool = False
    section: str | None = "lq"

    def check(self, terms: Terms) -> None:
        """See :class:`~pipeline.learners.learner.Learner`."""
        agent, p = terms.agent, terms.privacy
        check_gaussian(agent, p)
        if p is not None and (p.calibration, p.release) != ("tight", "one_table"):
            raise ValueError(f"[privacy]: 'calibration' and 'release' do not apply: {agent} makes one release, tight")

    def plan(self, card: AnyCard, terms: Terms) -> LqRun:
        """See :class:`~pipeline.learners.learner.Learner`."""
        plant, chosen = require_linear_quadratic(card), terms.lq or Lq()
        rho = terms.ask_for(card).zcdp()
        return LqRun(lq_request(plant, terms.agent, rho, chosen), terms)


@dataclass(frozen=True)
class LqRun:
    """See :class:`~pipeline.learners.learner.RunPlan`: two tables of sums, bounded together."""

    request: LqRequest
    terms: Terms
    what = "sums of rows"
    reference = "no control"
    stages = WHOLE

    @property
    def exact(self) -> bool:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        return self.request.plan.rho is None

    def admit(self, noise: NoiseSource) -> None:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        admit_release(noise, self.request.card.name, self.request.card.kind, self.exact)

    def _described(self) -> list[dict[str, object]]:
        return [describe_mechanism(m) for m in self.request.plan.summed.mechanisms]

    def spec(self) -> list[Any]:
        """See :class:`~pipeline.transaction.drawing.Drawing`: how rows are cut, what is drawn."""
        return [self.request.joint(), self._described()]

    def charge(self) -> tuple[Fraction | None, Body]:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        told = {"joint": self.request.joint(), "epsilon": None, "mechanisms": self._described()}
        return self.request.rho, told | tell_joining(self.request.card.kind, [self.request.plan.summed.joining_cost])

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        r = self.request
        return stage("release", lambda noise: draw_lq(r.plan, lazy_lq_sums(r.plan, snapshot, r.card, resources), noise))

    def quote(self) -> Quote:
        """See :class:`~pipeline.learners.learner.RunPlan`: also how far the rows reach beside the noise."""
        r = self.request
        most = 2 * r.plan.domain.episodes * r.plan.domain.horizon
        outlook = Outlook(what_if=[], people_needed={}, most_squares=most, squares_a_direction_needs=r.floor)
        joint, cost = Joint.model_validate(r.joint()), joint_cost(r.rho, r.card.budget.delta)
        return Quote(listed_facts(r.plan.summed.mechanisms), r.rho, cost, joint, outlook)

    def fitting(self, left: Fraction) -> Mapping[str, float] | None:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        return fitting_rho(left)

    def learn(self, release: Release) -> LqLearnt:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        return learn_lq(self.request, release)

    def unforeseen(self) -> str | None:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        if self.terms.known is None:
            return "the card declares no A and B: without [evaluate] there is no plant to simulate"
        return None

    def log_size(self, episodes: int) -> int:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        d = self.request.card.domain
        return episodes * d.horizon * (d.observation.size + d.action.size) // 4

    def forecast(self, episodes: int, seeds: Sequence[int]) -> list[Drawn]:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        from pipeline.learners.forecast import foresee_lq

        assert self.terms.known is not None
        return foresee_lq(self.request, self.terms.known, episodes, seeds)

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """See :class:`~pipeline.learners.learner.RunPlan`."""
        return [lq_target(self.request.plan)]

    def whole_plan(self) -> WholePlan | None:
        """See :class:`~pipeline.learners.learner.RunPlan`: the plan itself is attacked."""
        return None
