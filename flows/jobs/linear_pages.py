"""What a run's folder says of a linear policy: its weights, and the same policy state by state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.jobs.decisions import decision_facts, tabular_truth
from flows.jobs.folder import DECISIONS, write_decisions, write_json
from flows.jobs.linear import planner_facts, policy_columns, policy_facts, value_facts
from pipeline.declaration.card import Card
from pipeline.learners.linear_learning import LinearLearnt
from pipeline.learners.linear_request import LinearRequest

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

    def learnt_facts(self) -> dict[str, Any]:
        """See :class:`~flows.jobs.publish.Pages`."""
        return {
            "constants": planner_facts(self.request, self.learnt),
            "value": value_facts(self.card, self.request, self.learnt),
            "model_baselines": self.learnt.baselines,
        }

    def checked_facts(self) -> Mapping[str, Any]:
        """See :class:`~flows.jobs.publish.Pages`: what the release cost jointly, and the feature map in words."""
        map_, rho = self.card.features, self.request.rho
        assert map_ is not None
        words = {"kind": map_.kind, "dimension": self.request.plan.features.dimension, "balanced": map_.balanced}
        return {"joint": {"rho_exact": None if rho is None else str(rho)}, "features": words}

    def policy_facts(self) -> dict[str, Any]:
        """See :class:`~flows.jobs.publish.Pages`."""
        return decision_facts(self.learnt.policy, self.learnt.result.tied)

    def truth(self, world: str, behaviour: str) -> dict[str, float]:
        """See :class:`~flows.jobs.publish.Pages`."""
        return tabular_truth(self.card, world, behaviour, self.learnt.policy)
