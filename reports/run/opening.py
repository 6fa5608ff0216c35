"""The first screen of a report, and one sentence each for who decides, who approves and who checks."""

from __future__ import annotations

from pipeline.declaration.numbers import clean, number
from reports.facts.dataset import DeclaredPlant
from reports.facts.learnt import NO_GUARANTEE
from reports.facts.policy import PolicyView
from reports.facts.promise import Guarantee
from reports.facts.report import Report
from reports.format import listing, percent
from reports.page import Opening
from reports.run.answer import answer_figure, headline, missed, reason, verdict_of
from reports.run.cards import cost_card, sign_card, whom_card


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
        return f"{abstains} What practice does there is not told by this release."
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
