"""A run behind its gate: which share of the budget the gate takes, and what is drawn with the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from pipeline.audits.attack import AuditTarget
from pipeline.audits.tables import gate_target
from pipeline.declaration.card import AnyCard
from pipeline.learners.learner import Quote, RunPlan, listed_facts
from pipeline.learners.offline_agents import plan_run
from pipeline.learners.terms import Terms
from pipeline.ledger.account import commit_of
from pipeline.ledger.chain import Entry
from pipeline.logs.rules import BY_NAME
from pipeline.logs.second_pass import gated_rules
from pipeline.privacy.budget import down, fraction_of, rho_of_pure, up
from pipeline.privacy.guarantee import SpentBudget, spent_budget
from pipeline.privacy.losses import safe_epsilon
from pipeline.privacy.release import total_epsilon, total_rho
from pipeline.statistics.ask import Ask
from pipeline.statistics.gate_layout import GateLayout
from pipeline.statistics.private_sum import PrivateSum
from pipeline.transaction.drawing import Charge, Drawing
from pipeline.transaction.gate import Gate
from pipeline.transaction.release_once import key_of

# at rho = 1 the noise of one rule is then 5 people
SHARE = Fraction(1, 50)


@dataclass(frozen=True)
class Guarded:
    """What a recipe draws of a card.

    Parameters
    ----------
    plan
        With what the gate leaves of the budget.
    gate
        What is drawn before; None where nothing may stop the run.
    whole
        With the whole budget: what versions without a gate drew.  Where that was charged, it is what stands.
    terms
        Those of ``plan``.
    """

    plan: RunPlan
    gate: Gate | None
    whole: RunPlan
    terms: Terms

    def keys(self, card: AnyCard, edition: int) -> list[str]:
        """Under which the ledger may know a run of this recipe on an edition: its gate, and its release."""
        drawings = [self.whole, self.plan, *([] if self.gate is None else [self.gate])]
        return [key_of(card, edition, drawing) for drawing in drawings]

    def quote(self) -> Quote:
        """What would be released and what it costs, the gate's share included."""
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
        """What a run would be charged for, part by part: what is committed is not drawn again.

        Parameters
        ----------
        card, edition
            Of the dataset, and the number of the snapshot; None where there is none yet.
        entries
            Of the ledger.
        """

        def done(drawing: Drawing) -> bool:
            return edition is not None and commit_of(entries, card.name, key_of(card, edition, drawing)) is not None

        parts = [self.plan] if self.gate is None or self.gate.exact else [self.gate, self.plan]
        return [] if done(self.plan) else [part.charge() for part in parts if not done(part)]

    def is_gate(self, card: AnyCard, intent: Entry) -> bool:
        """Whether an INTENT paid for the gate, not for what comes after it."""
        return self.gate is not None and intent.body["run_key"] == key_of(card, intent.body["snapshot"], self.gate)

    @property
    def stops(self) -> list[str]:
        """The rules that may stop the run."""
        return [] if self.gate is None else list(self.gate.layout.rules)

    def targets(self) -> list[AuditTarget]:
        """What an audit attacks of the gate: its counts, where they have noise."""
        return [] if self.gate is None or self.gate.exact else [gate_target(self.gate.counts)]

    def opened(self) -> Guarded:
        """The same without a gate: as a version drew it that had none."""
        return Guarded(self.whole, None, self.whole, replace(self.terms, taken=Fraction(0)))


def guard(card: AnyCard, terms: Terms) -> Guarded:
    """Put a gate before a run; reads no row.

    Synthetic people are owed no promise: their gate is exact, takes nothing of the budget, and asks for what the card
    does not tolerate at all.

    Parameters
    ----------
    card
        Its [tolerance] says which rules may stop a run, and of how many people.
    terms
        What the recipe asks.

    Raises
    ------
    CardError, RealDataError
        See :func:`~pipeline.learners.offline_agents.plan_run`.
    """
    whole, p = plan_run(card, terms), terms.privacy
    # without noise to hide in, only what is not tolerated at all
    rules = tuple(r for r in gated_rules(card) if card.kind == "real" or not card.tolerance[r])
    share = SHARE if p is None or p.gate is None else fraction_of(p.gate)
    if not rules or not share:
        return Guarded(whole, None, whole, terms)
    layout, ask = GateLayout(card.name, card.kind, rules), terms.ask()
    if not layout.once:
        # side by side, their order says nothing: another tolerance is no other question
        layout = replace(layout, rules=tuple(sorted(rules, key=list(BY_NAME).index)))
    if card.kind == "synthetic":
        return Guarded(whole, Gate(card, layout, _counts(layout, None)), whole, terms)
    counts = _counts(layout, ask, share)
    if not ask.pure:
        counts = counts.with_slack(terms.noise(), safe_epsilon(card.budget.rho, card.budget.delta))
    (drawn,) = counts.mechanisms
    taken = (drawn.epsilon if ask.pure else drawn.rho) or Fraction(0)
    rest = replace(terms, taken=taken)
    return Guarded(plan_run(card, rest), Gate(card, layout, counts), whole, rest)


def _counts(layout: GateLayout, ask: Ask | None, share: Fraction = Fraction(0)) -> PrivateSum:
    (table,) = layout.tables
    if ask is None:
        return PrivateSum(layout, (table.mechanism(),))
    if ask.pure:
        return PrivateSum(layout, (table.mechanism(scale=table.replace.l1 / (share * fraction_of(ask.epsilon or 0))),))
    variance = math.ceil(table.replace.l2_squared / (2 * share * (ask.zcdp() or 0)))
    return PrivateSum(layout, (table.mechanism(variance=variance),))
