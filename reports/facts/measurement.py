"""What was measured, as ``report.json`` has it: on other people than those who chose a policy, or in a known world.

Of people see :mod:`pipeline.evaluation.measured`; in a known world an online agent is played over seeds.
"""

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
        ``tabular-dr``, ``one-step-dr`` or ``linear-dr``; ``-logged`` behind it where rows tell practice themselves.
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
    ratios
        z of what logged probabilities say is zero, where they are used.
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
    ratios: Number | None = None

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
        if not self.told_apart:
            return False
        if self.ratios is not None and self.ratios < -LEANS:
            # weights that were cut may make a difference
            return True
        if self.hidden is None or self.placebo is None:
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


class Spread(Part):
    """Of independent runs.

    Parameters
    ----------
    mean, std
        Over the runs; ``std`` divides by runs - 1.
    lower, upper
        Student's interval of the mean at ``level``; None with one run.
    least, most
        Of the runs.
    level
        Of the interval.
    """

    mean: Number
    std: Number
    lower: Number | None
    upper: Number | None
    least: Number
    most: Number
    level: Number


class Curve(Part):
    """Regret summed up to an episode.

    Parameters
    ----------
    episodes
        At which the curve is read.
    mean, std
        Over the runs, at each of them.
    """

    episodes: list[int]
    mean: list[Number]
    std: list[Number]


class PlayedAgent(Part):
    """One agent in the world, over all seeds.

    Parameters
    ----------
    agent, variant, trust, constants
        Who, in which of its ways, whom its users trust, and what was chosen.
    role
        ``agent``; ``plain``: plays beside it without noise; ``control``: learns nothing, or gets no data.
    runs
        How many.
    true_epsilon
        What the noise that was drawn costs a user, at the delta asked.
    suboptimality
        v* - v of the policy emitted at the end, exactly, in reward units; None where the agent emits none.
    regret
        Summed over all episodes, exactly.
    curve
        Of the regret.
    facts
        What it said of its first run, by name.
    """

    agent: str
    variant: str
    role: str
    trust: str
    constants: str | None
    runs: int
    true_epsilon: Number | None
    suboptimality: Spread | None
    regret: Spread
    curve: Curve
    facts: dict[str, str]


class Communication(Part):
    """What one user sends, at most.

    Parameters
    ----------
    who
        To whom, and what it is, in words.
    messages, bits
        How many, and their size together.
    """

    who: str
    messages: int
    bits: int


class Simulation(Part):
    """An online agent that was played in a known world.

    Parameters
    ----------
    world
        With its parameters, in words.
    episodes, runs, seed
        K users who came one by one, independent runs, and the seed of the first; its policy is the one emitted.
    optimum
        v*: value of the best policy.
    value
        Of the emitted policy, exactly.
    suboptimality
        What that loses against the best, exactly.
    price
        How much more the emitted policies lose on average than those of the agent without noise beside it; None where
        nothing is private.
    agents
        The agent, then what plays beside it.
    communication
        What a user sends.
    proposal
        What would do better here at the same promise, in words; None: nothing that is known.
    """

    world: str
    episodes: int
    runs: int
    seed: int
    optimum: Number
    value: Number
    suboptimality: Number
    price: Number | None
    agents: list[PlayedAgent]
    communication: Communication | None
    proposal: str | None = None
