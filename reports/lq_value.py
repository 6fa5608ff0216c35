"""How good a linear controller is: in the released model, and in truth where the plant is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.figures import known_truth
from reports.format import clean, number, percent
from reports.page import Section, table

Facts = Mapping[str, Any]
TRUTHS = {
    "v_star": "the optimal linear controller",
    "v_policy": "this controller",
    "v_certainty": "the same method without privacy, on as many simulated episodes",
    "v_fixed_gain": "a fixed gain from a model that is 30 % wrong, on average over 200 of them",
    "v_zero": "doing nothing",
    "v_behavior": "the controller that made the log",
    "v_uniform": "controls of full length in a random direction",
}


def lq_value_section(facts: Facts) -> Section:
    """The estimate, what it is worth, and doing nothing beside it."""
    value, zero = facts["value"], facts["model_baselines"]["zero"]["estimate"]
    words = (
        "The value is minus the expected summed cost of one episode, x'Qx + u'Ru a step, so more is better and 0 is "
        "the most there could be.",
        "Status: estimate, not a guarantee. It is the exact value in the plant that the released sums suggest, with "
        "the declared noise; how far that plant is from the true one is not known.",
    )
    rows = [
        ("This controller, in the released model", number(value["estimate"])),
        ("Doing nothing, in the released model", number(zero)),
        ("Least possible where the declared balls hold", number(value["lower_trivial"], toward="down")),
        ("Status", "estimate: not a guarantee"),
    ]
    assumes = tuple(clean(item) for item in value["assumes"])
    return Section(
        "value",
        "How good it is",
        words,
        tables=(table("Value of an episode | ", rows),),
        points=assumes,
        lead="The estimate assumes:",
    )


def lq_truth_section(facts: Facts) -> Section | None:
    """The true values, which only a synthetic plant has; None elsewhere."""
    truth = known_truth(facts)
    if not truth:
        return None
    zero = truth["v_star"] - truth["v_zero"]

    def lost(key: str) -> str:
        return percent((truth["v_star"] - truth[key]) / zero) if zero > 0 else "–"

    rows = [(clean(key), text, number(truth[key]), lost(key)) for key, text in TRUTHS.items()]
    words = (
        "Known because these data are synthetic: exact values in the true plant, by the Riccati recursion, not by "
        "simulation. On real data this part is absent.",
        f"This controller loses {number(truth['suboptimality'])} against the optimal one; doing nothing loses "
        f"{number(zero)}.",
    )
    lead = "Lost: against the optimal controller, in parts of what doing nothing loses"
    compared = table("Key | Value of | Value | Lost", rows, lead, "Value | Lost")
    return Section("truth", "In the true plant", words, tables=(compared,))
