"""From released moments of people's scores to intervals: what the policy, practice and the difference are worth.

The scores are those of :mod:`pipeline.statistics.scores`.  The
variance is an upper value: a noisy one may come out as nothing where people are few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from pipeline.evaluation.measured import Diagnostic, Evaluated, Interval
from pipeline.privacy.release import Release
from pipeline.statistics.moment_layout import PEOPLE, SQUARES, STEPS, SUMS
from pipeline.statistics.scores import SCORES, Clips

Array = NDArray[np.float64]

# what is left for chance over all evaluations of a lineage
ALPHA = 0.05
# one-sided deviations of noise by which a released second moment is raised: 1 in 100
_RAISED = 2.33
# one-sided deviations of what a placebo leaves open: 1 in 20
_OPEN = 1.645


@dataclass(frozen=True)
class Method:
    """An estimator's name, and by how much it may be off beside chance.

    Parameters
    ----------
    estimator
        See :class:`~pipeline.evaluation.measured.Evaluated`.
    bias
        Half-width that is added to an interval for bias, in ranges of values.
    calibrated
        Whether coverage was measured over a range that holds this run.
    worse
        By what part of what an interval of the gain reaches below 0 it is wider on both sides: policies that are worse
        than practice are measured worse, and no interval that lies above 0 is wider for it.
    hidden
        The largest gain that hidden state made in a simulated world, in means of the placebo; None where nobody looked.
    """

    estimator: str
    bias: float
    calibrated: bool
    worse: float = 0.0
    hidden: float | None = None


def level_of(look: int) -> float:
    """Level of each two-sided interval of the k-th evaluation: 1 - α / (k (k + 1)), which leave α over all k.

    Parameters
    ----------
    look
        k, from 1.
    """
    return 1 - ALPHA / (look * (look + 1))


def deviations(level: float) -> float:
    """Standard errors on either side of an estimate, by the normal law.

    Parameters
    ----------
    level
        Of a two-sided interval.
    """
    return NormalDist().inv_cdf((1 + level) / 2)


@dataclass(frozen=True)
class Moments:
    """Mean and spread of each score in parts of its clip, as far as a release tells them.

    Parameters
    ----------
    people
        Released number of people.
    mean, variance
        ``(J,)``: of a person's score; the variance is an upper value.
    noise
        ``(J,)``: variance of each mean by the privacy noise alone.
    """

    people: float
    mean: Array
    variance: Array
    noise: Array

    @property
    def error(self) -> Array:
        """Standard error of each mean ``(J,)``."""
        return np.sqrt(self.variance / self.people + self.noise)


def moments(release: Release) -> Moments:
    """Read moments off a release.

    Parameters
    ----------
    release
        With the tables of a :class:`~pipeline.statistics.moment_layout.MomentLayout`; fewer people than one count as
        one.
    """
    spread = {m.table: m.standard_deviation for m in release.mechanisms}
    sums, squares = (release.tables[name] / STEPS for name in (SUMS, SQUARES))
    people = max(1.0, float(release.tables[PEOPLE][0]))
    mean = np.clip(sums / people, -1, 1)
    raised = squares + people / 2 + _RAISED * spread[SQUARES] / STEPS
    variance = np.clip(raised / people - mean**2, 0, 1)
    noise = ((spread[SUMS] / STEPS) ** 2 + (mean * spread[PEOPLE]) ** 2) / people**2
    return Moments(people, mean, variance, noise)


def evaluated(
    release: Release,
    clips: Clips,
    method: Method,
    share: float,
    look: int,
    *,
    changes: bool = True,
    placebo_error: float = 0.0,
    diagnostics: Sequence[Diagnostic] = (),
) -> Evaluated:
    """What the moments of the four scores say; the same for every estimator.

    Parameters
    ----------
    release
        With the moments of :data:`SCORES`, in this order.
    clips, method
        How the scores were cut, and how far the estimator is to be trusted.
    share
        Of all people, declared.
    look
        Which evaluation on the lineage this is, from 1.
    changes
        Whether the policy is anything but practice.
    placebo_error
        What else may move the mean of the placebo (standard error, reward units): estimated behaviour.
    diagnostics
        What else is told.
    """
    found, level = moments(release), level_of(look)
    wide, reach = deviations(level), clips.high - clips.low
    middle, width, error = clips.centres, clips.widths, found.error * clips.widths

    gain, last = SCORES.index("gain"), SCORES.index("placebo")
    means = middle + found.mean * width
    bias = method.bias * reach
    plain = wide * float(error[gain]) + bias
    below = max(0.0, plain - float(means[gain]))

    def interval(i: int, least: float, most: float, *, modelled: bool = True) -> Interval:
        estimate, half = float(means[i]), wide * float(error[i])
        half += (bias + method.worse * below) if modelled else 0.0
        ends = (min(max(x, least), most) for x in (estimate, estimate - half, estimate + half))
        return Interval(*ends)

    apart = math.hypot(float(error[last]), placebo_error)
    # what is hidden and persists moves placebo and gain to the same side
    leaning = float(means[last]) * math.copysign(1.0, float(means[gain]))
    return Evaluated(
        estimator=method.estimator,
        people=float(release.tables[PEOPLE][0]),
        share=share,
        level=level,
        look=look,
        value=interval(0, clips.low, clips.high),
        practice=interval(1, clips.low, clips.high, modelled=False),
        improvement=interval(gain, -reach, reach),
        half_width=plain,
        placebo=float(means[last]) / apart if apart else 0.0,
        hidden=None if method.hidden is None else method.hidden * max(0.0, leaning + _OPEN * apart),
        calibrated=method.calibrated,
        changes=changes,
        person_variance=float(found.variance[gain] * width[gain] ** 2),
        noise_variance=float(found.noise[gain] * width[gain] ** 2),
        diagnostics=tuple(diagnostics),
    )
