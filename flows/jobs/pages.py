"""What a run's folder says of a policy learnt from counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.jobs.containment import containment, setting_key
from flows.jobs.decisions import decision_facts, practice_facts, tabular_truth
from flows.jobs.folder import write_policy
from pipeline.declaration.card import Card
from pipeline.learners.tabular_learning import Learnt, planner_facts
from pipeline.learners.terms import Terms
from reports.facts import measured, proved, value_facts


@dataclass(frozen=True)
class CountsPages:
    """See :class:`~flows.jobs.publish.Pages`."""

    card: Card
    terms: Terms
    learnt: Learnt

    def write(self, folder: Path) -> tuple[str, ...]:
        """See :class:`~flows.jobs.publish.Pages`."""
        write_policy(folder, self.card, self.learnt.plan.policy)
        return ("policy",)

    def learnt_facts(self) -> dict[str, Any]:
        """See :class:`~flows.jobs.publish.Pages`."""
        settings = self.terms.planner
        # theorem and measurements are of one release, not of a sum of nights
        once = self.terms.nightly is None
        row = measured(containment(self.card), setting_key(self.card, self.terms)) if once else None
        return {
            "constants": planner_facts(self.learnt, settings),
            "value": value_facts(
                self.card,
                self.learnt.value,
                is_proved=once and proved(self.card, settings, self.terms.ask()),
                row=row,
            ),
            "model_baselines": self.learnt.baselines,
            "practice": practice_facts(self.learnt.against, self.learnt.plan.policy),
        }

    def checked_facts(self) -> Mapping[str, Any]:
        """See :class:`~flows.jobs.publish.Pages`: the certificate of the consistency step."""
        found = self.learnt.consistency
        return {
            "consistency": {
                "solver": found.solver,
                "cells": sum(found.cells.values()),
                "certified": sum(found.certified.values()),
                "cases": {
                    case: {"cells": found.cells[case], "certified": found.certified[case]} for case in found.cells
                },
                "largest_relative_difference": decade_above(found.largest_relative_difference),
                "tolerance": found.tolerance,
            }
        }

    def policy_facts(self) -> dict[str, Any]:
        """See :class:`~flows.jobs.publish.Pages`."""
        return decision_facts(self.learnt.plan.policy, self.learnt.plan.tied)

    def truth(self, world: str, behaviour: str) -> dict[str, float]:
        """See :class:`~flows.jobs.publish.Pages`."""
        return tabular_truth(self.card, world, behaviour, self.learnt.plan.policy)


def decade_above(difference: float) -> float:
    """The next power of ten, at least 1e-12: which cells were drawn must not change a page of the same release."""
    return max(1e-12, 10.0 ** math.ceil(math.log10(difference))) if difference > 0 else 1e-12
