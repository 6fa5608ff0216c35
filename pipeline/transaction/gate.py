"""What lets a release be drawn: noisy counts of the people whose log breaks its card (privacy.md §0.2-2).

Too many of them stop a run.  The gate's answer is a release of its own, with its own INTENT and key: it is charged
before a row is looked at, committed, and reused by every retry.  What follows from it is post-processing: raising a
tolerance draws nothing again.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pipeline.declaration.card import AnyCard
from pipeline.declaration.toml import LogError
from pipeline.ledger.chain import Body
from pipeline.logs.rules import BY_NAME
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import SET_ASIDE, Release, total_epsilon, total_rho
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.layout import ExactSums, GateLayout
from pipeline.statistics.private_sum import PrivateSum, tell_joining
from pipeline.transaction.drawing import WHOLE, Stage

# a log that fits its card is stopped less than once in 30,000 times a rule
_DEVIATIONS = 4


class GateError(LogError):
    """The gate stopped a run: its log breaks the card.  The gate's share is spent, the rest of the budget is not."""


@dataclass(frozen=True)
class Gate:
    """A :class:`~pipeline.transaction.drawing.Drawing`: how many people broke the rules that the card tolerates.

    ``card``: its [tolerance], here a share of its declared people.
    """

    card: AnyCard
    layout: GateLayout
    counts: PrivateSum
    stages = WHOLE

    @property
    def exact(self) -> bool:
        return self.counts.exact

    def admit(self, noise: NoiseSource) -> None:
        self.counts.admit(noise)

    def spec(self) -> list[Any]:
        """Whose tolerance it is compared with is free."""
        # as for count tables: another cap of the lineage is no other release
        return [{k: v for k, v in m.items() if k != "delta_slack"} for m in self._described()]

    def charge(self) -> tuple[Fraction | None, Body]:
        mechanisms = self.counts.mechanisms
        pure = total_epsilon(mechanisms)
        told = {"mechanisms": self._described(), "epsilon": None if pure is None else str(pure)}
        return total_rho(mechanisms), told | tell_joining(self.layout.data_kind, [self.counts.joining_cost])

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        """The people were counted by ingest."""
        people = self.layout.count(snapshot.set_aside)
        sums = ExactSums(snapshot.dataset, snapshot.kind, self.layout.dynamics, people)
        return stage(WHOLE[0], lambda noise: self.counts.draw(sums, noise))

    def check(self, answer: Release) -> None:
        """Stop a run.

        Raises GateError if more people broke a rule than the card tolerates, by more than four standard deviations of
        the noise.
        """
        (mechanism,) = answer.mechanisms
        noise = _DEVIATIONS * mechanism.standard_deviation
        for rule, found in zip(self.layout.rules, answer.tables[SET_ASIDE], strict=True):
            accepted = self.card.tolerance[rule] * self.card.unit.users_public
            if found > accepted + noise:
                raise GateError(
                    f"{self.card.name}: {rule} ({BY_NAME[rule].meaning}): rows of about {found:,} people; the card "
                    f"accepts {accepted:,.0f}, give or take {noise:,.0f} for the noise. `reticent inspect` shows which "
                    f"rows; mend them and ingest again, or raise tolerance.{rule}. Only the gate was charged"
                )

    def _described(self) -> list[dict[str, object]]:
        return [describe_mechanism(m) for m in self.counts.mechanisms]
