"""Can unrecorded traits have made the difference?  Decided from released checks and declarations, no rows.

A policy looks better where practice gave the advised action to people who would have done well in any case.  If the
declared state holds all that drives both, it cannot.  Two sums of :class:`~pipeline.facts.evaluation.Evaluated`
check that: ``placebo`` tests whether the course before a choice correlates with the choice, ``past`` whether earlier
rewards do.

Neither sees a trait that is new at every step, or that moves the last reward alone: a world with one and a world
without any make the same log, so no released number tells them apart.  What remains is the strength that the trait
would need (``strength``): it is ruled out where no reward of an episode is worth that much.

With several steps one more assumption is made: the future depends on the past through the declared state alone.  A
later effect that the state does not hold is credited to no action.
"""

from __future__ import annotations

import math
from functools import partial

from pipeline.declaration.domain import RECORDED
from pipeline.declaration.numbers import number
from pipeline.facts.evaluation import LEANS, Evaluated
from pipeline.facts.verdict import PLACEBO, Confounding

# below it a trait that moves only rewards can make a difference without the check of earlier rewards showing it
REACH = 0.1
# times what an episode can pay that ``strength`` must be: a trait worth all of that, of half of the people, would have
# to multiply the odds of the advised action by thirty; no trait of the hostile families that tuned it came near
IMPLAUSIBLE = 4.0
_COURSE = " Effects that come later count only as far as the recorded state holds them."
_ALIKE = (
    " The card says that steps are alike: a choice that follows the step is a hidden trait here, and `reticent "
    "inspect` looks for it."
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
