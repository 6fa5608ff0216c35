"""The first screen of a report, and one sentence each for who decides, who approves and who checks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pipeline.declaration.numbers import clean, number
from pipeline.privacy.losses import membership_advantage, safe_epsilon
from reports.facts.dataset import DeclaredPlant
from reports.facts.learnt import NO_GUARANTEE
from reports.facts.policy import Decisions, Gains, PolicyView
from reports.facts.promise import Guarantee
from reports.facts.report import Report
from reports.facts.verdict import Verdict, round_up
from reports.page import Card, Opening, listing, percent, shorten, steps
from reports.run.answer import answer_figure, headline, missed, reason, verdict_of
from reports.run.policy_table import Run, reach, runs

_MOST, _LABEL = 3, 34
# standard deviations of noise beyond which a count is somebody's
_PLAIN = 4.0
# past this the factor of the odds is a number without a meaning
_ODDS = 50.0


@dataclass(frozen=True)
class Change:
    """Consecutive steps of a state at which practice does not always do what is recommended.

    Parameters
    ----------
    run
        Where, and what is recommended.
    usual
        Index of what else practice does most.
    decisions
        Released, hence noisy, number of decisions there that would be others.
    """

    run: Run
    usual: int
    decisions: float


def changes(view: Decisions, noise: float) -> tuple[list[Change], float]:
    """Where a policy differs from practice, most decisions first, and how many decisions there are at all.

    Parameters
    ----------
    view
        The policy beside released counts; where practice is not told nothing differs.
    noise
        Standard deviation of a count: what is not plain beside it is nobody's decision.
    """
    found: list[Change] = []
    pooled = len(view.practice) == 1
    counts = np.where((view.evidence > _PLAIN * noise) & (view.practice > 0), view.evidence, 0.0)
    for run in runs(view):
        if run.abstains:
            continue
        others = counts[0 if pooled else slice(run.first, run.last + 1), run.state].reshape(-1, counts.shape[-1])
        others = others.sum(0)
        others[run.action] = 0.0
        # of one table for all steps, the steps of this run have their share
        share = (run.last - run.first + 1) / len(view.action) if pooled else 1.0
        if (moved := float(others.sum() * share)) > 0:
            found.append(Change(run, int(others.argmax()), moved))
    return sorted(found, key=lambda c: -c.decisions), float(counts.sum())


def _noise(report: Report) -> float:
    """Standard deviation of released decisions at a state and an action: of a sum over next states."""
    tables = [m for m in report.mechanisms if m.table == "n_sas"]
    return max((m.scale * math.sqrt(m.shape[-1]) for m in tables), default=0.0)


def whom_card(report: Report, view: PolicyView, verdict: Verdict) -> Card:
    """Which states, from what to what, how many decisions, how sure.

    Parameters
    ----------
    report, view, verdict
        Of a run.
    """
    name = "For whom it changes"
    if verdict.answer == "nothing_changes":
        return Card(name, "For nobody", ("Current practice goes on everywhere.",))
    if isinstance(view, Gains):
        if not report.policy.left_zero:
            return Card(name, "For nobody", ("All gains are zero: this controller does nothing.",))
        words = f"{listing(view.action)} would be set by {listing(view.observation)} at every step."
        return Card(name, "Every episode", (words, "How practice steers is not told by this release."))
    live = len(view.state_labels)
    silent = (
        f"In {percent(report.policy.abstain_share)} of the cases it recommends nothing: current practice goes on."
        if view.abstains.any()
        else "It recommends something in every state."
    )
    if np.isnan(view.practice).all():
        states, share = reach(view)
        # evidence of a linear policy is no number of rows
        held = "" if report.features is not None else f"These hold {percent(share)} of the released rows. "
        words = (f"{held}{_untold(report)}", silent)
        return Card(name, f"{number(states)} of {number(live)} states", words)
    found, total = changes(view, _noise(report))
    moved = sum(c.decisions for c in found)
    if moved <= total / 100:
        return Card(name, "Hardly anybody", ("It takes the actions that practice takes.", silent))
    states = len({c.run.state for c in found})
    share, some = 100 * moved / total, number(round_up(moved, "nearest"))
    words = (
        f"Some {some} of {number(round_up(total, 'nearest'))} decisions in this log, in {number(states)} of "
        f"{number(live)} states. The card declares no period: a year of twice as many has twice as many.",
        silent,
        _sure(report),
    )
    rows = tuple(_row(view, c) for c in found[:_MOST])
    return Card(name, f"About {number(share, 2)} % of decisions", tuple(w for w in words if w), rows)


def _untold(report: Report) -> str:
    by = "the regressions" if report.features is not None and report.evaluation is not None else "this release"
    return f"What practice does there is not told by {by}."


def _row(view: Decisions, c: Change) -> tuple[str, ...]:
    state, old, new = (
        shorten(clean(label), _LABEL)
        for label in (
            view.state_labels[c.run.state],
            view.action_labels[c.usual],
            view.action_labels[c.run.action],
        )
    )
    return f"{state}, step {steps(c.run.first, c.run.last)}:", f"{old} → {new}"


def _sure(report: Report) -> str:
    told = report.practice
    if told is None or told.apart_share is None:
        return ""
    where = "nowhere" if told.apart_share == 0 else f"in {percent(told.apart_share)} of the cells"
    return f"How sure, state by state: {where} the released model tells the two actions apart."


def cost_card(report: Report) -> Card:
    """The loss as odds and as a test, and what budget is left.

    Parameters
    ----------
    report
        Of a run.
    """
    name, p, ledger = "What it costs in privacy", report.guarantee, report.ledger
    left = (
        "Nothing was charged: nothing private was released."
        if ledger is None
        else f"Left for the life of {clean(ledger.dataset)}: ρ = {number(ledger.remaining_rho, toward='down')} of "
        f"{number(ledger.cap_rho)}{_lifetime(report)}."
    )
    if p.noise == "none" or p.epsilon is None:
        return Card(name, "No promise", ("No noise was added.", left))
    rho = "" if p.rho is None or p.pure else f" (ρ = {number(p.rho, toward='up')})"
    return Card(name, f"ε = {number(p.epsilon, 3, 'up')}{rho}", (*_meaning(p), left))


def _lifetime(report: Report) -> str:
    """What all that a lineage may ever spend comes to."""
    p, ledger = report.guarantee, report.ledger
    if ledger is None or p.pure or not p.delta:
        return ""
    return f"; all of it together would be ε = {number(safe_epsilon(ledger.cap_rho, p.delta), 3, 'up')}"


def _meaning(p: Guarantee) -> tuple[str, ...]:
    if p.epsilon is None or p.relation != "replace":
        return ()
    most = membership_advantage(p.rho, p.epsilon, p.delta)
    right = math.ceil(50 * (1 + most) - 1e-9)
    test = (
        f"A test: who is to tell which of two records was in the log is right at most {right} times in 100; a coin is "
        "right 50 times."
        if right < 100
        else "A test: who is to tell which of two records was in the log may be right nearly always."
    )
    if p.epsilon > _ODDS:
        return (test,)
    slip = "" if p.pure or not p.delta else f", but for a chance of {number(p.delta, 2, 'up')}"
    odds = (
        f"Odds: whatever is concluded about a person, one's own record changes its odds by a factor of at most "
        f"{number(round_up(math.exp(p.epsilon)))}{slip}."
    )
    return odds, test


def sign_card(report: Report) -> Card:
    """Who answers for it: commands on a screen, lines to fill in on paper."""
    words = (
        "This page proposes; a person decides.",
        f"On record: reticent ledger sign {clean(report.run)} --by NAME; in use: reticent promote {clean(report.run)}.",
    )
    lines = ("Adopt / keep practice / more data first", "Name", "Date", "Signature")
    return Card("Who signs", "Whoever answers for the decision", words, lines=lines)


def opening(report: Report, view: PolicyView) -> Opening:
    """The answer, its picture, for whom it changes, what it costs, who signs, and the promise.

    Parameters
    ----------
    report, view
        Of a run, of any family of agents.
    """
    verdict, promise = verdict_of(report), report.guarantee
    kind = "linear controller" if isinstance(report.dataset, DeclaredPlant) else "decision policy"
    return Opening(
        title=f"A {kind} for {clean(report.dataset.name)}",
        answer=headline(report, verdict),
        why=tuple(w for w in (reason(verdict), _counted(report), _learnt(report)) if w),
        figure=answer_figure(report, verdict),
        below=(missed(report),),
        cards=(whom_card(report, view, verdict), cost_card(report), sign_card(report)),
        guarantee=clean(promise.sentence),
        claim=f"Claim made for the people in this log: {clean(promise.claim)}." if promise.claim else "",
        banner=_banner(promise),
    )


def _counted(report: Report) -> str:
    """What the numbers are numbers of; nothing where the cards of a plant say it."""
    data = report.dataset
    if isinstance(data, DeclaredPlant):
        return ""
    pays = ", ".join(f"{number(r)} for {clean(label)}" for label, r in (data.reward_on_entering or {}).items() if r)
    low, high = (number(end) for end in data.reward_range)
    return f"What is counted: {pays or f'rewards of {low} to {high} a step'}, summed over an episode, on average."


def _learnt(report: Report) -> str:
    data, log = report.dataset, "a synthetic log" if report.dataset.kind == "synthetic" else "a log"
    source = f"learnt by {clean(report.agent)} from {log} of {number(data.users_public)} people (declared)."
    if isinstance(data, DeclaredPlant):
        return (
            f"The policy: how strongly to set {listing(data.action.names)} by {listing(data.observation.names)} at "
            f"each of {number(data.horizon)} steps, {source}"
        )
    steps = "the one step of an episode" if data.horizon == 1 else f"each of {number(data.horizon)} steps"
    return (
        f"The policy: which of {number(len(data.actions))} actions to take in each of {number(len(data.live_states))} "
        f"states at {steps}, {source}"
    )


def _banner(promise: Guarantee) -> str:
    """The warning of a run whose noise protects nobody, else nothing."""
    if promise.noise == "os":
        return ""
    source = {"seeded": "its noise can be computed from a seed", "none": "no noise was added"}[promise.noise]
    return f"simulation, not private: {source}, so this run protects nobody. Never share it as if it did."


def to_decide(report: Report) -> str:
    """How a policy stands to practice, and where it says nothing."""
    share, told = report.policy.abstain_share, report.practice
    abstains = f"It abstains in {percent(share)} of the cells." if share else "It abstains nowhere."
    if told is None or not told.cells:
        return f"{abstains} {_untold(report)}"
    agrees = f"{abstains} Practice already agrees with {percent(told.followed_share)} of it;"
    if told.apart_share == 0:
        return f"{agrees} nowhere do the intervals tell the two apart."
    worth = "no guarantee" if report.value.status in NO_GUARANTEE else clean(report.value.status)
    if report.dataset.markov == "aggregated":
        worth += ", of the binned process only"
    where = "all" if told.apart_share == 1 else percent(told.apart_share)
    return f"{agrees} in {where} of the cells its interval lies above that of practice ({worth})."


def to_approve(report: Report) -> str:
    """Under which model, with which noise, and where the budget stands."""
    promise, ledger = report.guarantee, report.ledger
    if promise.noise == "none" or ledger is None:
        return "No noise was added and nothing was charged: a baseline on simulated data."
    return (
        f"Trust model {clean(promise.trust_model)}, relation {clean(promise.relation).replace('_', ' ')}, "
        f"calibration {clean(promise.calibration)}; entry {number(ledger.entry)} of the ledger, "
        f"ρ = {number(ledger.spent_rho, toward='up')} of {number(ledger.cap_rho)} spent with it."
    )


def to_check(report: Report) -> str:
    """Which algorithm with whose constants, and the command that recomputes the promise."""
    presets = [clean(part.preset) for part in (report.constants.policy, report.constants.bounds) if part is not None]
    named = presets[0] if len(set(presets)) == 1 else f"{presets[0]} (policy) and {presets[-1]} (interval)"
    return (
        f"{clean(report.agent)}, constants: {named}. To recompute the certificate without the data: "
        f"reticent ledger verify {clean(report.run)}"
    )
