"""Measurements of a policy: on held-out people, or in a known world.

In a known world an online agent is played over seeds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated

from pydantic import SerializerFunctionWrapHandler, WithJsonSchema, model_serializer

from pipeline.facts.promise import Dump, Number, Part

# standard errors of a check on the side of a difference, beyond which the check contradicts it
LEANS = 2.0
# most held-out people times the root of rho (at most 1) for which any estimator's intervals were measured
MOST_PEOPLE_ROOT_RHO = 30_000
# standard deviations of the declared number of held-out people by which the released number must fall short to be
# reported: of 6,000 they are 4 %
_LEFT_OUT = 3.0
# least number of held-out people: fewer cannot measure a policy, and their number is hardly hidden by its noise
LEAST_PEOPLE = 500
# the same of dp-one-step, times the root of rho (at most 1): a run with fewer is refused
LEAST_ONE_STEP = 1_500
# usual share of the budget that a gate takes: at rho = 1 the noise of one rule is then 5 people
GATE = Fraction(1, 50)


def people_needed(share: float | Fraction | None, agent: str, rho: float | Fraction | None) -> int:
    """Number of people of whom a share can judge what an agent learns with this zCDP budget, less a gate.

    ``share``: None means the largest one.
    """
    share = share or max(shares_that_judge(agent))
    least = float(LEAST_PEOPLE)
    if agent == "dp-one-step" and rho is not None:
        least = max(least, LEAST_ONE_STEP / math.sqrt(min(float(rho * (1 - GATE)), 1.0)))
    return math.ceil(least / float(share))


def shares_that_judge(agent: str) -> tuple[float, ...]:
    """Shares of the people to hold out, the usual one first; a ledger reserves half of all."""
    return (0.3, 0.5) if agent == "dp-one-step" else (0.3,)


def share_that_judges(people: int, agent: str, rho: float | None) -> float | None:
    """Share of so many people to hold out; None where they are too few."""
    return next((share for share in shares_that_judge(agent) if people >= people_needed(share, agent, rho)), None)


@dataclass(frozen=True)
class Interval:
    """A two-sided interval, ``lower`` to ``upper``, and the ``estimate`` inside it; reward units an episode."""

    estimate: Number
    lower: Number
    upper: Number

    def __post_init__(self) -> None:
        if not self.lower <= self.estimate <= self.upper:
            raise ValueError(f"lower <= estimate <= upper; got {self.lower}, {self.estimate}, {self.upper}")

    def clipped(self, least: float, most: float) -> Interval:
        """The interval clipped to the possible range, reward units."""
        return Interval(*(min(max(x, least), most) for x in (self.estimate, self.lower, self.upper)))


@dataclass(frozen=True)
class Diagnostic:
    """A number that qualifies an estimate: ``name`` and ``value``.

    ``price``: its zCDP cost beside the rest of the release; 0 where it follows from released values.
    """

    name: str
    value: Number
    price: Annotated[int | float | Fraction, WithJsonSchema({"type": "number"})] = 0.0

    def __post_init__(self) -> None:
        # a part of a budget is exact, a number in a file is a float
        if isinstance(self.price, Fraction):
            object.__setattr__(self, "price", float(self.price))


@dataclass(frozen=True)
class Against:
    """Mean paired gain of a person over the policy of another ``run``: ``improvement``."""

    run: str
    improvement: Interval


@dataclass(frozen=True)
class Evaluated:
    """Evaluation of a policy on held-out people: released and declared values only, no rows.

    People are split by a keyed hash of their id. One part learns; on the other, which the policy has never seen, its
    value, that of current practice, and their difference are measured.

    ``estimator``: ``tabular-dr``, ``one-step-dr`` or ``linear-dr``; with ``-logged`` where rows hold
    logged probabilities.
    ``people``, ``share``: released, hence noisy, number of people of the evaluation part, and their declared share.
    ``level``, ``look``: of each two-sided interval, and which evaluation on this lineage this is, from 1, as the ledger
    counts them; the level is corrected for it.
    ``value``, ``practice``, ``improvement``: of the policy, of current practice as measured, and the paired difference.
    ``half_width``: of the interval of an improvement that lies above 0; another one is wider.
    ``placebo``: z of a sum that must come out zero if the declared state holds all that drives both treatment and
    outcome: what was lost before, beside how a person is treated then.  None where nothing lies before a row.  Beyond 4
    on either side the answer is withheld.
    ``hidden``: the largest gain, reward units, that state outside of the declared one may make unseen: a larger one the
    placebos would have shown in 19 of 20 runs.  None where no check could have shown it.
    ``calibrated``, ``changes``: whether coverage was measured for this code and a range of settings that holds this
    one; whether the policy does anything else than practice.
    ``person_variance``, ``noise_variance``: of one person's paired difference, in squared reward units, from which
    follow the people that would be needed; and of the estimated improvement by the privacy noise alone.
    ``diagnostics``: numbers that qualify all this.
    ``against``: the policy beside that of another run, in reports of earlier versions.
    ``ratios``: z of what people's weights exceed their mean by, which logged probabilities determine: 0 if these are
    right, and few weights are cut.  None where they are not used.  Beyond 4 on either side the answer is withheld.
    ``past``: z of a sum over earlier rewards that must come out as zero like ``placebo``; None where none was released.
    ``reach``: lower 95 % end of the share of the spread of gains that a trait behind them would have put into ``past``,
    were rewards all that it moves; None where nothing lies before a row, or nothing changes.
    ``strength``: reward units an episode: a trait of half of the people that doubles the odds of what the policy does,
    and moves rewards alone, would have to be worth that much to explain the gain.  None where no interval excludes 0.
    ``judged_before``: sentence on an earlier release by another recipe that read the held-out people; None: they are
    fresh.
    ``outside``: sentence on what keeps the run out of the range in which coverage was measured, and what would bring it
    in; None: nothing does, or nothing that could be named.
    ``misfit``: of the sums that must come out as zero if values are linear in the declared features, the z that lies
    farthest from it; None without features.  Beyond 3 on either side the answer is withheld.
    ``unweighted``: True where people are too few to tell how often the policy comes to a state: states weigh as in
    practice, and nothing corrects the model in those where practice seldom comes.
    ``led``: True where steps are several, and a few features of a state, the same at all steps, must say
    where the policy leads and what that is worth.
    """

    estimator: str
    people: Number
    share: Number
    level: Number
    look: int
    value: Interval
    practice: Interval
    improvement: Interval
    half_width: Number
    placebo: Number | None
    hidden: Number | None
    calibrated: bool
    changes: bool
    person_variance: Number
    noise_variance: Number
    diagnostics: tuple[Diagnostic, ...] = ()
    against: Against | None = None
    ratios: Number | None = None
    past: Number | None = None
    reach: Number | None = None
    strength: Number | None = None
    judged_before: str | None = None
    misfit: Number | None = None
    outside: str | None = None
    unweighted: bool | None = None
    led: bool | None = None

    @model_serializer(mode="wrap")
    def _without_none(self, handler: SerializerFunctionWrapHandler) -> Dump:
        """A fact behind ``diagnostics`` that is None is absent."""
        return {key: x for key, x in handler(self).items() if x is not None or key in ("placebo", "hidden")}

    @property
    def confirmed(self) -> bool:
        """True where held-out people decide which changes stay: of one step, by how often they follow them."""
        return self.estimator == "one-step-dr"

    @property
    def cut(self) -> bool:
        """True where clipped weights may make a difference that excludes 0, by the logged probabilities."""
        told_apart = self.improvement.lower > 0 or self.improvement.upper < 0
        return told_apart and self.ratios is not None and self.ratios < -LEANS

    def certified(self, markov: str) -> bool:
        """True where the intervals are of people, with a coverage that was measured for a run like this.

        ``markov``: of the card; with bins that hide part of the state the interval is not of people.
        """
        return self.calibrated and markov == "declared" and not self.cut and self.judged_before is None

    def left_out(self, users_public: int) -> float | None:
        """Share of the declared people of whom no record was used; None where chance and noise make as much."""
        expected = users_public * float(self.share)
        missing = 1 - float(self.people) / expected
        return missing if missing > _LEFT_OUT / math.sqrt(expected) else None

    def within(self, least: float, most: float) -> Evaluated:
        """The evaluation with intervals clipped to the range ``least`` to ``most`` of any policy."""
        apart = most - least
        value, practice = self.value.clipped(least, most), self.practice.clipped(least, most)
        return replace(self, value=value, practice=practice, improvement=self.improvement.clipped(-apart, apart))


class Spread(Part):
    """Distribution over independent runs.

    Parameters
    ----------
    mean, std
        Over the runs; ``std`` divides by runs - 1.
    lower, upper
        Interval of the mean at ``level``: Student's; of runs of a learner that agree, by the share of seeds that none
        of them shows.  None with one run.
    least, most
        Of the runs.
    level
        Of the interval.
    median
        Of the runs; None in a report of an older version.
    """

    mean: Number
    std: Number
    lower: Number | None
    upper: Number | None
    least: Number
    most: Number
    level: Number
    median: Number | None = None


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
        Its name, its variant, whom its users trust, and its constants.
    role
        ``agent``; ``plain``: plays beside it without noise; ``control``: learns nothing, or gets no data.
    runs
        How many.
    true_epsilon
        Privacy loss of a user by the drawn noise, at the requested delta.
    suboptimality
        v* - v of the policy emitted at the end, exactly, in reward units; None where the agent emits none.
    regret
        Summed over all episodes, exactly.
    curve
        Of the regret.
    facts
        Facts of its first run, by name.
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
    """Most communication of one user.

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
        Its loss against the best policy, exactly.
    price
        How much more the emitted policies lose on average than those of the agent without noise beside it; None where
        nothing is private.
    agents
        The agent, then those that play beside it.
    communication
        Of one user.
    proposal
        A better choice at the same guarantee, in words; None: none is known.
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
