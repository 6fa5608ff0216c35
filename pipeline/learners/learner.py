"""Protocols of a learner: from a card and the terms of a recipe to a priced plan, a release, and a policy.

An agent is one name of :data:`AGENTS`: a learner, and whether it adds noise.  No other module knows agents by name or
by kind, or the policies that they write.  :func:`guard` puts a run behind its gate: the gate takes a share of the
budget, the run draws with the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pipeline.arrays import Integers
from pipeline.declaration.card import AnyCard, Card, CardError
from pipeline.declaration.code import is_plugin, plugin
from pipeline.facts.answers import CallFacts
from pipeline.facts.learnt import LearntFacts, Truth
from pipeline.facts.promise import Joint, MechanismFacts
from pipeline.learners.policy_files import PolicyFiles
from pipeline.learners.terms import Terms
from pipeline.ledger.account import commit_of
from pipeline.ledger.chain import Body, Entry
from pipeline.logs.rules import BY_NAME, gated_rules
from pipeline.mdp.policy import Policy
from pipeline.privacy.budget import down, fraction_of, rho_of_pure, up
from pipeline.privacy.losses import SpentBudget, safe_epsilon, spent_budget
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Mechanism, Release, total_epsilon, total_rho
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.ask import Ask
from pipeline.statistics.layout import GateLayout
from pipeline.statistics.private_sum import PrivateSum
from pipeline.transaction.drawing import Charge, Drawing, Gate, key_of

if TYPE_CHECKING:
    from pipeline.audits.attack import AuditTarget, WholePlan
    from pipeline.worlds.surrogate import SimulatedRun


@dataclass(frozen=True)
class Quote:
    """Release and cost of a run, from declarations alone.

    ``rho``: exact cost in zCDP; None where nothing is private.
    ``joint``: grounds of a joint bound of the tables; None where each table is priced alone.
    ``outlook``: forecasts beside its cost, by the fields of :class:`~pipeline.facts.answers.PlanAnswer`.
    """

    mechanisms: Sequence[MechanismFacts | CallFacts]
    rho: Fraction | None
    spent: SpentBudget
    joint: Joint | None
    outlook: Body


def listed_facts(mechanisms: Sequence[Mechanism]) -> list[MechanismFacts]:
    """The tables of a quote."""
    return [MechanismFacts.model_validate(m) for m in described(mechanisms)]


def described(mechanisms: Sequence[Mechanism]) -> list[dict[str, object]]:
    """The tables as a ledger and a certificate list them."""
    return [describe_mechanism(m) for m in mechanisms]


def priced(rho: Fraction | None, grounds: Body) -> dict[str, object]:
    """The joint cost of tables, exact as text, and its grounds."""
    return {"rho_exact": None if rho is None else str(rho), **grounds}


def joint_quote(
    mechanisms: Sequence[MechanismFacts | CallFacts], rho: Fraction | None, delta: float, joint: Body, **outlook: Any
) -> Quote:
    """The quote of tables that are bounded together.

    ``rho``: their joint cost in zCDP; None without noise.
    ``joint``: the same with its grounds.
    """
    nothing = SpentBudget(rho=None, epsilon=None, delta=None, pure=False)
    spent = nothing if rho is None else spent_budget((), delta, rho)
    forecasts = {"what_if": list[Body](), "people_needed": dict[str, int](), **outlook}
    return Quote(mechanisms, rho, spent, Joint.model_validate(joint), forecasts)


def typeable(value: float) -> float:
    """Six digits, rounded down: a budget that a person can type."""
    with localcontext(prec=6, rounding=ROUND_FLOOR):
        return float(+Decimal(repr(value)))


def fitting_rho(left: Fraction) -> Mapping[str, float]:
    """The remaining budget, as a budget in rho."""
    return {"rho": typeable(float(left))}


def table_size(card: Card) -> int:
    """Numbers of one simulated log of count tables."""
    d = card.domain
    return d.horizon * len(d.state_labels) ** 2 * len(d.action_labels)


class Learnt(Protocol):
    """A policy with its facts: released values and declarations only."""

    def files(self) -> PolicyFiles:
        """The files of the policy, written once."""
        ...

    def facts(self) -> LearntFacts:
        """Its part of report.json."""
        ...

    def truth(self, world: str, behaviour: str) -> Truth:
        """True values in a known world.

        Raises CardError if there is no such world or behaviour, or the card declares another process.
        """
        ...


@runtime_checkable
class Deciding(Protocol):
    """A learnt policy over declared states, which held-out people can evaluate."""

    @property
    def policy(self) -> Policy:
        """The policy step by step, with the states in which it abstains."""
        ...


class RunPlan(Drawing, Protocol):
    """One run, planned and priced on declarations; the transaction draws it as a :class:`Drawing`."""

    @property
    def what(self) -> str:
        """Name of the released statistic: ``counts``."""
        ...

    @property
    def reference(self) -> str:
        """Name of the policy without learning with which a forecast compares."""
        ...

    def quote(self) -> Quote:
        """Release and cost of the plan."""
        ...

    def fitting(self, left: Fraction) -> Mapping[str, float] | None:
        """The largest budget of the same kind that is still allowed; None where none is."""
        ...

    def learn(self, release: Release) -> Learnt:
        """Make a policy of a committed release: post-processing, reads no rows.

        Raises ValueError if the release was drawn on other terms.
        """
        ...

    def unforeseen(self) -> str | None:
        """Reason, in words, for which this plan cannot be simulated; None where it can."""
        ...

    def log_size(self, episodes: int) -> int:
        """Numbers of one simulated log."""
        ...

    def forecast(self, episodes: int, seeds: Sequence[int]) -> list[SimulatedRun]:
        """Simulate a run for each seed, in the world that the terms declare or in a surrogate; reads no rows.

        ``seeds``: one simulated world, log and release each.  The card must be synthetic: the noise is seeded.
        """
        ...

    def targets(self, sampler: NoiseSource) -> list[AuditTarget]:
        """An audit target for each mechanism of a plan that is small enough to be attacked."""
        ...

    def whole_plan(self) -> WholePlan | None:
        """Cost of this plan where :meth:`targets` attacks a smaller one; None where it attacks the plan itself."""
        ...


@runtime_checkable
class Adaptive(Protocol):
    """A plan whose later queries depend on earlier answers; the release records them."""

    def recompute_derived(self, release: Release) -> Mapping[str, Integers]:
        """All of :attr:`~pipeline.privacy.release.Release.derived`, recomputed from the answers; reads no rows."""
        ...


class Learner(Protocol):
    """One way from a card to a policy, shared by its agents with and without noise."""

    @property
    def continual(self) -> bool:
        """True where its plans are count tables, which can be kept as a counter over nights."""
        ...

    @property
    def section(self) -> str | None:
        """The recipe's section that only this learner's agents take."""
        ...

    def check(self, terms: Terms) -> None:
        """Refuse settings that this learner does not have.

        Raises ValueError in words: which key, and to whom it belongs.
        """
        ...

    def plan(self, card: AnyCard, terms: Terms) -> RunPlan:
        """Plan and price a run; reads no rows.

        Raises CardError if card and recipe do not fit each other.
        Raises RealDataError if the data is real and no budget is given.
        """
        ...


@dataclass(frozen=True)
class Agent:
    """One offline agent.

    ``private``: whether it adds noise: then a recipe must give a budget, else it must not.
    ``twin``: its counterpart with or without noise, for an error message; None where there is none.
    """

    learner: Learner
    private: bool
    twin: str | None = None


_METHODS = ["apvi", "ucbvi", "vapvi", "pevi", "one-shot", "one-step", "lqr"]
# each with its counterpart with or without noise; ``dp-`` adds noise, and PEVI has no such counterpart
_TWINS = {
    name: twin
    for method in _METHODS
    for name, twin in ((f"dp-{method}", method), (method, f"dp-{method}"))
    if name != "dp-pevi"
} | {"pevi": "dp-vapvi"}
# agents of feature maps; and the agent that explores
_LINEAR, _EXPLORES = ("vapvi", "pevi", "one-shot"), "ucbvi"


AGENTS = tuple(_TWINS)
"""Names of the agents; a learner is loaded where :func:`find` is asked for its agent."""


@cache
def _agent(name: str) -> Agent:
    twin, method = _TWINS[name], name.removeprefix("dp-")
    return Agent(_learner(method), private=name != method, twin=twin)


def _learner(method: str) -> Learner:
    match method:
        case "apvi":
            from pipeline.learners.tabular import Tabular

            return Tabular()
        case "ucbvi":
            from pipeline.agents.ucbvi import optimistic
            from pipeline.learners.tabular import Tabular

            return Tabular(optimistic)
        case "vapvi" | "pevi" | "one-shot":
            from pipeline.learners.linear_request import LinearLearner

            return LinearLearner(method)
        case "one-step":
            from pipeline.learners.one_step_learning import OneStepLearner

            return OneStepLearner()
        case _:
            from pipeline.learners.lq import LqLearner

            return LqLearner()


def rivals(agent: str, card: AnyCard, *, private: bool) -> Iterator[tuple[str, Agent]]:
    """The agents that can read a card beside ``agent``; one that explores is a rival of none but itself."""
    for name in AGENTS:
        method = name.removeprefix("dp-")
        if isinstance(card, Card):
            reads = method != "lqr" and (card.features is not None or method not in _LINEAR)
        else:
            reads = method == "lqr"
        if reads and name.startswith("dp-") == private and (method != _EXPLORES or name == agent):
            yield name, find(name)


def find(name: str) -> Agent:
    """The registration of an agent.

    Raises KeyError if there is none of that name.
    Raises CardError if a plug-in is not permitted, cannot be found, or is no agent.
    """
    return plugin(name, Agent) if is_plugin(name) else _agent(name)


def plan_run(card: AnyCard, terms: Terms) -> RunPlan:
    """Plan and price a run of the agent that the terms name; reads no rows.

    Raises CardError if card and recipe do not fit each other, or a plug-in's own learner would draw real people.
    """
    if isinstance(card, Card) and card.domain.discount < 1 and terms.known is not None:
        raise CardError(
            f"{card.name}: [evaluate] world = {terms.known.world!r} pays without a discount, domain.discount is "
            f"{card.domain.discount:g}; leave out [evaluate] world"
        )
    learner = find(terms.agent).learner
    # no ledger could recompute the charge of a plug-in's own learner
    is_own_code = is_plugin(terms.agent) and card.kind == "real"
    if is_own_code and type(learner) not in {type(find(name).learner) for name in AGENTS}:
        raise CardError(
            f"{card.name} is registered as real: {terms.agent} draws by code of its own, and what it would be charged "
            "nobody could verify; give one of the house's learners a planner of your own (docs/extend.md)"
        )
    plan = learner.plan(card, terms)
    if not terms.held_out:
        return plan
    from pipeline.learners.held_out import hold_out

    return hold_out(plan, card, terms)


@dataclass(frozen=True)
class Guarded:
    """A run behind its gate.

    ``gate``: drawn before the run; None where nothing may stop it.
    ``full_plan``: the run with the whole budget, as versions without a gate drew it; it stands where it was charged.
    """

    plan: RunPlan
    gate: Gate | None
    full_plan: RunPlan
    terms: Terms

    def keys(self, card: AnyCard, edition: int) -> list[str]:
        """Keys under which the ledger may hold a run of this recipe on an edition: its release and its gate."""
        drawings = [self.full_plan, self.plan, *([] if self.gate is None else [self.gate])]
        return [key_of(card, edition, drawing) for drawing in drawings]

    def quote(self) -> Quote:
        """Release and cost, the gate's share included."""
        rest = self.plan.quote()
        if self.gate is None or self.gate.exact or rest.rho is None:
            return rest
        gate, delta = self.gate.counts.mechanisms, self.gate.card.budget.delta
        listed = [*listed_facts(gate), *rest.mechanisms]
        rho = rest.rho + (total_rho(gate) or 0)
        spent = spent_budget(gate, delta, rho)
        if rest.spent["pure"]:
            epsilon = Fraction(rest.spent["epsilon"] or 0) + (total_epsilon(gate) or 0)
            spent = SpentBudget(rho=up(rho_of_pure(epsilon)), epsilon=up(epsilon), delta=0.0, pure=True)
        elif slack := sum(Fraction(getattr(m, "delta_slack", None) or 0) for m in listed):
            spent["epsilon"] = safe_epsilon(up(rho), down(Fraction(delta) - slack))
        return replace(rest, mechanisms=listed, rho=rho, spent=spent)

    def charges(self, card: AnyCard, edition: int | None, entries: Sequence[Entry]) -> list[Charge]:
        """Charges of a run, part by part, without parts that are committed already.

        ``card``, ``edition``: of the dataset, and the number of the snapshot; None where there is none yet.
        """

        def done(drawing: Drawing) -> bool:
            return edition is not None and commit_of(entries, card.name, key_of(card, edition, drawing)) is not None

        parts = [self.plan] if self.gate is None or self.gate.exact else [self.gate, self.plan]
        return [] if done(self.plan) else [part.charge() for part in parts if not done(part)]

    def is_gate(self, card: AnyCard, intent: Entry) -> bool:
        """True where an INTENT paid for the gate, not for the run behind it."""
        return self.gate is not None and intent.body["run_key"] == key_of(card, intent.body["snapshot"], self.gate)

    @property
    def stops(self) -> list[str]:
        """The rules that may stop the run."""
        return [] if self.gate is None else list(self.gate.layout.rules)

    def targets(self) -> list[AuditTarget]:
        """Audit targets of the gate: its counts, where they have noise."""
        if self.gate is None or self.gate.exact:
            return []
        from pipeline.audits.tables import gate_target

        return [gate_target(self.gate.counts)]

    def opened(self) -> Guarded:
        """The run without a gate, as earlier versions drew it."""
        return Guarded(self.full_plan, None, self.full_plan, replace(self.terms, taken=Fraction(0)))


def guard(card: AnyCard, terms: Terms) -> Guarded:
    """Put a gate before a run; reads no row.

    Synthetic people need no guarantee: their gate is exact, takes none of the budget, and has only the rules with
    tolerance 0.

    Raises CardError, RealDataError see :func:`plan_run`.
    """
    full_plan = plan_run(card, terms)
    # an exact gate has only the rules with tolerance 0
    rules = tuple(r for r in gated_rules(card) if card.kind == "real" or not card.tolerance[r])
    share = terms.gate
    if not rules or not share:
        return Guarded(full_plan, None, full_plan, terms)
    layout, ask = GateLayout(card.name, card.kind, rules), terms.ask()
    if not layout.once:
        # their order carries nothing: another tolerance is the same query
        layout = replace(layout, rules=tuple(sorted(rules, key=list(BY_NAME).index)))
    if card.kind == "synthetic":
        return Guarded(full_plan, Gate(card, layout, _counts(layout, None)), full_plan, terms)
    counts = _counts(layout, ask, share)
    if not ask.pure:
        counts = counts.with_slack(terms.noise(), safe_epsilon(card.budget.rho, card.budget.delta))
    (drawn,) = counts.mechanisms
    gate_cost = (drawn.epsilon if ask.pure else drawn.rho) or Fraction(0)
    remaining = replace(terms, taken=gate_cost)
    return Guarded(plan_run(card, remaining), Gate(card, layout, counts), full_plan, remaining)


def _counts(layout: GateLayout, ask: Ask | None, share: Fraction = Fraction(0)) -> PrivateSum:
    (table,) = layout.tables
    if ask is None:
        return PrivateSum(layout, (table.mechanism(),))
    if ask.pure:
        return PrivateSum(layout, (table.mechanism(scale=table.replace.l1 / (share * fraction_of(ask.epsilon or 0))),))
    variance = math.ceil(table.replace.l2_squared / (2 * share * (ask.zcdp() or 0)))
    return PrivateSum(layout, (table.mechanism(variance=variance),))
