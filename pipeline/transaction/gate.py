"""What must hold before a release: its snapshot is of this card, and the gate lets its log pass (privacy.md §0.2-2).

Noisy counts of people stop a run whose log breaks its card.  The gate's answer is a release of its own, with its own
INTENT and key: it is charged before a row is looked at, committed, and reused by every retry.  What follows from it is
post-processing: raising a tolerance draws nothing again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pipeline.declaration.card import AnyCard, CardError
from pipeline.declaration.toml import LogError
from pipeline.ledger.account import claims_needed
from pipeline.ledger.chain import Body, Entry
from pipeline.ledger.people import apart_from
from pipeline.logs.rules import BY_NAME
from pipeline.logs.store import Snapshot, source_hash
from pipeline.logs.summing import Resources
from pipeline.privacy.noise import NoiseSource, RealDataError
from pipeline.privacy.release import Release, total_epsilon, total_rho
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.layout import TABLE, ExactSums, GateLayout
from pipeline.statistics.private_sum import PrivateSum, tell_joining
from pipeline.transaction.drawing import WHOLE, Stage

# a log that fits its card is stopped less than once in 30,000 times a rule
_DEVIATIONS = 4


class GateError(LogError):
    """The gate stopped a run: its log breaks the card.  The gate's share is spent, the rest of the budget is not."""


@dataclass(frozen=True)
class Gate:
    """A :class:`~pipeline.transaction.drawing.Drawing`: how many people broke the rules that the card tolerates.

    Parameters
    ----------
    card
        Its [tolerance], here a share of its declared people.
    layout
        What is counted.
    counts
        The same with its noise; none at all for synthetic people, who are owed no promise.
    """

    card: AnyCard
    layout: GateLayout
    counts: PrivateSum
    stages = WHOLE

    @property
    def exact(self) -> bool:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        return self.counts.exact

    def admit(self, noise: NoiseSource) -> None:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        self.counts.admit(noise)

    def spec(self) -> list[Any]:
        """See :class:`~pipeline.transaction.drawing.Drawing`: whose tolerance it is compared with is free."""
        # as for count tables: another cap of the lineage is no other release
        return [{k: v for k, v in m.items() if k != "delta_slack"} for m in self._described()]

    def charge(self) -> tuple[Fraction | None, Body]:
        """See :class:`~pipeline.transaction.drawing.Drawing`."""
        mechanisms = self.counts.mechanisms
        pure = total_epsilon(mechanisms)
        told = {"mechanisms": self._described(), "epsilon": None if pure is None else str(pure)}
        return total_rho(mechanisms), told | tell_joining(self.layout.data_kind, [self.counts.joining_cost])

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        """See :class:`~pipeline.transaction.drawing.Drawing`: the people were counted by ingest."""
        people = self.layout.count(snapshot.set_aside)
        sums = ExactSums(snapshot.dataset, snapshot.kind, self.layout.dynamics, people)
        return stage(WHOLE[0], lambda noise: self.counts.draw(sums, noise))

    def check(self, answer: Release) -> None:
        """Stop a run.

        Raises
        ------
        GateError
            If more people broke a rule than the card tolerates, by more than four standard deviations of the noise.
        """
        (mechanism,) = answer.mechanisms
        noise = _DEVIATIONS * mechanism.standard_deviation
        for rule, found in zip(self.layout.rules, answer.tables[TABLE], strict=True):
            accepted = self.card.tolerance[rule] * self.card.unit.users_public
            if found > accepted + noise:
                raise GateError(
                    f"{self.card.name}: {rule} ({BY_NAME[rule].meaning}): rows of about {found:,} people; the card "
                    f"accepts {accepted:,.0f}, give or take {noise:,.0f} for the noise. `reticent inspect` shows which "
                    f"rows; mend them and ingest again, or raise tolerance.{rule}. Only the gate was charged"
                )

    def _described(self) -> list[dict[str, object]]:
        return [describe_mechanism(m) for m in self.counts.mechanisms]


def claims_told(entries: Sequence[Entry], card: AnyCard, snapshots: Sequence[Snapshot]) -> dict[str, bool]:
    """What an INTENT says of whose people its rows are; refuses rows of people who may be counted elsewhere.

    Parameters
    ----------
    entries, card
        Of the ledger, and of the dataset.
    snapshots
        Whose rows are read.

    Raises
    ------
    CardError
        If the dataset was declared disjoint from another after such a snapshot was ingested.
    """
    claimed = min((s.claimed for s in snapshots), default=0)
    apart = apart_from(entries, card.name)
    if apart and snapshots and claimed < 1 + claims_needed(entries, card.name):
        raise CardError(
            f"{card.name}: ingested before it was declared disjoint from {', '.join(sorted(apart))}, so people may be "
            "counted in both; ingest again. Nothing was charged"
        )
    # a night on which nothing came in read nobody's rows
    return {"claimed": True} if claimed or (card.kind == "real" and not snapshots) else {}


def check_snapshot(snapshot: Snapshot | None, card: AnyCard, edition: int) -> Snapshot:
    """Refuse a snapshot of another card: caps are applied at ingest, so it voids every sensitivity of this one.

    Parameters
    ----------
    snapshot
        The ingest that is to be released from, None where it is gone; the caller holds the lineage's lock.
    card
        What the dataset declares now.
    edition
        Number of the snapshot.

    Returns
    -------
    The snapshot.

    Raises
    ------
    CardError
        If it was ingested under another card, or was purged.
    RealDataError
        If it was ingested as data of another kind.
    """
    if snapshot is None:
        raise CardError(f"{card.name}: there is no snapshot {edition}: purged? Ingest again; nothing was charged")
    if snapshot.kind != card.kind:
        raise RealDataError(f"{card.name}: the snapshot was ingested as {snapshot.kind}, the card says {card.kind}")
    if (snapshot.dataset, snapshot.domain_hash) != (card.name, card.domain_hash()):
        raise CardError(f"{card.name}: snapshot {edition} was ingested under another card; ingest again")
    return snapshot


def check_source(snapshot: Snapshot, card: AnyCard) -> None:
    """Refuse a snapshot that was read in another way than the card says now.

    Parameters
    ----------
    snapshot, card
        The ingest, and what the dataset declares now.

    Raises
    ------
    CardError
        If [source] was edited since.
    """
    if snapshot.source_hash not in ("", source_hash(card)):
        raise CardError(
            f"{card.name}: [source] was edited since snapshot {snapshot.number} was ingested; ingest again, or put "
            "[source] back. Nothing was charged"
        )
