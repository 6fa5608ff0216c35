"""How far a verdict rests on where the scores of people were cut: from what was released anyway, so free."""

from __future__ import annotations

import math

from pipeline.evaluation.intervals import moments
from pipeline.evaluation.measured import Diagnostic, Evaluated
from pipeline.privacy.release import Release
from pipeline.statistics.scores import SCORES


def clip_diagnostics(found: Evaluated, answers: Release) -> tuple[Diagnostic, ...]:
    """What another clip could have made of the difference.

    With y the difference of a person in parts of its clip, |y| <= 1: nobody is cut whose |y| is below 1, so at most a
    share E[y²] is.  Half the clip would take max(0, |y| - 1/2) <= y²/2 away from each person, and halve the noise.

    Parameters
    ----------
    found, answers
        What the evaluation says, and the release that says it.

    Returns
    -------
    By name: a share of people, and reward units.
    """
    m, gain = moments(answers), SCORES.index("gain")
    square = min(1.0, float(m.variance[gain] + m.mean[gain] ** 2))
    sampling, noise = found.person_variance / m.people, found.noise_variance
    now = math.sqrt(sampling + noise)
    if not now or not m.noise[gain]:
        return (Diagnostic("clip, people cut at it, at most", square),)
    clip = math.sqrt(noise / float(m.noise[gain]))
    halves = {times: found.half_width * math.sqrt(sampling + noise * times**2) / now for times in (0.5, 2.0)}
    moves = square / 2 * clip
    return (
        Diagnostic("clip, people cut at it, at most", square),
        Diagnostic("clip, half of it: lower end of the difference, at worst", _lower(found, halves[0.5] + moves)),
        Diagnostic("clip, twice it: lower end of the difference, had nobody been cut", _lower(found, halves[2.0])),
    )


def _lower(found: Evaluated, below: float) -> float:
    return found.improvement.estimate - below
