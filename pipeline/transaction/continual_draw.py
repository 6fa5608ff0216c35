"""What is drawn at a step of a continual release, in the block that was charged for it, and what the store keeps of it.

Stage by stage: people who are new are counted, the rows that are due get their noise, and the stage's sum is read off
all rows so far.  Where none is due, the answer of the step before stands, and its people wait in the leaf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from pipeline.files import remove_tree
from pipeline.ledger.chain import Entry
from pipeline.logs.contribution_bounding import Hashes, hash_width
from pipeline.logs.leaves import count_new
from pipeline.logs.parts import Split, hold_apart, part_key, those_apart
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.privacy.factorisation import Factorisation
from pipeline.privacy.noise import Integers, NoiseSource
from pipeline.privacy.release import Release
from pipeline.statistics.layout import ExactSums
from pipeline.transaction.continual_release import ContinualRelease, Evaluation
from pipeline.transaction.drawing import Stage
from pipeline.transaction.kept_steps import KeptSteps, digest


@dataclass(frozen=True)
class Night:
    """Who is read tonight; their rows leave with the block.

    Parameters
    ----------
    declared, kept
        The counter, and what it keeps.
    waiting
        What came in since the last step.
    asked, apart
        Who evaluates, and what came in since they last did.
    resources
        With the secret that says who evaluates.
    last
        The release of the step before, where some stage draws nothing tonight.
    """

    declared: ContinualRelease
    kept: KeptSteps
    waiting: Sequence[Snapshot]
    asked: Evaluation | None
    apart: Sequence[Snapshot]
    resources: Resources
    last: Release | None

    @property
    def _home(self) -> Path:
        """Of the rows of those who evaluate."""
        return self.kept.folder / "evaluate"

    def __enter__(self) -> None:
        remove_tree(self._home)

    def __exit__(self, *_: object) -> None:
        remove_tree(self._home)

    @property
    def _split(self) -> Split | None:
        """Who is in no leaf, whatever the night."""
        evaluation, secret = self.declared.evaluation, self.resources.secret
        if evaluation is None:
            return None
        assert secret is not None
        return Split(evaluation.share, part_key(secret(), self.declared.card.name))

    def ask(self, counted: Release, stage: Stage) -> Release:
        """Draw what the people say who evaluate tonight.

        Parameters
        ----------
        counted
            Tonight's sums.
        stage
            Draws each of their stages.
        """
        assert self.asked is not None
        return self.asked.evaluate(counted, those_apart(self._home, self.declared.card), self.resources, stage)

    def count(self, stage: Stage, intent: Entry) -> Release:
        """Draw all stages of the sums, and keep what later steps need.

        Parameters
        ----------
        stage
            Draws each of them.
        intent
            What paid for them.
        """
        declared, told, names = self.declared, intent.body["counter"], [*self.declared.sums.stages]
        drawn = _Drawn(self, told["since"], told["night"], self.kept.seen(hash_width(declared.card)))
        answers: list[Release] = []
        for name in names[:-1]:
            answers.append(stage(name, lambda noise, name=name: drawn.answer(name, answers, noise)))

        def finish(noise: NoiseSource) -> Release:
            last = drawn.answer(names[-1], answers, noise)
            self._keep(drawn, intent)
            return last

        answers.append(stage(names[-1], finish))
        joint = declared.joint_at(None)
        return replace(
            answers[-1],
            mechanisms=declared.mechanisms(told["night"]),
            tables={name: table for a in answers for name, table in a.tables.items()},
            derived={name: table for a in answers for name, table in a.derived.items()},
            counter={**told, "drawn_sha256": digest(drawn.rows)},
            joint_rho=None if joint is None else Fraction(joint["rho_exact"]),
            joint=None if joint is None else {k: v for k, v in joint.items() if k != "rho_exact"},
        )

    def _keep(self, drawn: _Drawn, intent: Entry) -> None:
        card, kept, fresh, split = self.declared.card, self.kept, drawn.fresh, self._split
        if self.asked is not None and split is not None:
            # whoever is asked tonight is never asked again
            fresh = np.concatenate([fresh, hold_apart(self.apart, card, split, drawn.seen, kept.key, self._home)])
        newest, last = (s[-1].number if s else None for s in (self.waiting, self.apart))
        kept.write(drawn.now, intent.body["attempt"], drawn.new, fresh, drawn.rows, newest, last)

    def leaf(self, name: str, answers: Sequence[Release], seen: Hashes) -> tuple[Mapping[str, Integers], Hashes]:
        """What people add to a stage who are new tonight, and their hashes.

        Parameters
        ----------
        name, answers
            See :meth:`~pipeline.transaction.continual_release.NightlySums.leaf`.
        seen
            Who was counted before.
        """
        declared, leaf = self.declared, self.declared.sums.leaf(name, answers)
        return count_new(self.waiting, declared.card, seen, self.kept.key, leaf, self._split)


class _Drawn:
    """Exact sums and noisy rows of the steps ``since .. now``, stage by stage; a row is as wide as all tables."""

    def __init__(self, night: Night, since: int, now: int, seen: Hashes) -> None:
        self.night, self.since, self.now, self.seen = night, since, now, seen
        self.fresh = seen[:0]
        self.new = np.zeros(night.declared.size, dtype=np.int64)
        self._place = night.declared.counter.placed(since, now)
        self._rows: dict[int, list[Integers]] = {t: [] for t in range(since, now + 1)}
        # of every stage: its columns, and the stages whose rows come before its own
        self._at: dict[str, tuple[slice, list[Factorisation]]] = {}
        begin, before = 0, list[Factorisation]()
        for name, s in night.declared.sums.stages.items():
            end = begin + sum(m.cells for m in s.mechanisms)
            self._at[name] = slice(begin, end), [*before]
            begin, before = end, [*before, night.declared.times[name]]

    @property
    def rows(self) -> Integers:
        """All rows that were drawn, in order."""
        return np.concatenate([some for t in self._rows for some in self._rows[t]])

    def answer(self, name: str, answers: Sequence[Release], noise: NoiseSource) -> Release:
        """The answer of a stage, drawn tonight or standing."""
        declared, kept = self.night.declared, self.night.kept
        card, summed, time = declared.card, declared.sums.stages[name], declared.times[name]
        mine, before = self._at[name]
        tables, self.fresh = self.night.leaf(name, answers, self.seen)
        self.new[mine] = np.concatenate([tables[m.table].reshape(-1) for m in summed.mechanisms])
        if not (due := [row for t in self._rows for row in time.rows(t)]):
            return self._standing(name)

        def exact(t: int) -> Integers | None:
            there = self.new if t == self._place else kept.exact(t)
            return None if there is None else there[mine]

        sums = ExactSums(card.name, card.kind, card.domain.dynamics, tables)
        drawn, begin = summed.draw_rows(due, exact, noise, sums), 0
        for t, there in self._rows.items():
            wide = np.zeros((len(time.rows(t)), len(self.new)), dtype=np.int64)
            wide[:, mine] = drawn[begin : begin + len(wide)]
            begin += len(wide)
            there.append(wide)

        def noisy(t: int) -> Integers:
            first = sum(len(other.rows(t)) for other in before)
            there = kept.rows(t) if t < self.since else np.concatenate(self._rows[t])
            return there[first : first + len(time.rows(t)), mine]

        total, mechanisms = np.rint(time.total(self.now, noisy)).astype(np.int64), summed.at(self.now)
        pieces = np.split(total, np.cumsum([m.cells for m in mechanisms])[:-1])
        found = Release(
            dataset=card.name,
            data_kind=sums.data_kind,
            dynamics=sums.dynamics,
            mechanisms=mechanisms,
            tables={m.table: x.reshape(m.shape) for m, x in zip(mechanisms, pieces, strict=True)},
            noise=noise.name,
            sampler=noise.sampler,
        )
        return declared.sums.answered(name, found)

    def _standing(self, name: str) -> Release:
        """What was released when the epoch was opened."""
        last, mechanisms = self.night.last, self.night.declared.sums.stages[name].mechanisms
        assert last is not None
        return replace(last, mechanisms=mechanisms, tables={m.table: last.tables[m.table] for m in mechanisms})
