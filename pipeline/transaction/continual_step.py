"""A nightly counter: one leaf a date, one charge for all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from functools import cached_property
from typing import Any

from pipeline.declaration.card import Card, CardError
from pipeline.ledger.chain import BudgetError, Entry, canonical
from pipeline.ledger.nights import counter_intents, counter_key, night_price, overtaken
from pipeline.privacy.factorisation import Factorisation
from pipeline.privacy.release import Mechanism
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.calibration import at_leaf
from pipeline.statistics.privatizers import CentralCounts


@dataclass(frozen=True)
class NightlyCounter:
    """What a recipe declares: count tables of a card, a counter over T dates, and the first of them.

    Parameters
    ----------
    privatizer
        Its mechanisms are those of the counter's rows.
    """

    card: Card
    privatizer: CentralCounts
    counter: Factorisation
    first: date

    @cached_property
    def key(self) -> str:
        """See :func:`~pipeline.ledger.nights.counter_key`."""
        shape = {"kind": self.counter.kind, "nights": self.counter.steps, "first": self.first.isoformat()}
        described = [describe_mechanism(m) for m in self.privatizer.mechanisms]
        return counter_key(self.card.name, self.card.domain_hash(), shape, described)

    def night_key(self, leaf: int) -> str:
        """Hex key of one night's release; no snapshot and no digest of data is in it."""
        return hashlib.sha256(canonical([self.key, leaf]).encode()).hexdigest()

    def leaf_on(self, day: date) -> int:
        """Which leaf a date is, counted from 1.

        Raises
        ------
        CardError
            If it is before the first.
        BudgetError
            If it is after the last: its noise is not paid for.
        """
        leaf, last = self.until(day), self.last
        if leaf < 1:
            raise CardError(f"{self.card.name}: {day} is before the counter's first night, {self.first}")
        if leaf > self.counter.steps:
            raise BudgetError(
                f"{self.card.name}: the counter's {self.counter.steps} nights ended on {last}; another counter is "
                "another charge (change 'first' in [nightly]); the last night is replayed by its date. Nothing was read"
            )
        return leaf

    def until(self, day: date) -> int:
        """Dates from the first to this one, unchecked."""
        return (day - self.first).days + 1

    @property
    def last(self) -> date:
        """The last date."""
        return self.first + timedelta(days=self.counter.steps - 1)

    def mechanisms(self, leaf: int) -> tuple[Mechanism, ...]:
        """Mechanisms with the noise of the sum on this night."""
        return at_leaf(self.privatizer.mechanisms, self.counter, leaf)

    def told(self, leaf: int, since: int) -> dict[str, Any]:
        """What the INTENT, the release and the certificate say of the counter on a night."""
        return {
            "key": self.key,
            "kind": self.counter.kind,
            "nights": self.counter.steps,
            "first": self.first.isoformat(),
            "night": leaf,
            "since": since,
            "date": (self.first + timedelta(days=leaf - 1)).isoformat(),
            "cost": self.counter.cost,
            "error": self.counter.error(leaf),
        }

    def price(self, entries: Sequence[Entry], leaf: int, since: int) -> Fraction:
        """What a night charges, given all entries."""
        told = self.told(leaf, since)
        if (other := overtaken(entries, self.card.name, told)) is not None:
            raise BudgetError(
                f"{self.card.name}: night {other.leaf} was committed meanwhile (entry {other.commit.seq}), from "
                "another store; one store keeps a counter. Nothing was read"
            )
        before = counter_intents(entries, self.card.name, self.key)
        return night_price(before, told, self.privatizer.mechanisms)
