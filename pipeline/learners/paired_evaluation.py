"""A tabular policy beside that of an earlier run, on people who chose neither: a third paired sum.

Each person's score of the new policy, less their score of the other, both by the released model of the learning part.
It has a sum, a square and a number of people of its own, beside those of the difference to current practice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from pipeline.audits.attack import AuditTarget
from pipeline.audits.tables import scores_target
from pipeline.declaration.card import CardError
from pipeline.evaluation.coverage import TABULAR_CODE, covered
from pipeline.evaluation.intervals import deviations, level_of, moments
from pipeline.evaluation.measured import Against, Evaluated, Interval
from pipeline.learners.evaluation_terms import Earlier
from pipeline.learners.learner import Learnt
from pipeline.learners.tabular_evaluation import STAGE, TabularEvaluation
from pipeline.learners.tabular_facts import LearntCounts
from pipeline.logs.score_sums import PairedScores, sum_scores
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Release
from pipeline.statistics.held_out import of_others, our_names, their_names
from pipeline.statistics.moment_layout import MomentLayout
from pipeline.statistics.private_sum import PrivateSum
from pipeline.transaction.drawing import Stage

PAIRED = "values of people beside another run"
# of the part's budget on the third sum
SHARE = Fraction(1, 5)
# of what is asked: another one asks another question
VERSION = 1
# the code that makes the third interval
CODE = ("pipeline.learners.paired_evaluation", "pipeline.logs.score_sums", *TABULAR_CODE)


@dataclass(frozen=True, kw_only=True)
class PairedEvaluation(TabularEvaluation):
    """See :class:`~pipeline.learners.evaluation.Evaluation`.

    Parameters
    ----------
    earlier
        The run whose policy is asked about as well.

    Raises
    ------
    CardError
        If its policy is of other states, actions or steps.
    """

    earlier: Earlier

    def __post_init__(self) -> None:
        """Refuse a policy that these people cannot judge."""
        d, found = self.card.domain, self.earlier.policy.probabilities.shape
        if (asked := (d.horizon, len(d.live_states), len(d.action_labels))) != found:
            raise CardError(
                f"{self.terms.where}: [evaluate] against = '{self.earlier.run}': its policy is of (steps, states, "
                f"actions) = {found}, the card declares {asked}"
            )

    @property
    def rho(self) -> Fraction | None:
        """What the first scores cost; the rest is the third sum's."""
        whole = self.terms.ask_for(self.card).zcdp()
        return None if whole is None else whole * (1 - SHARE)

    @cached_property
    def paired(self) -> PrivateSum:
        """The third sum, by the names of one alone."""
        layout = MomentLayout(self.card.name, self.card.kind, self.card.domain.dynamics, 1)
        summed = layout.summed(None if self.rho is None else self.rho * SHARE / (1 - SHARE))
        return self._with_slack(summed, self.terms.noise())

    @cached_property
    def sums(self) -> Mapping[str, PrivateSum]:
        """See :class:`~pipeline.learners.evaluation.Evaluation`."""
        first = self._with_slack(self.layout.summed(self.rho), self.terms.noise())
        return {STAGE: first, PAIRED: of_others(self.paired)}

    def spec(self) -> list[Any]:
        """See :class:`~pipeline.learners.evaluation.Evaluation`: the other policy, cell by cell."""
        p = self.earlier.policy
        cells = hashlib.sha256(p.probabilities.astype("<f8").tobytes() + p.abstains.tobytes()).hexdigest()
        return [*super().spec(), "paired", VERSION, cells]

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """See :class:`~pipeline.learners.evaluation.Attackable`."""
        return [*super().targets(sampler), scores_target(self._with_slack(self.paired, sampler))]

    def draw(self, learnt: Learnt, rows: Snapshot, resources: Resources, stage: Stage) -> Release:
        """See :class:`~pipeline.learners.evaluation.Evaluation`."""
        first, asked = super().draw(learnt, rows, resources, stage), self.both(learnt)
        layout, paired = MomentLayout(self.card.name, self.card.kind, self.card.domain.dynamics, 1), self.paired
        third = stage(
            PAIRED,
            lambda noise: their_names(paired.draw(sum_scores(rows, self.card, layout, asked, resources), noise)),
        )
        return replace(first, mechanisms=first.mechanisms + third.mechanisms, tables={**first.tables, **third.tables})

    def both(self, learnt: Learnt) -> PairedScores:
        """How people are scored, by either policy and one released model.

        Parameters
        ----------
        learnt
            Of the first part.
        """
        assert isinstance(learnt, LearntCounts)
        plan = replace(learnt.learnt.plan, policy=self.earlier.policy)
        other = replace(learnt, learnt=replace(learnt.learnt, plan=plan))
        return PairedScores(self.scores(learnt), self.scores(other))

    def measure(self, learnt: Learnt, answers: Release, share: float, look: int) -> tuple[Learnt, Evaluated]:
        """See :class:`~pipeline.learners.evaluation.Evaluation`."""
        same, told = super().measure(learnt, answers, share, look)
        found, width = moments(our_names(answers, self.paired)), self.both(learnt).width
        estimate, half = float(found.mean[0]) * width, deviations(level_of(look)) * float(found.error[0]) * width
        against = Against(self.earlier.run, Interval(estimate, estimate - half, estimate + half))
        return same, replace(told, calibrated=covered(self.estimator, self.card, share, self.rho), against=against)
