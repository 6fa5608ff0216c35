"""What can be released from a snapshot: its price before a row is read, its stages, and how it is drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Protocol, TypeVar, runtime_checkable

from pipeline.declaration.card import AnyCard
from pipeline.ledger.chain import Body, canonical
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Release

T = TypeVar("T")

# exact zCDP rho (None: some table has no noise), and the INTENT's other fields but the snapshot
Charge = tuple[Fraction | None, Body]
# of a release that is drawn all at once
WHOLE = ("release",)


class Stage(Protocol):
    """Draws one declared stage of a release: its name, and what reads rows and adds noise of the source it is given."""

    def __call__(self, name: str, draw: Callable[[NoiseSource], T], /) -> T:
        """What ``draw`` answers; see :meth:`~pipeline.transaction.transaction.Transaction.stage`."""
        ...


@runtime_checkable
class Splitting(Protocol):
    """A drawing that reads two parts of the people, and parts them itself; all others read those who teach."""

    @property
    def share(self) -> Fraction:
        """Of the people who evaluate, declared."""
        ...

    @property
    def since(self) -> int | None:
        """The edition after which they first came in; None: whenever."""
        ...


class Drawing(Protocol):
    """What can be released from a snapshot: it has a price before a row is read, and it is drawn once.

    Every plan of a learner is one (:class:`~pipeline.learners.learner.RunPlan`).
    """

    @property
    def exact(self) -> bool:
        """Whether there is no noise at all: nothing is charged, synthetic data only."""
        ...

    def admit(self, noise: NoiseSource) -> None:
        """Refuse, before any row is read, what would not be private on real data."""
        ...

    def spec(self) -> list[Any]:
        """What distinguishes this release from any other of the snapshot: plain JSON values, part of the run key."""
        ...

    def charge(self) -> Charge:
        """What it costs, and what the ledger says of it."""
        ...

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of what is drawn, in order; a later stage's question may rest on an earlier stage's answer."""
        ...

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        """Read the rows and draw; called once, after the charge is on disk."""
        ...


def key_of(card: AnyCard, edition: int, drawing: Drawing) -> str:
    """Hex key of a release: lineage, edition, registered domain and what is drawn; nothing of what
    the edition holds.
    """
    parts = [card.name, edition, card.domain_hash(), drawing.spec()]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def total_charge(charges: Sequence[Charge]) -> tuple[Fraction, Fraction]:
    """What several INTENTs charge together, and which part of it somebody pays who leaves or joins.

    ``charges``: as :meth:`Drawing.charge` has them; None costs nothing.
    """
    known = [(rho, Fraction(told.get("rho_add_remove", rho))) for rho, told in charges if rho is not None]
    rho, joining = sum((r for r, _ in known), Fraction(0)), sum((j for _, j in known), Fraction(0))
    return rho, joining / rho if rho else Fraction(1)
