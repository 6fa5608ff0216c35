"""The offline agents and the policies they write, by name: the one table that says what each is.

:func:`guard` puts a run behind its gate: which share of the budget the gate takes, what is drawn with the rest.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from pipeline.agents.ucbvi import optimistic
from pipeline.audits.attack import AuditTarget
from pipeline.audits.tables import gate_target
from pipeline.declaration.card import AnyCard, CardError
from pipeline.declaration.code import is_plugin, plugin
from pipeline.learners import one_step_learning
from pipeline.learners.decisions import PLAYED, read_counts_view, read_linear_view, read_played_view
from pipeline.learners.gains import KIND, read_gains_view, stored_gains
from pipeline.learners.held_out import hold_out
from pipeline.learners.learner import Agent, Quote, RunPlan, listed_facts
from pipeline.learners.linear import LinearLearner
from pipeline.learners.lq import LqLearner
from pipeline.learners.observed_policy import OBSERVED_KIND, stored_observed
from pipeline.learners.one_step import OneStepLearner
from pipeline.learners.policy_files import Codec, Exported, StoredPolicy, read_policy_files
from pipeline.learners.stored_decisions import stored_decisions
from pipeline.learners.tabular import Tabular
from pipeline.learners.terms import Terms
from pipeline.ledger.account import commit_of
from pipeline.ledger.chain import Entry
from pipeline.logs.rules import BY_NAME
from pipeline.logs.second_pass import gated_rules
from pipeline.privacy.budget import down, fraction_of, rho_of_pure, up
from pipeline.privacy.losses import SpentBudget, safe_epsilon, spent_budget
from pipeline.privacy.release import total_epsilon, total_rho
from pipeline.privacy.release_file import read_release, sha256_file
from pipeline.statistics.ask import Ask
from pipeline.statistics.layout import GateLayout
from pipeline.statistics.private_sum import PrivateSum
from pipeline.transaction.drawing import Charge, Drawing
from pipeline.transaction.gate import Gate
from pipeline.transaction.release_once import key_of
from reports.facts.policy import PolicyView
from reports.facts.report import Report

AGENTS: Mapping[str, Agent] = {
    "dp-apvi": Agent(Tabular(), private=True, twin="apvi"),
    "apvi": Agent(Tabular(), private=False, twin="dp-apvi"),
    "dp-ucbvi": Agent(Tabular(optimistic), private=True, twin="ucbvi"),
    "ucbvi": Agent(Tabular(optimistic), private=False, twin="dp-ucbvi"),
    "dp-vapvi": Agent(LinearLearner("vapvi"), private=True, twin="vapvi"),
    "vapvi": Agent(LinearLearner("vapvi"), private=False, twin="dp-vapvi"),
    "pevi": Agent(LinearLearner("pevi"), private=False, twin="dp-vapvi"),
    "dp-one-shot": Agent(LinearLearner("one-shot"), private=True, twin="one-shot"),
    "one-shot": Agent(LinearLearner("one-shot"), private=False, twin="dp-one-shot"),
    "dp-one-step": Agent(OneStepLearner(), private=True, twin="one-step"),
    "one-step": Agent(OneStepLearner(), private=False, twin="dp-one-step"),
    "dp-lqr": Agent(LqLearner(), private=True, twin="lqr"),
    "lqr": Agent(LqLearner(), private=False, twin="dp-lqr"),
}

# what draws on real data: what a plug-in's own learner draws, no ledger could recompute
_OURS = (Tabular, LinearLearner, OneStepLearner, LqLearner)


def find(name: str) -> Agent:
    """The registration of an agent.

    Parameters
    ----------
    name
        One of :data:`AGENTS`, or ``module:object`` of a package of your own: an :class:`Agent` too.

    Raises
    ------
    KeyError
        If there is none of that name.
    CardError
        If a plug-in is not permitted, cannot be found, or is no agent.
    """
    return plugin(name, Agent) if is_plugin(name) else AGENTS[name]


def plan_run(card: AnyCard, terms: Terms) -> RunPlan:
    """Plan and price a run of the agent that the terms name; reads no rows.

    Parameters
    ----------
    card
        What the data set declares.
    terms
        What the recipe asks.

    Raises
    ------
    CardError
        If card and recipe do not fit each other, or real people would be drawn by code that is not of the house.
    """
    learner = find(terms.agent).learner
    if card.kind == "real" and type(learner) not in _OURS:
        raise CardError(
            f"{card.name} is registered as real: {terms.agent} draws by code of its own, and what it would be charged "
            "nobody could verify; give one of the house's learners a planner of your own (docs/extend.md)"
        )
    return hold_out(learner.plan(card, terms), card, terms)


# by the ``kind`` of policy.json, which a table of decisions does not have
_CODECS: Mapping[str | None, Codec] = {
    None: Codec(("policy",), read_counts_view, stored_decisions),
    "linear": Codec(("policy", "decisions"), read_linear_view, stored_decisions),
    OBSERVED_KIND: Codec(("policy", "decisions"), read_linear_view, stored_observed),
    one_step_learning.KIND: Codec(("policy",), one_step_learning.read_step_view, stored_decisions),
    KIND: Codec(("policy",), read_gains_view, stored_gains),
    PLAYED: Codec(("policy",), read_played_view, stored_decisions),
}


def read_view(report: Report, folder: Path) -> PolicyView:
    """The policy of a run's folder as the page draws it: what the run itself had at hand.

    Parameters
    ----------
    report
        Of the folder.
    folder
        With the policy's files and the release.

    Raises
    ------
    OSError, ValueError, KeyError
        If a file is missing or damaged.
    """
    files, codec = read_policy_files(folder, _CODECS)
    return codec.view(files, report, lambda: read_release(folder))


def read_stored(folder: Path) -> StoredPolicy:
    """The policy of a run's folder with labels, and what was promised.

    Parameters
    ----------
    folder
        Of the run.

    Raises
    ------
    CardError
        If a file of the folder is missing or damaged.
    """
    try:
        files, codec = read_policy_files(folder, _CODECS)
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        of = Exported(folder.name, report["guarantee"]["sentence"], sha256_file(folder / "policy.parquet"))
        return codec.stored(files, report, of)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as e:
        raise CardError(
            f"{folder.name}: the run's policy cannot be read ({type(e).__name__}); `reticent run` its recipe again: "
            "a committed release is replayed at no cost"
        ) from None


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
