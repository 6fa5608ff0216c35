"""Reports with made-up evaluations: one for each answer that a verdict can be."""

import copy
from typing import Any

from pydantic import TypeAdapter

from pipeline.facts.evaluation import Evaluated
from pipeline.facts.promise import DeclaredPlant, DeclaredTables
from pipeline.facts.report import Report
from pipeline.facts.verdict import Verdict, confounding, decide, not_evaluated
from tests.reports.sample import in_words, sample_facts

_EVALUATION: dict[str, Any] = {
    "estimator": "one-step-dr",
    "people": 30020,
    "share": 0.3,
    "level": 0.95,
    "look": 1,
    "value": {"estimate": 0.7481, "lower": 0.7334, "upper": 0.7626},
    "practice": {"estimate": 0.6921, "lower": 0.6868, "upper": 0.6974},
    "improvement": {"estimate": 0.0605, "lower": 0.0512, "upper": 0.0698},
    "half_width": 0.0093,
    "placebo": 0.7,
    "hidden": 0.012,
    "past": 0.4,
    "reach": 0.35,
    "strength": 0.31,
    "calibrated": True,
    "changes": True,
    "person_variance": 0.51,
    "noise_variance": 4e-7,
    "diagnostics": [
        {"name": "effective sample size", "value": 5210.0, "price": 0},
        {"name": "weights clipped", "value": 0.021, "price": 0},
        {"name": "overlap, well-known states", "value": 0.31, "price": 0.02},
    ],
}
# by answer: what differs in the evaluation; None: there is none
CHANGES: dict[str, dict[str, Any] | None] = {
    "better": {},
    "worse": {
        "value": {"estimate": 0.66, "lower": 0.645, "upper": 0.675},
        "improvement": {"estimate": -0.0315, "lower": -0.0411, "upper": -0.0219},
    },
    "not_told_apart": {
        "value": {"estimate": 0.699, "lower": 0.68, "upper": 0.718},
        "improvement": {"estimate": 0.0068, "lower": -0.0031, "upper": 0.0167},
        # of an interval above 0; this one is wider
        "half_width": 0.0085,
        # five times as many judges lie where intervals were measured
        "people": 5000,
        "share": 0.05,
        "person_variance": 0.085,
    },
    "nothing_changes": {
        "value": {"estimate": 0.6921, "lower": 0.6868, "upper": 0.6974},
        "improvement": {"estimate": 0.0, "lower": 0.0, "upper": 0.0},
        "changes": False,
        "person_variance": 0.0,
        "noise_variance": 0.0,
    },
    "withheld": {"placebo": 10.8},
    "not_evaluated": None,
}
_EVALUATED = TypeAdapter(Evaluated)


def evaluation(**changes: Any) -> Evaluated:
    """A made-up evaluation: what differs from one that is clearly better."""
    return _EVALUATED.validate_python(copy.deepcopy(_EVALUATION) | changes)


def decided(
    found: Evaluated | None,
    data: DeclaredTables | DeclaredPlant,
    rho: float | None = 1.0,
    *,
    pays_at_the_end: bool = False,
    recorded: bool | None = None,
    course: bool = False,
    **more: Any,
) -> Verdict:
    """The verdict, as a run comes to it, where an episode pays so little that no trait is worth the difference."""
    hidden = confounding(
        found,
        horizon=data.horizon,
        course=course,
        alike=False,
        pays=0.01,
        pays_at_the_end=pays_at_the_end,
        recorded=recorded,
    )
    return not_evaluated(data, rho, **more) if found is None else decide(found, data, rho, hidden, **more)


def judged(answer: str, kind: str = "real", markov: str = "declared", **dataset: Any) -> Report:
    """A report with one of the answers of :data:`CHANGES`, of people whose practice the operator says is recorded.

    ``conditional``: better, if the recorded state explains the choices and no person, outcome or step is missing.
    """
    end, answer = answer == "conditional", "better" if answer == "conditional" else answer
    changes = CHANGES[answer]
    told = sample_facts(
        dataset={"kind": kind, "markov": markov, **dataset},
        guarantee={"data_kind": kind, "claim": "differential privacy" if kind == "real" else "none (simulation)"},
    )
    if kind == "real":
        del told["truth"]
    found = None
    if changes is not None:
        found = evaluation(**changes)
        told["evaluation"] = _EVALUATED.dump_python(found)
        ends = {k: getattr(found.value, k) for k in ("lower", "upper", "estimate")}
        told["value"] |= ends | {"status": "evaluated", "gap": found.value.upper - found.value.lower}
        told["model_baselines"]["this policy"] = {"lower": 0.66123, "upper": 0.75987, "estimate": 0.7102}
    bare = Report.model_validate(told)
    told["verdict"] = decided(
        found, bare.dataset, bare.guarantee.rho, pays_at_the_end=end, recorded=None if end else True
    ).model_dump()
    return Report.model_validate(told)


def said(verdict: Verdict, found: Evaluated | None = None, data: DeclaredTables | DeclaredPlant | None = None) -> str:
    """The page of a report with this verdict, as text that begins with its answer."""
    report = judged("better")
    changed = {"verdict": verdict, "evaluation": found or report.evaluation, "dataset": data or report.dataset}
    told = in_words(report.model_copy(update=changed)).removeprefix("# ")
    return told[0].lower() + told[1:]


def answer_of(verdict: Verdict) -> str:
    return said(verdict).partition("\n")[0]
