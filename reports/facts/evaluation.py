"""What an evaluation on other people said, as ``report.json`` has it; see :mod:`pipeline.evaluation.measured`."""

from __future__ import annotations

import math
from typing import Self

from pydantic import model_validator

from reports.facts.part import Number, Part

# standard errors of a placebo on the side of a difference, beyond which that is not certified
LEANS = 2.0
# who evaluates: fewer people than that say nothing of a policy, and their number hardly hides in its noise
LEAST_PEOPLE = 500


class IntervalFacts(Part):
    """An interval, ``lower`` to ``upper``, and the ``estimate`` inside it; reward units an episode."""

    estimate: Number
    lower: Number
    upper: Number

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.lower <= self.estimate <= self.upper:
            raise ValueError("lower <= estimate <= upper does not hold")
        return self

    def clipped(self, least: float, most: float) -> IntervalFacts:
        """The same within what is possible at all.

        Parameters
        ----------
        least, most
            What any policy has at least and at most, reward units.
        """
        ends = (min(max(x, least), most) for x in (self.estimate, self.lower, self.upper))
        return IntervalFacts.model_validate(dict(zip(("estimate", "lower", "upper"), ends, strict=True)))


class DiagnosticFacts(Part):
    """A number that says how far an estimate can be relied on: ``name``, ``value``, and its ``price`` in zCDP."""

    name: str
    value: Number
    price: Number


class AgainstFacts(Part):
    """What each person would gain over the policy of another ``run``, on average, paired: ``improvement``."""

    run: str
    improvement: IntervalFacts


class EvaluationFacts(Part):
    """What other people than those who chose a policy say of it; released values only.

    Parameters
    ----------
    estimator
        ``tabular-dr``, ``one-step-dr`` or ``linear-dr``.
    people, share
        Released, hence noisy, number of people who judged, and their declared share of all.
    level, look
        Of each two-sided interval, and which evaluation on the lineage this is; the level is corrected for it.
    value, practice, improvement
        Of the policy, of current practice as measured, and the paired difference.
    half_width
        Of the interval of an improvement that lies above 0, reward units; another one is wider.
    placebo
        z of what must come out as zero; None where none was released.
    hidden
        Largest gain, reward units, that hidden state may make unseen; None where that was not measured.
    calibrated
        Whether coverage was measured for this code and a range of settings that holds this one.
    changes
        Whether the policy does anything else than practice.
    person_variance, noise_variance
        Of one person's difference, and of the estimated improvement by the privacy noise alone.
    diagnostics
        How far all this can be relied on.
    against
        The policy beside that of another run, where the recipe names one.
    """

    estimator: str
    people: Number
    share: Number
    level: Number
    look: int
    value: IntervalFacts
    practice: IntervalFacts
    improvement: IntervalFacts
    half_width: Number
    placebo: Number | None
    hidden: Number | None
    calibrated: bool
    changes: bool
    person_variance: Number
    noise_variance: Number
    diagnostics: list[DiagnosticFacts]
    against: AgainstFacts | None = None

    @property
    def told_apart(self) -> bool:
        """Whether the interval of the improvement lies on one side of 0."""
        return self.improvement.lower > 0 or self.improvement.upper < 0

    @property
    def confirmed(self) -> bool:
        """Whether the people who judge decided which changes stay: of one step, by how often they follow them."""
        return self.estimator == "one-step-dr"

    @property
    def outweighed(self) -> bool:
        """Whether all of a difference that is told from 0 may be of hidden state, for what the placebo saw or could."""
        if not self.told_apart or self.hidden is None or self.placebo is None:
            return False
        size = self.improvement.estimate
        return self.hidden >= abs(size) or self.placebo * math.copysign(1.0, size) > LEANS

    def certified(self, markov: str) -> bool:
        """Whether the intervals are of people, with a coverage that was measured for a run like this.

        Parameters
        ----------
        markov
            Of the card: bins that hide part of the state tell of no people.
        """
        return self.calibrated and markov == "declared" and not self.outweighed

    def within(self, least: float, most: float) -> EvaluationFacts:
        """The same, with no interval beyond what is possible at all.

        Parameters
        ----------
        least, most
            What any policy has at least and at most, reward units.
        """
        apart = most - least
        clipped = {"value": self.value.clipped(least, most), "practice": self.practice.clipped(least, most)}
        return self.model_validate({**self.parts(), **clipped, "improvement": self.improvement.clipped(-apart, apart)})
