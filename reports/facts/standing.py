"""Which interval of a policy's value stands first, and what it certifies."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from pipeline.declaration.card import AnyCard, Card
from reports.facts.dataset import Made
from reports.facts.evaluation import EvaluationFacts
from reports.facts.learnt import UNMEASURED, Baseline, Contained, LearntFacts, ValueFacts
from reports.facts.part import Dump

# ends of a value, whoever states it
_ENDS = ("lower", "upper", "estimate", "optimal_upper")
_Ends = TypeVar("_Ends", ValueFacts, Baseline)


def standing(told: LearntFacts, card: AnyCard, made: Made | None) -> LearntFacts:
    """What was learnt, with the interval that stands first, and nothing beyond what an episode can pay.

    Parameters
    ----------
    told
        From a learner.
    card
        Declares what an episode can pay.
    made
        How the log was made, where it was simulated: a containment that was measured on other logs certifies nothing.
    """
    most = card.reward.most(card.domain.states.ends) if isinstance(card, Card) else None
    value = _clipped(told.value, most)
    baselines = {name: _clipped(b, most) for name, b in told.model_baselines.items()}
    if (found := told.evaluation) is not None:
        found = found.within(value.lower_trivial, value.upper_trivial)
        baselines["this policy"] = Baseline.model_validate({k: getattr(value, k) for k in _ENDS[:3]})
        sure = found.certified(card.domain.markov if isinstance(card, Card) else "declared")
        value = _evaluated(value, found, sure=sure)
    elif told.contained is not None and value.status == "modelled" and _alike(told.contained, made):
        value = _bound(value, told.contained)
    return replace(told, value=value, model_baselines=baselines, evaluation=found)


def _clipped(of: _Ends, most: float | None) -> _Ends:
    if most is None or of.upper_trivial is None or of.upper_trivial <= most:
        return of
    ends = {k: min(x, most) for k in (*_ENDS, "upper_trivial") if (x := getattr(of, k, None)) is not None}
    return _with(of, ends)


def _evaluated(of: ValueFacts, found: EvaluationFacts, *, sure: bool) -> ValueFacts:
    """As people who had no part in choosing the policy see it."""
    told = found.value.model_dump()
    ends = {**told, "gap": told["upper"] - told["lower"], "lower_flag": None, "upper_flag": None}
    assumes = [
        "the declared state holds everything that drives both what is done and what comes of it",
        "coverage: measured in simulated worlds, not a theorem"
        if sure
        else "coverage: not measured for a log of this size, shape and budget"
        if not found.outweighed
        else "the placebo cannot tell a difference of this size from hidden state",
        *(said for said in of.assumes if said.startswith(("no episode pays", "the binned process"))),
    ]
    return _with(of, {**ends, "status": "evaluated" if sure else "modelled", "assumes": assumes})


def _alike(measured: Contained, made: Made | None) -> bool:
    wanted = measured.world, measured.behaviour, measured.episodes
    return made is not None and (made.world, made.behaviour, made.episodes) == wanted


def _bound(of: ValueFacts, measured: Contained) -> ValueFacts:
    said = f"containment: measured, inside in {measured.inside} of {measured.draws} draws of this very setting"
    assumes = [said if line == UNMEASURED else line for line in of.assumes]
    return _with(of, {"status": "bound", "assumes": assumes})


def _with(of: _Ends, changes: Dump) -> _Ends:
    return type(of).model_validate({**of.parts(), **changes})
