"""How good a policy is, as far as its release can tell; and in truth, where the world is known."""

from __future__ import annotations

from pipeline.declaration.numbers import clean, number
from reports.facts.dataset import DeclaredTables
from reports.facts.learnt import NO_GUARANTEE, Baseline, Status, ValueFacts
from reports.facts.report import Report
from reports.page import Section, Table, about, interval, percent, table
from reports.run.answer import known_truth

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
    tables = [table("Value of the policy | ", rows)]
    if report.model_baselines:
        tables.append(_baselines(value, report.model_baselines))
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
    assumes = tuple(clean(item) for item in value.assumes)
    found = table("Value of an episode | ", rows)
    return Section("value", "How good it is", words, None, (found,), assumes, "The estimate assumes:")


def controller_truth_section(report: Report) -> Section | None:
    """The true values, which only a synthetic plant has; None elsewhere."""
    truth = known_truth(report)
    if truth is None or truth.v_zero is None:
        return None
    best, zero = truth.v_star, truth.v_star - truth.v_zero
    told = {
        ("v_star", "the optimal linear controller"): truth.v_star,
        ("v_policy", "this controller"): truth.v_policy,
        ("v_certainty", "the same method without privacy, on as many simulated episodes"): truth.v_certainty,
        (
            "v_fixed_gain",
            "a fixed gain from a model that is 30 % wrong, on average over 200 of them",
        ): truth.v_fixed_gain,
        ("v_zero", "doing nothing"): truth.v_zero,
        ("v_behavior", "the controller that made the log"): truth.v_behavior,
        ("v_uniform", "controls of full length in a random direction"): truth.v_uniform,
    }
    rows = [
        (key, text, number(x), percent((best - x) / zero) if zero > 0 and x is not None else "–")
        for (key, text), x in told.items()
    ]
    words = (
        "Known because these data are synthetic: exact values in the true plant, by the Riccati recursion, not by "
        "simulation. On real data this part is absent.",
        f"This controller loses {number(truth.suboptimality)} against the optimal one; doing nothing loses "
        f"{number(zero)}.",
    )
    lead = "Lost: against the optimal controller, in parts of what doing nothing loses"
    compared = table("Key | Value of | Value | Lost", rows, lead, "Value | Lost")
    return Section("truth", "In the true plant", words, tables=(compared,))
