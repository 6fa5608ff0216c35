"""A linear policy on observations, measured on held-out people: doubly robust in its declared features.

Two stages: moments of features, and with their answer, scores of the same people.  A few more scores check whether
values are linear in the features: where they are not, the answer is withheld.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.agents import observed_value
from pipeline.agents.observed_value import Fit, Moments, fit, noise_left
from pipeline.audits.attack import AuditTarget
from pipeline.audits.tables import scores_target, tables_target
from pipeline.declaration.card import Card, CardError
from pipeline.evaluation.coverage import OBSERVED, covered
from pipeline.evaluation.intervals import Method, Trait, deviations, evaluated, level_of, moments
from pipeline.facts.evaluation import Diagnostic, Evaluated
from pipeline.learners.learner import Learnt
from pipeline.learners.linear_request import LinearRequest
from pipeline.learners.terms import Terms
from pipeline.logs.observed_rows import Asked, MomentSums, ObservedScores, sum_moments, sum_observed
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.mdp.features import ObservedMap
from pipeline.mdp.linear_policy import LinearPolicy, directions
from pipeline.privacy.losses import safe_epsilon
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Release
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.moment_layout import PEOPLE, SQUARES, STEPS, SUMS, MomentLayout
from pipeline.statistics.observed_layout import (
    ASIDE,
    BESIDE,
    DIRECTIONS,
    FIRST,
    GRAM,
    OFF,
    CheckedLayout,
    ObservedLayout,
)
from pipeline.statistics.observed_layout import STEPS as UNIT
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.scores import SCORES, Clips
from pipeline.transaction.drawing import Stage

if TYPE_CHECKING:
    from pipeline.learners.linear_request import LinearLearnt


FEATURES, SCORED = "moments of features", "values of people"
# of the budget of the part on the moments
SHARE = Fraction(1, 2)
# most features: moments of more are lost in noise, and their fit takes minutes
MOST = 200
# of psi from the middle and of gain from 0: deviations by the weights of all steps, and largest weights of one; least
# and most in ranges of values, and most in ranges of a reward, of the two the larger
_DEVIATIONS, _LARGEST, _LEAST, _MOST, _MOST_STEPS = 5.0, 4.0, 1.0, 4.0, 16.0
# of the checks, in ranges of values, and in ranges of a reward for the root of the steps: the larger
_CHECK, _STEPS = 1 / 3, 0.75
# part of the range of values that the learner's values may be off by in a row, at least a reward's range
_OFF = 0.25
# weights of rows, and how far values may lie outside of their range
_WEIGHTS, _BEYOND = (-10.0, 40.0), 0.2
# standard errors of the gain by which an interval is wider, for each that the farthest check lies from 0
_MISSED = 1.0
_WHOLE = 3


@dataclass(frozen=True)
class ObservedEvaluation:
    """See :class:`~pipeline.learners.held_out.Evaluation`.

    Raises CardError if people are split again, or there are too many features.
    """

    request: LinearRequest
    terms: Terms
    learning: tuple[PrivateSum, ...] = ()
    estimator = OBSERVED

    def __post_init__(self) -> None:
        """Refuse halves within a part, and too many features."""
        asked = f"{self.terms.where}: [evaluate] people = {float(self.terms.held_out):g}"
        if self.request.plan.terms.halves:
            raise CardError(f"{asked}: [linear] halves = true splits people as well; take one of them out")
        if (d := self.features.dimension) > MOST:
            raise CardError(f"{asked}: {d} features; up to {MOST} are measured: declare fewer, or take it out")

    @property
    def card(self) -> Card:
        """The card."""
        return self.request.card

    @property
    def features(self) -> ObservedMap:
        """The declared map."""
        assert self.request.observed is not None
        return self.request.observed

    @property
    def moved(self) -> ObservedLayout:
        """Sums of the first stage."""
        return ObservedLayout(self.card, self.features.dimension)

    @property
    def scored(self) -> MomentLayout:
        """Sums of the second stage: two checks cost as much as one other score."""
        card, J = self.card, _WHOLE + DIRECTIONS
        return CheckedLayout(card.name, card.kind, "per_step", J, halved=tuple(range(_WHOLE, J)))

    @cached_property
    def sums(self) -> Mapping[str, PrivateSum]:
        rho = self.terms.ask_for(self.card).zcdp()
        each = [None if rho is None else rho * part for part in (SHARE, 1 - SHARE)]
        return {FEATURES: self.moved.summed(each[0]), SCORED: self.scored.summed(each[1])}

    @property
    def range(self) -> tuple[float, float]:
        """Least and largest value, in ranges of a reward."""
        least, most = self.request.task.value_range(0)
        total = self.card.reward.total
        return least, most if total is None else min(most, total / self.request.unit)

    def clips(self, m: Moments, found: Fit) -> Clips:
        """Clips of scores, reward units: by the weights of rows from the moments, narrow where these are."""
        least, most = self.range
        people = self.card.unit.users_public * self.card.unit.episodes_per_user * float(self.terms.judging(self.card))
        square = np.einsum("hd,hde,he->h", found.weights, m.gram, found.weights) / people
        each, whole = np.sqrt(np.maximum(square, 0.0)), most - least
        # a row is off by half of a reward's range, about
        wide = _DEVIATIONS * float(np.linalg.norm(each)) / 2 + _LARGEST * float(each.max())
        spread = min(max(wide / whole, _LEAST), max(_MOST, _MOST_STEPS / whole))
        return Clips(least * self.request.unit, most * self.request.unit, spread)

    @property
    def check(self) -> float:
        """Clip of checks, reward units."""
        (least, most), steps = self.range, math.sqrt(self.card.domain.horizon)
        return self.request.unit * max(_CHECK * (most - least), _STEPS * steps)

    @property
    def off(self) -> float:
        """Largest error of the learner's values in a row, in ranges of a reward."""
        least, most = self.range
        return max(1.0, _OFF * (most - least))

    def spec(self) -> list[Any]:
        """All settings that make the policy, free ones included."""
        own = [_DEVIATIONS, _LARGEST, _LEAST, _MOST, _MOST_STEPS, _CHECK, _STEPS, _OFF, *_WEIGHTS, _BEYOND, _MISSED]
        return [self.estimator, observed_value.VERSION, own, self.request.planner_facts().model_dump(mode="json")]

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """Every step is released alike, and by the same code: a plan of one step is attacked."""
        domain = self.card.domain.model_copy(update={"horizon": 1})
        card = self.card.model_copy(update={"kind": "synthetic", "domain": domain}).placed(self.card.folder)
        moved, rho = ObservedLayout(card, self.features.dimension), self.terms.ask_for(self.card).zcdp()
        known = moved.summed(None if rho is None else rho * SHARE), self.sums[SCORED]
        epsilon = safe_epsilon(self.card.budget.rho, self.card.budget.delta)
        shipped, scored = (x if x.exact else x.with_slack(sampler, epsilon) for x in known)
        words = "moments of observed features, one step, discrete gaussian"
        return [tables_target(words, shipped, shipped, moved.add_up, shipped.rho), scores_target(scored)]

    def draw(self, learnt: Learnt, rows: Snapshot, resources: Resources, stage: Stage) -> Release:
        def moved(work: MomentSums) -> ExactSums:
            return sum_moments(rows, work, resources)

        def scored(scores: ObservedScores) -> ExactSums:
            return sum_observed(rows, self.card, self.scored, scores, resources)

        work, sums = self.ask(learnt), self.sums
        first = stage(FEATURES, lambda noise: sums[FEATURES].draw(moved(work), noise))
        scores = self.scores(learnt, work.asked, first)
        second = stage(SCORED, lambda noise: sums[SCORED].draw(scored(scores), noise))
        return self.both(first, second)

    @staticmethod
    def both(first: Release, second: Release) -> Release:
        """The answers of both stages."""
        mechanisms = first.mechanisms + second.mechanisms
        return replace(second, mechanisms=mechanisms, tables={**first.tables, **second.tables})

    def ask(self, learnt: Learnt) -> MomentSums:
        """The query of the first stage."""
        found, d = _linear(learnt), self.card.domain
        policy = _policy(found)
        sides = directions(self.features.size, len(d.live_states), len(d.action_labels), DIRECTIONS)
        asked = Asked(self.features, policy, sides, policy.w, policy.offset)
        return MomentSums(self.moved, asked, self.off)

    def scores(self, learnt: Learnt, asked: Asked, answers: Release) -> ObservedScores:
        """The query of the second stage."""
        m = self.moments(answers)
        found = fit(m)
        least, most = self.range
        room = _BEYOND * (most - least)
        return ObservedScores(
            replace(asked, values=asked.values + found.eta),
            found.weights,
            found.spanned,
            (least - room, most + room),
            _WEIGHTS,
            self.clips(m, found),
            self.check,
            _changes(learnt),
        )

    def moments(self, answers: Release) -> Moments:
        """The first stage's answer in units of features of length 1 and ranges of a reward."""
        sd = {m.table: m.standard_deviation for m in answers.mechanisms}
        beside, d = answers.tables[BESIDE].astype(np.float64), self.features.dimension
        off, aside = self.off / (UNIT * OFF), math.sqrt(DIRECTIONS) / (UNIT * ASIDE)
        return Moments(
            answers.tables[GRAM] / UNIT**2,
            beside[..., :d] / UNIT**2,
            np.multiply(beside[..., d], off, dtype=np.float64),
            np.multiply(beside[..., d + 1 :], aside, dtype=np.float64),
            answers.tables[FIRST] / UNIT,
            sd[GRAM] / UNIT**2,
            sd[BESIDE] / UNIT**2,
            sd[BESIDE] * off,
            sd[BESIDE] * aside,
            sd[FIRST] / UNIT,
        )

    def measure(self, learnt: Learnt, answers: Release, share: float, look: int) -> tuple[Learnt, Evaluated]:
        people, unit, m = max(1.0, float(answers.tables[PEOPLE][0])), self.request.unit, self.moments(answers)
        bias, spread, checks = noise_left(m, people)
        clips = self.clips(m, fit(m))
        told = moments(answers, range(_WHOLE, _WHOLE + DIRECTIONS))
        known = told.error * np.append(clips.widths[:_WHOLE], np.full(DIRECTIONS, self.check))
        # where nothing is off by chance or noise, rounding is no misfit
        apart = np.maximum(np.hypot(known[_WHOLE:], checks * unit), self.check / STEPS)
        off = told.mean[_WHOLE:] * self.check / apart
        misfit, error = float(off[np.abs(off).argmax()]), float(known[SCORES.index("gain")])
        noise = deviations(level_of(look)) * (math.hypot(error, spread * unit) - error) + abs(bias) * unit
        missed = _MISSED * abs(misfit) * error
        there = covered(self.estimator, self.card, share, self.terms.ask().zcdp())
        found = evaluated(
            _of_scores(answers),
            clips,
            Method(self.estimator, 0.0, calibrated=there, unseen=(noise + missed) / (clips.high - clips.low)),
            share,
            look,
            changes=_changes(learnt),
            trait=Trait(behind=(False, False)),
            diagnostics=(
                Diagnostic("half-width, of it for noise of the moments", noise),
                Diagnostic("half-width, of it for what features may leave out", missed),
            ),
        )
        return learnt, replace(found, misfit=misfit)


def _changes(learnt: Learnt) -> bool:
    return bool((~_linear(learnt).policy.abstains).any())


def _linear(learnt: Learnt) -> LinearLearnt:
    from pipeline.learners.linear_request import LinearLearnt

    if not isinstance(learnt, LinearLearnt):
        raise TypeError(f"a linear policy is needed; got {type(learnt).__name__}")
    return learnt


def _policy(found: LinearLearnt) -> LinearPolicy:
    """The policy at any observation."""
    b = found.result.backups
    return LinearPolicy(
        np.stack([x.w for x in b]),
        np.stack([x.inverse for x in b]),
        np.array([x.offset for x in b]),
        np.array([x.multiplier for x in b]),
        np.array([x.constant for x in b]),
        np.array([x.clip for x in b]),
        b[0].unit,
        found.threshold,
        found.request.points.allowed[0],
    )


def _of_scores(answers: Release) -> Release:
    """Value, own return and gain, beside placebos without a query."""
    none, cut = np.zeros(len(SCORES) - _WHOLE, dtype=np.int64), (SUMS, SQUARES)
    tables = {name: np.append(answers.tables[name][:_WHOLE], none) for name in cut}
    listed = tuple(replace(m, shape=(len(SCORES),)) if m.table in cut else m for m in answers.mechanisms)
    return replace(answers, tables={**answers.tables, **tables}, mechanisms=listed)
