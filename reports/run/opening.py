"""The first screen of a report, and one sentence each for who decides, who approves and who checks."""

from __future__ import annotations

from pipeline.declaration.numbers import clean, number
from reports.facts.dataset import DeclaredPlant, DeclaredTables
from reports.facts.promise import Guarantee
from reports.facts.report import Report
from reports.figures.value_figure import known_truth
from reports.format import interval, listing, loss, percent
from reports.page import Opening, Tile

_LEFT = "Budget left"


def policy_opening(report: Report, data: DeclaredTables) -> Opening:
    """What was learnt, for whom, under which promise, how good it is, and what budget is left."""
    share = report.policy.abstain_share
    silent = (
        f"In {percent(share)} of these cases it recommends nothing: current practice goes on, and nothing changes."
        if share
        else "It abstains nowhere."
    )
    steps = "the one step of an episode" if data.horizon == 1 else f"each of {number(data.horizon)} steps"
    learnt = (
        f"Which of {number(len(data.actions))} actions to take in each of {number(len(data.live_states))} states "
        f"at {steps}, {_from(report)} {silent}"
    )
    return _opening(report, f"A decision policy for {clean(data.name)}", learnt, _interval_tile(report, data))


def controller_opening(report: Report, data: DeclaredPlant) -> Opening:
    """The same of a linear controller."""
    end = (
        "Its gains are not zero."
        if report.policy.left_zero
        else "All its gains are zero: it does nothing, because the noise left nothing to learn from."
    )
    learnt = (
        f"How strongly to set {listing(data.action.names)} by {listing(data.observation.names)} at each of "
        f"{number(data.horizon)} steps, {_from(report)} {end}"
    )
    return _opening(report, f"A linear controller for {clean(data.name)}", learnt, _estimate_tile(report))


def _from(report: Report) -> str:
    log = "a synthetic log" if report.dataset.kind == "synthetic" else "a log"
    return f"learnt by {clean(report.agent)} from {log} of {number(report.dataset.users_public)} people (declared)."


def _opening(report: Report, title: str, learnt: str, value: Tile) -> Opening:
    promise = report.guarantee
    return Opening(
        title=title,
        learnt=learnt,
        guarantee=clean(promise.sentence),
        tiles=(value, _loss_tile(promise), _budget_tile(report), _unit_tile(report)),
        banner=_banner(promise),
        claim=f"Claim made for the people in this log: {clean(promise.claim)}." if promise.claim else "",
    )


def _banner(promise: Guarantee) -> str:
    """The warning of a run whose noise protects nobody, else nothing."""
    if promise.noise == "os":
        return ""
    source = {"seeded": "its noise can be computed from a seed", "none": "no noise was added"}[promise.noise]
    return f"simulation, not private: {source}, so this run protects nobody. Never share it as if it did."


def _unit_tile(report: Report) -> Tile:
    return Tile("Who is protected", f"One {clean(report.dataset.user)}", (clean(report.guarantee.unit),))


def _loss_tile(promise: Guarantee) -> Tile:
    p = promise
    if p.pure or p.rho is None:
        return Tile("Privacy loss", loss(p.rho, p.epsilon, p.delta, pure=p.pure))
    notes = (loss(None, p.epsilon, p.delta),) if p.epsilon is not None else ()
    return Tile("Privacy loss", f"ρ = {number(p.rho, toward='up')}", notes)


def _interval_tile(report: Report, data: DeclaredTables) -> Tile:
    value = report.value
    notes = ["an estimate, not a guarantee" if value.status == "estimate" else "a bound"]
    if value.upper is not None and value.lower <= value.lower_trivial and value.upper >= value.upper_trivial:
        notes.append("empty: it holds every possible value, so this run says nothing about it")
    if data.markov == "aggregated":
        notes.append("concerns the binned process only")
    uniform = report.model_baselines.get("uniform")
    if uniform and value.upper is not None and uniform.upper is not None and value.lower <= uniform.upper:
        notes.append("overlaps that of choosing at random: not told apart by these intervals")
    notes.append(f"possible: {number(value.lower_trivial)} to {number(value.upper_trivial)}")
    return Tile("Value of an episode", interval(value.lower, value.upper, 3), (*notes, *_truth_note(report)))


def _estimate_tile(report: Report) -> Tile:
    notes = (
        "an estimate in the released model, not a guarantee",
        f"doing nothing: {number(report.model_baselines['zero'].estimate)} in the same model",
        "values are minus costs",
    )
    return Tile("Value of an episode", number(report.value.estimate), (*notes, *_truth_note(report)))


def _truth_note(report: Report) -> tuple[str, ...]:
    """The true values of a synthetic world in one line."""
    if (truth := known_truth(report)) is None:
        return ()
    named = {"this policy": truth.v_policy, "the log's": truth.v_behavior, "best": truth.v_star}
    return (f"in the true, synthetic world: {', '.join(f'{name} {number(x, 3)}' for name, x in named.items())}",)


def _budget_tile(report: Report) -> Tile:
    ledger = report.ledger
    if ledger is None:
        return Tile(_LEFT, "Not charged", ("no ledger entry: nothing private was released",))
    return Tile(
        _LEFT,
        f"ρ = {number(ledger.remaining_rho, toward='down')}",
        (f"after this run, of {number(ledger.cap_rho)} for the life of {clean(ledger.dataset)}",),
    )


def to_decide(report: Report) -> str:
    """How a policy stands to practice, and where it says nothing."""
    share, told = report.policy.abstain_share, report.practice
    abstains = f"It abstains in {percent(share)} of the cells." if share else "It abstains nowhere."
    if told is None or not told.cells:
        return f"{abstains} What practice does there is not told by this release."
    agrees = f"{abstains} Practice already agrees with {percent(told.followed_share)} of it;"
    if told.apart_share == 0:
        return f"{agrees} nowhere do the intervals tell the two apart."
    worth = "estimates" if report.value.status == "estimate" else "bounds"
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
