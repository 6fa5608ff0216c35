"""How good a policy is: as far as its release can tell, as other people judge it, and in truth where that is known."""

from __future__ import annotations

import math

import numpy as np

from pipeline.declaration.numbers import clean, number
from reports.facts.dataset import DeclaredTables
from reports.facts.learnt import NO_GUARANTEE, Baseline, Status, ValueFacts
from reports.facts.measurement import EvaluationFacts, IntervalFacts
from reports.facts.policy import Decisions
from reports.facts.report import Report
from reports.facts.verdict import PLACEBO, round_up
from reports.page import Section, Table, about, interval, percent, table
from reports.run.answer import known_truth, verdict_of

_MODEL = "The interval is not a guarantee: nothing shows how often it contains the value."
_CERTIFIES: dict[Status, str] = {
    "proved": "That it contains the value is a theorem of the paper, under the assumptions listed here.",
    "evaluated": "It was measured on people who did not propose the policy; how often such an interval holds "
    "was measured in simulated worlds, and is not a theorem.",
    "bound": "That it contains the value was measured on logs made just as this one was, and rests on the assumptions "
    "listed here.",
    "modelled": _MODEL,
    "estimate": _MODEL,
}
BINNED = "The declared states hide part of what was logged, so the interval concerns the binned process only."


def value_section(report: Report, data: DeclaredTables) -> Section:
    """The interval, what its status is worth, and simple policies beside it."""
    value = report.value
    low, high = (number(end) for end in data.reward_range)
    most = f", one person's rewards sum to at most {number(data.reward_total)}." if data.reward_total else "."
    words = [
        "The value is the expected sum of rewards of one episode; each reward lies in " + f"{low} to {high}{most}",
        f"Status: {value.status}. {_CERTIFIES[value.status]}",
    ]
    if data.markov == "aggregated":
        words.append(BINNED)
    if data.kind != "synthetic":
        released = "sums" if report.features else "counts"
        words.append(
            f"All of it is computed from the released noisy {released}. How the policy does in use has not been "
            "observed."
        )
    rows: list[tuple[str, ...]] = [
        ("Interval", interval(value.lower, value.upper)),
        ("Least and greatest possible", f"{number(value.lower_trivial)} and {number(value.upper_trivial)}"),
        ("Status", value.status + (": not a guarantee" if value.status in NO_GUARANTEE else "")),
        ("Start of an episode", _start(value.start)),
    ]
    if value.optimal_upper is not None:
        rows.insert(1, ("Upper end for any policy", number(value.optimal_upper, 3, "up")))
    # one that no model values stands beside nothing
    beside = [b for b in report.model_baselines.values() if b.estimate is not None or b.upper is not None]
    baselines = [_baselines(value, report.model_baselines)] if beside else []
    tables = [table("Value of the policy | ", rows), *baselines]
    assumes = tuple(clean(item) for item in value.assumes)
    return Section("value", "How good it is", tuple(words), None, tuple(tables), assumes, "The interval assumes:")


def _start(start: str) -> str:
    return {"released": "estimated from the released counts", "declared": "declared"}[start]


def _baselines(value: ValueFacts, baselines: dict[str, Baseline]) -> Table:
    # where other people judged the policy, the model's word on it is one of several
    mine = baselines.get("this policy") or value
    rows = [("this policy", _about(mine), interval(mine.lower, mine.upper), "")]
    for name, b in baselines.items():
        if b is mine:
            continue
        label = clean(name if b.action is None else f"{name}: {b.action}")
        rows.append((label, _about(b), interval(b.lower, b.upper), _apart(mine, b)))
    return table(
        "Policy | Estimate | Interval | This policy's interval",
        rows,
        "Simple policies under the same released model",
        "Estimate | Interval",
    )


def _about(of: ValueFacts | Baseline) -> str:
    if of.estimate is None or of.lower is None or of.upper is None:
        return number(of.estimate, 3)
    return about(of.estimate, of.lower, of.upper)


def _apart(mine: ValueFacts | Baseline, other: Baseline) -> str:
    if mine.lower is not None and other.upper is not None and mine.lower > other.upper:
        return "lies above"
    if mine.upper is not None and other.lower is not None and mine.upper < other.lower:
        return "lies below"
    return "overlaps: not told apart"


def truth_section(report: Report) -> Section | None:
    """The true values, which only a synthetic world has; None elsewhere."""
    if (truth := known_truth(report)) is None:
        return None
    value = report.value
    rows = [
        ("v_star", "best possible policy", number(truth.v_star)),
        ("v_policy", "this policy", number(truth.v_policy)),
        ("v_policy_model", "this policy, in the process that the interval is about", number(truth.v_policy_model)),
        ("v_behavior", "the policy that made the log", number(truth.v_behavior)),
        ("v_uniform", "uniform choice", number(truth.v_uniform)),
        ("suboptimality", "what is lost against the best possible policy", number(truth.suboptimality)),
    ]
    top = value.upper_trivial if value.upper is None else value.upper
    answer = "contains" if value.lower <= truth.v_policy_model <= top else "does not contain"
    words = (
        "Known because these data are synthetic: values in the true world. On real data this part is absent.",
        f"In this one run the interval {answer} v_policy_model.",
    )
    return Section("truth", "In the true world", words, tables=(table("Key | Value of | Value", rows, "", "Value"),))


def controller_value_section(report: Report) -> Section:
    """The estimate, what it is worth, and doing nothing beside it."""
    value = report.value
    words = (
        "The value is minus the expected summed cost of one episode, x'Qx + u'Ru a step, so more is better and 0 is "
        "the most there could be.",
        "Status: modelled, not a guarantee. It is the exact value in the plant that the released sums suggest, with "
        "the declared noise; how far that plant is from the true one is not known.",
    )
    rows = [
        ("This controller, in the released model", number(value.estimate)),
        ("Doing nothing, in the released model", number(report.model_baselines["zero"].estimate)),
        ("Least possible where the declared balls hold", number(value.lower_trivial, toward="down")),
        ("Status", "modelled: not a guarantee"),
    ]
    assumes, found = tuple(clean(item) for item in value.assumes), table("Value of an episode | ", rows)
    return Section("value", "How good it is", words, None, (found,), assumes, "The estimate assumes:")


def controller_truth_section(report: Report) -> Section | None:
    """The true values, which only a synthetic plant has; None elsewhere."""
    truth = known_truth(report)
    if truth is None or truth.v_zero is None:
        return None
    best, zero = truth.v_star, truth.v_star - truth.v_zero
    wrong = "a fixed gain from a model that is 30 % wrong, on average over 200 of them"
    told = (
        ("v_star", "the optimal linear controller", truth.v_star),
        ("v_policy", "this controller", truth.v_policy),
        ("v_certainty", "the same method without privacy, on as many simulated episodes", truth.v_certainty),
        ("v_fixed_gain", wrong, truth.v_fixed_gain),
        ("v_zero", "doing nothing", truth.v_zero),
        ("v_behavior", "the controller that made the log", truth.v_behavior),
        ("v_uniform", "controls of full length in a random direction", truth.v_uniform),
    )
    lost = [percent((best - x) / zero) if zero > 0 and x is not None else "–" for _, _, x in told]
    rows = [(key, text, number(x), part) for (key, text, x), part in zip(told, lost, strict=True)]
    words = (
        "Known because these data are synthetic: exact values in the true plant, by the Riccati recursion, not by "
        "simulation. On real data this part is absent.",
        f"This controller loses {number(truth.suboptimality)} against the optimal one; doing nothing loses "
        f"{number(zero)}.",
    )
    lead = "Lost: against the optimal controller, in parts of what doing nothing loses"
    compared = table("Key | Value of | Value | Lost", rows, lead, "Value | Lost")
    return Section("truth", "In the true plant", words, tables=(compared,))


# what a diagnostic says, under the name that obp and SCOPE-RL have for it
_SAYS = {
    "effective sample size": "people whose history tells what the policy would do; few: the estimate rests on them",
    "overlap": "share of decisions that practice takes as the policy would; near 0: little is known",
    "clip, people": "near 0: the clip can hide little",
    "clip, half": "above 0: a clip of half the size would not take the gain away",
    "clip, twice": "above 0: the noise of a clip of twice the size would not either",
    "weights clipped": "share of people whose weight was cut: the more, the further toward practice",
    "calibration": "the modelled value less the measured one; far from 0: the model is off",
    "people who follow": "share of people whose whole history the policy follows",
}
# what the people who judge had to do with the policy: whether it is of one step
_PART = {
    False: "had no part in choosing the policy and judge it",
    True: "did not propose the policy; by how often its actions are taken, not by what came of it, they decided which "
    "of its changes stay: both parts made it. They judge it",
}
_SHARES = (0.2, 0.3, 0.5)
# fewer states are no groups
_FEW = 9


def evaluation_section(report: Report, view: Decisions) -> Section | None:
    """Values, difference, checks and their prices; None where nobody was asked.

    Parameters
    ----------
    report, view
        Of a run.
    """
    if (found := report.evaluation) is None:
        return None
    verdict = verdict_of(report)
    status = verdict.improvement.status if verdict.improvement is not None else "modelled"
    looks = "the first" if found.look == 1 else f"number {number(found.look)}"
    words = (
        f"{percent(found.share)} of the people (declared), by a noisy count about "
        f"{number(round_up(found.people, 'nearest'))}, {_PART[found.confirmed]} "
        f"(estimator {clean(found.estimator)}). Current practice is the mean of their own returns; the difference is "
        "paired, person by person.",
        f"This is {looks} evaluation on this lineage, so each interval has level {percent(found.level)}: more looks "
        f"would else mean more chances to be wrong. Status: {status}.",
        "It assumes that the declared state holds everything that drives both what is done and what comes of it.",
    )
    rows = [
        ("New policy", *_both(found.value)),
        ("Current practice", *_both(found.practice)),
        ("Difference", *_both(found.improvement)),
    ]
    if (other := found.against) is not None:
        rows.append((f"Difference to {clean(other.run)}, modelled", *_both(other.improvement)))
    values = table("Mean return a person | Estimate | Interval", rows, "", "Estimate | Interval")
    return Section("evaluation", "How it was judged", words, tables=(values, _checks(report, found, view)))


def _both(x: IntervalFacts) -> tuple[str, str]:
    return about(x.estimate, x.lower, x.upper), interval(x.lower, x.upper)


def _checks(report: Report, found: EvaluationFacts, view: Decisions) -> Table:
    placebo = "not released" if found.placebo is None else f"z = {number(found.placebo, 2)}"
    says = f"must come out as 0; beyond {PLACEBO:g} on either side the answer is withheld"
    rows = [("Placebo", placebo, "free" if found.placebo is None else "in the same release", says)]
    if found.ratios is not None:
        rows.append(("Logged probabilities", f"z = {number(found.ratios, 2)}", "in the same release", says))
    for d in found.diagnostics:
        cost = f"ρ = {number(d.price, 2, 'up')}" if d.price else "free"
        rows.append((clean(d.name), number(d.value, 3), cost, _meaning(d.name)))
    rows += [(name, percent(share), "free", _SAYS["overlap"]) for name, share in overlaps(view)]
    for name, of, measured in (("policy", "this policy", found.value), ("practice", "practice", found.practice)):
        told = report.model_baselines.get(of)
        if told is not None and told.estimate is not None:
            off = number(told.estimate - measured.estimate, 2)
            rows.append((f"Calibration of the model, {name}", off, "free", _SAYS["calibration"]))
    for share in _SHARES:
        name, half = f"Half-width, had {percent(share)} judged", half_width(found, share)
        clear = "would" if abs(found.improvement.estimate) > half else "would not"
        rows.append((name, number(half, 2, "up"), "free", f"the same difference {clear} be told from 0"))
    caption = "How far this can be relied on; free: computed from what was released anyway"
    return table("Check | Value | Price | Says", rows, caption, "Value")


def _meaning(name: str) -> str:
    return next((says for known, says in _SAYS.items() if name.lower().startswith(known)), "")


def overlaps(view: Decisions) -> list[tuple[str, float]]:
    """How much of practice agrees with the policy, by how often states are visited; from released counts.

    Parameters
    ----------
    view
        The policy beside released counts.

    Returns
    -------
    Name and share of each third of the states; of all of them where they are few; nothing where practice is not told.
    """
    known = ~np.isnan(view.practice).any(-1) & ~view.abstains
    usual = np.broadcast_to(view.practice, (*view.action.shape, len(view.action_labels)))
    agree = np.take_along_axis(usual, view.action[..., None], -1)[..., 0]
    visits = np.where(known, view.evidence.sum(-1), 0.0)
    followed, by_state = np.where(known, visits * np.nan_to_num(agree), 0.0).sum(0), visits.sum(0)
    order = [s for s in np.argsort(-by_state, kind="stable").tolist() if by_state[s] > 0]
    if not order:
        return []
    if len(order) < _FEW:
        return [("Overlap, all states", float(followed[order].sum() / by_state[order].sum()))]
    names = ("the most visited third of states", "the middle third", "the least visited third")
    parts = np.array_split(np.array(order), 3)
    return [
        (f"Overlap, {name}", float(followed[part].sum() / by_state[part].sum()))
        for name, part in zip(names, parts, strict=True)
    ]


def half_width(found: EvaluationFacts, share: float) -> float:
    """How wide the interval of the difference would be to either side, with another share of the same people.

    Parameters
    ----------
    found
        Released variances.
    share
        Of the people who judge.
    """
    times = share / found.share
    now, then = (
        math.sqrt(found.person_variance / max(found.people, 1) / x + found.noise_variance / x**2) for x in (1.0, times)
    )
    return float(found.half_width) * then / now if now > 0 else float(found.half_width)
