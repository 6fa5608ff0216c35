"""What a run's folder says of linear gains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.jobs.lq import planner_facts, value_facts
from flows.jobs.lq_folder import write_gains
from pipeline.learners.lq_learning import LqLearnt
from pipeline.learners.lq_request import LqRequest


@dataclass(frozen=True)
class LqPages:
    """See :class:`~flows.jobs.publish.Pages`."""

    request: LqRequest
    learnt: LqLearnt

    def write(self, folder: Path) -> tuple[str, ...]:
        """See :class:`~flows.jobs.publish.Pages`."""
        write_gains(folder, self.request.card, self.learnt.result.gains, self.request.plan.domain.bounds)
        return ("policy",)

    def learnt_facts(self) -> dict[str, Any]:
        """See :class:`~flows.jobs.publish.Pages`."""
        return {
            "constants": planner_facts(self.request, self.learnt),
            "value": value_facts(self.learnt),
            "model_baselines": {name: dict(found) for name, found in self.learnt.baselines.items()},
        }

    def checked_facts(self) -> Mapping[str, Any]:
        """See :class:`~flows.jobs.publish.Pages`: what the release cost jointly, and the model it led to."""
        r = self.learnt.result
        return {"joint": self.request.joint(), "model": {"A": r.A.tolist(), "B": r.B.tolist()}}

    def policy_facts(self) -> dict[str, Any]:
        """See :class:`~flows.jobs.publish.Pages`: a linear controller neither abstains nor ties."""
        return {"abstain_share": 0.0, "tie_share": 0.0, "left_zero": self.learnt.left_zero}

    def truth(self, world: str, behaviour: str) -> dict[str, float]:
        """See :class:`~flows.jobs.publish.Pages`."""
        from pipeline.learners.lq_truth import lq_truth

        return lq_truth(self.request, world, behaviour, self.learnt.result.gains)
