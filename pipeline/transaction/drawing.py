"""Drawings: releases of a snapshot, each with a price before a row is read, stages, and one draw.

The gate before a release: noisy counts of the people whose log breaks its card (privacy.md §0.2-2).

Too many of them stop a run.  The gate is a release of its own, with its own INTENT and key: it is charged before a row
is looked at, committed, and reused by every retry.  Its comparison with a tolerance is post-processing: raising the
tolerance draws nothing again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, TypeVar, runtime_checkable

from pipeline.declaration.card import AnyCard
from pipeline.declaration.toml import LogError
from pipeline.ledger.chain import Body, canonical_hash
from pipeline.logs.rules import BY_NAME
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import SET_ASIDE, Release, total_epsilon, total_rho
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.layout import ExactSums, GateLayout
from pipeline.statistics.private_sum import PrivateSum, joining_facts

T = TypeVar("T")

# exact zCDP rho (None: some table has no noise), and the INTENT's other fields but the snapshot
Charge = tuple[Fraction | None, Body]
# stages of a release that is drawn all at once
WHOLE = ("release",)


class Stage(Protocol):
    """Draws one declared stage of a release: its name, and a function that reads rows and adds noise of its source."""

    def __call__(self, name: str, draw: Callable[[NoiseSource], T], /) -> T:
        """Return the result of ``draw``; see :meth:`~pipeline.transaction.transaction.Transaction.stage`."""
        ...


@runtime_checkable
class Splitting(Protocol):
    """A drawing that reads two parts of the people, and splits them itself; all others read those who teach."""

    @property
    def share(self) -> Fraction:
        """Declared share of the people who evaluate."""
        ...

    @property
    def since(self) -> int | None:
        """The edition after which they first came in; None: any time."""
        ...


class Drawing(Protocol):
    """A release of a snapshot: it has a price before a row is read, and it is drawn once.

    Every plan of a learner is one (:class:`~pipeline.learners.learner.RunPlan`).
    """

    @property
    def exact(self) -> bool:
        """Whether it has no noise at all: nothing is charged, synthetic data only."""
        ...

    def admit(self, noise: NoiseSource) -> None:
        """Refuse, before any row is read, what would not be private on real data."""
        ...

    def spec(self) -> list[Any]:
        """Plain JSON values that distinguish this release from any other of the snapshot: part of the run key."""
        ...

    def charge(self) -> Charge:
        """Its cost, and the fields of its INTENT."""
        ...

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of its stages, in order; a later one may depend on the result of an earlier one."""
        ...

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        """Read the rows and draw; called once, after the charge is on disk."""
        ...


def key_of(card: AnyCard, edition: int, drawing: Drawing) -> str:
    """Hex key of a release: of lineage, edition, registered domain and spec; it does not depend on rows."""
    return canonical_hash([card.name, edition, card.domain_hash(), drawing.spec()])


def total_charge(charges: Sequence[Charge]) -> tuple[Fraction, Fraction]:
    """Sum of several charges, and the part of it that a person pays who leaves or joins.

    ``charges``: of :meth:`Drawing.charge`; None costs nothing.
    """
    costs = [(rho, Fraction(fields.get("rho_add_remove", rho))) for rho, fields in charges if rho is not None]
    rho, joining = sum((r for r, _ in costs), Fraction(0)), sum((j for _, j in costs), Fraction(0))
    return rho, joining / rho if rho else Fraction(1)


# a log that fits its card is stopped less than once in 30,000 times a rule
_DEVIATIONS = 4


class GateError(LogError):
    """The gate stopped a run: its log breaks the card.  The gate's share is spent, the rest of the budget is not."""


@dataclass(frozen=True)
class Gate:
    """A :class:`Drawing` of the numbers of people who broke the rules that the card tolerates.

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
        # the tolerance is left out: it is compared afterwards; another cap of the lineage is no other release
        return [{k: v for k, v in m.items() if k != "delta_slack"} for m in self._described()]

    def charge(self) -> tuple[Fraction | None, Body]:
        mechanisms = self.counts.mechanisms
        epsilon = total_epsilon(mechanisms)
        fields = {"mechanisms": self._described(), "epsilon": None if epsilon is None else str(epsilon)}
        return total_rho(mechanisms), fields | joining_facts(self.layout.data_kind, [self.counts.joining_cost])

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        # ingest has counted the people
        people = self.layout.count(snapshot.set_aside)
        sums = ExactSums(snapshot.dataset, snapshot.kind, self.layout.dynamics, people)
        return stage(WHOLE[0], lambda noise: self.counts.draw(sums, noise))

    def check(self, answer: Release) -> None:
        """Stop a run whose log breaks its card.

        Raises GateError if more people broke a rule than the card tolerates, by more than four standard deviations of
        the noise.
        """
        (mechanism,) = answer.mechanisms
        noise = _DEVIATIONS * mechanism.standard_deviation
        for rule, people in zip(self.layout.rules, answer.tables[SET_ASIDE], strict=True):
            accepted = self.card.tolerance[rule] * self.card.unit.users_public
            if people > accepted + noise:
                raise GateError(
                    f"{self.card.name}: {rule} ({BY_NAME[rule].meaning}): rows of about {people:,} people; the card "
                    f"accepts {accepted:,.0f}, give or take {noise:,.0f} for the noise. `reticent inspect` shows which "
                    f"rows; mend them and ingest again, or raise tolerance.{rule}. Only the gate was charged"
                )

    def _described(self) -> list[dict[str, object]]:
        return [describe_mechanism(m) for m in self.counts.mechanisms]
