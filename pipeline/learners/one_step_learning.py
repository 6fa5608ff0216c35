"""From the sums of targets to the second question, to a policy, and to what report.json says of it; reads no rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline.agents import one_step
from pipeline.agents.one_step_pooling import group_states, pooled_shares, pooled_step
from pipeline.agents.one_step_value import Seen
from pipeline.agents.suboptimality import left_within_one_step
from pipeline.declaration.card import Card, task_of
from pipeline.facts.learnt import (
    Best,
    Decisions,
    LearntFacts,
    Preset,
    TabularConstants,
    Truth,
    ValueFacts,
    decisions,
)
from pipeline.facts.promise import Joint
from pipeline.learners.decisions import (
    decision_columns,
    decision_facts,
    decision_labels,
    policy_of,
    tabular_truth,
    total_assumed,
)
from pipeline.learners.policy_files import PolicyFiles
from pipeline.learners.terms import OneStep, Terms
from pipeline.mdp.policy import Policy
from pipeline.privacy.release import Release
from pipeline.statistics.target_plan import VALUE_STEPS, Stage, TargetPlan, TargetQuestion, window

if TYPE_CHECKING:
    from pipeline.facts.report import Report

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
# in ``policy.json``
KIND = "one_step"
# least share of a state's rows that a recommended action must have where other people confirm it
CONFIRMED = 0.1
# of a recipe: they make another policy of the same release
_FREE = ("pessimism", "support", "floor")


@dataclass(frozen=True)
class LearntStep:
    """Recommendations, and current practice elsewhere."""

    plan: TargetPlan
    terms: Terms
    release: Release
    found: one_step.Plan

    @property
    def policy(self) -> Policy:
        """What is recommended."""
        return self.found.policy

    def files(self) -> PolicyFiles:
        labels = {**decision_labels(self.plan.card), "kind": KIND}
        return PolicyFiles(labels, {"policy": decision_columns(self.policy)})

    def facts(self) -> LearntFacts:
        """What the policy is worth, no released number tells."""
        nowhere = np.zeros(self.policy.abstains.shape, dtype=bool)
        cost = self.release.joint_rho
        joint = {"rho_exact": None if cost is None else str(cost), **self.plan.joint()}
        return LearntFacts(
            constants=_constants(self.plan, self.terms),
            value=_value(self.plan.card),
            model_baselines={},
            joint=Joint.model_validate(joint),
            policy=decision_facts(self.policy, nowhere),
            best=Best(self._left(), "one_step", measured=False),
        )

    def _left(self) -> float:
        found, rows = self.found, self.release.tables["v_count"].astype(np.float64)
        own = self.policy.probabilities[: len(rows)]
        return left_within_one_step(found.advantage, found.sd, own, rows, self.plan.card.domain.horizon)

    def view(self) -> Decisions:
        d = self.plan.card.domain
        return _view((d.live_states, d.action_labels), self.policy, self.release)

    def truth(self, world: str, behaviour: str) -> Truth:
        return tabular_truth(self.plan.card, world, behaviour, self.policy)


def _answer(plan: TargetPlan, release: Release, stage: Stage) -> one_step.Answer:
    steps = plan.layout(stage).steps
    count, total = (release.tables[f"{stage}_{name}"].astype(np.float64) for name in ("count", "sum"))
    drawn = next(m for m in release.mechanisms if m.table == f"{stage}_count")
    return one_step.Answer(count, total / steps, (drawn.variance or 0) ** 0.5)


def next_question(plan: TargetPlan, first: Release) -> TargetQuestion:
    """What the later stages ask, from the released answer of the first."""
    low, high = plan.span
    found = one_step.practice_values(_answer(plan, first, "v"), np.array(plan.returns), plan.card.domain.state_features)
    values = np.rint((found - low) / (high - low) * VALUE_STEPS).astype(np.int64)
    asked = TargetQuestion(values, window(first.tables["v_count"], values, plan.spread))
    if not plan.groups:
        return asked
    rows = first.tables["v_count"][0].astype(np.float64)
    return replace(asked, group=group_states(plan.card.domain.state_features, values[0], rows, plan.groups))


def standing_question(plan: TargetPlan, release: Release) -> TargetQuestion:
    """What the later stages were asked, as their release says it."""
    values = release.derived["v_value"]
    return TargetQuestion(
        values, window(release.tables["v_count"], values, plan.spread), release.derived.get("c_group")
    )


def drawn_stages(plan: TargetPlan, answer: Callable[[Stage, TargetQuestion | None], Release]) -> Release:
    """All stages, later ones about the values and groups that the first one's answer makes.

    ``answer``: draws a stage.
    """
    first = answer("v", None)
    asked = next_question(plan, first)
    groups = [answer("c", asked)] if plan.groups else []
    return plan.joined((first, *groups, answer("q", replace(asked, group=None))), asked)


def seen_of(learnt: LearntStep, action: Integers) -> Seen:
    """How often the learning part did an action in each state, where states are pooled.

    ``action`` ``(L,)``: of each state.
    """
    plan, release = learnt.plan, learnt.release
    fine, states = _answer(plan, release, "q"), np.arange(len(action))
    share, rows = pooled_shares(fine, _visits(release), release.derived["c_group"], plan.groups)
    chosen = share[states, action]
    visits = rows[states, action] / np.maximum(chosen, 1e-9)
    least = one_step.least_rows(_chosen(plan, learnt.terms).support, fine.sd)
    return Seen(chosen, fine.rows[0, states, action], visits, fine.sd, least)


def _visits(release: Release) -> Array:
    return release.tables["v_count"][0].astype(np.float64)


def learn_step(plan: TargetPlan, terms: Terms, release: Release) -> LearntStep:
    """The policy of a release of all stages.

    Raises ValueError if the release was drawn on other terms.
    """
    derived = {"v_value", "c_group"} if plan.groups else {"v_value"}
    if release.mechanisms != plan.mechanisms or not derived <= set(release.derived):
        raise ValueError("this release was drawn on other terms")
    asked, chosen, d = standing_question(plan, release), _chosen(plan, terms), plan.card.domain
    constants, width = one_step.Constants(chosen.pessimism, chosen.support, chosen.floor), plan.width(asked)
    fine = _answer(plan, release, "q")
    if asked.group is not None and plan.groups:
        coarse, visits = _answer(plan, release, "c"), _visits(release)
        found = pooled_step(fine, coarse, asked.group, visits, width, d.horizon, d.allowed, constants)
    else:
        found = one_step.one_step(fine, width, d.horizon, d.allowed, d.state_features, constants)
    return LearntStep(plan, terms, release, found)


def mean_error(plan: TargetPlan, release: Release) -> float:
    """Mean over released rows of what a step pays and leads to less the value it starts from, reward units.

    Where each step has values of its own these are right on average, and it is 0.
    """
    if plan.card.domain.dynamics == "per_step":
        return 0.0
    answer, width = _answer(plan, release, "c" if plan.groups else "q"), plan.width(standing_question(plan, release))
    return width * float(np.clip(answer.targets.sum() / max(float(answer.rows.sum()), 1.0), -1, 1))


def _view(labels: tuple[list[str], list[str]], policy: Policy, release: Release) -> Decisions:
    """Rows beside each state and action are evidence; a cap by both makes no frequency of practice of them."""
    evidence = np.maximum(release.tables["q_count"], 0).astype(np.float64)
    return decisions(labels, policy, np.zeros(policy.abstains.shape, dtype=bool), evidence)


def read_step_view(files: PolicyFiles, report: Report, release: Callable[[], Release]) -> Decisions:
    """See :class:`~pipeline.learners.policy_files.Codec`."""
    return _view((files.labels["states"], files.labels["actions"]), policy_of(files), release())


def _chosen(plan: TargetPlan, terms: Terms) -> OneStep:
    """What the recipe chose; an action that other people have to confirm must be common enough for that."""
    chosen = terms.one_step or OneStep()
    chosen = chosen.by_groups() if plan.groups else chosen
    return chosen.model_copy(update={"floor": max(chosen.floor, CONFIRMED)}) if terms.held_out else chosen


def settings_of(plan: TargetPlan, terms: Terms) -> tuple[Any, ...]:
    """What of a recipe and a card makes the policy of a release, beside the plan: free, unless others evaluate it.

    Returns plain values: what differs from the defaults, so that the key of whoever set nothing stays as it was.
    """
    set_here = {} if terms.one_step is None else terms.one_step.model_dump(mode="json", exclude_defaults=True)
    if plan.groups:
        set_here = _chosen(plan, terms).model_dump(mode="json")
    made = {name: value for name, value in set_here.items() if name in _FREE}
    vetoes = [[str(s), str(a)] for s, a in plan.card.domain.vetoes]
    return (*([made] if made else []), *([vetoes] if vetoes else []))


def _constants(plan: TargetPlan, terms: Terms) -> TabularConstants:
    chosen = _chosen(plan, terms)
    values = {
        "pessimism": chosen.pessimism,
        "support": chosen.support,
        "floor": chosen.floor,
        "rows of a person": plan.rows,
        "cap": plan.cap,
        "share of the first stage": chosen.value_share,
    }
    source = {
        "pessimism": "posterior standard deviations; chosen on simulated logs that no figure uses",
        "support": "standard deviations of noise that the rows of an action exceed: chosen by us",
        "floor": "practice must know what it does: chosen by us",
        "rows of a person": "the recipe's, or 3/5 of all; part of the release",
        "cap": "rows a state (or a state and action); part of the release",
        "share of the first stage": "of the budget; part of the release",
    }
    return TabularConstants(
        policy=Preset(preset="one step", values=values, source=source),
        bounds=None,
        failure_probability=terms.planner.failure,
        threshold=chosen.floor,
        seed_of_ties=terms.planner.seed,
    )


def _value(card: Card) -> ValueFacts:
    """No interval: the rows that made the policy cannot say what it is worth (they chose it)."""
    least, most = task_of(card).value_range(0)
    return ValueFacts(
        lower=least,
        upper=None,
        estimate=None,
        lower_trivial=least,
        upper_trivial=most,
        gap=None,
        optimal_upper=None,
        lower_flag="trivial",
        upper_flag="trivial",
        status="modelled",
        assumes=[
            "nothing is claimed but what declared rewards allow: an estimate from the rows that chose the policy would "
            "be too high",
            "the declared states hold all that drives both what is done and what comes of it",
            "a return is what the log holds from a row to the end of its episode",
            *total_assumed(card),
        ],
        start="released" if card.domain.start == "released" else "declared",
    )
