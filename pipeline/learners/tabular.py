"""Tabular agents: noisy counts of a card's states and actions, and pessimistic value iteration on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.agents.apvi import CountsPlanner, apvi
from pipeline.declaration.card import AnyCard, Card, CardError, require_tabular
from pipeline.learners.learner import Quote, described, listed_facts, table_size, typeable
from pipeline.learners.terms import Terms
from pipeline.ledger.chain import Body
from pipeline.logs.aggregate import aggregate
from pipeline.logs.store import Snapshot
from pipeline.logs.summing import Resources
from pipeline.mdp.policy import Policy
from pipeline.privacy.budget import fraction_of
from pipeline.privacy.losses import safe_epsilon, spent_budget
from pipeline.privacy.noise import NoiseSource, SeededNoise
from pipeline.privacy.release import Release, total_delta_slack, total_epsilon, total_rho
from pipeline.statistics import calibration
from pipeline.statistics.ask import Ask
from pipeline.statistics.private_sum import PrivateSum, joining_facts
from pipeline.transaction.drawing import WHOLE, Stage

if TYPE_CHECKING:
    from pipeline.audits.attack import AuditTarget, WholePlan
    from pipeline.learners.tabular_evaluation import TabularEvaluation
    from pipeline.learners.tabular_facts import LearntCounts
    from pipeline.worlds.surrogate import Logged, SimulatedRun


@dataclass(frozen=True)
class Tabular:
    """See :class:`~pipeline.learners.learner.Learner`."""

    planner: CountsPlanner = apvi
    continual, section = True, None

    def check(self, terms: Terms) -> None:
        p = terms.privacy
        if p is not None and p.calibration == "paper" and p.release != "two_tables":
            raise ValueError("calibration = 'paper' needs release = 'two_tables'; the paper prints no other")

    def plan(self, card: AnyCard, terms: Terms) -> TabularRun:
        tabular = require_tabular(card)
        counts, played = counts_privatizer(tabular, terms), played_privatizer(tabular, terms)
        return TabularRun(tabular, terms, counts, self.planner, played)


def counts_privatizer(card: Card, terms: Terms) -> PrivateSum:
    """The count tables of a recipe, calibrated and with the slack of its sampler.

    Raises CardError if the budget does not fit counts, or its delta is too large for so few people.
    """
    ask = terms.ask_for(card).less(terms.drift)
    try:
        chosen = calibration.count_sum(card, ask)
    except ValueError as e:
        raise CardError(f"{terms.where}: [privacy]: {e}") from None
    return chosen if ask.pure else _with_slack(card, chosen, terms.noise())


def played_privatizer(card: Card, terms: Terms) -> PrivateSum | None:
    """The released returns of each night; None where the recipe has none.

    Raises CardError if the card declares its rewards, or the share is too small for a scale.
    """
    if not terms.drift or terms.nightly is None:
        return None
    try:
        chosen = calibration.played_sum(card, terms.drift, terms.nightly.nights)
    except ValueError as e:
        raise CardError(f"{terms.where}: [nightly]: {e}") from None
    return _with_slack(card, chosen, terms.noise())


def _with_slack(card: Card, chosen: PrivateSum, sampler: NoiseSource) -> PrivateSum:
    """The same tables with the sampler's addition to delta."""
    if chosen.exact:
        return chosen
    try:
        # the epsilon of the whole cap covers every release of the lineage
        return chosen.with_slack(sampler, safe_epsilon(card.budget.rho, card.budget.delta))
    except OverflowError:
        raise no_delta_left(card) from None


def no_delta_left(card: AnyCard) -> CardError:
    """The error where a sampler that is not exact would use up the whole of delta."""
    return CardError(
        f"{card.name}: sampler = 'table' would use up delta = {card.budget.delta:g} at a cap of rho = "
        f"{card.budget.rho:g}; take sampler = 'exact', or declare a smaller cap"
    )


@dataclass(frozen=True)
class TabularRun:
    """Count tables, priced one by one.

    ``played``: returns of a counter that compares the policy in use with practice each night; None: none.
    """

    card: Card
    terms: Terms
    privatizer: PrivateSum
    planner: CountsPlanner
    played: PrivateSum | None = None
    what = "counts"
    reference = "uniform choice"
    stages = WHOLE

    @property
    def exact(self) -> bool:
        return self.privatizer.exact

    def admit(self, noise: NoiseSource) -> None:
        """Refuse scales that would cost real people more than the budget.

        Also where such a release is committed already: a draw for one recipe does not meet the budget of another.
        """
        self.privatizer.admit(noise)
        ask, mechanisms = self.terms.ask(), self.privatizer.mechanisms
        if total_delta_slack(mechanisms) >= fraction_of(self.card.budget.delta):
            raise no_delta_left(self.card)
        if self.card.kind != "real" or ask.calibration != "paper":
            return
        pure_spent = (total_epsilon(mechanisms), ask.epsilon, "ε")
        spent, budget, unit = pure_spent if ask.pure else (total_rho(mechanisms), ask.zcdp(), "ρ")
        if budget is None or spent is None or spent > fraction_of(budget):
            raise CardError(
                f"{self.card.name}: calibration = 'paper' would spend {unit} = {float(spent or 0):.4g}, asked was "
                f"{float(budget or 0)}; a real dataset needs calibration = 'tight'"
            )

    def spec(self) -> list[Any]:
        """The mechanisms alone, whatever the planner."""
        # the sampler's share of delta follows the cap of the lineage: another cap is no other release
        listed = [{k: v for k, v in m.items() if k != "delta_slack"} for m in described(self.privatizer.mechanisms)]
        return listed + (["table"] if any(m.delta_slack for m in self.privatizer.mechanisms) else [])

    def charge(self) -> tuple[Fraction | None, Body]:
        mechanisms = self.privatizer.mechanisms
        pure, rho = total_epsilon(mechanisms), total_rho(mechanisms)
        body = {"mechanisms": described(self.privatizer.mechanisms), "epsilon": None if pure is None else str(pure)}
        return rho, body | joining_facts(self.card.kind, [self.privatizer.joining_cost])

    def draw(self, snapshot: Snapshot, resources: Resources, stage: Stage) -> Release:
        return stage("release", lambda noise: self.privatizer.draw(aggregate(snapshot, self.card, resources), noise))

    def quote(self) -> Quote:
        card, ask = self.card, self.terms.ask().less(self.terms.drift)
        mechanisms = self.privatizer.mechanisms + (() if self.played is None else self.played.mechanisms)
        rho, teaching = total_rho(mechanisms), float(self.terms.teaching)
        outlook = {
            "visits_per_cell_if_even": calibration.even_visits(card, self.terms.teachers(card)),
            "noise_per_cell": {m.table: m.standard_deviation for m in mechanisms},
            "what_if": [] if rho is None else _what_if(card, ask, teaching),
            "people_needed": {}
            if rho is None
            else {f"{x:g}": calibration.people_needed(card, ask, x, teaching) for x in calibration.LEVELS},
        }
        return Quote(listed_facts(mechanisms), rho, spent_budget(mechanisms, card.budget.delta), None, outlook)

    def fitting(self, left: Fraction) -> Mapping[str, float] | None:
        """The largest budget that is allowed, and its ratio of visits to noise."""
        ask = self.terms.ask()
        if ask.pure:
            fitting = replace(ask, epsilon=typeable(math.sqrt(2 * float(left))))
        else:
            fitting = replace(ask, rho=typeable(float(left)), epsilon=None, delta=None)
        rho = total_rho(calibration.count_sum(self.card, fitting).mechanisms)
        if rho is None or rho > left:
            return None
        return {
            **fitting.written,
            "ratio": calibration.signal_to_noise(self.card, fitting, self.terms.teachers(self.card)).ratio,
        }

    def learn(self, release: Release) -> LearntCounts:
        from pipeline.learners.tabular_facts import LearntCounts
        from pipeline.learners.tabular_learning import learn

        result = learn(self.card, self.terms.planner, release, self.planner)
        return LearntCounts(self.card, self.terms, result, release, covered=self.planner is apvi)

    def evaluation(self) -> TabularEvaluation:
        from pipeline.learners.tabular_evaluation import TabularEvaluation

        return TabularEvaluation(self.card, self.terms, self.privatizer)

    def unforeseen(self) -> str | None:
        """Any table can be simulated."""
        return None

    def log_size(self, episodes: int) -> int:
        """The size of its tables, however many episodes."""
        return table_size(self.card)

    def forecast(self, episodes: int, seeds: Sequence[int]) -> list[SimulatedRun]:
        """See :class:`~pipeline.learners.learner.RunPlan`; a counter's noise is that of its noisiest night."""
        from pipeline.learners.forecast import Seed, foresee

        once = tuple(
            m if m.running is None else replace(m, running=None, variance=math.ceil(m.standard_deviation**2))
            for m in self.privatizer.mechanisms
        )
        silent = calibration.count_sum(self.card, Ask(tables=self.terms.ask().tables)).mechanisms

        def learn(logged: Logged, of_log: Seed, noise: Seed, ties: Seed) -> list[Policy]:
            counts = logged.counts(episodes, np.random.default_rng(of_log))
            both = (replace(logged, mechanisms=m, planner=self.planner) for m in (once, silent))
            return [x.plan(counts, SeededNoise(noise), np.random.default_rng(ties)).policy for x in both]

        return foresee(self.card, self.terms, seeds, learn)

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """The tables; a counter is cut to few leaves."""
        from pipeline.audits.message_paths import LEAVES
        from pipeline.audits.tables import counts_target, played_target

        nightly, shipped, played = self.terms.nightly, self.privatizer, self.played
        if nightly is not None:
            nights = min(nightly.nights, LEAVES)
            window = None if nightly.window is None or nightly.window >= nights else nightly.window
            few = replace(self.terms, nightly=nightly.model_copy(update={"nights": nights, "window": window}))
            shipped, played = counts_privatizer(self.card, few), played_privatizer(self.card, few)
        return [counts_target(shipped), *([] if played is None else [played_target(played)])]

    def whole_plan(self) -> WholePlan | None:
        from pipeline.audits.attack import WholePlan
        from pipeline.audits.message_paths import LEAVES

        nightly, budget = self.terms.nightly, self.terms.ask().zcdp()
        if nightly is None or nightly.nights <= LEAVES or budget is None:
            return None
        cost = total_rho(self.privatizer.mechanisms + (() if self.played is None else self.played.mechanisms))
        assert cost is not None
        return WholePlan(f"A counter of {LEAVES} of {nightly.nights} nights", cost, budget)


def _what_if(card: Card, ask: Ask, teaching: float) -> list[dict[str, float | None]]:
    """Visits and noise for smaller and larger budgets and numbers of people, of whom a share ``teaching`` teach."""
    rows: list[dict[str, float | None]] = []
    for factor in calibration.BUDGETS:
        scaled = calibration.scale_budget(ask, factor)
        for share in calibration.PEOPLE:
            people = card.unit.users_public * share
            y = calibration.signal_to_noise(card, scaled, people * teaching)
            budget = {name: scaled.written.get(name) for name in ("rho", "epsilon")}
            rows.append({**budget, "people": people, "visits": y.visits, "noise": y.noise, "ratio": y.ratio})
    return rows
