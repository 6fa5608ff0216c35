"""Reports with made-up evaluations: one for each answer that a verdict can be."""

from __future__ import annotations

import copy
from typing import Any

from reports.facts.measurement import EvaluationFacts
from reports.facts.report import Report
from reports.facts.verdict import decide
from tests.reports.sample import sample_facts

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
        "half_width": 0.0099,
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


def evaluation(**changes: Any) -> EvaluationFacts:
    """A made-up evaluation.

    Parameters
    ----------
    changes
        What differs from one that is clearly better.
    """
    return EvaluationFacts.model_validate(copy.deepcopy(_EVALUATION) | changes)


def judged(answer: str, kind: str = "real", markov: str = "declared", **dataset: Any) -> Report:
    """A report with one of the six answers.

    Parameters
    ----------
    answer
        One of :data:`CHANGES`.
    kind, markov, dataset
        Of the card.
    """
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
        told["evaluation"] = found.model_dump()
        ends = {k: found.value.model_dump()[k] for k in ("lower", "upper", "estimate")}
        told["value"] |= ends | {"status": "evaluated", "gap": found.value.upper - found.value.lower}
        told["model_baselines"]["this policy"] = {"lower": 0.66123, "upper": 0.75987, "estimate": 0.7102}
    bare = Report.model_validate(told)
    told["verdict"] = decide(found, bare.dataset, bare.guarantee.rho).model_dump()
    return Report.model_validate(told)
