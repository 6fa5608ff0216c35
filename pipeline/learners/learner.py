"""Protocols of a learner: from a card and the terms of a recipe to a priced plan, a release, and a policy.

An agent is one entry of :mod:`pipeline.learners.offline_agents`: a learner, and whether it adds noise.  No other
module knows agents by name or by kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pipeline.arrays import Integers
from pipeline.declaration.card import AnyCard, Card
from pipeline.facts.answers import CallFacts
from pipeline.facts.learnt import LearntFacts, PolicyView, Truth
from pipeline.facts.promise import Joint, MechanismFacts
from pipeline.learners.policy_files import PolicyFiles
from pipeline.learners.terms import Terms
from pipeline.ledger.chain import Body
from pipeline.mdp.policy import Policy
from pipeline.privacy.losses import SpentBudget, spent_budget
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Mechanism, Release
from pipeline.privacy.release_file import describe_mechanism
from pipeline.transaction.drawing import Drawing

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

    def view(self) -> PolicyView:
        """The policy as a page draws it."""
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
