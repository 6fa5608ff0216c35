"""An LQ release for the curator: priced from its plan, drawn once from the rows of a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pipeline.learners.lq_request import LqRequest
from pipeline.logs.regression_sums import lazy_lq_sums
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.privacy.noise import NoiseSource, admit_release
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.lq_moments import drawn_lq


@dataclass(frozen=True)
class LqDrawing:
    """See :class:`~pipeline.transaction.release_once.Drawing`."""

    request: LqRequest

    @property
    def exact(self) -> bool:
        """See :class:`~pipeline.transaction.release_once.Drawing`."""
        return self.request.plan.ask.rho is None

    def admit(self, noise: NoiseSource) -> None:
        """See :class:`~pipeline.transaction.release_once.Drawing`."""
        admit_release(noise, self.request.card.name, self.request.card.kind, self.exact)

    def spec(self) -> list[Any]:
        """See :class:`~pipeline.transaction.release_once.Drawing`: how rows are cut, what is drawn."""
        return [self.request.joint(), [describe_mechanism(m) for m in self.request.mechanisms()]]

    def charge(self) -> tuple[Fraction | None, dict[str, Any]]:
        """See :class:`~pipeline.transaction.release_once.Drawing`."""
        r = self.request
        told = {"joint": r.joint(), "epsilon": None, "mechanisms": [describe_mechanism(m) for m in r.mechanisms()]}
        return r.rho, told

    def draw(self, snapshot: Snapshot, noise: NoiseSource, means: Resources) -> Release:
        """See :class:`~pipeline.transaction.release_once.Drawing`."""
        r = self.request
        return drawn_lq(r.plan, lazy_lq_sums(r.plan, snapshot, r.card, means), noise)
