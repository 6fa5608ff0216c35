"""How rows become a linear release, and a release a policy.

The planner runs twice.  Once against the interactive mechanism that holds the rows (adaptive agents: its questions
follow earlier noisy answers), and once against the recorded answers: what is published comes from the second, so a
replay makes the same policy and nothing but the release can enter it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.linear_backup import LinearResult, shift_of
from pipeline.agents.one_shot import one_shot, optimal_upper, policy_bound
from pipeline.agents.pevi import pevi
from pipeline.agents.vapvi import vapvi
from pipeline.declaration.card import Card
from pipeline.learners.linear_request import LinearRequest
from pipeline.learners.tabular_learning import simple_policies
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Release
from pipeline.statistics.interactive import InteractiveRegression, RecordedRegression
from pipeline.statistics.one_shot import release_one_shot, released_statistics
from pipeline.statistics.regression import InteractiveMechanism
from pipeline.statistics.rows import TalliedRows

Array = NDArray[np.float64]

# a direction with at most this multiple of ridge and shift behind it may be one that nobody took
_UNSEEN = 2


def drawn(request: LinearRequest, rows: TalliedRows, noise: NoiseSource) -> Release:
    """Ask the rows, once: everything that leaves, at the joint cost that was charged."""
    if request.adaptive:
        mechanism = InteractiveRegression(request.plan, rows, noise)
        _planned(request, mechanism)
        release = mechanism.release()
    else:
        released = release_one_shot(request.plan, rows, noise)
        assert released.release is not None
        release = released.release
    if (first := request.start) is None:
        return release
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
    policy
        What the planner does in each state; where it ``abstains`` no allowed action has evidence.
    threshold
        Rows that the released Gram matrix must hold of an action, ridge and shift included, for it to count as seen.
    """

    result: LinearResult
    policy: Policy
    threshold: float
    value: Mapping[str, float | None]
    baselines: Mapping[str, Mapping[str, Any]]


def learn_linear(request: LinearRequest, release: Release) -> LinearLearnt:
    """Plan on the recorded answers: post-processing, reads no rows.

    Raises
    ------
    ValueError
        If the release holds other answers than this planner asks for.
    """
    task, c = request.task, request.constants
    result = (
        _planned(request, RecordedRegression(request.plan, release))
        if request.adaptive
        else _one_shot(request, release)
    )
    evidence = np.stack([b.evidence(task.reference) for b in result.backups])
    sds = [m.standard_deviation for m in release.mechanisms if m.table == "gram" or m.table.startswith("gram_D_")]
    scale = float(request.plan.features.unit_squared)
    W = request.plan.weight("D") if request.adaptive else 1
    shift = shift_of(max(sds) / math.sqrt(2) * scale / W, task.dimension, task.horizon, c)
    threshold = _UNSEEN * (c.ridge + shift)
    abstains = np.where(request.card.domain.allowed, evidence, 0.0).max(-1) <= threshold
    policy = Policy(result.policy.probabilities, abstains)
    value, baselines = _values(request, release, result)
    return LinearLearnt(result, policy, threshold, value, baselines)


def _planned(request: LinearRequest, mechanism: InteractiveMechanism) -> LinearResult:
    # the seed of ties is a constant of the mechanism; it hides nothing
    rng, centred = np.random.default_rng(request.seed), request.plan.centred
    if request.method == "pevi":
        return pevi(mechanism, request.task, request.constants, rng, request.multiplier, centred=centred)
    return vapvi(mechanism, request.task, request.constants, rng, centred=centred)


def _one_shot(request: LinearRequest, release: Release) -> LinearResult:
    statistics = released_statistics(request.plan, release)
    return one_shot(statistics, request.task, request.constants, np.random.default_rng(request.seed))


def start_of(card: Card, release: Release) -> Array:
    """First-state distribution ``(L,)``: declared, or the released table normalised (uniform where all are 0)."""
    if card.domain.start != "released":
        return np.array([card.domain.start.get(s, 0.0) for s in card.domain.live_states])
    n_0 = np.maximum(release.tables["n_0"], 0).astype(np.float64)
    return n_0 / n_0.sum() if n_0.sum() > 0 else np.full(n_0.shape, 1 / n_0.size)


def _values(
    request: LinearRequest, release: Release, result: LinearResult
) -> tuple[dict[str, float | None], dict[str, dict[str, Any]]]:
    """The pessimistic value; upper values and baselines only where asking again costs nothing."""
    task, c, p = request.task, request.constants, start_of(request.card, release)
    least, most = task.value_range(0)
    trivial = {"lower_trivial": least * request.unit, "upper_trivial": most * request.unit}
    if request.adaptive:
        lower = float(p @ result.V[0]) * request.unit
        return {"lower": lower, "upper": None, "estimate": None, "optimal_upper": None, **trivial}, {}
    statistics = released_statistics(request.plan, release)

    def of(policy: Policy) -> dict[str, float | None]:
        ends = (float(p @ policy_bound(statistics, task, c, policy, sign)[0]) * request.unit for sign in (-1, 1, 0))
        lower, upper, estimate = ends
        return {"lower": lower, "upper": upper, "estimate": estimate, **trivial}

    best = float(p @ optimal_upper(statistics, task, c)[0]) * request.unit
    d = request.card.domain
    return {**of(result.policy), "optimal_upper": best}, simple_policies(d.allowed, d.horizon, d.action_labels, of)
