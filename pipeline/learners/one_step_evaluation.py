"""A one-step policy, confirmed and measured on people who did not make it: three stages, each asks what the last told.

Both parts of the people make the policy that is published: one proposes, the other keeps what it does often enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.agents import one_step_value
from pipeline.agents.one_step_value import Confirmed, Model, Moments, Proposal
from pipeline.audits.attack import AuditTarget
from pipeline.audits.tables import rows_target, scores_target
from pipeline.evaluation.coverage import ONE_STEP, covered
from pipeline.evaluation.intervals import Method, evaluated
from pipeline.evaluation.measured import Diagnostic, Evaluated
from pipeline.learners.learner import Learnt
from pipeline.learners.one_step_learning import LearntStep
from pipeline.logs.one_step_rows import RETURN_STEPS
from pipeline.logs.one_step_scores import RATIO_STEPS, OneStepScores
from pipeline.logs.one_step_sums import FeatureQuestion, FollowQuestion, sum_rows
from pipeline.logs.score_sums import sum_scores
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Release
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.moment_layout import PEOPLE, MomentLayout
from pipeline.statistics.one_step_layout import STEPS, WEIGHT, FeatureLayout, FollowLayout
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.scores import SCORES, Clips
from pipeline.statistics.target_plan import TargetPlan
from pipeline.transaction.drawing import Stage

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Asked = FollowQuestion | FeatureQuestion | OneStepScores

FOLLOW, FEATURES, SCORED = "rows that follow", "moments of features", "values of people"
# of the budget of the part
SHARES = {FOLLOW: Fraction(1, 2), FEATURES: Fraction(3, 10), SCORED: Fraction(1, 5)}
# declared people of the part times the root of rho: below, nothing is measured; below the second, steps weigh alike
LEAST, WEIGHTED = 1500.0, 5000.0
# ranges of returns that psi may be from the middle at least, and gain and placebo from 0
_SPREAD, _GAIN, _PLACEBO = 4.0, 3.0, 0.25


@dataclass(frozen=True)
class OneStepEvaluation:
    """See :class:`~pipeline.learners.evaluation.Evaluation`.

    Parameters
    ----------
    plan
        Of the run that learns; its budget is the evaluation's as well, for nobody is in both parts.
    share
        Of the people who evaluate, declared.
    chosen
        What makes the policy that is asked about, of all that is set beside the plan: plain values, part of the key.
    """

    plan: TargetPlan
    share: Fraction
    chosen: tuple[Any, ...] = ()
    estimator = ONE_STEP

    @property
    def learning(self) -> tuple[PrivateSum, ...]:
        """See :class:`~pipeline.learners.evaluation.Evaluation`."""
        return tuple(self.plan.stages.values())

    @property
    def signal(self) -> float:
        """Declared people of the part times the root of rho; infinite without noise."""
        people = self.plan.card.unit.users_public * float(self.share)
        return math.inf if self.plan.rho is None else people * math.sqrt(self.plan.rho)

    @property
    def features(self) -> FeatureLayout:
        """Of the second; with moments of practice where people are enough to tell how steps differ."""
        weighted = self.signal >= WEIGHTED
        return FeatureLayout(self.plan.card, 5 if weighted else 3, weighted)

    @property
    def scored(self) -> MomentLayout:
        """Of the third."""
        card = self.plan.card
        return MomentLayout(card.name, card.kind, card.domain.dynamics, len(SCORES))

    @cached_property
    def sums(self) -> Mapping[str, PrivateSum]:
        """See :class:`~pipeline.learners.evaluation.Evaluation`."""
        rho = {stage: None if self.plan.rho is None else self.plan.rho * part for stage, part in SHARES.items()}
        return {
            FOLLOW: FollowLayout(self.plan.card).summed(rho[FOLLOW]),
            FEATURES: self.features.summed(rho[FEATURES]),
            SCORED: self.scored.summed(rho[SCORED]),
        }

    def clips(self, confirmed: Confirmed) -> Clips:
        """Where scores are cut, reward units.

        Parameters
        ----------
        confirmed
            Of :meth:`confirm`: where its actions are rare in practice a person who takes them speaks for many.
        """
        wide = one_step_value.spread(confirmed)
        return Clips(*self.plan.span, spread=max(_SPREAD, wide), placebo=_PLACEBO, gain=max(_GAIN, wide))

    def spec(self) -> list[Any]:
        """See :class:`~pipeline.learners.evaluation.Evaluation`: what makes the policy decides what is asked of it."""
        return [self.estimator, one_step_value.VERSION, *self.plan.span, _SPREAD, _GAIN, _PLACEBO, *self.chosen]

    def draw(self, learnt: Learnt, rows: Snapshot, resources: Resources, stage: Stage) -> Release:
        """See :class:`~pipeline.learners.evaluation.Evaluation`."""
        card = self.plan.card

        def exact(asked: Asked) -> ExactSums:
            if isinstance(asked, OneStepScores):
                return sum_scores(rows, card, self.scored, asked, resources)
            return sum_rows(rows, asked, resources)

        def answer(name: str, asked: Asked) -> Release:
            return stage(name, lambda noise: self.sums[name].draw(exact(asked), noise))

        return self.answers(_step(learnt), answer)

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """See :class:`~pipeline.learners.evaluation.Attackable`: each stage, for questions of the auditor's own."""
        low, high = self.plan.span
        rows = [rows_target(self.sums[stage], high - low) for stage in (FOLLOW, FEATURES)]
        return [*rows, scores_target(self.sums[SCORED])]

    def answers(self, learnt: LearntStep, answer: Callable[[str, Asked], Release]) -> Release:
        """All stages, each asked what the last one told.

        Parameters
        ----------
        learnt
            Of the other part.
        answer
            From the name of a stage and its question to what is released.
        """
        proposal = self.propose(learnt)
        first = answer(FOLLOW, FollowQuestion(FollowLayout(self.plan.card), proposal.action))
        confirmed = self.confirm(proposal, first)
        asked = self.ask_features(confirmed)
        second = answer(FEATURES, asked)
        scores = self.ask_scores(confirmed, self.fit(confirmed, asked, second))
        third = answer(SCORED, scores)
        return replace(
            first,
            mechanisms=first.mechanisms + second.mechanisms + third.mechanisms,
            tables={**first.tables, **second.tables, **third.tables},
            # what the last question was made of
            derived={"b_weights": scores.weights, "b_values": scores.values},
        )

    def measure(self, learnt: Learnt, answers: Release, share: float, look: int) -> tuple[Learnt, Evaluated]:
        """See :class:`~pipeline.learners.evaluation.Evaluation`: the policy is the confirmed one."""
        found = _step(learnt)
        proposal = self.propose(found)
        confirmed = self.confirm(proposal, answers)
        clips = self.clips(confirmed)
        deviates, people = confirmed.proposal.action >= 0, float(answers.tables[PEOPLE][0])
        weight = np.maximum(proposal.rows, 0.0)
        changed = float(weight[deviates].sum() / max(weight.sum(), 1.0))
        kept = float(deviates.sum() / max(int((proposal.action >= 0).sum()), 1))
        there = covered(self.estimator, self.plan.card, float(self.share), self.plan.rho)
        told = evaluated(
            answers,
            clips,
            Method(self.estimator, one_step_value.BIAS, there, one_step_value.WORSE, one_step_value.HIDDEN),
            share,
            look,
            changes=bool(deviates.any()),
            placebo_error=one_step_value.placebo_error(confirmed, people) * (clips.high - clips.low),
            diagnostics=(
                Diagnostic("share of rows where the policy leaves practice", changed, Fraction(0)),
                Diagnostic("share of proposed changes that other people confirm", kept, Fraction(0)),
            ),
        )
        plan = replace(found.found, policy=self.policy(confirmed))
        return replace(found, found=plan), told

    def propose(self, learnt: LearntStep) -> Proposal:
        """What the learning part proposes, in parts of the range of returns.

        Parameters
        ----------
        learnt
            Policy, posterior advantages, and the release that they are of.
        """
        found, values = learnt.found, learnt.release.derived["v_value"]
        G, (low, high) = len(values), self.plan.span
        kept, best = found.policy.abstains[:G], found.policy.probabilities[:G].argmax(-1)
        gain = np.take_along_axis(found.advantage, best[..., None], -1)[..., 0]
        return Proposal(
            np.where(kept, -1, best).ravel(),
            self.plan.rewards(values).ravel() / (high - low),
            np.where(kept, 0.0, gain).ravel() / (high - low),
            learnt.release.tables["v_count"].ravel().astype(np.float64),
            low / (high - low),
            high / (high - low),
        )

    def confirm(self, proposal: Proposal, answers: Release) -> Confirmed:
        """What is kept of a proposal.

        Parameters
        ----------
        proposal
            Of the learning part.
        answers
            With the first stage.
        """
        rows = answers.tables["b_follow"].reshape(2, -1).astype(np.float64)
        return one_step_value.confirm(proposal, rows, _sd(answers, "b_follow"))

    def policy(self, confirmed: Confirmed) -> Policy:
        """The policy as it is published, of what :meth:`confirm` kept."""
        d = self.plan.card.domain
        L, A = len(d.live_states), len(d.action_labels)
        action = confirmed.proposal.action.reshape(-1, L)
        chosen = np.where((action >= 0)[..., None], np.eye(A)[np.maximum(action, 0)], 0.0)
        shape = d.horizon, L
        return Policy(np.broadcast_to(chosen, (*shape, A)).copy(), np.broadcast_to(action < 0, shape).copy())

    def ask_features(self, confirmed: Confirmed) -> FeatureQuestion:
        """The second stage's question.

        Parameters
        ----------
        confirmed
            Of :meth:`confirm`.
        """
        # a third of the largest weight is a ratio of 1; towards 0, so that nothing gets longer than its bound
        weight = np.floor(np.minimum(confirmed.ratio, 3.0) * (WEIGHT // 3)).astype(np.int64)
        phi = np.trunc(one_step_value.features(confirmed) * STEPS).astype(np.int64)
        values = _lattice(one_step_value.first_values(confirmed.proposal))
        low, high = self.plan.span
        return FeatureQuestion(self.features, confirmed.proposal.action, weight, phi, values, high - low)

    def fit(self, confirmed: Confirmed, asked: FeatureQuestion, answers: Release) -> Model:
        """V and weights of steps.

        Parameters
        ----------
        confirmed, asked
            Policy, and what was asked.
        answers
            With the second stage.
        """
        unit = self.features.unit
        tables = {t.name: answers.tables[t.name] / unit for t in self.features.tables}
        practice = (tables["b_gram_mu"], tables["b_next_mu"], tables["b_start"]) if self.features.practice else None
        sd = _sd(answers, "b_gram") / unit
        moments = Moments(tables["b_gram"], tables["b_next"], tables["b_error"], practice, sd)
        return one_step_value.fit(confirmed, asked.features / STEPS, moments, self.plan.card.domain.horizon)

    def ask_scores(self, confirmed: Confirmed, model: Model) -> OneStepScores:
        """The third stage's question.

        Parameters
        ----------
        confirmed, model
            Policy, V and weights of steps.
        """
        return OneStepScores(
            confirmed.proposal.action,
            np.rint(model.weights * confirmed.ratio * RATIO_STEPS).astype(np.int64),
            np.rint(confirmed.chance * RATIO_STEPS).astype(np.int64),
            _lattice(model.values),
            _lattice(confirmed.proposal.value),
            self.clips(confirmed),
        )


def _step(learnt: Learnt) -> LearntStep:
    if not isinstance(learnt, LearntStep):
        raise TypeError(f"a one-step policy is needed; got {type(learnt).__name__}")
    return learnt


def _lattice(values: Array) -> Integers:
    return np.rint(values * RETURN_STEPS).astype(np.int64)


def _sd(answers: Release, table: str) -> float:
    return next(m for m in answers.mechanisms if m.table == table).standard_deviation
