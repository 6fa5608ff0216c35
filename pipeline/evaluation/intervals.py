"""From released moments of people's scores to intervals of the policy, practice and their difference.

The scores are those of :mod:`pipeline.statistics.scores`.  The
variance is an upper value: a noisy one may come out as nothing where people are few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from pipeline.arrays import Array
from pipeline.declaration.card import Card
from pipeline.facts.evaluation import Diagnostic, Evaluated, Interval
from pipeline.privacy.release import Release
from pipeline.statistics.moment_layout import PEOPLE, SQUARES, STEPS, SUMS, half
from pipeline.statistics.scores import PAST, PLACEBOS, SCORES, Clips

# probability of error over all evaluations of a lineage
ALPHA = 0.05
# one-sided deviations of noise by which a released second moment is raised: 1 in 100
_RAISED = 2.33
# one-sided deviations of the largest trait that a placebo does not exclude: 1 in 20
_OPEN = 1.645
# gains that hidden state made, in means of the placebos: of *lost* the clinicians' log told by 16 bins, of *past* how
# much less of the trait the placebo may see than the gain
_PER_LOST, _PER_PAST = 22.0, 2.0
# least share of the spread of gains that *past* must have: below, no trait that moves rewards would show
REACH = 0.1
# least share of rows that others are thought to stand before
_BEHIND = 0.2


@dataclass(frozen=True)
class Method:
    """An estimator's name, and bounds on its error beside chance.

    ``worse``: share of an interval's part below 0 by which it is widened on both sides: policies that are worse than
    practice are measured worse, and no interval above 0 is widened.
    """

    estimator: str
    bias: float
    calibrated: bool
    worse: float = 0.0
    unseen: float = 0.0


@dataclass(frozen=True)
class Trait:
    """Effect on the placebos of an unrecorded trait that moves both choices and outcomes.

    ``per_past``: the gain that it makes if it moves rewards, in means of *past*; 0 where released counts are too few.
    ``apart``: largest share over steps of people whom the policy treats unlike practice; 1 where steps are not
    distinguished.
    """

    errors: tuple[float, ...] = (0.0, 0.0)
    per_past: float = 0.0
    apart: float = 1.0
    behind: tuple[bool, bool] = (True, True)


def behind(card: Card) -> tuple[bool, bool]:
    """True where a row of a person may have others before it: with several steps, or several episodes of one."""
    several = card.domain.horizon > 1
    return several, several or card.unit.episodes_per_user > 1


def per_past(apart: float, spread: float, rows: float, begun: float) -> float:
    """Gain that a trait behind the choices makes, in means of the placebo *past* that it makes; 0: no such row.

    A trait that shifts the log odds of the policy's action moves the gain by the weight of a row that follows, and the
    placebo by the variance of the action, over rows that have earlier ones.

    ``apart``, ``spread``: sums, over rows where the policy leaves practice, of 1 - p and of p (1 - p), p the chance of
    its action.
    """
    after = max(rows - begun, _BEHIND * rows)
    return apart / spread * rows / after if spread > 0 and after > 0 else 0.0


def level_of(look: int) -> float:
    """Level of each two-sided interval of the k-th evaluation: 1 - α / (k (k + 1)), which leave α over all k.

    ``look``: k, from 1.
    """
    return 1 - ALPHA / (look * (look + 1))


def deviations(level: float) -> float:
    """Standard errors on either side of an estimate, by the normal law."""
    return NormalDist().inv_cdf((1 + level) / 2)


@dataclass(frozen=True)
class Moments:
    """Mean and spread of each score in parts of its clip, from a release.

    ``mean``, ``variance`` ``(J,)``: of a person's score; the variance is an upper value.
    ``noise`` ``(J,)``: variance of each mean by the privacy noise alone.
    ``square`` ``(J,)``: mean square, a lower value.
    """

    people: float
    mean: Array
    variance: Array
    noise: Array
    square: Array

    @property
    def error(self) -> Array:
        """Standard error of each mean ``(J,)``."""
        return np.sqrt(self.variance / self.people + self.noise)


def moments(release: Release, halved: Sequence[int] = PLACEBOS) -> Moments:
    """Read moments off a release."""
    spread = {m.table: m.standard_deviation for m in release.mechanisms}
    # steps of a score's clip on the lattice, in L
    long = np.where(np.isin(np.arange(len(release.tables[SUMS])), halved), half(STEPS) / STEPS, 1.0)
    sums, squares = release.tables[SUMS] / STEPS / long, release.tables[SQUARES] / STEPS
    people = max(1.0, float(release.tables[PEOPLE][0]))
    mean = np.clip(sums / people, -1, 1)
    raised, lowered = (
        (squares + people / 2 + sign * off * spread[SQUARES] / STEPS) / long**2 / people
        for sign, off in ((1, _RAISED), (-1, _OPEN))
    )
    variance = np.clip(raised - mean**2, 0, 1)
    noise = ((spread[SUMS] / STEPS / long) ** 2 + (mean * spread[PEOPLE]) ** 2) / people**2
    return Moments(people, mean, variance, noise, np.clip(lowered, 0, 1))


def evaluated(
    release: Release,
    clips: Clips,
    method: Method,
    share: float,
    look: int,
    *,
    changes: bool = True,
    trait: Trait = Trait(),
    diagnostics: Sequence[Diagnostic] = (),
) -> Evaluated:
    """The evaluation from the moments of the scores, for every estimator.

    ``look``: number of the evaluation on the lineage, from 1.
    """
    found, level = moments(release), level_of(look)
    wide, reach = deviations(level), clips.high - clips.low
    middle, width, error = clips.centres, clips.widths, found.error * clips.widths

    gain = SCORES.index("gain")
    means = middle + found.mean * width
    bias = (method.bias + method.unseen) * reach
    plain = wide * float(error[gain]) + bias
    below = max(0.0, plain - float(means[gain]))

    def interval(i: int, least: float, most: float, *, modelled: bool = True) -> Interval:
        estimate, half = float(means[i]), wide * float(error[i])
        half += (bias + method.worse * below) if modelled else 0.0
        ends = (min(max(x, least), most) for x in (estimate, estimate - half, estimate + half))
        return Interval(*ends)

    improvement = interval(gain, -reach, reach)
    errors = [math.hypot(float(error[i]), e) for i, e in zip(PLACEBOS, trait.errors, strict=True)]
    lost, past = (float(means[i]) / e if e else 0.0 for i, e in zip(PLACEBOS, errors, strict=True))
    # a hidden trait that persists moves gain and placebos to the same side
    side = math.copysign(1.0, float(means[gain]))
    left = [max(0.0, side * float(means[i]) + _OPEN * e) for i, e in zip(PLACEBOS, errors, strict=True)]
    gains = float(found.variance[gain]) * float(width[gain]) ** 2
    seen = float(found.square[PAST]) * float(width[PAST]) ** 2 * trait.per_past**2
    ratio = seen / gains if gains else 0.0
    told = trait.behind[1] and changes
    if not trait.behind[0]:
        left[0] = 0.0
    clear = max(improvement.lower, -improvement.upper)
    return Evaluated(
        estimator=method.estimator,
        people=float(release.tables[PEOPLE][0]),
        share=share,
        level=level,
        look=look,
        value=interval(0, clips.low, clips.high),
        practice=interval(1, clips.low, clips.high, modelled=False),
        improvement=improvement,
        half_width=plain,
        placebo=lost if trait.behind[0] else None,
        hidden=max(_PER_LOST * left[0], _PER_PAST * trait.per_past * left[1]) if told and ratio >= REACH else None,
        calibrated=method.calibrated,
        changes=changes,
        person_variance=float(found.variance[gain] * width[gain] ** 2),
        noise_variance=float(found.noise[gain] * width[gain] ** 2),
        diagnostics=tuple(diagnostics),
        past=past if trait.behind[1] else None,
        reach=ratio if told else None,
        strength=4 * clear / (trait.apart * math.log(2)) if clear > 0 and trait.apart > 0 else None,
    )
