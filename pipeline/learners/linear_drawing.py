"""A linear release for the curator: priced from its plan, drawn from the tallies of a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pipeline.learners.linear_learning import drawn
from pipeline.learners.linear_request import LinearRequest
from pipeline.logs.regression_sums import tally
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.privacy.noise import NoiseSource, admit_release
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.rows import Side, TalliedRows, Tallies


@dataclass(frozen=True)
class LinearDrawing:
    """See :class:`~pipeline.transaction.release_once.Drawing`."""

    request: LinearRequest

    @property
    def exact(self) -> bool:
        """See :class:`~pipeline.transaction.release_once.Drawing`."""
        return self.request.plan.ask.rho is None

    def admit(self, noise: NoiseSource) -> None:
        """See :class:`~pipeline.transaction.release_once.Drawing`."""
        admit_release(noise, self.request.card.name, self.request.card.kind, self.exact)

    def spec(self) -> list[Any]:
        """The release's own terms where re-planning is free; the whole planner where it is not (privacy.md §0.1-4)."""
        r = self.request
        if (listed := r.mechanisms()) is not None:
            return [r.joint(), [describe_mechanism(m) for m in listed]]
        return [r.joint(), r.calls(), r.planner_facts()]

    def charge(self) -> tuple[Fraction | None, dict[str, Any]]:
        """See :class:`~pipeline.transaction.release_once.Drawing`: planned calls, or mechanisms where known."""
        r = self.request
        told: dict[str, Any] = {"joint": r.joint(), "epsilon": None}
        if (listed := r.mechanisms()) is not None:
            return r.rho, told | {"mechanisms": [describe_mechanism(m) for m in listed]}
        return r.rho, told | {"planned_calls": r.calls(), "planner": r.planner_facts()}

    def draw(self, snapshot: Snapshot, noise: NoiseSource, means: Resources) -> Release:
        """See :class:`~pipeline.transaction.release_once.Drawing`."""
        r, ask = self.request, self.request.plan.ask
        split = ask.split and r.adaptive

        def sums() -> dict[Side, Tallies]:
            steps = r.plan.reward_steps
            return tally(snapshot, r.card, ask.value_steps, steps, split=split, means=means)

        return drawn(r, TalliedRows(r.features, sums, snapshot.kind), noise)
