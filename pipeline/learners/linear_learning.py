"""How rows become a linear release, and a release a policy.

The planner runs twice.  Once against the interactive mechanism that holds the rows (adaptive agents: its questions
follow earlier noisy answers), and once against the recorded answers: what is published comes from the second, so a
replay makes the same policy and nothing but the release can enter it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.linear_backup import LinearResult, shift_of
from pipeline.agents.one_shot import one_shot, optimal_upper, policy_bound
from pipeline.agents.pevi import pevi
from pipeline.agents.vapvi import vapvi
from pipeline.declaration.card import Card, declared_start
from pipeline.learners.decisions import (
    decision_columns,
    decision_facts,
    decision_labels,
    linear_view,
    tabular_truth,
    total_assumed,
)
from pipeline.learners.linear_request import LinearRequest
from pipeline.learners.observed_policy import OBSERVED_KIND
from pipeline.learners.policy_files import PolicyFiles, columns_by_step
from pipeline.learners.tabular_learning import simple_policies
from pipeline.ledger.chain import Body
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Release
from pipeline.statistics.interactive import InteractiveRegression, RecordedRegression
from pipeline.statistics.linear_calibration import draw_one_shot, released_statistics
from pipeline.statistics.regression import InteractiveMechanism
from pipeline.statistics.regression_rows import StreamRows, TalliedRows
from reports.facts.dataset import vector_facts
from reports.facts.learnt import UNMEASURED, Baseline, FeatureFacts, LearntFacts, Truth, ValueFacts
from reports.facts.policy import Constants, Decisions, Preset
from reports.facts.promise import Joint

Array = NDArray[np.float64]

# a direction with at most this multiple of ridge and shift behind it may be one that nobody took
_UNSEEN = 2


def drawn(request: LinearRequest, rows: TalliedRows | StreamRows, noise: NoiseSource) -> Release:
    """Ask the rows, once: everything that leaves, at the joint cost that was charged."""
    if request.adaptive:
        mechanism = InteractiveRegression(request.plan, rows, noise)
        _planned(request, mechanism)
        release = mechanism.release()
    else:
        release = draw_one_shot(request.plan, rows, noise)
    if (first := request.start) is None:
        return release
    assert isinstance(rows, TalliedRows)
    return replace(
        release,
        mechanisms=(*release.mechanisms, *first.mechanisms),
        tables={**release.tables, **first.perturb({"n_0": rows.tallies["both"].first}, noise, rows)},
        joint_rho=request.rho,
    )


@dataclass(frozen=True)
class LinearLearnt:
    """A linear policy and what the release says of its value, in reward units.

    Parameters
    ----------
    request, result
        What was asked, and what the planner made of the answers.
    policy
        What the planner does in each state; where it ``abstains`` no allowed action has evidence.
    threshold
        Rows that the released Gram matrix must hold of an action, ridge and shift included, for it to count as seen.
    """

    request: LinearRequest
    result: LinearResult
    policy: Policy
    threshold: float
    value: Mapping[str, float | None]
    baselines: Mapping[str, Baseline]

    def files(self) -> PolicyFiles:
        """See :class:`~pipeline.learners.learner.Learnt`: the decisions have a digest of their own."""
        policy, d = self.policy, self.request.plan.features.dimension
        upper = np.triu_indices(d)
        weights = np.stack([np.concatenate([b.w, b.inverse[upper]]) for b in self.result.backups])
        return PolicyFiles(
            {**decision_labels(self.request.card, self.request.points.names), **_weight_labels(self)},
            {"policy": columns_by_step(weights), "decisions": decision_columns(policy)},
        )

    def facts(self) -> LearntFacts:
        """See :class:`~pipeline.learners.learner.Learnt`."""
        r, map_ = self.request, self.request.card.features
        assert map_ is not None
        return LearntFacts(
            constants=_constants(self),
            value=_value(self),
            model_baselines=dict(self.baselines),
            joint=Joint(rho_exact=None if r.rho is None else str(r.rho)),
            features=FeatureFacts(kind=map_.kind, dimension=r.plan.features.dimension, balanced=map_.balanced),
            policy=decision_facts(self.policy, self.result.tied),
        )

    def view(self) -> Decisions:
        """See :class:`~pipeline.learners.learner.Learnt`."""
        labels = list(self.request.points.names), self.request.card.domain.action_labels
        return linear_view(labels, self.policy, self.result.tied, self.files())

    def truth(self, world: str, behaviour: str) -> Truth:
        """See :class:`~pipeline.learners.learner.Learnt`."""
        return tabular_truth(self.request.card, world, behaviour, self.policy)


def learn_linear(request: LinearRequest, release: Release) -> LinearLearnt:
    """Plan on the recorded answers, and value the plan: post-processing, reads no rows."""
    result, policy, threshold = plan_linear(request, release)
    return LinearLearnt(request, result, policy, threshold, *_values(request, release, result))


def plan_linear(request: LinearRequest, release: Release) -> tuple[LinearResult, Policy, float]:
    """The plan, its policy where it has evidence, and how much of it that takes; the answers must be this planner's."""
    task, c = request.task, request.constants
    if request.adaptive:
        result = _planned(request, RecordedRegression(request.plan, release))
    else:
        result = one_shot(released_statistics(request.plan, release), task, c, np.random.default_rng(request.seed))
    evidence = np.stack([b.evidence(task.reference) for b in result.backups])
    sds = [m.standard_deviation for m in release.mechanisms if m.table == "gram" or m.table.startswith("gram_D_")]
    scale = float(request.plan.features.unit_squared)
    W = request.plan.weight("D") if request.adaptive else 1
    threshold = _UNSEEN * (c.ridge + shift_of(max(sds) / math.sqrt(2) * scale / W, task.dimension, task.horizon, c))
    abstains = np.where(request.points.allowed, evidence, 0.0).max(-1) <= threshold
    return result, Policy(result.policy.probabilities, abstains), threshold


def _planned(request: LinearRequest, mechanism: InteractiveMechanism) -> LinearResult:
    # the seed of ties is a constant of the mechanism; it hides nothing
    rng, centred = np.random.default_rng(request.seed), request.plan.centred
    if request.method == "pevi":
        return pevi(mechanism, request.task, request.constants, rng, request.multiplier, centred=centred)
    return vapvi(mechanism, request.task, request.constants, rng, centred=centred)


def start_of(card: Card, release: Release) -> Array:
    """First-state distribution ``(L,)``: declared, or the released table normalised (uniform where all are 0)."""
    if (declared := declared_start(card)) is not None:
        return declared
    n_0 = np.maximum(release.tables["n_0"], 0).astype(np.float64)
    return n_0 / n_0.sum() if n_0.sum() > 0 else np.full(n_0.shape, 1 / n_0.size)


def first_weights(request: LinearRequest) -> Array:
    """Weight ``(M,)`` of every public point: the declared first observations alike, in the declared first states."""
    d, points = request.card.domain, request.points
    weights, declared = np.zeros(len(points.names)), declared_start(request.card)
    each = np.eye(len(d.live_states))[0] if declared is None else declared
    weights[: points.first * len(each)] = np.tile(each, points.first) / points.first
    return weights


def _values(
    request: LinearRequest, release: Release, result: LinearResult
) -> tuple[dict[str, float | None], dict[str, Baseline]]:
    """The pessimistic value; upper values and baselines only where asking again costs nothing."""
    task, c, points = request.task, request.constants, request.points
    p = start_of(request.card, release) if points.first == 0 else first_weights(request)
    least, most = task.value_range(0)
    total = request.card.reward.total
    highest = most * request.unit if total is None else min(most * request.unit, total)
    trivial = {"lower_trivial": least * request.unit, "upper_trivial": highest}
    if request.adaptive:
        lower = min(float(p @ result.V[0]) * request.unit, highest)
        return {"lower": lower, "upper": None, "estimate": None, "optimal_upper": None, **trivial}, {}
    statistics = released_statistics(request.plan, release)

    def of(policy: Policy) -> dict[str, float]:
        values = (float(p @ policy_bound(statistics, task, c, policy, sign)[0]) * request.unit for sign in (-1, 1, 0))
        lower, upper, estimate = (min(value, highest) for value in values)
        return {"lower": lower, "upper": upper, "estimate": estimate, **trivial}

    best = min(float(p @ optimal_upper(statistics, task, c)[0]) * request.unit, highest)
    d, allowed = request.card.domain, request.points.allowed
    return {**of(result.policy), "optimal_upper": best}, simple_policies(allowed, d.horizon, d.action_labels, of)


def _constants(learnt: LinearLearnt) -> Constants:
    request, c = learnt.request, learnt.request.constants
    source = {
        "C": "paper 003 leaves it universal; chosen on simulated instances that no figure uses",
        "D": "paper 003's would clip every value below 10^8 episodes",
        "ridge": "relative to features of norm 1",
    }
    values = {"C": c.C, "D": c.D, "ridge": c.ridge}
    if request.method == "pevi":
        values["beta"] = request.multiplier
        source["beta"] = "C √d, as VAPVI's" if request.beta is None else "declared in the recipe"
    return Constants(
        policy=Preset(preset=f"linear, {c.shift} shift", values=values, source=source),
        bounds=None,
        failure_probability=c.failure,
        threshold=learnt.threshold,
        seed_of_ties=request.seed,
        part_of_the_release=request.adaptive,
        planner=request.planner_facts(),
    )


def _value(learnt: LinearLearnt) -> ValueFacts:
    """Always an estimate; of an adaptive release there is no upper end but the trivial one."""
    request, card = learnt.request, learnt.request.card
    observed = request.observed is not None
    released = card.domain.start == "released" and not observed
    upper, lower = learnt.value["upper"], learnt.value["lower"]
    assert lower is not None
    one_hot = card.features is not None and card.features.kind == "one_hot"
    assumes = [
        "start: the declared first observations, alike"
        if observed
        else "start distribution: " + ("a released table of first states" if released else "declared on the card"),
        "rewards and values were rounded down to the lattice of the recipe before anything was summed",
        "the declared states carry all that matters for what comes next (Markov, declared)"
        if card.domain.markov == "declared"
        else "the binned process only: the bins hide part of the state, so the true process may differ",
        "rewards and transitions are linear in the declared features: "
        + ("true of any process, one feature a pair" if one_hot else "declared, not checked"),
        UNMEASURED,
        *total_assumed(card),
    ]
    if observed and not request.adaptive:
        assumes.append("values of what follows were fitted by the declared features: both ends leave the misfit out")
    if learnt.policy.abstains.any():
        assumes.append("where the policy keeps current practice, the planner's own choice there stands for it")
    if request.plan.rho is not None:
        assumes.append(
            "the width leaves out the noise of the targets: with little budget the lower end can be too high"
        )
    if upper is None:
        assumes.append("no upper end: asking an adaptive planner for one would be a release of its own")
    told = {
        "gap": None if upper is None else upper - lower,
        "upper_flag": "trivial" if upper is None else None,
        "status": "modelled",
        "assumes": assumes,
        "start": "released" if released else "declared",
    }
    return ValueFacts.model_validate({**learnt.value, **told})


def _weight_labels(learnt: LinearLearnt) -> Body:
    """What turns ``policy.parquet`` into decisions: scale, feature map and clips, for ``policy.json``."""
    request, backups = learnt.request, learnt.result.backups
    f, x = request.task.reference, request.plan.features
    told = {"integers": f.astype(np.int64).tolist(), "square": x.square, "unit_squared": str(x.unit_squared)}
    return {
        "kind": "linear" if request.observed is None else OBSERVED_KIND,
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
        "features": told if x.sample_of is None else {**told, "sample_of": x.sample_of},
        **_observed_labels(learnt),
        "decisions": "decisions.parquet: the same policy, state by state",
    }


def _observed_labels(learnt: LinearLearnt) -> Body:
    """What ``policy act --observation`` needs besides: the map, names and scales, and the evidence of an advice."""
    request, vector = learnt.request, learnt.request.card.domain.observation
    if request.observed is None or vector is None:
        return {}
    return {
        "observation": vector_facts(vector).model_dump(),
        "live_states": request.card.domain.live_states,
        "never": [str(a) for a in np.array(request.card.domain.action_labels)[~request.points.allowed[0]]],
        "threshold": learnt.threshold,
        "lattice": request.task.lattice,
        "states_are": "public observations, as logged: the declared first ones, the axes of the ball, and a draw in it",
    }
