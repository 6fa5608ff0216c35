"""A tabular policy, measured on held-out people: doubly robust scores of a released model."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from pipeline.agents.apvi import Model, model
from pipeline.agents.doubly_robust import VERSION, aim, doubts, policy_visits, practice_visits, question
from pipeline.agents.pessimism import start_distribution
from pipeline.agents.support import unsupported
from pipeline.arrays import Array
from pipeline.audits.attack import AuditTarget
from pipeline.audits.tables import crossing_target, scores_target
from pipeline.declaration.card import Card, CardError, declared_start, task_of
from pipeline.evaluation.coverage import LOGGED, TABULAR, covered
from pipeline.evaluation.intervals import Method, Trait, behind, evaluated, moments, per_past
from pipeline.facts.evaluation import Diagnostic, Evaluated
from pipeline.learners.learner import Learnt
from pipeline.learners.tabular_facts import LearntCounts
from pipeline.learners.tabular_learning import practice
from pipeline.learners.terms import Terms
from pipeline.logs.doubly_robust_rows import TabularScores
from pipeline.logs.parts import evaluates, part_key
from pipeline.logs.score_sums import sum_scores
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.privacy.losses import safe_epsilon
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Release
from pipeline.statistics.held_out import parts_cost
from pipeline.statistics.moment_layout import SQUARES, SUMS, MomentLayout
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.scores import PLACEBOS, SCORES, Clips, Question, past_clip
from pipeline.transaction.drawing import Stage

STAGE = "values of people"
# of the clip of psi, in ranges of values, as it stands in a release
CLIP = "b_clip"


@dataclass(frozen=True)
class TabularEvaluation:
    """See :class:`~pipeline.learners.held_out.Evaluation`."""

    card: Card
    terms: Terms
    counts: PrivateSum
    theirs: bool = False

    @property
    def logged(self) -> bool:
        return self.terms.logged

    @property
    def estimator(self) -> str:
        return TABULAR + LOGGED * self.logged

    @property
    def learning(self) -> tuple[PrivateSum, ...]:
        return (self.counts,)

    @cached_property
    def sums(self) -> Mapping[str, PrivateSum]:
        """All at once, with the whole budget."""
        return {STAGE: self._with_slack(self.layout.summed(self.terms.ask_for(self.card).zcdp()), self.terms.noise())}

    def _with_slack(self, summed: PrivateSum, sampler: NoiseSource) -> PrivateSum:
        budget = self.card.budget
        return summed if summed.exact else summed.with_slack(sampler, safe_epsilon(budget.rho, budget.delta))

    @property
    def layout(self) -> MomentLayout:
        """Sums of people's scores; with logged probabilities, also of the excess of their weights over the mean."""
        d, J = self.card.domain, len(SCORES) + self.logged
        return MomentLayout(self.card.name, self.card.kind, d.dynamics, J, halved=PLACEBOS)

    def clips(self, spread: int) -> Clips:
        """Clips of scores: the declared range of values, and the number of ranges that a score may spread."""
        task = task_of(self.card)
        low, high = task.value_range(0)
        before = past_clip(task.bounds[1] - task.bounds[0], high - low)
        return Clips(low, high, float(spread), before, before)

    def spec(self) -> list[Any]:
        """The planner makes the policy that is evaluated."""
        vetoes = [[str(s), str(a)] for s, a in self.card.domain.vetoes]
        told = [self.terms.agent, self.terms.planner.model_dump(mode="json"), vetoes, self.card.domain.markov]
        least = [self.terms.spread] if self.logged else []
        return [self.estimator, VERSION, list(astuple(self.clips(1))), *told, *least]

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """Targets with a split by the auditor's secret."""
        key, share = part_key(secrets.token_bytes(32), self.card.name), self.terms.held_out
        counts, scores = (self._with_slack(s, sampler) for s in (self.counts, self.sums[STAGE]))
        costs = [(s.rho, s.layout.cost(s.rates, "add_remove")) for s in (counts, scores)]
        if costs[0][0] is None or costs[1][0] is None:
            raise CardError(f"{self.card.name}: no noise, no claim to attack")
        claimed = parts_cost((costs[0][0], costs[0][1]), (costs[1][0], costs[1][1]))
        crossing = crossing_target(counts, scores, claimed, lambda user: evaluates([user], share, key)[0])
        return [scores_target(scores), crossing]

    def draw(self, learnt: Learnt, rows: Snapshot, resources: Resources, stage: Stage) -> Release:
        scores, summed = self.scores(learnt), self.sums[STAGE]
        return self.told(
            scores,
            stage(STAGE, lambda noise: summed.draw(sum_scores(rows, self.card, self.layout, scores, resources), noise)),
        )

    def scores(self, learnt: Learnt) -> TabularScores:
        """Scores of people: the whole query to the second part."""
        found = _counts(learnt)
        m, asked, usual, start = self._question(found)
        policy, clips = found.learnt.plan.policy, self.clips(max(asked.spread, self.terms.spread))
        aimed = aim(m, policy, usual, start) if self.logged else None
        return TabularScores(asked, clips, bool((~policy.abstains).any()), aimed)

    @staticmethod
    def told(scores: TabularScores, answers: Release) -> Release:
        """The answers, with the clip that the query sets."""
        return replace(answers, derived={CLIP: np.array([int(scores.clips.spread)], dtype=np.int64)})

    def _question(self, found: LearntCounts) -> tuple[Model, Question, Array, Array]:
        """Released model, its query, practice and first states."""
        made, planner = found.learnt, self.terms.planner
        m = model(made.prepared.counts, task_of(self.card), made.policy_constants, planner.penalty)
        usual, start = practice(found.release), start_distribution(m.counts, declared_start(self.card))
        return m, question(m, made.plan.policy, usual, start), usual, start

    def measure(self, learnt: Learnt, answers: Release, share: float, look: int) -> tuple[Learnt, Evaluated]:
        found = _counts(learnt)
        m, asked, usual, start = self._question(found)
        there = covered(self.estimator, self.card, share, self.terms.ask().zcdp())
        policy = found.learnt.plan.policy
        unseen = unsupported(m.counts, policy, policy_visits(m, policy, usual, start), theirs=self.theirs)
        method = Method(self.estimator, 0.0, calibrated=there, unseen=unseen)
        apart, spread, rows, largest = doubts(m, policy, usual, start)
        ratio = per_past(apart, spread, rows, float(m.task.horizon > 1))
        seen = practice_visits(m, usual, start)
        errors = tuple(_placebo_error(found, seen * x) for x in (asked.lost, asked.past))
        told = evaluated(
            _of_scores(answers),
            self.clips(int(answers.derived[CLIP][0])),
            method,
            share,
            look,
            changes=bool((~policy.abstains).any()),
            trait=Trait(errors, ratio, largest, behind(self.card)),
            diagnostics=(Diagnostic("effective sample size, share of rows", asked.effective),),
        )
        return learnt, replace(told, ratios=_off(answers) if self.logged else None)


def _of_scores(answers: Release) -> Release:
    """The moments of :data:`SCORES` alone."""
    J, cut = len(SCORES), (SUMS, SQUARES)
    tables = {**answers.tables, **{name: answers.tables[name][:J] for name in cut}}
    listed = tuple(replace(m, shape=(J,)) if m.table in cut else m for m in answers.mechanisms)
    return replace(answers, tables=tables, mechanisms=listed)


def _off(answers: Release) -> float:
    """Standard errors of the mean weight of rows from its value under right logged probabilities."""
    found = moments(answers)
    error = float(found.error[-1])
    return float(found.mean[-1]) / error if error else 0.0


def _counts(learnt: Learnt) -> LearntCounts:
    if not isinstance(learnt, LearntCounts):
        raise TypeError(f"a table of counts is needed; got {type(learnt).__name__}")
    return learnt


def _placebo_error(found: LearntCounts, before: Array) -> float:
    """Standard error of a placebo's mean by the estimated behaviour, whose counts are few and noisy.

    Half of the past ``before (H, L)`` of a state, times its visits, is taken as the model's error about it.
    """
    n_sas = found.release.tables["n_sas"]
    n_sa = np.maximum(n_sas.sum(-1), 0).astype(np.float64)
    noise = next(m for m in found.release.mechanisms if m.table == "n_sas").standard_deviation ** 2 * n_sas.shape[-1]
    n, policy = np.maximum(n_sa.sum(-1), 1.0), found.learnt.plan.policy
    taken = (policy.probabilities * n_sa / n[..., None]).sum(-1)
    noisy = noise * (1 + n_sa.shape[-1] * taken**2)
    variance = np.minimum((taken * (1 - taken) * n + noisy) / n**2, 0.25)
    moved = np.where(policy.abstains, 0.0, before / 2)
    if len(n) == 1:
        # one estimate for all steps
        return math.sqrt(float((moved.sum(0) ** 2 * variance.mean(0)).sum()))
    return math.sqrt(float((moved**2 * variance).sum()))
