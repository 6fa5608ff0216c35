"""What a linear run learnt: its weights, the same policy state by state, and what report.json says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.declaration.card import Card
from pipeline.learners.decisions import (
    decision_columns,
    decision_facts,
    decision_labels,
    linear_view,
    tabular_truth,
)
from pipeline.learners.linear_learning import LinearLearnt
from pipeline.learners.linear_request import LinearRequest
from pipeline.learners.policy_files import PolicyFiles, columns_by_step
from reports.facts.learnt import Baseline, Constants, FeatureFacts, LearntFacts, Truth, ValueFacts
from reports.facts.policy import Decisions
from reports.facts.promise import Joint

_STAND_IN = (
    "not enough evidence: keep current practice; the probabilities there are the planner's own choice, so that the "
    "policy can be evaluated"
)


@dataclass(frozen=True)
class LearntWeights:
    """See :class:`~pipeline.learners.learner.Learnt`."""

    request: LinearRequest
    learnt: LinearLearnt

    def files(self) -> PolicyFiles:
        """See :class:`~pipeline.learners.learner.Learnt`: the decisions have a digest of their own."""
        policy, d = self.learnt.policy, self.request.plan.features.dimension
        upper = np.triu_indices(d)
        weights = np.stack([np.concatenate([b.w, b.inverse[upper]]) for b in self.learnt.result.backups])
        labels = decision_labels(self.request.card, policy) | {"abstention": _STAND_IN}
        return PolicyFiles(
            labels | weight_labels(self.request, self.learnt),
            {"policy": columns_by_step(weights), "decisions": decision_columns(policy)},
        )

    def facts(self) -> LearntFacts:
        """See :class:`~pipeline.learners.learner.Learnt`."""
        r, map_ = self.request, self.request.card.features
        assert map_ is not None
        return LearntFacts(
            constants=Constants.model_validate(planner_facts(r, self.learnt)),
            value=ValueFacts.model_validate(value_facts(r.card, r, self.learnt)),
            model_baselines={name: Baseline.model_validate(b) for name, b in self.learnt.baselines.items()},
            joint=Joint(rho_exact=None if r.rho is None else str(r.rho)),
            features=FeatureFacts(kind=map_.kind, dimension=r.plan.features.dimension, balanced=map_.balanced),
            policy=decision_facts(self.learnt.policy, self.learnt.result.tied),
        )

    def view(self) -> Decisions:
        """See :class:`~pipeline.learners.learner.Learnt`."""
        d = self.request.card.domain
        labels = d.live_states, d.action_labels
        return linear_view(labels, self.learnt.policy, self.learnt.result.tied, self.files())

    def truth(self, world: str, behaviour: str) -> Truth:
        """See :class:`~pipeline.learners.learner.Learnt`."""
        return tabular_truth(self.request.card, world, behaviour, self.learnt.policy)


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
    if request.plan.rho is not None:
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


def weight_labels(request: LinearRequest, learnt: LinearLearnt) -> dict[str, Any]:
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
