"""What an LQ recipe asks for, and what report.json says of its run."""

from __future__ import annotations

from typing import Any

from flows.config.recipe import Lq
from pipeline.learners.lq_learning import LqLearnt
from pipeline.learners.lq_request import LqRequest


def planner_facts(request: LqRequest, learnt: LqLearnt) -> dict[str, Any]:
    """The ``constants`` of report.json."""
    c, ask, domain = request.constants, request.plan.ask, request.plan.domain
    radius = request.card.domain.observation.radius
    source = {
        "ridge": "chosen by us, in sums of squares of (x, u), balls of radius 1",
        "floor": "chosen by us: multiples of the noise's spectral norm below which a direction is not trusted",
        "cut of x": "chosen on simulated plants that no figure uses; part of the release",
        "cut of next x": "chosen on simulated plants that no figure uses; part of the release",
        "share of the Gram matrix": "chosen on simulated plants that no figure uses; part of the release",
        "lattice steps": "chosen by us; part of the release",
    }
    usual = Lq()
    if (chosen := (domain.state_bound / radius, domain.successor_bound / radius)) != tuple(usual.cut):
        source |= dict.fromkeys(("cut of x", "cut of next x"), "the recipe's; part of the release")
    if float(ask.gram_share) != usual.gram_share:
        source["share of the Gram matrix"] = "the recipe's; part of the release"
    values = {
        "ridge": c.ridge,
        "floor": c.floor,
        "cut of x": chosen[0],
        "cut of next x": chosen[1],
        "share of the Gram matrix": float(ask.gram_share),
        "lattice steps": ask.steps,
    }
    return {
        "policy": {"preset": "certainty equivalence", "values": values, "source": source},
        "bounds": None,
        "gamma": request.task.gamma,
        "parameter_norm": request.card.domain.parameter_norm,
        "directions": list(learnt.directions),
        "floor": learnt.floor,
        "raised": learnt.result.raised,
    }


def value_facts(learnt: LqLearnt) -> dict[str, Any]:
    """The ``value`` of report.json: minus the expected cost in the released model; an estimate, never a bound."""
    return dict(learnt.value) | {
        "gap": None,
        "lower_flag": "trivial",
        "upper_flag": "trivial",
        "status": "estimate",
        "assumes": [
            "values are rewards: minus the expected summed cost of one episode, x'Qx + u'Ru a step",
            "the plant is the one estimated from the released sums, as if it were the truth (certainty equivalence)",
            "first state and noise are as the card declares them; the noise has mean 0 and does not depend on the past",
            "observations stay in their declared ball, so controls are never cut",
            "the lower end is the least that declared balls allow; no interval is claimed",
        ],
        "start": "declared",
    }
