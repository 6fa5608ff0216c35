"""From a committed release to a policy, its bounds and its facts: post-processing, free, reads no rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.against_behaviour import AgainstPractice, against_practice, as_practised
from pipeline.agents.apvi import CountsPlanner, Model, Plan, PolicyBounds, apvi, model, optimal_upper, policy_bounds
from pipeline.agents.pessimism import Constants, constants, start_distribution, start_width
from pipeline.agents.support import practice as practice
from pipeline.declaration.card import Card, CardError, declared_start, task_of
from pipeline.facts.learnt import Baseline
from pipeline.learners.terms import Planner
from pipeline.mdp.model import Task
from pipeline.mdp.policy import Policy
from pipeline.privacy.release import Release
from pipeline.statistics.consistency import ConsistencyCertificate
from pipeline.statistics.planning_counts import Prepared, prepare, private_counts, slack_of

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CountsResult:
    """A plan, the interval of its policy's value, and further free facts of the release."""

    prepared: Prepared
    consistency: ConsistencyCertificate
    plan: Plan
    policy_constants: Constants
    bound_constants: Constants
    value: Mapping[str, float]
    baselines: Mapping[str, Baseline]
    against: AgainstPractice


def learn(card: Card, p: Planner, release: Release, planner: CountsPlanner = apvi) -> CountsResult:
    """Plan on a release, bound the emitted policy, certify the consistency programme.

    Raises CardError if the planner's policy is of another shape, or uses a vetoed action.
    Raises RuntimeError if cvxpy and the closed form disagree on a certified cell: nothing is published then.
    """
    task = task_of(card)
    cells = task.horizon * task.allowed.size
    pooled = card.domain.dynamics == "stationary"
    first = constants(p.constants, cells, p.failure, pooled=pooled, policy=card.domain.markov)
    second = constants(p.bounds, cells, p.failure, pooled=pooled)
    wide, narrow = slack_of(p.constants), slack_of(p.bounds)
    counts = private_counts(release, card, slack=wide, failure=p.failure)
    prepared = prepare(counts, card, p.constants)
    proof = prepared.certify()
    if not proof.holds:
        raise RuntimeError(
            f"the closed form of the consistency programme and cvxpy differ by {proof.largest_relative_difference:.3g} "
            f"(allowed {proof.tolerance:g}); nothing is published"
        )
    plan = planner(prepared.counts, task, first, np.random.default_rng(p.seed), p.penalty)
    _check_policy(plan.policy, task)
    if narrow != wide:
        counts = private_counts(release, card, slack=narrow, failure=p.failure)
    bounds = model(counts, task, second, p.penalty)
    start = declared_start(card)
    values = policy_bounds(bounds, plan.policy)
    value = value_interval(bounds, values, start) | {"optimal_upper": best_upper(bounds, start)}
    usual = practice(release)
    baselines = _baselines(bounds, task, card.domain.action_labels, start, usual)
    against = against_practice(bounds, plan.policy, usual, values)
    return CountsResult(prepared, proof, plan, first, second, value, baselines, against)


def _check_policy(policy: Policy, task: Task) -> None:
    shape = task.horizon, *task.allowed.shape
    if policy.probabilities.shape != shape:
        raise CardError(f"the planner's policy must be {shape}; got {policy.probabilities.shape}")
    if (policy.probabilities[:, ~task.allowed] > 0).any():
        raise CardError("the planner's policy uses an action that the card vetoes there")


def value_interval(m: Model, values: PolicyBounds, start: Array | None) -> dict[str, float]:
    """``lower``, ``upper``, ``estimate`` and the trivial ends of a fixed policy's value, in reward units."""
    L = m.task.allowed.shape[0]
    p = start_distribution(m.counts, start)
    lower, upper, middle = (V[0, :L] for V in (values.lower, values.upper, values.middle))
    least, most = m.task.value_range(0)
    slip = (0.0, 0.0) if start is not None else tuple(start_width(m.counts, V, m.constants) for V in (lower, upper))
    return {
        "lower": max(least, float(p @ lower) - slip[0]),
        "upper": min(most, float(p @ upper) + slip[1]),
        "estimate": min(most, float(p @ middle)),
        "lower_trivial": least,
        "upper_trivial": most,
    }


def best_upper(m: Model, start: Array | None) -> float:
    """Upper value of the best allowed policy: minus the lower value it bounds the loss."""
    V = optimal_upper(m)[0, : m.task.allowed.shape[0]]
    slip = 0.0 if start is not None else start_width(m.counts, V, m.constants)
    return min(m.task.value_range(0)[1], float(start_distribution(m.counts, start) @ V) + slip)


def simple_policies(
    allowed: NDArray[np.bool_], horizon: int, names: list[str], of: Callable[[Policy], dict[str, float]]
) -> dict[str, Baseline]:
    """Facts of uniform choice, and of the constant action with the largest estimate.

    ``allowed`` ``(L, A)``: a constant action that is vetoed somewhere is no policy.
    """
    L, A = allowed.shape
    nowhere = np.zeros((horizon, L), dtype=bool)

    def steady(rows: Array) -> dict[str, float]:
        return of(Policy(np.tile(rows, (horizon, 1, 1)), nowhere))

    each = {names[a]: steady(np.tile(np.eye(A)[a], (L, 1))) for a in range(A) if allowed[:, a].all()}
    found = {"uniform": Baseline.model_validate(steady(allowed / allowed.sum(1, keepdims=True)))}
    if each:
        best = max(each, key=lambda a: each[a]["estimate"])
        found["best constant"] = Baseline.model_validate({"action": best, **each[best]})
    return found


def _baselines(m: Model, task: Task, names: list[str], start: Array | None, usual: Array) -> dict[str, Baseline]:
    """Noisy-model values of simple policies and of practice, where any of it is known."""

    def of(policy: Policy) -> dict[str, float]:
        return value_interval(m, policy_bounds(m, policy), start)

    found = simple_policies(task.allowed, task.horizon, names, of)
    if not np.isnan(usual).all():
        found["practice"] = Baseline.model_validate(of(as_practised(usual, task.allowed, task.horizon)))
    return found
