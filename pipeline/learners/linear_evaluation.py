"""A linear policy on declared states, measured on held-out people: doubly robust, on their own counts.

Regressions hold no transitions.  So the held-out people are counted first, step by step; these counts give V, Q and
weights, as for a tabular policy, and the scores of the same people the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from pipeline.audits.attack import AuditTarget
from pipeline.audits.tables import counts_target, scores_target
from pipeline.declaration.card import Card, CardError
from pipeline.evaluation.coverage import LINEAR, LOGGED, covered
from pipeline.facts.evaluation import Evaluated
from pipeline.learners.learner import Deciding, Learnt
from pipeline.learners.linear_request import LinearRequest
from pipeline.learners.tabular_evaluation import STAGE, TabularEvaluation
from pipeline.learners.tabular_facts import LearntCounts
from pipeline.learners.tabular_learning import learn
from pipeline.learners.terms import Planner, Terms
from pipeline.logs.aggregate import aggregate
from pipeline.logs.score_sums import sum_scores
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Release
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.held_out import of_others, our_names, their_names
from pipeline.statistics.private_sum import PrivateSum
from pipeline.transaction.drawing import Stage

COUNTED = "counts of people"
# of the part's budget on its counts
SHARE = Fraction(1, 2)
# version of the queries about a linear policy: another version makes other queries
VERSION = 1


@dataclass(frozen=True)
class LinearEvaluation:
    """See :class:`~pipeline.learners.held_out.Evaluation`.

    Raises CardError if the card declares observations, or people are split again.
    """

    request: LinearRequest
    terms: Terms
    learning: tuple[PrivateSum, ...] = ()

    @property
    def logged(self) -> bool:
        return self.terms.logged

    @property
    def estimator(self) -> str:
        return LINEAR + LOGGED * self.logged

    def __post_init__(self) -> None:
        """Refuse cards without cells to count, and halves within a part."""
        asked = f"{self.terms.where}: [evaluate] people = {float(self.terms.held_out):g}"
        if self.request.observed is not None:
            name = self.request.card.name
            raise CardError(f"{asked}: {name} declares observations, whose policy nothing measures; take it out")
        if self.request.plan.terms.halves:
            raise CardError(f"{asked}: [linear] halves = true splits people as well; take one of them out")

    @cached_property
    def card(self) -> Card:
        """The card with tables by step: a linear policy differs by step, whatever the card declares."""
        card = self.request.card
        return card.model_copy(update={"domain": card.domain.model_copy(update={"dynamics": "per_step"})})

    @cached_property
    def counts(self) -> PrivateSum:
        """Counts of the held-out people."""
        rho = self.terms.ask_for(self.card).zcdp()
        return count_sum(self.card, Ask(None if rho is None else rho * SHARE))

    @cached_property
    def judge(self) -> TabularEvaluation:
        """Evaluation of any policy by counts."""
        return TabularEvaluation(self.card, replace(self.terms, planner=Planner()), self.counts, theirs=True)

    @cached_property
    def sums(self) -> Mapping[str, PrivateSum]:
        rho = self.terms.ask_for(self.card).zcdp()
        scored = self.judge.layout.summed(None if rho is None else rho * (1 - SHARE))
        return {COUNTED: of_others(self.counts), STAGE: scored}

    def spec(self) -> list[Any]:
        """All settings that make the policy, free ones included."""
        return [self.estimator, VERSION, self.judge.spec(), self.request.planner_facts().model_dump(mode="json")]

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        return [counts_target(self.counts), scores_target(self.sums[STAGE])]

    def draw(self, learnt: Learnt, rows: Snapshot, resources: Resources, stage: Stage) -> Release:
        counts, scored = self.counts, self.sums[STAGE]
        first = stage(COUNTED, lambda noise: their_names(counts.draw(aggregate(rows, self.card, resources), noise)))
        asked = self.judge.scores(self.counted(learnt, first))
        second = stage(
            STAGE, lambda noise: scored.draw(sum_scores(rows, self.card, self.judge.layout, asked, resources), noise)
        )
        told = self.judge.told(asked, second)
        both = first.mechanisms + told.mechanisms
        return replace(told, mechanisms=both, tables={**first.tables, **told.tables})

    def measure(self, learnt: Learnt, answers: Release, share: float, look: int) -> tuple[Learnt, Evaluated]:
        _, told = self.judge.measure(self.counted(learnt, answers), answers, share, look)
        there = covered(self.estimator, self.card, share, self.terms.ask().zcdp())
        return learnt, replace(told, estimator=self.estimator, calibrated=there)

    def counted(self, learnt: Learnt, answers: Release) -> LearntCounts:
        """The linear policy with the counts of the held-out people.

        Raises TypeError if the policy is not by state.
        """
        if not isinstance(learnt, Deciding):
            raise TypeError(f"a policy by state is needed; got {type(learnt).__name__}")
        counts = our_names(answers, self.counts)
        found = learn(self.card, self.judge.terms.planner, counts)
        plan = replace(found.plan, policy=learnt.policy)
        return LearntCounts(self.card, self.judge.terms, replace(found, plan=plan), counts)
