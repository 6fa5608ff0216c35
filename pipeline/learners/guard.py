"""A run behind its gate: which share of the budget the gate takes, and what is drawn with the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from pipeline.declaration.card import AnyCard
from pipeline.learners.learner import RunPlan
from pipeline.learners.registry import plan_run
from pipeline.learners.terms import Terms
from pipeline.logs.set_aside import gated_rules
from pipeline.privacy.budget import fraction_of
from pipeline.privacy.losses import safe_epsilon
from pipeline.statistics.ask import Ask
from pipeline.statistics.gate_layout import GateLayout
from pipeline.statistics.private_sum import PrivateSum
from pipeline.transaction.gate import Gate

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
    """

    plan: RunPlan
    gate: Gate | None
    whole: RunPlan

    @property
    def plans(self) -> Sequence[RunPlan]:
        """All under whose keys the ledger may know a release of this recipe."""
        return [self.plan] if self.gate is None else [self.whole, self.plan]


def guard(card: AnyCard, terms: Terms) -> Guarded:
    """Put a gate before a run; reads no row.

    Synthetic people are owed no promise: their gate counts exactly, and takes nothing of the budget.

    Parameters
    ----------
    card
        Its [tolerance] says which rules may stop a run, and of how many people.
    terms
        What the recipe asks.

    Raises
    ------
    CardError, RealDataError
        See :func:`~pipeline.learners.registry.plan_run`.
    """
    whole, rules, p = plan_run(card, terms), gated_rules(card), terms.privacy
    share = SHARE if p is None or p.gate is None else fraction_of(p.gate)
    if not rules or not share:
        return Guarded(whole, None, whole)
    layout, ask = GateLayout(card.name, card.kind, rules), terms.ask()
    if card.kind == "synthetic":
        return Guarded(whole, Gate(card, layout, _counts(layout, None)), whole)
    counts = _counts(layout, ask, share)
    if not ask.pure:
        counts = counts.with_slack(terms.noise(), safe_epsilon(card.budget.rho, card.budget.delta))
    (drawn,) = counts.mechanisms
    taken = (drawn.epsilon if ask.pure else drawn.rho) or Fraction(0)
    return Guarded(plan_run(card, replace(terms, taken=taken)), Gate(card, layout, counts), whole)


def _counts(layout: GateLayout, ask: Ask | None, share: Fraction = Fraction(0)) -> PrivateSum:
    (table,) = layout.tables
    if ask is None:
        return PrivateSum(layout, (table.mechanism(),))
    if ask.pure:
        return PrivateSum(layout, (table.mechanism(scale=table.replace.l1 / (share * fraction_of(ask.epsilon or 0))),))
    variance = math.ceil(table.replace.l2_squared / (2 * share * (ask.zcdp() or 0)))
    return PrivateSum(layout, (table.mechanism(variance=variance),))
