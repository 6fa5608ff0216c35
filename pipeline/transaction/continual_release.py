"""What a recipe declares of a continual release: its tables, its factorisation, its dates, and what each step costs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from functools import cached_property
from typing import Protocol

from pipeline.declaration.card import Card, CardError
from pipeline.declaration.lineage import Schedule
from pipeline.ledger.chain import Body, BudgetError, Entry, canonical
from pipeline.ledger.limits import is_look
from pipeline.ledger.steps import (
    CounterBody,
    EpochBody,
    committed_steps,
    counter_intents,
    counter_key,
    overtaken,
    step_price,
)
from pipeline.logs.leaves import Leaf
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.privacy.epochs import Epochs, Openings
from pipeline.privacy.factorisation import Factorisation
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Mechanism, Release
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.private_sum import PrivateSum
from pipeline.transaction.drawing import Stage
from pipeline.transaction.gate import Gate


class NightlySums(Protocol):
    """What a counter sums, stage after stage: a later stage's question may rest on earlier answers."""

    @property
    def stages(self) -> Mapping[str, PrivateSum]:
        """What is drawn, in order; ``time`` of each is a factorisation over all nights, the last one draws on each."""
        ...

    @property
    def joint(self) -> Body | None:
        """What all nights cost where tables are bounded jointly: the ``joint`` of an INTENT; None: they are not."""
        ...

    def leaf(self, stage: str, answers: Sequence[Release]) -> Leaf:
        """What people add to the tables of a stage.

        Parameters
        ----------
        stage
            Its name.
        answers
            Of the stages before it, as they stand.
        """
        ...

    def answered(self, stage: str, drawn: Release) -> Release:
        """The answer of a stage with what later questions are made of in ``derived``: post-processing."""
        ...


class Evaluation(Protocol):
    """People who are in no leaf, and say on some dates what that night's policy is worth."""

    @property
    def share(self) -> Fraction:
        """Of all people, by a keyed hash of their id."""
        ...

    @property
    def answers(self) -> Mapping[str, PrivateSum]:
        """What is drawn of them: stage -> private sum."""
        ...

    @property
    def their_mechanisms(self) -> tuple[Mechanism, ...]:
        """The same as a list, with what the sampler adds to delta on all dates together."""
        ...

    def joint_body(self) -> Body:
        """What the counter and one evaluation cost together: the ``joint`` of an INTENT."""
        ...

    def evaluate(self, counted: Release, rows: Snapshot, resources: Resources, stage: Stage) -> Release:
        """Draw what they say of the policy that a night's sums make; the night's release with both parts.

        Parameters
        ----------
        counted, rows
            Tonight's sums; those of the people who evaluate.
        resources, stage
            See :meth:`~pipeline.transaction.drawing.Drawing.draw`.
        """
        ...


@dataclass(frozen=True)
class ContinualRelease:
    """What a recipe declares: sums over the people of a card, a counter over T dates, and the first of them.

    Parameters
    ----------
    card
        What the dataset declares.
    sums
        The tables, stage by stage; their mechanisms have the noise of one row of the counter.
    first
        The date of step 1.
    gate
        What must pass before the counter begins, and is charged; None where nothing may stop it.
    evaluation, dates
        Who is held out of all leaves, and on which dates they evaluate; None where everybody is counted.
    """

    card: Card
    sums: NightlySums
    first: date
    gate: Gate | None = None
    evaluation: Evaluation | None = None
    dates: Schedule | None = None

    @cached_property
    def times(self) -> dict[str, Factorisation]:
        """Stage -> which rows of noise are drawn at which of the T steps."""
        found = {name: s.time for name, s in self.sums.stages.items()}
        return {name: time for name, time in found.items() if isinstance(time, Factorisation)}

    @property
    def counter(self) -> Factorisation:
        """Of the last stage, which draws on every date."""
        return [*self.times.values()][-1]

    def opens(self, since: int, t: int) -> bool:
        """Whether every stage has rows that are due among the steps ``since .. t``."""
        return all(any(time.rows(k) for k in range(since, t + 1)) for time in self.times.values())

    @property
    def worst(self) -> list[Mechanism]:
        """Mechanisms with the noise of the noisiest sums."""
        return [m for s in self.sums.stages.values() for m in s.mechanisms]

    @property
    def size(self) -> int:
        """Cells of all tables."""
        return sum(m.cells for m in self.worst)

    def admit(self, noise: NoiseSource) -> None:
        """See :meth:`~pipeline.transaction.drawing.Drawing.admit`."""
        for s in self.sums.stages.values():
            s.admit(noise)

    @property
    def share(self) -> str | None:
        """Of the people who evaluate, exactly; None where everybody is counted."""
        return None if self.evaluation is None else str(self.evaluation.share)

    @cached_property
    def key(self) -> str:
        """See :func:`~pipeline.ledger.steps.counter_key`."""
        counter, described = self.counter, [describe_mechanism(m) for m in self.worst]
        dates = counter.kind, counter.steps, self.first.isoformat()
        epochs = None if self.epochs is None or self.sums.joint is None else (self.epochs, self.sums.joint)
        return counter_key(self.card.name, self.card.domain_hash(), dates, described, self.share, epochs)

    @property
    def epochs(self) -> EpochBody | None:
        """When sums begin anew, and with which tables; None where all run on."""
        if not isinstance(self.counter, Epochs):
            return None
        opening = [s for name, s in self.sums.stages.items() if isinstance(self.times[name], Openings)]
        return EpochBody(nights=self.counter.epoch, opening=[m.table for s in opening for m in s.mechanisms])

    def step_key(self, t: int) -> str:
        """Hex key of the release of step 1 .. T; no snapshot and no digest of data is in it."""
        return hashlib.sha256(canonical([self.key, t]).encode()).hexdigest()

    def step_on(self, day: date) -> int:
        """Which step a date is, counted from 1.

        Raises
        ------
        CardError
            If it is before the first.
        BudgetError
            If it is after the last: its noise is not paid for.
        """
        t, last = self.until(day), self.last
        if t < 1:
            raise CardError(f"{self.card.name}: {day} is before the counter's first night, {self.first}")
        if t > self.counter.steps:
            raise BudgetError(
                f"{self.card.name}: the counter's {self.counter.steps} nights ended on {last}; another counter is "
                "another charge (change 'first' in [nightly]); the last night is replayed by its date. Nothing was read"
            )
        return t

    def until(self, day: date) -> int:
        """Dates from the first to this one, unchecked."""
        return (day - self.first).days + 1

    @property
    def last(self) -> date:
        """The last date."""
        return self.first + timedelta(days=self.counter.steps - 1)

    def mechanisms(self, t: int) -> tuple[Mechanism, ...]:
        """Mechanisms with the noise of the sums at step t."""
        return tuple(m for s in self.sums.stages.values() for m in s.at(t))

    def joint_at(self, evaluation: Evaluation | None) -> Body | None:
        """What an INTENT says of tables that are bounded jointly, or of two parts of the people; None: of neither."""
        return self.sums.joint if evaluation is None else evaluation.joint_body()

    def told(self, t: int, since: int, evaluation: Evaluation | None) -> Body:
        """What an INTENT says of a step.

        Parameters
        ----------
        t, since
            See :meth:`describe`.
        evaluation
            Who evaluates then.
        """
        joint = self.joint_at(evaluation)
        return {
            "mechanisms": [describe_mechanism(m) for m in self.listed(t, evaluation)],
            "epsilon": None,
            "counter": self.describe(t, since),
            **({} if joint is None else {"joint": joint}),
        }

    def evaluated_at(self, t: int, entries: Sequence[Entry]) -> Evaluation | None:
        """Who evaluates at a step: where a date of theirs came since they last did, whatever arrived; or None.

        Parameters
        ----------
        t, entries
            The step, and the ledger's.
        """
        if self.evaluation is None or self.dates is None:
            return None
        due = self.dates.due(self.first + timedelta(days=t - 1))
        if due is None or due < self.first:
            return None
        done = [s for s in committed_steps(entries, self.card.name, self.key) if is_look(s.intent.body)]
        asked = done and date.fromisoformat(done[-1].intent.body["counter"]["date"]) >= due
        return None if asked else self.evaluation

    def listed(self, t: int, evaluation: Evaluation | None) -> tuple[Mechanism, ...]:
        """All that is drawn at a step: the counter's sums, and what people say who evaluate then."""
        return self.mechanisms(t) + (() if evaluation is None else evaluation.their_mechanisms)

    def describe(self, t: int, since: int) -> CounterBody:
        """What the INTENT, the release and the certificate say of the counter at a step.

        Parameters
        ----------
        t, since
            The steps ``since .. t`` become known, all but the last of them empty.
        """
        told: CounterBody = {
            "key": self.key,
            "kind": self.counter.kind,
            "nights": self.counter.steps,
            "first": self.first.isoformat(),
            "night": t,
            "since": since,
            "date": (self.first + timedelta(days=t - 1)).isoformat(),
            "cost": self.counter.cost,
            "error": self.counter.error(t),
        }
        if self.epochs is not None:
            told["epochs"] = self.epochs
        return told if self.share is None else {**told, "share": self.share}

    def price(self, entries: Sequence[Entry], t: int, since: int) -> Fraction:
        """What a step charges, as an exact zCDP rho.

        Raises
        ------
        BudgetError
            If another store committed one of these steps meanwhile.
        """
        told = self.describe(t, since)
        if (other := overtaken(entries, self.card.name, told)) is not None:
            raise BudgetError(
                f"{self.card.name}: night {other.t} was committed meanwhile (entry {other.commit.seq}), from "
                "another store; one store keeps a counter. Nothing was read"
            )
        before = counter_intents(entries, self.card.name, self.key)
        asked = self.evaluated_at(t, entries)
        return step_price(entries, before, told, self.listed(t, asked), self.joint_at(asked))
