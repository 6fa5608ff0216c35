"""What a run's folder says of a linear policy: its weights, and the same policy state by state."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flows.jobs.decisions import decision_facts, tabular_truth
from flows.jobs.folder import DECISIONS, write_decisions, write_json
from flows.jobs.linear import planner_facts, policy_columns, policy_facts, value_facts
from flows.jobs.linear_view import linear_view
from pipeline.declaration.card import Card
from pipeline.learners.linear_learning import LinearLearnt
from pipeline.learners.linear_request import LinearRequest
from reports.facts.dataset import DeclaredTables, declared
from reports.facts.learnt import Baseline, Constants, FeatureFacts, LearntFacts, Truth, ValueFacts
from reports.facts.policy import Decisions
from reports.facts.promise import Joint

_STAND_IN = (
    "not enough evidence: keep current practice; the probabilities there are the planner's own choice, so that the "
    "policy can be evaluated"
)


@dataclass(frozen=True)
class LinearPages:
    """See :class:`~flows.jobs.publish.Pages`."""

    card: Card
    request: LinearRequest
    learnt: LinearLearnt

    def write(self, folder: Path) -> tuple[str, ...]:
        """See :class:`~flows.jobs.publish.Pages`: the decisions have a digest of their own."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = policy_columns(self.request, self.learnt)
        pq.write_table(pa.table(dict(columns)), folder / "policy.parquet", compression="zstd")
        labels = write_decisions(folder / DECISIONS, self.card, self.learnt.policy)
        write_json(folder / "policy.json", labels | {"abstention": _STAND_IN} | policy_facts(self.request, self.learnt))
        return ("policy", "decisions")

    def facts(self) -> LearntFacts:
        """See :class:`~flows.jobs.publish.Pages`: what the release cost jointly, and the feature map in words."""
        map_, rho = self.card.features, self.request.rho
        assert map_ is not None
        size = self.request.plan.features.dimension
        return LearntFacts(
            constants=Constants.model_validate(planner_facts(self.request, self.learnt)),
            value=ValueFacts.model_validate(value_facts(self.card, self.request, self.learnt)),
            model_baselines={name: Baseline.model_validate(b) for name, b in self.learnt.baselines.items()},
            joint=Joint(rho_exact=None if rho is None else str(rho)),
            features=FeatureFacts(kind=map_.kind, dimension=size, balanced=map_.balanced),
            policy=decision_facts(self.learnt.policy, self.learnt.result.tied),
        )

    def view(self) -> Decisions:
        """See :class:`~flows.jobs.publish.Pages`."""
        data, r = declared(self.card, None), self.request
        assert isinstance(data, DeclaredTables)
        weights = policy_columns(r, self.learnt)["weight"].reshape(len(self.learnt.result.backups), -1)
        integers = r.task.reference.astype(np.int64)
        return linear_view(data, self.learnt.policy, self.learnt.result.tied, weights, integers, (r.task.unit, r.unit))

    def truth(self, world: str, behaviour: str) -> Truth:
        """See :class:`~flows.jobs.publish.Pages`."""
        return tabular_truth(self.card, world, behaviour, self.learnt.policy)
