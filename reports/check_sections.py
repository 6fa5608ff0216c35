"""What an engineer checks: constants, the consistency certificate, the declared domain, commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.format import clean, listing, number
from reports.page import Section, Table, table

Facts = Mapping[str, Any]
_MOST_LABELS = 60


def constants_section(facts: Facts) -> Section:
    """Every constant with its source."""
    constants = facts["constants"]
    tables = tuple(
        _preset(constants[role], caption)
        for role, caption in (
            ("policy", "Constants that chose the policy"),
            ("bounds", "Constants behind the interval"),
        )
        if constants.get(role)
    )
    measure = "Evidence" if facts.get("features") else "Released count"
    # the programme's slack E/2 is the paper's (3); an exact sum is ours
    programme = "paper" if constants.get("slack") == "paper" else "ours"
    rows = [
        (name, number(constants[key]), whose)
        for key, name, whose in (
            ("penalty", "Penalty", "paper"),
            ("failure_probability", "Failure probability", "ours"),
            ("slack", "Slack of the consistency step", programme),
            ("threshold", f"{measure} above which an action counts as seen", "ours"),
            ("seed_of_ties", "Seed that breaks ties", "ours"),
        )
        if constants.get(key) is not None
    ]
    words = ("Only the preset “paper” carries the theorem of the paper.",)
    if constants.get("part_of_the_release"):
        words += (
            "They are part of the release: another value of any of them would be a new one, with its own charge.",
        )
    return Section(
        "constants", "Constants", words, tables=(*tables, table("Setting | Value | Whose", rows, "Settings"))
    )


def _preset(part: Facts, caption: str) -> Table:
    return constants_table(part, f"{caption}: preset “{clean(part['preset'])}”")


def constants_table(part: Facts, caption: str) -> Table:
    """Constants, whose each is (paper or ours), and what there is to say of it."""
    source = part.get("source") or {}
    rows = [(clean(name), number(value), *_whose(source.get(name, "–"))) for name, value in part["values"].items()]
    return table("Constant | Value | Whose | Remark", rows, caption, "Value")


def _whose(source: str) -> tuple[str, str]:
    """A constant is the paper's only where its source is the paper and nothing else."""
    if source == "paper":
        return "paper", ""
    return "ours", clean(source.removeprefix("chosen by us").strip(" :,;").removeprefix("(").removesuffix(")"))


def consistency_section(facts: Facts) -> Section | None:
    """How the noisy counts were made consistent, and who checked it; None where that step was not taken."""
    found = facts.get("consistency")
    if not found:
        return None
    meaning = {
        "inside": "the entries already agree with their total",
        "short": "their sum was too small: raised",
        "excess": "their sum was too large: lowered",
    }
    rows = [
        (clean(case), meaning.get(case, "–"), number(count["cells"]), number(count.get("certified", 0)))
        for case, count in found["cases"].items()
    ]
    words = (
        f"All {number(found['cells'])} cells were solved in closed form; {number(found['certified'])} of them "
        f"were solved again by {clean(found['solver'])}. Largest relative difference: "
        f"{number(found['largest_relative_difference'], 3, 'up')} (tolerance {number(found['tolerance'], 3)}).",
    )
    cases = table("Case | Meaning | Cells | Certified", rows, "", "Cells | Certified")
    return Section("consistency", "Certificate of the consistency step", words, tables=(cases,))


def _snapshot(data: Facts) -> str:
    """Nights of a counter name none."""
    return "" if data["snapshot"] is None else f", snapshot {number(data['snapshot'])}"


def data_section(facts: Facts) -> Section:
    """What was declared about the data; nothing here was counted."""
    data = facts["dataset"]
    low, high = (number(end) for end in data["reward_range"])
    total = data.get("reward_total")
    rows = [
        ("Dataset", f"{clean(data['name'])} ({clean(data['kind'])}){_snapshot(data)}"),
        ("People", f"{number(data['users_public'])}, by {clean(data['user'])}"),
        ("Episodes a person", f"at most {number(data['episodes_per_user'])}"),
        ("A person in later batches", clean(data["recurs"])),
        ("Steps of an episode", number(data["horizon"])),
        ("States", _labels(data["live_states"])),
        ("Ends", _labels(data["ends"])),
        ("Actions", _labels(data["actions"])),
        ("Dynamics", clean(data["dynamics"]).replace("_", " ")),
        ("States are", clean(data["markov"])),
        ("Start", clean(data["start"])),
        ("Cap per cell", number(data.get("cell_cap"))),
        ("Reward", f"{low} to {high} in units of {number(data['reward_unit'])}, in total at most {number(total)}"),
    ]
    if found := facts.get("features"):
        basis = ", in John's position" if found["balanced"] else ""
        kind = clean(found["kind"]).replace("_", " ")
        rows.append(("Features", f"{number(found['dimension'])}, declared as {kind}{basis}"))
    if data.get("vetoes"):
        rows.append(("Vetoes", _labels([" / ".join(pair) for pair in data["vetoes"]])))
    return Section("data", "What was declared about the data", tables=(table("Declared | ", rows),))


def _labels(labels: list[str]) -> str:
    shown = listing(labels[:_MOST_LABELS])
    return shown if len(labels) <= _MOST_LABELS else f"{shown}, and {len(labels) - _MOST_LABELS} more"


def verify_section(facts: Facts) -> Section:
    """How to check all this without the data."""
    words = ("Needs this folder and the ledger, not the data.",)
    return Section("verify", "How to verify", words, commands=tuple(clean(item) for item in facts["verify"]))
