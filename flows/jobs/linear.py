"""What a linear recipe asks for, and the pages of its run: the linear half of ``run`` and ``plan``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline.declaration.card import Card
from pipeline.learners.linear_learning import LinearLearnt
from pipeline.learners.linear_request import LinearRequest


def planner_facts(request: LinearRequest, learnt: LinearLearnt) -> dict[str, Any]:
    """The ``constants`` of report.json."""
    c, told = request.constants, request.planner_facts()
    source = {
        "C": "paper 003 leaves it universal; chosen on simulated instances that no figure uses",
        "D": "paper 003's would clip every value below 10^8 episodes",
        "ridge": "relative to features of norm 1",
    }
    values = {"C": c.C, "D": c.D, "ridge": c.ridge}
    if request.method == "pevi":
        values["beta"] = told["beta"]
        source["beta"] = "C √d, as VAPVI's" if request.beta is None else "declared in the recipe"
    return {
        "policy": {"preset": f"linear, {c.shift} shift", "values": values, "source": source},
        "bounds": None,
        "failure_probability": c.failure,
        "threshold": learnt.threshold,
        "seed_of_ties": request.seed,
        "part_of_the_release": request.adaptive,
        "planner": told,
    }


def value_facts(card: Card, request: LinearRequest, learnt: LinearLearnt) -> dict[str, Any]:
    """The ``value`` of report.json: always an estimate; of an adaptive release no upper end but the trivial one."""
    released = card.domain.start == "released"
    value = dict(learnt.value)
    upper, lower = value["upper"], value["lower"]
    assert lower is not None
    one_hot = card.features is not None and card.features.kind == "one_hot"
    assumes = [
        "start distribution: " + ("a released table of first states" if released else "declared on the card"),
        "rewards and values were rounded down to the lattice of the recipe before anything was summed",
        "the declared states carry all that matters for what comes next (Markov, declared)"
        if card.domain.markov == "declared"
        else "the binned process only: the bins hide part of the state, so the true process may differ",
        "rewards and transitions are linear in the declared features: "
        + ("true of any process, one feature a pair" if one_hot else "declared, not checked"),
        "containment: neither proved nor measured for these constants and this process",
    ]
    if request.plan.ask.rho is not None:
        assumes.append(
            "the width leaves out the noise of the targets: with little budget the lower end can be too high"
        )
    if upper is None:
        assumes.append("no upper end: asking an adaptive planner for one would be a release of its own")
    return value | {
        "gap": None if upper is None else upper - lower,
        "upper_flag": "trivial" if upper is None else None,
        "status": "estimate",
        "assumes": assumes,
        "start": "released" if released else "declared",
    }


def policy_columns(request: LinearRequest, learnt: LinearLearnt) -> Mapping[str, np.ndarray]:
    """``step, index, weight``: the weights of each step, then the upper triangle of its inverse Gram matrix by rows."""
    d = request.plan.features.dimension
    upper = np.triu_indices(d)
    each = [np.concatenate([b.w, b.inverse[upper]]) for b in learnt.result.backups]
    size = d + len(upper[0])
    return {
        "step": np.repeat(np.arange(len(each), dtype=np.int32), size),
        "index": np.tile(np.arange(size, dtype=np.int32), len(each)),
        "weight": np.concatenate(each),
    }


def policy_facts(request: LinearRequest, learnt: LinearLearnt) -> dict[str, Any]:
    """What turns ``policy.parquet`` into decisions: scale, feature map and clips, for ``policy.json``."""
    f, backups = request.task.reference, learnt.result.backups
    square, unit2 = request.plan.features.square, request.plan.features.unit_squared
    return {
        "kind": "linear",
        "dimension": int(f.shape[-1]),
        "weights": "index below d: w; from d on: the upper triangle of the inverse Gram matrix, row by row",
        "rule": "Q = phi.w + offset - multiplier (phi.inverse.phi)^1/2 - constant, clipped; phi = unit x integers; "
        "the greatest Q among allowed actions, then the greatest unclipped one, then chance",
        "reward_unit": request.unit,
        "unit": request.task.unit,
        "offset": [b.offset for b in backups],
        "multiplier": [b.multiplier for b in backups],
        "constant": [b.constant for b in backups],
        "clip": [list(b.clip) for b in backups],
        "features": {"integers": f.astype(np.int64).tolist(), "square": square, "unit_squared": str(unit2)},
        "decisions": "decisions.parquet: the same policy, state by state",
    }
