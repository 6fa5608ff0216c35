"""A one-step policy, confirmed and measured on held-out people: three stages, each query follows the last answer.

Both parts of the people make the published policy: one proposes, the other keeps actions that are frequent enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from pipeline.agents import one_step_value
from pipeline.agents.one_step_value import Confirmed, Moments, Proposal
from pipeline.arrays import Array, Integers
from pipeline.audits.attack import AuditTarget
from pipeline.audits.tables import rows_target, scores_target
from pipeline.evaluation.coverage import ONE_STEP, covered
from pipeline.evaluation.intervals import Method, Trait, behind, deviations, evaluated, level_of, per_past
from pipeline.facts.evaluation import Diagnostic, Evaluated
from pipeline.learners.learner import Learnt
from pipeline.learners.one_step_learning import LearntStep, mean_error, seen_of
from pipeline.logs.one_step_sums import (
    RATIO_STEPS,
    RETURN_STEPS,
    FeatureQuestion,
    FollowQuestion,
    OneStepScores,
    sum_rows,
)
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
from pipeline.statistics.scores import PLACEBOS, SCORES, Clips, past_clip
from pipeline.statistics.target_plan import TargetPlan
from pipeline.transaction.drawing import Stage

Asked = FollowQuestion | FeatureQuestion | OneStepScores

FOLLOW, FEATURES, SCORED = "rows that follow", "moments of features", "values of people"
# of the budget of the part
SHARES = {FOLLOW: Fraction(1, 2), FEATURES: Fraction(3, 10), SCORED: Fraction(1, 5)}
# of scores where states are pooled: so that noise alone leaves such a part of the range of returns open, in bounds
_OPEN, _SCORED = 0.0065, (Fraction(1, 5), Fraction(2, 5))
# declared people of the part times the root of rho: below, nothing is measured; below the second, steps weigh alike
LEAST, WEIGHTED = 1500.0, 5000.0
# the same where states are pooled: many rare actions are judged, whose moments are noisier
_POOLED_WEIGHTED = 9000.0
# ranges of returns that psi may be from the middle at least, and gain and what was lost from 0
_SPREAD, _GAIN, _LOST = 4.0, 3.0, 0.25
# the widest clip, in ranges of returns, and what pays for one more of these: held-out people times the root of rho
_WIDEST, _FOR_ONE = 40.0, 2000.0


@dataclass(frozen=True)
class OneStepEvaluation:
    """See :class:`~pipeline.learners.held_out.Evaluation`."""

    plan: TargetPlan
    share: Fraction
    chosen: tuple[Any, ...] = ()
    estimator = ONE_STEP

    @property
    def learning(self) -> tuple[PrivateSum, ...]:
        return tuple(self.plan.stages.values())

    @property
    def signal(self) -> float:
        """Declared people of the part times the root of rho; infinite without noise."""
        people = self.plan.card.unit.users_public * float(self.share)
        return math.inf if self.plan.rho is None else people * math.sqrt(self.plan.rho)

    @property
    def features(self) -> FeatureLayout:
        """Layout of the second stage; with moments of practice where people are enough to distinguish steps."""
        weighted = self.signal >= (_POOLED_WEIGHTED if self.plan.groups else WEIGHTED)
        return FeatureLayout(self.plan.card, 5 if weighted else 3, weighted)

    @property
    def scored(self) -> MomentLayout:
        """Layout of the third stage."""
        card = self.plan.card
        return MomentLayout(card.name, card.kind, card.domain.dynamics, len(SCORES), halved=PLACEBOS)

    @property
    def shares(self) -> Mapping[str, Fraction]:
        """Of the budget, by stage, from declared numbers: scores get more where their noise is most of an interval."""
        if not self.plan.groups:
            return SHARES
        # the interval's part that is noise, were all budget the scores'
        moved = self.scored.tables[0].replace.l2_squared / self.scored.steps**2
        open_ = deviations(level_of(1)) * _GAIN * math.sqrt(moved / 2) / self.signal
        scored = min(max(_SCORED[0], Fraction(round(100 * (open_ / _OPEN) ** 2), 100)), _SCORED[1])
        left = (1 - scored) / (1 - SHARES[SCORED])
        return {stage: scored if stage == SCORED else part * left for stage, part in SHARES.items()}

    @cached_property
    def sums(self) -> Mapping[str, PrivateSum]:
        rho = {stage: None if self.plan.rho is None else self.plan.rho * part for stage, part in self.shares.items()}
        return {
            FOLLOW: FollowLayout(self.plan.card).summed(rho[FOLLOW]),
            FEATURES: self.features.summed(rho[FEATURES]),
            SCORED: self.scored.summed(rho[SCORED]),
        }

    def clips(self, confirmed: Confirmed, weights: Integers) -> Clips:
        """Clips of scores, reward units; ``weights`` as in :meth:`followers`."""
        (low, high), (least, most) = self.plan.span, self.plan.card.reward.range
        wide = one_step_value.spread(*self.followers(confirmed, weights), min(_WIDEST, self.signal / _FOR_ONE))
        past = past_clip(most - least, high - low)
        return Clips(low, high, max(_SPREAD, wide), past=past, lost=_LOST, gain=max(_GAIN, wide))

    def followers(self, confirmed: Confirmed, weights: Integers) -> tuple[Array, Array]:
        """Rows of the policy ``(n,)``, by step and cell, and the weight of a logged one that follows it there.

        ``weights`` ``(H, K)``: as in :class:`OneStepScores`.
        """
        each, H, K = weights / RATIO_STEPS, len(weights), len(confirmed.rows)
        if self.plan.card.domain.dynamics == "per_step":
            each = each[np.repeat(np.arange(H), K // H), np.arange(K)]
        return (np.maximum(confirmed.rows, 0.0) * each * confirmed.chance).ravel(), each.ravel()

    def spec(self) -> list[Any]:
        """Settings of the policy, which decide the queries about it."""
        version = one_step_value.POOLED_VERSION if self.plan.groups else one_step_value.VERSION
        return [self.estimator, version, *self.plan.span, _SPREAD, _GAIN, _LOST, *self.chosen]

    def draw(self, learnt: Learnt, rows: Snapshot, resources: Resources, stage: Stage) -> Release:
        card = self.plan.card

        def exact(asked: Asked) -> ExactSums:
            if isinstance(asked, OneStepScores):
                return sum_scores(rows, card, self.scored, asked, resources)
            return sum_rows(rows, asked, resources)

        def answer(name: str, asked: Asked) -> Release:
            return stage(name, lambda noise: self.sums[name].draw(exact(asked), noise))

        return self.answers(_step(learnt), answer)

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """Each stage, for queries of the auditor."""
        low, high = self.plan.span
        rows = [rows_target(self.sums[stage], high - low) for stage in (FOLLOW, FEATURES)]
        return [*rows, scores_target(self.sums[SCORED])]

    def answers(self, learnt: LearntStep, answer: Callable[[str, Asked], Release]) -> Release:
        """All stages; each query follows the last answer."""
        proposal = self.propose(learnt)
        first = answer(FOLLOW, FollowQuestion(FollowLayout(self.plan.card), proposal.action))
        confirmed = self.confirm(proposal, first)
        asked = self.ask_features(confirmed)
        second = answer(FEATURES, asked)
        scores = self.ask_scores(confirmed, asked, second)
        third = answer(SCORED, scores)
        return replace(
            first,
            mechanisms=first.mechanisms + second.mechanisms + third.mechanisms,
            tables={**first.tables, **second.tables, **third.tables},
            # what the last question was made of
            derived={"b_weights": scores.weights, "b_values": scores.values},
        )

    def measure(self, learnt: Learnt, answers: Release, share: float, look: int) -> tuple[Learnt, Evaluated]:
        """The policy is the confirmed one."""
        found = _step(learnt)
        proposal = self.propose(found)
        confirmed = self.confirm(proposal, answers)
        clips = self.clips(confirmed, answers.derived["b_weights"])
        deviates, people = confirmed.proposal.action >= 0, float(answers.tables[PEOPLE][0])
        weight = np.maximum(proposal.rows, 0.0)
        changed = float(weight[deviates].sum() / max(weight.sum(), 1.0))
        kept = float(deviates.sum() / max(int((proposal.action >= 0).sum()), 1))
        there = covered(self.estimator, self.plan.card, float(self.share), self.plan.rho)
        error = one_step_value.placebo_error(confirmed, people) * (clips.high - clips.low)
        told = evaluated(
            answers,
            clips,
            Method(self.estimator, one_step_value.BIAS, there, one_step_value.WORSE),
            share,
            look,
            changes=bool(deviates.any()),
            trait=self.trait(confirmed, answers, error),
            diagnostics=(
                Diagnostic("share of rows where the policy leaves practice", changed, Fraction(0)),
                Diagnostic("share of proposed changes that other people confirm", kept, Fraction(0)),
            ),
        )
        plan = replace(found.found, policy=self.policy(confirmed))
        return replace(found, found=plan), told

    def propose(self, learnt: LearntStep) -> Proposal:
        """The proposal of the learning part, in parts of the range of returns."""
        found, values = learnt.found, learnt.release.derived["v_value"]
        G, (low, high) = len(values), self.plan.span
        kept, best = found.policy.abstains[:G], found.policy.probabilities[:G].argmax(-1)
        gain = np.take_along_axis(found.advantage, best[..., None], -1)[..., 0]
        seen = seen_of(learnt, best[0]) if self.plan.groups else None
        return Proposal(
            np.where(kept, -1, best).ravel(),
            self.plan.rewards(values).ravel() / (high - low),
            np.where(kept, 0.0, gain).ravel() / (high - low),
            learnt.release.tables["v_count"].ravel().astype(np.float64),
            low / (high - low),
            high / (high - low),
            mean_error(self.plan, learnt.release) / (high - low),
            seen,
        )

    def confirm(self, proposal: Proposal, answers: Release) -> Confirmed:
        """The confirmed part of a proposal."""
        rows = answers.tables["b_follow"].reshape(2, -1).astype(np.float64)
        return one_step_value.confirm(proposal, rows, _sd(answers, "b_follow"))

    def policy(self, confirmed: Confirmed) -> Policy:
        """The published policy: the part that :meth:`confirm` keeps."""
        d = self.plan.card.domain
        L, A = len(d.live_states), len(d.action_labels)
        action = confirmed.proposal.action.reshape(-1, L)
        chosen = np.where((action >= 0)[..., None], np.eye(A)[np.maximum(action, 0)], 0.0)
        shape = d.horizon, L
        return Policy(np.broadcast_to(chosen, (*shape, A)).copy(), np.broadcast_to(action < 0, shape).copy())

    def ask_features(self, confirmed: Confirmed) -> FeatureQuestion:
        """The query of the second stage."""
        # a third of the largest weight is a ratio of 1; towards 0, so that nothing gets longer than its bound
        weight = np.floor(np.minimum(confirmed.ratio, 3.0) * (WEIGHT // 3)).astype(np.int64)
        phi = np.trunc(one_step_value.features(confirmed) * STEPS).astype(np.int64)
        values = _lattice(one_step_value.first_values(confirmed.proposal))
        low, high = self.plan.span
        return FeatureQuestion(self.features, confirmed.proposal.action, weight, phi, values, high - low)

    def trait(self, confirmed: Confirmed, answers: Release, error: float) -> Trait:
        """Effect of a hidden trait on the placebos, from rows that follow, and weights of steps."""
        card, p = self.plan.card, confirmed.chance
        rows, d = np.maximum(confirmed.rows, 0.0), card.domain
        deviates = confirmed.proposal.action >= 0
        begun = float(answers.tables[PEOPLE][0]) * card.unit.episodes_per_user if d.horizon > 1 else 0.0
        apart, spread = (float((rows * x)[deviates].sum()) for x in (1 - p, p * (1 - p)))
        ratio = per_past(apart, spread, float(rows.sum()), begun)
        if d.dynamics == "stationary":
            return Trait((error, error), ratio, 1.0, behind(card))
        steps = np.repeat(np.arange(d.horizon), len(d.live_states))
        there, _ = self.followers(confirmed, answers.derived["b_weights"])
        whole, leaving = (np.bincount(steps, x, d.horizon) for x in (there, there * (1 - p) * deviates))
        largest = float(np.divide(leaving, whole, out=np.zeros(d.horizon), where=whole > 0).max())
        return Trait((error, error), ratio, largest, behind(card))

    def moments(self, answers: Release) -> Moments:
        """The second stage's answer, in units of features of length 1 and weights of 1."""
        unit = self.features.unit
        tables = {t.name: answers.tables[t.name] / unit for t in self.features.tables}
        practice = (tables["b_gram_mu"], tables["b_next_mu"], tables["b_start"]) if self.features.practice else None
        return Moments(tables["b_gram"], tables["b_next"], tables["b_error"], practice, _sd(answers, "b_gram") / unit)

    def ask_scores(self, confirmed: Confirmed, asked: FeatureQuestion, answers: Release) -> OneStepScores:
        """The query of the third stage.

        ``confirmed``, ``asked``: policy, and the query of the second stage.
        """
        phi, moments = asked.features / STEPS, self.moments(answers)
        model = one_step_value.fit(confirmed, phi, moments, self.plan.card.domain.horizon)
        lost, past = one_step_value.before(confirmed, phi, moments)
        weights = np.rint(model.weights * confirmed.ratio * RATIO_STEPS).astype(np.int64)
        return OneStepScores(
            confirmed.proposal.action,
            weights,
            np.rint(confirmed.chance * RATIO_STEPS).astype(np.int64),
            _lattice(model.values),
            _lattice(confirmed.proposal.value),
            _lattice(lost),
            _lattice(past),
            self.clips(confirmed, weights),
        )


def _step(learnt: Learnt) -> LearntStep:
    if not isinstance(learnt, LearntStep):
        raise TypeError(f"a one-step policy is needed; got {type(learnt).__name__}")
    return learnt


def _lattice(values: Array) -> Integers:
    return np.rint(values * RETURN_STEPS).astype(np.int64)


def _sd(answers: Release, table: str) -> float:
    return next(m for m in answers.mechanisms if m.table == table).standard_deviation
