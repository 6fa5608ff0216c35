"""``verdict``: is the policy better than what is done now?  Decided from released facts; costs nothing."""

from __future__ import annotations

import math
from dataclasses import asdict
from statistics import NormalDist
from typing import Literal

from pipeline.declaration.numbers import number
from pipeline.facts.evaluation import LEAST_PEOPLE, Evaluated, Interval
from pipeline.facts.learnt import NO_GUARANTEE, Baseline, Best, Status, ValueFacts
from pipeline.facts.promise import DeclaredPlant, DeclaredTables, Number, Part

# beyond this many standard errors the placebo speaks against what the estimate assumes
PLACEBO = 4.0
# the same of what features leave out, in the largest of twelve directions: 3 in 100 where they leave out nothing
MISFIT = 3.0
# of the people, who judge where nothing else is asked for
SHARE = 0.3
# of its interval's chance of error, that a difference may have which is called
_STRICT = 0.4
# why a difference is withheld that may well be one
NOT_MEASURED_HERE = "How often such an interval holds was not measured for a log of this size, shape and budget."
# what four in five repetitions reach
_POWER = 0.84
# a forecast of more than this many times today's people, or budget, is none
_MOST = 100.0
# standard deviations, of as many as judge by declaration, by which fewer must judge before it is said: of 6,000 4 %
_LEFT_OUT = 3.0
# how far practice by the model may lie from practice as measured, in half-widths of the model's own interval; in logs
# that are whole it was at most a tenth
_APART = 0.2


class Improvement(Part):
    """How much better than current practice, reward units an episode.

    Parameters
    ----------
    estimate, lower, upper
        The interval and the estimate inside it.
    level
        Of the two-sided interval.
    status
        What it certifies; see :class:`~pipeline.facts.learnt.ValueFacts`.
    """

    estimate: Number
    lower: Number
    upper: Number
    level: Number
    status: Status


class Needed(Part):
    """What a clear answer would probably take, the rest as it is; None where no more of it would do.

    Parameters
    ----------
    people
        In the whole log.
    rho
        Budget of a run like this one, zCDP.
    """

    people: int | None
    rho: Number | None


class Confounding(Part):
    """What is known of traits outside of the declared state that may make a difference.

    Parameters
    ----------
    status
        ``seen``: a check shows them, and the answer is withheld.  ``declared``: the operator says that the declared
        state alone decided every choice.  ``checked``: what they can make unseen is less than the difference.
        ``not_excluded``: it may be all of it.  ``unchecked``: nothing in this log can show them.
    why
        In one sentence, or two.
    strength
        What such a trait would have to be worth to make all of the difference; see
        :class:`~pipeline.facts.evaluation.Evaluated`.
    course
        Whether episodes have several steps: an action may then have effects later that the declared state does not
        hold, and nothing in this log is looked at for them.
    """

    status: Literal["seen", "declared", "checked", "not_excluded", "unchecked"]
    why: str
    strength: Number | None
    course: bool = False

    @property
    def excluded(self) -> bool:
        """Whether no trait behind the choices can have made the difference."""
        return self.status in ("checked", "declared")

    @property
    def condition(self) -> str | None:
        """What the recorded state must explain for a difference to stand; None where nothing is left to explain."""
        open_ = [*([] if self.excluded else ["choices"]), *(["outcomes"] if self.course else [])]
        return " and ".join(open_) or None


class Verdict(Part):
    """The answer of a run.

    Parameters
    ----------
    answer
        ``better``, ``worse``, ``not_told_apart``, ``nothing_changes``, ``withheld`` or ``not_evaluated``.
    why
        In one sentence.
    improvement
        Over current practice; None where it was not measured.
    needed
        Where the answer is ``not_told_apart`` and a forecast can be made.
    confounding
        Whether hidden traits may have made the difference; None where nothing was evaluated, or nothing changes.
    left_out
        Share of the declared people of whom no record was used, by the released number; None where it is no more than
        chance and noise make.
    returning
        Whether people may have several episodes, and count by the mean of theirs.
    """

    answer: Literal["better", "worse", "not_told_apart", "nothing_changes", "withheld", "not_evaluated"]
    why: str
    improvement: Improvement | None
    needed: Needed | None
    confounding: Confounding | None = None
    left_out: Number | None = None
    returning: bool = False

    @property
    def above_zero(self) -> bool:
        """Whether the improvement is above 0 by an interval whose coverage was measured or proved."""
        found = self.improvement
        return self.answer == "better" and found is not None and found.status in ("proved", "evaluated")

    @property
    def conditions(self) -> list[str]:
        """What must be so for this difference to stand, beside what was measured."""
        if self.answer not in ("better", "worse"):
            return []
        open_ = None if self.confounding is None else self.confounding.condition
        found = [] if open_ is None else [f"the recorded state explains the {open_}"]
        found += ["people come as often whatever is done and comes of it"] if self.returning else []
        if self.left_out is None:
            return found
        return [*found, f"the {number(100 * float(self.left_out), 2)} % of people left out are like the others"]

    @property
    def conditional(self) -> bool:
        """Whether a difference stands on a condition only."""
        return bool(self.conditions)

    @property
    def holds(self) -> bool:
        """Whether the policy is better without a condition."""
        return self.above_zero and not self.conditional


class Suboptimality(Part):
    """How much more the best policy would gain that this log can speak about, an episode.

    Parameters
    ----------
    upper
        At most so much, reward units.
    over
        ``supported_actions``: policies that leave current practice only for actions that the release shows people took
        there.  ``one_step``: one step of improvement over current practice, by the released sums.
    status
        ``bound``: the policy's value has a guaranteed lower end, and how often both hold was measured in worlds like
        this.  ``estimate``: no guarantee.
    """

    upper: Number
    over: Literal["supported_actions", "one_step"]
    status: Literal["bound", "estimate"]


def missing(best: Best | None, value: ValueFacts) -> Suboptimality | None:
    """What a policy of this value misses at most; None where nothing tells, or the two ends contradict each other.

    Parameters
    ----------
    best
        What the release says of the best policy.
    value
        Of this policy, with the interval that stands first.
    """
    if best is None:
        return None
    room = float(value.upper_trivial) - float(value.lower)
    upper = best.upper if best.over == "one_step" else best.upper - float(value.lower)
    if upper < 0:
        return None
    sure = best.measured and value.status not in NO_GUARANTEE
    told = {"upper": round_up(min(upper, room)), "over": best.over, "status": "bound" if sure else "estimate"}
    return Suboptimality.model_validate(told)


def decide(
    found: Evaluated | None,
    data: DeclaredTables | DeclaredPlant,
    rho: float | None,
    confounding: Confounding | None,
    practice: Baseline | None = None,
) -> Verdict:
    """The answer, and why.

    Parameters
    ----------
    found
        What other people said; None where nobody was asked.
    data
        What the card declares.
    rho
        What the run cost, zCDP; None where nothing is private.
    confounding
        From :func:`pipeline.evaluation.confounding.confounding`.
    practice
        Current practice by the released model; None where it has none.
    """
    if found is None:
        return Verdict(answer="not_evaluated", why=_unasked(data), improvement=None, needed=None, confounding=None)
    status: Status = "evaluated" if found.certified(data.markov) else "modelled"
    said = Improvement.model_validate({**asdict(found.improvement), "level": found.level, "status": status})
    answer, why, needed = "not_told_apart", "", None
    if not found.changes:
        answer = "nothing_changes"
        why = "In no state does the evidence allow anything else than what is done now."
    elif confounding is not None and confounding.status == "seen":
        answer, why = "withheld", confounding.why
    elif found.ratios is not None and abs(found.ratios) > PLACEBO:
        answer = "withheld"
        why = (
            "By the logged probabilities a mean must come out as zero that lies "
            f"{number(abs(found.ratios), 2)} standard errors from it: they are not those of what was done, or too many "
            "of the weights they make are cut."
        )
    elif practice is not None and (off := _apart(practice, found.practice)):
        answer, why = "withheld", off
    elif found.misfit is not None and abs(found.misfit) > MISFIT:
        answer = "withheld"
        why = (
            "The features do not describe these values: what they leave out must come out as zero and lies "
            f"{number(abs(found.misfit), 2)} standard errors from it. Richer features would settle it: quadratic ones, "
            "or waves (kind = 'fourier')."
        )
    elif status == "modelled" and data.kind == "real":
        answer, why = "withheld", _uncertified(found, data.markov)
    elif clear(said.estimate, said.lower, said.upper, found.level):
        answer, why = "better" if said.estimate > 0 else "worse", _judged(found)
    else:
        needed = forecast(found, rho)
        why = ends_near(said) or "The interval of the difference holds 0."
        why += f" {_judged(found)}"
    if status == "modelled" and data.kind != "real" and answer not in ("withheld", "nothing_changes"):
        why += f" {_uncertified(found, data.markov)}"
    told = {"answer": answer, "why": why, "improvement": said, "needed": needed, "confounding": confounding}
    more = {"left_out": _left_out(found, data), "returning": data.episodes_per_user > 1}
    return Verdict.model_validate(told | more)


def _left_out(found: Evaluated, data: DeclaredTables | DeclaredPlant) -> float | None:
    expected = data.users_public * float(found.share)
    missing_share = 1 - float(found.people) / expected
    return missing_share if missing_share > _LEFT_OUT / math.sqrt(expected) else None


def _apart(model: Baseline, measured: Interval) -> str:
    """Why model and people contradict each other on current practice; empty where they do not."""
    if model.estimate is None or model.lower is None or model.upper is None:
        return ""
    off, half = float(model.estimate) - measured.estimate, (float(model.upper) - float(model.lower)) / 2
    if abs(off) <= _APART * half + (measured.upper - measured.lower) / 2:
        return ""
    tables, people = number(model.estimate, 3), number(measured.estimate, 3)
    return (
        f"Current practice is worth {tables} by the released tables and {people} by people's own scores: rows that "
        "lead nowhere (source.last_row), or steps that are not alike, count in one only."
    )


def clear(estimate: float, lower: float, upper: float, level: float) -> bool:
    """Whether a difference is told from 0: its interval, at two fifths of its own chance of error, does not hold 0.

    At the interval's own, policies that are just no better were called better in 2 of 100 runs.

    Parameters
    ----------
    estimate, lower, upper
        The difference and its interval.
    level
        Of the interval, two-sided.
    """
    half = estimate - lower if estimate > 0 else upper - estimate
    return abs(estimate) > half * stricter(level)


def ends_near(found: Improvement) -> str:
    """Why a difference whose interval does not hold 0 is not clear; empty where its interval holds 0, or it is clear.

    Parameters
    ----------
    found
        The difference and its interval.
    """
    if found.lower <= 0 <= found.upper or clear(found.estimate, found.lower, found.upper, found.level):
        return ""
    side, needed = "above" if found.lower > 0 else "below", 100 * (1 - _STRICT * (1 - found.level))
    return (
        f"The {number(100 * found.level, 4)} % interval lies {side} 0, but so near it that chance may have put it "
        f"there: a verdict takes one at {number(needed, 4)} % that does."
    )


def stricter(level: float) -> float:
    """By how much longer an interval is at two fifths of its chance of error.

    Parameters
    ----------
    level
        Of the interval, two-sided.
    """
    error, normal = (1 - level) / 2, NormalDist()
    return normal.inv_cdf(1 - _STRICT * error) / normal.inv_cdf(1 - error)


def _unasked(data: DeclaredTables | DeclaredPlant) -> str:
    if isinstance(data, DeclaredPlant):
        return (
            "No evaluation of a controller on other people is at hand: the released sums tell the plant, not how "
            "practice steers it. A trial would tell."
        )
    unjudged = "Everybody in this log helped to choose the policy, so nobody is left to judge it"
    if data.kind == "real" and data.markov == "aggregated":
        return (
            f"{unjudged}. Nor would a verdict about people come of holding some out: the declared states are bins that "
            "hide part of what was logged."
        )
    if SHARE * data.users_public < LEAST_PEOPLE:
        needed = number(round_up(LEAST_PEOPLE / SHARE))
        few = number(data.users_public)
        return f"{unjudged}, and {few} people are too few to hold any out: that takes at least {needed}."
    return (
        f"{unjudged}: hold people out with [evaluate] people = {SHARE:g} in the recipe, which agents on declared "
        "states can."
    )


def _uncertified(found: Evaluated, markov: str) -> str:
    if found.judged_before is not None:
        return f"{found.judged_before[0].upper()}{found.judged_before[1:]}."
    if found.calibrated and markov == "declared":
        return "By what logged probabilities say, the weights that were cut may make a difference as large as this one."
    if markov == "aggregated":
        return "The declared states are bins that hide part of what was logged: the binned process is not the people."
    return NOT_MEASURED_HERE


def _judged(found: Evaluated) -> str:
    if found.people < 1:
        return "Nearly nobody was there to judge the policy of others."
    people = f"Judged by about {number(round_up(found.people, 'nearest'))} people who"
    if found.confirmed:
        return f"{people} did not propose the policy; how often they follow its changes decided which of these stay."
    return f"{people} had no part in choosing the policy."


def forecast(found: Evaluated, rho: float | None) -> Needed | None:
    """At how many people, or which budget, a difference of this size would be clear in four of five runs.

    Parameters
    ----------
    found
        Released variances, and the difference as estimated.
    rho
        What the run cost, zCDP; None where nothing is private.

    Returns
    -------
    None where the estimate lies so near 0 that neither can be told.
    """
    people, noise = float(found.people), float(found.noise_variance)
    sampling, size = float(found.person_variance), abs(float(found.improvement.estimate))
    error = math.sqrt(sampling / people + noise) if people > 0 else 0.0
    if error == 0 or size < error / 4:
        return None
    # the interval's own factor, so that what it adds for bias is in it
    factor = float(found.half_width) / error * stricter(float(found.level))
    aim = (size / (factor + _POWER)) ** 2
    # sampling / n + noise (people / n)^2 = aim
    square = noise * people**2
    root = math.hypot(sampling, math.sqrt(4 * square * aim))
    inverse = aim / sampling if square == 0 else (root - sampling) / (2 * square)
    more = 1 / inverse / people
    all_people = round(round_up(people * more / found.share)) if more <= _MOST else None
    left = aim - sampling / people
    dearer = noise / left if left > 0 else math.inf
    budget = float(round_up(rho * dearer)) if rho is not None and dearer <= _MOST else None
    return None if all_people is None and budget is None else Needed(people=all_people, rho=budget)


def round_up(x: float, toward: Literal["up", "nearest"] = "up") -> int | float:
    """Two digits: what a forecast, or a noisy number of people, is worth.

    Parameters
    ----------
    x
        Of what is negative, 0.
    toward
        How the second digit is rounded.
    """
    if x <= 0:
        return 0
    grain = 10.0 ** (math.floor(math.log10(x)) - 1)
    found = (math.ceil(x / grain - 1e-9) if toward == "up" else round(x / grain)) * grain
    return round(found) if found >= 10 else round(found, 6)
