"""What a run's folder says of linear gains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flows.jobs.lq import planner_facts, value_facts
from flows.jobs.lq_folder import write_gains
from pipeline.learners.lq_learning import LqLearnt
from pipeline.learners.lq_request import LqRequest
from reports.facts.learnt import Baseline, LearntFacts, PlantConstants, PlantModel, PolicyFacts, Truth, ValueFacts
from reports.facts.policy import Gains
from reports.facts.promise import Joint


@dataclass(frozen=True)
class LqPages:
    """See :class:`~flows.jobs.publish.Pages`."""

    request: LqRequest
    learnt: LqLearnt

    def write(self, folder: Path) -> tuple[str, ...]:
        """See :class:`~flows.jobs.publish.Pages`."""
        write_gains(folder, self.request.card, self.learnt.result.gains, self.request.plan.domain.bounds)
        return ("policy",)

    def facts(self) -> LearntFacts:
        """See :class:`~flows.jobs.publish.Pages`: a linear controller neither abstains nor ties."""
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
        """See :class:`~flows.jobs.publish.Pages`."""
        d = self.request.card.domain
        return Gains(d.observation.labels, d.action.labels, self.learnt.result.gains)

    def truth(self, world: str, behaviour: str) -> Truth:
        """See :class:`~flows.jobs.publish.Pages`."""
        from pipeline.learners.lq_truth import lq_truth

        return Truth.model_validate(lq_truth(self.request, world, behaviour, self.learnt.result.gains))
