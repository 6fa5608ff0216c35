"""What a linear run on declared states asks: card, agent, plan and constants, and what each costs; reads no rows."""

# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from pipeline.agents.linear_backup import LinearConstants, LinearTask, linear_task
from pipeline.arrays import Array, Bools
from pipeline.declaration.card import Card, CardError
from pipeline.declaration.domain import Domain
from pipeline.declaration.linear_quadratic import Vector
from pipeline.facts.learnt import PlannerFacts
from pipeline.learners.terms import Linear, Terms
from pipeline.mdp.features import FeatureMap, ObservedMap
from pipeline.privacy.noise import RealDataError
from pipeline.privacy.release import Mechanism
from pipeline.statistics.ask import Ask
from pipeline.statistics.count_layout import StartLayout
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms
from pipeline.statistics.linear_sums import joining_rho, joint_facts, one_shot_sum, planned_calls, true_rho
from pipeline.statistics.private_sum import PrivateSum

LinearMethod = Literal["vapvi", "pevi", "one-shot"]

# part of an adaptive release's key: another planner asks other questions (privacy.md §0.1-4)
PLANNER_VERSION = 1
# share of the budget on the first states where the card does not declare them
_START_SHARE = Fraction(1, 50)
_WIDEST = 1000
# coordinates of an observation that a page names
_SHOWN = 6


@dataclass(frozen=True)
class Points:
    """Where a linear policy is shown, and valued: all live states, or public observations.

    ``allowed``: ``(M, A)``.
    ``first``: so many at the front are declared first observations, each in every live state; 0: these are live states.
    """

    names: tuple[str, ...]
    allowed: Bools
    first: int


def first_observations(d: Domain, vector: Vector) -> Array:
    """Declared first observations ``(k, p)``, scaled; the middle of the ball where none is declared."""
    logged = d.first_observations or [vector.centers]
    return (np.array(logged, dtype=np.float64) - vector.centers) / vector.scales


def point_name(logged: Array, state: str, d: Domain) -> str:
    """A public observation as logged, with its live state where there are several."""
    numbers = f"({', '.join(f'{x:.3g}' for x in logged[:_SHOWN])}{', …' if len(logged) > _SHOWN else ''})"
    return numbers if len(d.live_states) == 1 else f"{state} {numbers}"


@dataclass(frozen=True)
class LinearRequest:
    """One linear run: card, agent, plan and constants.  Rewards are in units of the declared range's width.

    ``start_rho``: budget of the released first states; None where the card declares them or nothing is private.
    ``beta``: PEVI's multiplier; None: C √d, which is VAPVI's (the theorem's pushes every value to its least).
    """

    card: Card
    agent: str
    method: LinearMethod
    plan: LinearPlan
    constants: LinearConstants
    seed: int
    start_rho: Fraction | None = None
    beta: float | None = None

    @property
    def adaptive(self) -> bool:
        """Whether the planner's constants are part of the release."""
        return self.plan.terms.variant != "one_shot"

    @property
    def features(self) -> FeatureMap:
        """The declared map, as the sums see it."""
        return self.plan.features

    @property
    def unit(self) -> float:
        """Reward of one unit of value."""
        low, high = self.card.reward.range
        return high - low

    @cached_property
    def observed(self) -> ObservedMap | None:
        """The map of observations, where the card declares them."""
        d, f = self.card.domain, self.card.features
        if d.observation is None or f is None:
            return None
        return f.observed(len(d.live_states), len(d.action_labels), d.observation)

    @cached_property
    def points(self) -> Points:
        """The states of the finite map, or the public observations that stand for all."""
        d = self.card.domain
        if self.observed is None or d.observation is None:
            return Points(tuple(d.live_states), d.allowed, 0)
        at, states = self.observed.sample(first_observations(d, d.observation))
        logged = at * d.observation.scales + d.observation.centers
        names = tuple(point_name(x, d.live_states[s], d) for x, s in zip(logged, states.tolist(), strict=True))
        return Points(names, d.allowed[states], len(first_observations(d, d.observation)))

    @cached_property
    def task(self) -> LinearTask:
        """The declared process with its vetoes."""
        allowed = self.card.domain.allowed if self.observed is None else self.card.domain.allowed[:1]
        return replace(linear_task(self.plan), allowed=None if allowed.all() else allowed)

    @property
    def multiplier(self) -> float:
        """PEVI's β."""
        return self.constants.C * math.sqrt(self.task.dimension) if self.beta is None else self.beta

    @property
    def rho(self) -> Fraction | None:
        """Exact cost of all that is released, first states included."""
        linear = true_rho(self.plan) if self.adaptive else one_shot_sum(self.plan).rho
        first = self.start_mechanism
        return linear if linear is None or first is None else linear + (first.rho or 0)

    def joining(self) -> list[Fraction | None]:
        """Exact cost of all that is released to somebody who joins or leaves, part by part."""
        sums = joining_rho(self.plan) if self.adaptive else one_shot_sum(self.plan).joining_cost
        return [sums, *([] if self.start is None else [self.start.joining_cost])]

    @property
    def start(self) -> PrivateSum | None:
        """The first states, where they are released."""
        if self.observed is not None or self.card.domain.start != "released":
            return None
        layout = StartLayout(self.card)
        (table,) = layout.tables
        variance = None if self.start_rho is None else math.ceil(table.replace.l2_squared / (2 * self.start_rho))
        return PrivateSum(layout, (table.mechanism(variance),))

    @property
    def start_mechanism(self) -> Mechanism | None:
        """The table of first states, where one is released."""
        return None if self.start is None else self.start.mechanisms[0]

    def mechanisms(self) -> tuple[Mechanism, ...] | None:
        """The list of what is released where it is known beforehand; None where scales follow answers."""
        if self.adaptive:
            return None
        first = self.start_mechanism
        return (*one_shot_sum(self.plan).mechanisms, *([] if first is None else [first]))

    def joint(self) -> dict[str, object]:
        """What the joint cost rests on, as the release will say it."""
        return {"rho_exact": None if self.rho is None else str(self.rho), **joint_facts(self.plan)}

    def calls(self) -> list[dict[str, object]]:
        """The planned calls of an adaptive release, exact costs as text, and the table of first states."""
        found = list(planned_calls(self.plan))
        if (first := self.start_mechanism) is not None:
            facts = {"name": "first states", "sensitivity": first.rule, "adaptive": False, "rho": str(first.rho)}
            found.append({**facts, "tables": ["n_0"], "variance": first.variance})
        return found

    def planner_facts(self) -> PlannerFacts:
        """Everything that an adaptive planner's questions depend on, besides the data."""
        c, terms = self.constants, self.plan.terms
        return PlannerFacts(
            agent=self.agent,
            version=PLANNER_VERSION,
            constants={"C": c.C, "D": c.D, "ridge": c.ridge, "shift": c.shift, "failure": c.failure},
            beta=self.multiplier if self.method == "pevi" else None,
            seed_of_ties=self.seed,
            variant=terms.variant,
            calibration=terms.ask.calibration,
            split=terms.halves,
            variance=terms.variance,
            shares=[str(terms.gram_share), str(terms.variance_share)],
            steps=[terms.value_steps, terms.weight_steps],
            bounds=list(self.plan.domain.bounds),
            can_end=self.plan.domain.can_end,
            episodes=self.plan.domain.taught,
            vetoes=[(str(s), str(a)) for s, a in self.card.domain.vetoes],
        )


def linear_request(card: Card, asked: Terms, method: LinearMethod) -> LinearRequest:
    """Check a linear run against its card; reads no rows.

    ``asked``: the recipe's terms: budget, constants and lattice.
    Raises CardError if the card declares no features, or the sums would not fit.
    """
    ask, chosen, agent = asked.ask_for(card), asked.linear or Linear(), asked.agent
    rho = ask.zcdp()
    d, (low, high) = card.domain, card.reward.range
    if card.features is None:
        raise CardError(f"{card.name}: [features] is missing; {agent} needs a feature map, e.g. kind = 'one_hot'")
    if card.reward.on_entering is not None:
        raise CardError(f"{card.name}: reward.on_entering is for agents of counts; {agent} sums rewards of rows")
    if card.kind == "real" and rho is None:
        raise RealDataError(f"{card.name} is registered as real: {agent} adds no noise; ask for a finite budget")
    observed = d.observation is not None
    if observed and (d.allowed != d.allowed[0]).any():
        raise CardError(f"{card.name}: vetoes by state need declared states alone; {agent} reads an observation")
    share = None if rho is None or observed or d.start != "released" else rho * _START_SHARE
    domain = LinearDomain(
        card.name,
        card.kind,
        d.horizon,
        card.unit.users_public,
        (low / (high - low), high / (high - low)),
        card.unit.episodes_per_user,
        can_end=bool(d.states.ends),
        teaching=1 - asked.reserve,
    )
    terms = LinearTerms(
        Ask(None if rho is None else rho - (share or 0), calibration=ask.calibration),
        "one_shot" if method == "one-shot" else chosen.targets,
        chosen.halves,
        variance=method == "vapvi",
        value_steps=chosen.steps,
    )
    try:
        features = _map_of(card)
        if features.dimension > _WIDEST:
            raise ValueError(f"{features.dimension} features; at most {_WIDEST} fit a Gram matrix a step")
        plan = LinearPlan(domain, terms, features)
        if method == "one-shot" and plan.successors > len(plan.landings):
            raise ValueError(
                f"values are fitted on {len(plan.landings)} public observations by {plan.successors} features of one; "
                "declare fewer features, or use dp-vapvi"
            )
        c = LinearConstants(chosen.C, chosen.D, chosen.ridge, chosen.shift, asked.planner.failure)
        request = LinearRequest(card, agent, method, plan, c, asked.planner.seed, share, chosen.beta)
        if card.kind == "real" and (request.rho is None or rho is None or request.rho > rho):
            raise ValueError("these scales would spend more than was asked; a real dataset needs calibration = 'tight'")
    except (ValueError, OverflowError) as e:
        raise CardError(f"{card.name}: {agent}: {e}") from None
    return request


def _map_of(card: Card) -> FeatureMap:
    """The declared finite map, or the public sample of one of observations."""
    d, f = card.domain, card.features
    assert f is not None
    sizes = len(d.live_states), len(d.action_labels)
    if d.observation is None:
        return f.feature_map(*sizes)
    found = f.observed(*sizes, d.observation)
    if found.dimension > _WIDEST:
        raise ValueError(f"{found.dimension} features; at most {_WIDEST} fit a Gram matrix a step")
    return found.feature_map(first_observations(d, d.observation))
