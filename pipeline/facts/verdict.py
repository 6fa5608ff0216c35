"""``verdict``: is the policy better than current practice?  Decided from released facts; costs nothing.

And can unrecorded traits have made the difference?  A policy looks better where practice gave the advised action to
people who would have done well in any case.  If the declared state holds all that drives both, it cannot.  Two sums of
:class:`~pipeline.facts.evaluation.Evaluated` check that: ``placebo`` tests whether the course before a choice
correlates with the choice, ``past`` whether earlier rewards do.

Neither sees a trait that is new at every step, or that moves the last reward alone: a world with one and a world
without any make the same log, so no released number tells them apart.  What remains is the strength that the trait
would need (``strength``): it is ruled out where no reward of an episode is worth that much.

With several steps one more assumption is made: the future depends on the past through the declared state alone.  A
later effect that the state does not hold is credited to no action.
"""

import math
from dataclasses import asdict
from functools import partial
from statistics import NormalDist
from typing import Literal, Self

from pydantic import model_validator

from pipeline.declaration.domain import RECORDED
from pipeline.declaration.numbers import number
from pipeline.facts.evaluation import LEANS, MOST_PEOPLE_ROOT_RHO, Evaluated, people_needed, share_that_judges
from pipeline.facts.learnt import NO_GUARANTEE, Baseline, Best, Status, ValueFacts
from pipeline.facts.promise import DeclaredPlant, DeclaredTables, Number, Part

# standard errors beyond which the placebo contradicts the assumptions of the estimate
PLACEBO = 4.0
# the same of the misfit of features, in the largest of twelve directions: 3 in 100 where they leave out nothing
MISFIT = 3.0
# share of the interval's error probability at which a difference is called clear
_STRICT = 0.4
# reason to withhold a difference whose coverage was not measured
NOT_MEASURED_HERE = "How often such an interval holds was not measured for a log of this size, shape and budget."
# standard errors that four in five repetitions reach
_POWER = 0.84
# largest multiple of today's people, or budget, that a forecast gives
_MOST = 100.0
# standard errors beyond which released counts show that episodes break off
_BROKEN_OFF = 3.0
# largest distance of the model's value of practice from the measured one, in half-widths of the model's interval; in
# complete logs it was at most a tenth
_APART = 0.2


class Improvement(Part):
    """Improvement over current practice, reward units an episode.

    Parameters
    ----------
    estimate, lower, upper
        The interval and the estimate inside it.
    level
        Of the two-sided interval.
    status
        Its guarantee; see :class:`~pipeline.facts.learnt.ValueFacts`.
    """

    estimate: Number
    lower: Number
    upper: Number
    level: Number
    status: Status


class Needed(Part):
    """People or budget for a probably clear answer, the rest as it is; None where no amount would do.

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
    """Status of hidden traits, outside of the declared state, that may make a difference.

    Parameters
    ----------
    status
        ``seen``: a check shows them, and the answer is withheld.  ``declared``: the operator declares that the
        state alone decided every choice.  ``checked``: what they can make unseen is less than the difference.
        ``not_excluded``: it may be all of it.  ``unchecked``: nothing in this log can show them.
    why
        In one sentence, or two.
    strength
        Worth of a trait that would make all of the difference; see
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
        """True where no trait behind the choices can have made the difference."""
        return self.status in ("checked", "declared")

    @property
    def condition(self) -> str | None:
        """Factors that the recorded state must explain for a difference to hold; None where there are none."""
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
        Whether people may have several episodes, and count by the mean of theirs, or by one of them.
    features
        Whether the estimate rests on values that the declared features of observations describe: checks of what they
        leave out look in few directions.
    unweighted
        Whether states weigh as in practice, so that nothing corrects the model where practice seldom comes.
    led
        Whether steps are several, and a few features of a state, the same at all steps, must say where the policy leads
        and what that is worth.
    later
        Whether those who judge came after those who taught: scores may rest on the practice of the latter.
    logged
        Whether people were weighed by logged chances: a check sees those that are too large or too small on average,
        and not those that follow the outcome.
    unsaid
        Whether nobody vouches for what no released number shows: that states were recorded before choices and actions
        as chosen, that no person, outcome or step is missing, as of people beyond the declared number or behind a gap,
        that the same comes of a choice on all days, that each choice was made for one person alone, that nobody gains
        what another loses, and that states, actions, score and vetoes were not chosen by what came of choices in this
        log.
    """

    answer: Literal["better", "worse", "not_told_apart", "nothing_changes", "withheld", "not_evaluated"]
    why: str
    improvement: Improvement | None
    needed: Needed | None
    confounding: Confounding | None = None
    left_out: Number | None = None
    returning: bool = False
    features: bool = False
    unweighted: bool = False
    led: bool = False
    later: bool = False
    logged: bool = False
    unsaid: bool = False

    @model_validator(mode="after")
    def _check_measured(self) -> Self:
        if self.answer in ("better", "worse") and self.improvement is None:
            raise ValueError(f"{self.answer!r} without an improvement")
        return self

    @property
    def above_zero(self) -> bool:
        """True where the improvement is above 0 by an interval whose coverage was measured or proved."""
        improvement = self.improvement
        return self.answer == "better" and improvement is not None and improvement.status in ("proved", "evaluated")

    @property
    def conditions(self) -> list[str]:
        """Conditions of this difference that were not measured."""
        if self.answer not in ("better", "worse"):
            return []
        open_ = None if self.confounding is None else self.confounding.condition
        found = [] if open_ is None else [f"the recorded state explains the {open_}"]
        found += ["the declared features describe the values"] if self.features else []
        # who hardly changes where people come to leads where practice often comes
        found += ["practice often comes where the policy leads"] if self.unweighted and not self.led else []
        found += ["the policy hardly changes which states people come to"] if self.led else []
        found += ["practice and what comes of it were the same among those who taught"] if self.later else []
        found += ["each logged chance is the one by which its action was chosen"] if self.logged else []
        if self.returning:
            # the score of an episode holds nothing that it leaves to the same person's later ones
            found += ["people come as often whatever is done and comes of it"]
            found += ["no episode of a person changes their later ones"]
        if self.left_out is not None:
            missing_share = number(100 * float(self.left_out), 2)
            found += [f"the {missing_share} % of declared people without a usable record are like the others"]
        if self.unsaid:
            # a state that was read after the outcome explains everything, and helps nobody; nor does an action that
            # is named by how it went, as by who lived to complete it
            # calls that a bot closes as solved, and a clerk only once the caller says so, make the bot look better
            found += [
                "each state was recorded before its choice, each action as it was chosen and each outcome alike, "
                "whatever was done"
            ]
            found += [
                f"no {'' if self.left_out is None else 'other '}person, outcome or step is missing or there twice"
            ]
            # a log of a year in which a drug stopped to help says better of what does harm today
            found += ["the same comes of a choice on all days"]
            # sites that draw one choice for all their people: their luck looks like its effect
            found += ["each choice was made for one person alone"]
            found += ["what is done for one, or comes of it, changes nothing for another"]
            # codes grouped by which drug had helped more, in this log, made a drug that does nothing look better
            found += ["states, actions, score and vetoes were not chosen by what came of choices in this log"]
        return found

    @property
    def conditional(self) -> bool:
        """True where a difference holds under a condition only."""
        return bool(self.conditions)

    @property
    def holds(self) -> bool:
        """True where the policy is better without a condition."""
        return self.above_zero and not self.conditional


class Suboptimality(Part):
    """Loss of the policy against the best policy that this log supports, an episode.

    Parameters
    ----------
    upper
        Upper end, reward units.
    over
        ``supported_actions``: policies that leave current practice only for actions that the release shows people took
        there.  ``all_policies``: any, by what an episode can pay at most.  ``one_step``: in reports of older versions
        only, and false where noise hides effects.
    status
        ``bound``: the policy's value has a guaranteed lower end, and the coverage of both was measured in worlds like
        this.  ``estimate``: no guarantee.
    """

    upper: Number
    over: Literal["supported_actions", "all_policies", "one_step"]
    status: Literal["bound", "estimate"]


def missing(best: Best | None, value: ValueFacts) -> Suboptimality | None:
    """Largest loss of a policy against the best one; None without a bound, or where the two ends contradict each other.

    ``value``: of this policy, with the interval that is shown first.
    """
    if best is None:
        return None
    room = float(value.upper_trivial) - float(value.lower)
    upper = best.upper - float(value.lower)
    # with neither end of its own it would say what an episode can pay
    if upper < 0 or (math.isinf(upper) and value.lower_flag == "trivial"):
        return None
    sure = best.measured and value.status not in NO_GUARANTEE
    facts = {
        "upper": round_up(min(upper, room)),
        "over": "all_policies" if math.isinf(upper) else "supported_actions",
        "status": "bound" if sure else "estimate",
    }
    return Suboptimality.model_validate(facts)


def not_evaluated(
    data: DeclaredTables | DeclaredPlant, rho: float | None, *, agent: str = "", untested: str = ""
) -> Verdict:
    """The verdict of a run without held-out people: why there are none, and what to ask for.

    ``rho``: cost of the run, zCDP; None where nothing is private.
    ``agent``: who learned; some need more people to be judged.
    ``untested``: of :func:`no_test`.
    """
    # of a real dataset, who is reserved has taught nothing either
    unjudged = "Nobody was held out to judge this policy"
    share = share_that_judges(data.users_public, agent, rho)
    if isinstance(data, DeclaredPlant):
        why = (
            "No evaluation of a controller on other people is at hand: the released sums tell the plant, not how "
            "practice steers it. A trial would tell."
        )
    elif data.kind == "real" and data.markov == "aggregated":
        why = (
            f"{unjudged}. Nor would a verdict about people come of holding some out: the declared states are bins that "
            "hide part of what was logged."
        )
    elif share is None:
        needed = number(round_up(people_needed(None, agent, rho)))
        few = number(data.users_public)
        why = f"{unjudged}, and {few} people are too few to hold any out: that takes at least {needed}."
    elif untested:
        why = f"{unjudged}: {untested}."
    else:
        why = (
            f"{unjudged}: hold people out with [evaluate] people = {share:g} in the recipe, where reticent plan says "
            "that a verdict can come of it."
        )
    return Verdict(answer="not_evaluated", why=why, improvement=None, needed=None, confounding=None)


def decide(
    evaluated: Evaluated,
    data: DeclaredTables | DeclaredPlant,
    rho: float | None,
    confounding: Confounding | None,
    practice: Baseline | None = None,
    *,
    beyond_cap: bool = False,
    later: bool = False,
    value: ValueFacts | None = None,
    broken_off: float | None = None,
    followed: bool = False,
) -> Verdict:
    """The answer of held-out people and its reason.

    ``rho``: cost of the run, zCDP; None where nothing is private.
    ``practice``: current practice by the released model; None where it has none.
    ``beyond_cap``: whether the log may hold more episodes of a person than count.
    ``later``: whether those who judge came after those who taught.
    ``value``: with the least and most that an episode can pay; None where they are not at hand.
    ``broken_off``: standard errors by which released counts show that episodes break off; None where none can.
    ``followed``: whether the policy does what practice does, as far as released counts show.
    """
    status: Status = "evaluated" if evaluated.certified(data.markov) else "modelled"
    interval, level = asdict(evaluated.improvement), evaluated.level
    improvement = Improvement.model_validate({**interval, "level": level, "status": status})
    answer, why, needed = "not_told_apart", "", None
    if not evaluated.changes:
        answer = "nothing_changes"
        why = "In no state does the evidence allow anything else than what is done now."
    elif followed and not clear(improvement.estimate, improvement.lower, improvement.upper, level):
        answer, confounding = "nothing_changes", None
        why = (
            "By the released counts practice already does what the policy recommends, and nothing else was tried there "
            "often enough to tell."
        )
    elif confounding is not None and confounding.status == "seen":
        answer, why = "withheld", confounding.why + (_CAPPED if _capped(data) else "")
    elif evaluated.ratios is not None and abs(evaluated.ratios) > PLACEBO:
        answer = "withheld"
        why = (
            "By the logged probabilities a mean must come out as zero that lies "
            f"{number(abs(evaluated.ratios), 2)} standard errors from it: they are not those of what was done"
        )
        # a cut only takes away from weights
        why += "." if evaluated.ratios > 0 else f", or too many of the weights they make are cut. {_UNCUT}"
    elif broken_off is not None and broken_off > _BROKEN_OFF:
        answer = "withheld"
        why = (
            f"By the released counts episodes break off ({number(broken_off, 2)} standard errors more than none), or "
            "nothing tells where their last step leads: who leaves is scored up to there, and the policy as if they "
            "stayed. Let an end tell who left (domain.states.ends), or an episode be over with its last row "
            "(source.last_row, unless next_state or source.gap says otherwise); or declare a shorter domain.horizon."
        )
    elif practice is not None and (contradiction := _apart(practice, evaluated, data, rho, later=later)):
        answer, why = "withheld", contradiction
    elif value is not None and (impossible := _impossible(evaluated, value)):
        answer, why = "withheld", impossible
    elif evaluated.misfit is not None and abs(evaluated.misfit) > MISFIT:
        answer = "withheld"
        why = (
            "The features do not describe these values: what they leave out must come out as zero and lies "
            f"{number(abs(evaluated.misfit), 2)} standard errors from it. Richer features would settle it: quadratic "
            "ones, or waves (kind = 'fourier')."
        )
    elif status == "modelled" and data.kind == "real":
        answer, why = "withheld", _uncertified(evaluated, data.markov)
    elif clear(improvement.estimate, improvement.lower, improvement.upper, level):
        answer, why = "better" if improvement.estimate > 0 else "worse", _judged(evaluated)
    else:
        needed = forecast(evaluated, rho)
        why = ends_near(improvement) or "The interval of the difference holds 0."
        why += f" {_judged(evaluated)}"
    if status == "modelled" and data.kind != "real" and answer not in ("withheld", "nothing_changes"):
        why += f" {_uncertified(evaluated, data.markov)}"
    verdict = {"answer": answer, "why": why, "improvement": improvement, "needed": needed, "confounding": confounding}
    # the operator's word on practice says these things too
    unsaid = confounding is not None and confounding.status != "declared"
    returning = data.episodes_per_user > 1 or (beyond_cap and unsaid)
    conditions = {
        "left_out": evaluated.left_out(data.users_public),
        "returning": returning,
        "features": evaluated.misfit is not None,
        "unweighted": evaluated.unweighted is True,
        "led": evaluated.led is True,
        "later": later and unsaid,
        "logged": data.kind == "real" and evaluated.ratios is not None,
        "unsaid": data.kind == "real" and unsaid,
    }
    return Verdict.model_validate(verdict | conditions)


def _apart(
    model: Baseline, evaluated: Evaluated, data: DeclaredTables | DeclaredPlant, rho: float | None, *, later: bool
) -> str:
    """Sentence on the contradiction of model and people about current practice; empty where there is none.

    It names what may cause it on such a card.
    """
    if model.estimate is None or model.lower is None or model.upper is None:
        return ""
    by_model, least, most = float(model.estimate), float(model.lower), float(model.upper)
    measured, half_width = evaluated.practice, (most - least) / 2
    if data.horizon == 1:
        # of rare or usual outcomes one end is cut at what an episode can pay: the other tells the width
        half_width = max(most - by_model, by_model - least)
    # the tables are of other people, at most all the rest, and chance is in both
    chance = (measured.upper - measured.lower) / 2 / math.sqrt(1 - evaluated.share)
    if abs(by_model - measured.estimate) <= _APART * half_width + chance:
        return ""
    by_tables, by_people = number(model.estimate, 3), number(measured.estimate, 3)
    alike = isinstance(data, DeclaredTables) and data.dynamics == "stationary"
    causes = [
        # more people bring no row back that a cap leaves out
        f"of noise, where states, actions and steps are many for so few people"
        f"{'' if _capped(data) else f' ({_four_times(evaluated, rho)})'}",
        "of rows that lead nowhere (source.last_row)",
        *(["of rows beyond domain.cell_cap"] if _capped(data) else []),
        *(["of steps that are not alike"] if alike else []),
    ]
    if isinstance(data, DeclaredTables) and data.start == "declared":
        causes += ["of a domain.start that is not the log's"]
    causes += ["of judges who came later (evaluate.since)"] if later else []
    if data.episodes_per_user > 1:
        counted = "tables count these more often (unit.episodes_per_user = 1 does not)"
        causes += [f"of people with more episodes than others: {counted}"]
    return (
        f"Current practice is worth {by_tables} by the released tables and {by_people} by people's own scores. Such "
        f"a gap comes {', '.join(causes[:-1])} or {causes[-1]}."
    )


def _capped(data: DeclaredTables | DeclaredPlant) -> bool:
    """Whether tables may lack rows because a person did the same there too often: these say little of practice."""
    return isinstance(data, DeclaredTables) and data.dynamics == "stationary" and data.cell_cap is not None


def _four_times(evaluated: Evaluated, rho: float | None) -> str:
    """How many people would do, and which share of them may judge where all these would be more than was measured."""
    would = "four times as many would probably do"
    judges = 4 * float(evaluated.people)
    if rho is None or judges <= 0 or _measured(judges, rho):
        return would
    # two digits, down; the released number of judges is noisy
    share = float(evaluated.share) * MOST_PEOPLE_ROOT_RHO / (judges * math.sqrt(min(rho, 1.0)))
    share = math.floor(98 * share) / 100
    return (
        f"{would}, if at most {share:g} of them judge ([evaluate] people): more were not measured" if share else would
    )


def _impossible(evaluated: Evaluated, value: ValueFacts) -> str:
    """Sentence on a difference larger than what an episode can pay beside current practice; empty where it is not."""
    # an episode that breaks off may pay nothing
    least, most = min(float(value.lower_trivial), 0.0), max(float(value.upper_trivial), 0.0)
    practice, gain = evaluated.practice, evaluated.improvement
    if gain.lower <= most - practice.lower and gain.upper >= least - practice.upper:
        return ""
    return (
        f"An episode pays {number(least, 3)} to {number(most, 3)} and current practice is worth "
        f"{number(practice.estimate, 3)}: no policy can make a difference as large as people's scores show. Where "
        "nobody is paid twice (reward.total), the state must tell who was paid, or the episode end there."
    )


_UNCUT = (
    "Where few were given some action, declare the smallest logged chance, or a smaller one ([evaluate] least, from "
    "1/64 on): rows from there on are weighed in full. That is another recipe, so people who come later judge it "
    "([evaluate] since)."
)


def clear(estimate: float, lower: float, upper: float, level: float) -> bool:
    """True where the interval of a difference, at two fifths of its error probability, excludes 0.

    At the interval's own error probability, policies that are just no better were called better in 2 of 100 runs.
    ``level``: of the two-sided interval.
    """
    half_width = estimate - lower if estimate > 0 else upper - estimate
    return abs(estimate) > half_width * stricter(level)


def ends_near(improvement: Improvement) -> str:
    """Sentence on an interval that excludes 0 without being clear; empty where it holds 0, or is clear."""
    lower, upper, level = improvement.lower, improvement.upper, improvement.level
    if lower <= 0 <= upper or clear(improvement.estimate, lower, upper, level):
        return ""
    side, needed = "above" if lower > 0 else "below", 100 * (1 - _STRICT * (1 - level))
    return (
        f"The {number(100 * level, 4, 'down')} % interval lies {side} 0, but so near it that chance may have put it "
        f"there: a verdict takes one at {number(needed, 4, 'down')} % that does."
    )


def stricter(level: float) -> float:
    """Factor by which a two-sided interval of this level is longer at two fifths of its error probability."""
    error, normal = (1 - level) / 2, NormalDist()
    return normal.inv_cdf(1 - _STRICT * error) / normal.inv_cdf(1 - error)


def no_test(*, pure: bool, counter: bool) -> str:
    """Why no held-out people can judge such a run, and what to ask for instead; empty where they can."""
    if counter:
        return "a counter of nights has no test; a calendar such as [schedule] release = 'monthly' has one on each date"
    return "a test draws Gaussian noise: it takes rho, or epsilon with delta, not epsilon alone" if pure else ""


def _uncertified(evaluated: Evaluated, markov: str) -> str:
    if evaluated.judged_before is not None:
        return f"{evaluated.judged_before[0].upper()}{evaluated.judged_before[1:]}."
    if evaluated.calibrated and markov == "declared":
        cut = "By what logged probabilities say, the weights that were cut may make a difference as large as this one."
        return f"{cut} {_UNCUT}"
    if markov == "aggregated":
        return "The declared states are bins that hide part of what was logged: the binned process is not the people."
    return NOT_MEASURED_HERE


def _judged(evaluated: Evaluated) -> str:
    if evaluated.people < 1:
        return "Nearly nobody was there to judge the policy of others."
    people = f"Judged by about {number(round_up(evaluated.people, 'nearest'))} people who"
    if evaluated.confirmed:
        return f"{people} did not propose the policy; how often they follow its changes decided which of these stay."
    return f"{people} had no part in choosing the policy."


def forecast(evaluated: Evaluated, rho: float | None) -> Needed | None:
    """Number of people, or budget, at which a difference of this size would be clear in four of five runs.

    ``rho``: cost of the run, zCDP; None where nothing is private.
    Returns None where the estimate lies too near 0 for either, or both lie beyond what was measured.
    """
    people, noise = float(evaluated.people), float(evaluated.noise_variance)
    sampling, size = float(evaluated.person_variance), abs(float(evaluated.improvement.estimate))
    error = math.sqrt(sampling / people + noise) if people > 0 else 0.0
    fixed, strict = fixed_width(evaluated), stricter(float(evaluated.level))
    # the interval of a policy that is measured worse is wider
    more = widened(evaluated) if evaluated.improvement.estimate < 0 else 0.0
    wider = strict * (1 + more)
    left_to_show = size * (1 - strict * more) - wider * fixed
    if error == 0 or size < error / 4 or left_to_show < error / _MOST:
        return None
    factor = (float(evaluated.half_width) - fixed) / error * wider
    aim = (left_to_show / (factor + _POWER)) ** 2
    # sampling / n + noise (people / n)^2 = aim
    square = noise * people**2
    root = math.hypot(sampling, math.sqrt(4 * square * aim))
    inverse = aim / sampling if square == 0 else (root - sampling) / (2 * square)
    times = 1 / inverse / people
    all_people = round(round_up(people * times / evaluated.share)) if times <= _MOST else None
    left = aim - sampling / people
    dearer = noise / left if left > 0 else math.inf
    budget = float(round_up(rho * dearer)) if rho is not None and dearer <= _MOST else None
    # no verdict stands where nobody measured how often its interval holds
    if rho is not None and all_people is not None and not _measured(all_people * float(evaluated.share), rho):
        all_people = None
    if budget is not None and not _measured(people, budget):
        budget = None
    return None if all_people is None and budget is None else Needed(people=all_people, rho=budget)


def fixed_width(evaluated: Evaluated) -> float:
    """Part of the half-width that neither people nor budget make smaller: the allowance for bias."""
    # what features leave out widens an interval by standard errors
    if evaluated.misfit is not None or evaluated.people < 1:
        return 0.0
    error = math.sqrt(float(evaluated.person_variance) / float(evaluated.people) + float(evaluated.noise_variance))
    return max(0.0, float(evaluated.half_width) - NormalDist().inv_cdf((1 + float(evaluated.level)) / 2) * error)


def widened(evaluated: Evaluated) -> float:
    """Part of what an interval reaches below 0 by which it is wider on both sides; 0 where it reaches nothing there."""
    estimate, half_width = float(evaluated.improvement.estimate), float(evaluated.half_width)
    below = half_width - estimate
    return max(0.0, float(evaluated.improvement.upper) - estimate - half_width) / below if below > 0 else 0.0


def _measured(people: float, rho: float) -> bool:
    return people * math.sqrt(min(rho, 1.0)) <= MOST_PEOPLE_ROOT_RHO


def round_up(x: float, toward: Literal["up", "nearest"] = "up") -> int | float:
    """``x`` in two digits, the accuracy of a forecast or of a noisy number of people; 0 where it is negative."""
    if x <= 0:
        return 0
    grain = 10.0 ** (math.floor(math.log10(x)) - 1)
    rounded = (math.ceil(x / grain - 1e-9) if toward == "up" else round(x / grain)) * grain
    # two digits of any size: a bound in small units is no 0
    return round(rounded) if rounded >= 10 else float(f"{rounded:.2g}")


# below it a trait that moves only rewards can make a difference without the check of earlier rewards showing it
REACH = 0.1
# times what an episode can pay that ``strength`` must be: a trait worth all of that, of half of the people, would have
# to multiply the odds of the advised action by thirty; no trait of the hostile families that tuned it came near
IMPLAUSIBLE = 4.0
_COURSE = " Effects that come later count only as far as the recorded state holds them."
_ALIKE = (
    " The card says that steps are alike: a choice, chance or reward that follows the step is a hidden trait here; "
    "`reticent inspect` looks for such choices."
)
_CAPPED = (
    " So do rows beyond domain.cell_cap, which leaves out what is done again and again: without it tables know what "
    "practice does."
)
_BLIND = "so no check on this log can see a trait that moves only the outcome."


def confounding(
    evaluated: Evaluated | None,
    *,
    horizon: int,
    course: bool,
    alike: bool,
    pays: float,
    pays_at_the_end: bool,
    recorded: bool | None,
) -> Confounding | None:
    """Status of hidden traits behind a difference; None without an evaluation or a change.

    ``course``: whether people have several rows, so that an action may have effects that come later.
    ``alike``: whether the card declares that no step differs from another.
    ``pays``: largest difference of two episodes, reward units.
    ``recorded``: whether ``practice = "recorded"`` was registered before the ledger's first answer; None: it is not
    declared.
    """
    if evaluated is None or not evaluated.changes:
        return None
    strength = None if evaluated.strength is None else float(evaluated.strength)
    facts = partial(Confounding, strength=strength, course=course)
    checks = [float(z) for z in (evaluated.placebo, evaluated.past) if z is not None]
    farthest = max(checks, key=abs, default=0.0)
    if abs(farthest) > PLACEBO:
        why = (
            f"A sum that must come out as zero lies {number(abs(farthest), 2)} standard errors from it: something "
            "outside of the declared state drives what is done, and may drive what comes of it. Sites or years "
            "that differ in practice alone show so too."
        )
        return facts(status="seen", why=why)
    doubts = _why_declaration_is_void(evaluated, horizon, alike, recorded) if recorded is not None else ""
    notes = (_COURSE if course else "") + (_ALIKE if alike and horizon > 1 else "")
    if recorded is not None and not doubts:
        return facts(status="declared", why=f"{RECORDED[0].upper()}{RECORDED[1:]}.{notes}")
    doubts += notes
    if blind := _why_unchecked(evaluated, horizon, pays_at_the_end):
        return facts(status="unchecked", why=f"{blind}, {_BLIND}{doubts}")
    if open_ := _why_not_excluded(evaluated, checks) or _why_not_too_strong(strength, IMPLAUSIBLE * pays):
        return facts(status="not_excluded", why=f"{open_}{doubts}")
    why = (
        f"A hidden trait that lasts would explain at most {number(evaluated.hidden, 2, 'up')}, less than the lower end "
        "of this difference; one that does not would have to be worth more than anything that an episode pays."
    )
    return facts(status="checked", why=f"{why}{doubts}")


def _why_declaration_is_void(evaluated: Evaluated, horizon: int, alike: bool, recorded: bool | None) -> str:
    """Reason why the operator's declaration excludes no hidden traits behind choices; empty where it does."""
    void = " The operator declares that choices were recorded, which does not count:"
    if not recorded:
        return f"{void} it was registered after the ledger's first answer."
    if alike and horizon > 1:
        return f"{void} it speaks of the state and the step, and the card says that steps are alike."
    if evaluated.past is not None and abs(float(evaluated.past)) > LEANS:
        return f"{void} what was paid before a choice goes with it, by {_z(evaluated.past)} standard errors."
    if horizon > 1 and evaluated.placebo is None:
        return f"{void} the course before a choice was not checked."
    if horizon > 1 and abs(float(evaluated.placebo or 0.0)) > LEANS:
        return f"{void} the course before a choice goes with the choice, by {_z(evaluated.placebo)} standard errors."
    return ""


def _z(x: float | None) -> str:
    return number(abs(float(x or 0.0)), 2)


def _why_unchecked(evaluated: Evaluated, horizon: int, pays_at_the_end: bool) -> str:
    if pays_at_the_end:
        return "The card pays at the end of an episode only"
    if horizon == 1 and evaluated.past is None:
        return "Episodes have one step, and no earlier ones of the same people were looked at"
    if evaluated.reach is not None and evaluated.reach < REACH:
        reach = number(evaluated.reach, 2, "down")
        return f"Earlier rewards tell too little of later ones (reach {reach}; {REACH:g} is needed)"
    return "No check of earlier rewards was released" if evaluated.reach is None or evaluated.hidden is None else ""


def _why_not_excluded(evaluated: Evaluated, checks: list[float]) -> str:
    improvement = evaluated.improvement
    sign = math.copysign(1.0, improvement.estimate)
    least = max(0.0, improvement.lower if sign > 0 else -improvement.upper)
    leaning = max((z * sign for z in checks), default=0.0)
    if least == 0:
        return "The interval of the difference holds 0, so there is no difference that a check could clear."
    if leaning > LEANS:
        z = number(leaning, 2)
        return f"A sum that must come out as zero leans to the side of the difference, by {z} standard errors."
    if evaluated.hidden is not None and evaluated.hidden < least:
        return ""
    return (
        f"A hidden trait that the checks could miss may explain up to {number(evaluated.hidden, 2, 'up')}, and the "
        f"lower end of this difference is {number(least, 2, 'down')}."
    )


def _why_not_too_strong(strength: float | None, most: float) -> str:
    """Sentence on traits that leave no trace before the row that they move, which no check sees."""
    if strength is not None and strength >= most:
        return ""
    return (
        "A trait that is new at every step, or that moves the last reward alone, leaves nothing that a check could "
        "see. It is ruled out where one that half of the people have, and that doubles the odds of the advised action, "
        f"would have to be worth {number(most, 2, 'up')}, {IMPLAUSIBLE:g} times all that an episode can pay."
    )
