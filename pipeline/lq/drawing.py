"""An LQ release for the curator: priced from its plan, drawn once from the rows of a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pipeline.curate import Progress
from pipeline.logs.lq_rows import SnapshotRows
from pipeline.logs.store import Snapshot
from pipeline.lq.request import LqRequest
from pipeline.privacy.noise import NoiseSource, admit_release
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.lq_moments import drawn_lq


@dataclass(frozen=True)
class LqDrawing:
    """See :class:`~pipeline.curate.Drawing`."""

    request: LqRequest

    @property
    def exact(self) -> bool:
        """See :class:`~pipeline.curate.Drawing`."""
        return self.request.plan.ask.rho is None

    def admit(self, noise: NoiseSource) -> None:
        """See :class:`~pipeline.curate.Drawing`."""
        admit_release(noise, self.request.card.name, self.request.card.kind, self.exact)

    def spec(self) -> list[Any]:
        """See :class:`~pipeline.curate.Drawing`: how rows are cut and what is drawn; planning again is free."""
        return [self.request.joint(), [describe_mechanism(m) for m in self.request.mechanisms()]]

    def charge(self) -> tuple[Fraction | None, dict[str, Any]]:
        """See :class:`~pipeline.curate.Drawing`."""
        r = self.request
        told = {"joint": r.joint(), "epsilon": None, "mechanisms": [describe_mechanism(m) for m in r.mechanisms()]}
        return r.rho, told

    def draw(self, snapshot: Snapshot, noise: NoiseSource, progress: Progress | None) -> Release:
        """See :class:`~pipeline.curate.Drawing`."""
        return drawn_lq(self.request.plan, SnapshotRows(snapshot, self.request.card, progress), noise)
