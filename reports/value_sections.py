"""How good the policy is, as far as released counts can tell; and in truth, where the world is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.figures import known_truth, trivial_lower, value_figure
from reports.format import clean, interval, number
from reports.page import Section, Table, table

Facts = Mapping[str, Any]
BINNED = "The declared states hide part of what was logged, so the interval concerns the binned process only."


def value_section(facts: Facts) -> Section:
    """The interval, what its status is worth, and simple policies beside it."""
    value, data = facts["value"], facts["dataset"]
    low, high = (number(end) for end in data["reward_range"])
    words = [
        f"The value is the expected sum of rewards of one episode; each reward lies in {low} to {high}"
        + (
            f", one person's rewards sum to at most {number(data['reward_total'])}."
            if data.get("reward_total")
            else "."
        )
    ]
    if value["status"] == "estimate":
        words.append(
            "Status: estimate. The interval is not a guarantee: "
            "for these constants nothing shows that it contains the value."
        )
    else:
        words.append("Status: bound. That it contains the value rests on the assumptions listed here.")
    if data["markov"] == "aggregated":
        words.append(BINNED)
    if data["kind"] != "synthetic":
        released = "sums" if facts.get("features") else "counts"
        words.append(
            f"All of it is computed from the released noisy {released}. How the policy does in use has not been "
            "observed."
        )
    rows: list[tuple[str, ...]] = [
        ("Lower end", number(value["lower"], toward="down")),
        ("Upper end", "none below the trivial one" if value.get("upper") is None else _up(value["upper"])),
        ("Gap", _up(value.get("gap"))),
        ("Least and greatest possible", f"{number(trivial_lower(facts))} and {number(value['upper_trivial'])}"),
        ("Status", value["status"] + (": not a guarantee" if value["status"] == "estimate" else "")),
        ("Start of an episode", _start(value["start"])),
    ]
    if value.get("optimal_upper") is not None:
        rows.insert(3, ("Upper end for any policy", _up(value["optimal_upper"])))
    tables = [table("Value of the policy | ", rows)]
    if facts.get("model_baselines"):
        tables.append(_baselines(facts))
    assumes = tuple(clean(item) for item in value["assumes"])
    return Section(
        "value", "How good it is", tuple(words), value_figure(facts), tuple(tables), assumes, "The interval assumes:"
    )


def _up(value: object) -> str:
    return number(value, toward="up")


def _start(start: str) -> str:
    return {"released": "estimated from the released counts", "declared": "declared"}.get(start, clean(start))


def _baselines(facts: Facts) -> Table:
    value = facts["value"]
    rows = [("this policy", number(value.get("estimate")), interval(value), "")]
    for name, baseline in facts["model_baselines"].items():
        label = clean(name if baseline.get("action") is None else f"{name}: {baseline['action']}")
        apart = _apart(value, baseline)
        rows.append((label, number(baseline.get("estimate")), interval(baseline), apart))
    return table(
        "Policy | Estimate | Interval | This policy's interval",
        rows,
        "Simple policies under the same released model",
        "Estimate | Interval",
    )


def _apart(value: Facts, baseline: Facts) -> str:
    if baseline.get("upper") is not None and value["lower"] > baseline["upper"]:
        return "lies above"
    if value.get("upper") is not None and value["upper"] < baseline["lower"]:
        return "lies below"
    return "overlaps: not told apart"


def truth_section(facts: Facts) -> Section | None:
    """The true values, which only a synthetic world has; None elsewhere."""
    truth = known_truth(facts)
    if not truth:
        return None
    names = {
        "v_star": "best possible policy",
        "v_policy": "this policy",
        "v_policy_model": "this policy, in the process that the interval is about",
        "v_behavior": "the policy that made the log",
        "v_uniform": "uniform choice",
        "suboptimality": "what is lost against the best possible policy",
    }
    rows = [(clean(key), text, number(truth[key])) for key, text in names.items() if truth.get(key) is not None]
    words = ["Known because these data are synthetic: values in the true world. On real data this part is absent."]
    inside = truth.get("v_policy_model")
    if inside is not None:
        value = facts["value"]
        top = value["upper_trivial"] if value.get("upper") is None else value["upper"]
        answer = "contains" if value["lower"] <= inside <= top else "does not contain"
        words.append(f"In this one run the interval {answer} v_policy_model.")
    return Section(
        "truth", "In the true world", tuple(words), tables=(table("Key | Value of | Value", rows, "", "Value"),)
    )
