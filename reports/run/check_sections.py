"""What an engineer checks: constants, the consistency certificate, the declared domain, commands."""

from __future__ import annotations

from pipeline.declaration.numbers import clean, number
from reports.facts.constants import Constants, Preset
from reports.facts.dataset import DeclaredTables
from reports.facts.learnt import ConsistencyFacts, FeatureFacts
from reports.facts.report import Report
from reports.format import listing
from reports.page import Section, Table, table

_MOST_LABELS = 60


def constants_section(report: Report, constants: Constants) -> Section:
    """Every constant with its source."""
    tables = tuple(
        constants_table(part, f"{caption}: preset “{clean(part.preset)}”")
        for part, caption in (
            (constants.policy, "Constants that chose the policy"),
            (constants.bounds, "Constants behind the interval"),
        )
        if part is not None
    )
    measure = "Evidence" if report.features else "Released count"
    # the programme's slack E/2 is the paper's (3); an exact sum is ours
    programme = "paper" if constants.slack == "paper" else "ours"
    rows = [
        (name, number(x), whose)
        for x, name, whose in (
            (constants.penalty, "Penalty", "paper"),
            (constants.failure_probability, "Failure probability", "ours"),
            (constants.slack, "Slack of the consistency step", programme),
            (constants.threshold, f"{measure} above which an action counts as seen", "ours"),
            (constants.seed_of_ties, "Seed that breaks ties", "ours"),
        )
        if x is not None
    ]
    words = ("Only the preset “paper” carries the theorem of the paper.",)
    if constants.part_of_the_release:
        words += (
            "They are part of the release: another value of any of them would be a new one, with its own charge.",
        )
    return Section(
        "constants", "Constants", words, tables=(*tables, table("Setting | Value | Whose", rows, "Settings"))
    )


def constants_table(part: Preset, caption: str) -> Table:
    """Constants, whose each is (paper or ours), and what there is to say of it."""
    rows = [(clean(name), number(value), *_whose(part.source.get(name, "–"))) for name, value in part.values.items()]
    return table("Constant | Value | Whose | Remark", rows, caption, "Value")


def _whose(source: str) -> tuple[str, str]:
    """A constant is the paper's only where its source is the paper and nothing else."""
    if source == "paper":
        return "paper", ""
    return "ours", clean(source.removeprefix("chosen by us").strip(" :,;").removeprefix("(").removesuffix(")"))


def consistency_section(found: ConsistencyFacts | None) -> Section | None:
    """How the noisy counts were made consistent, and who checked it; None where that step was not taken."""
    if found is None:
        return None
    meaning = {
        "inside": "the entries already agree with their total",
        "short": "their sum was too small: raised",
        "excess": "their sum was too large: lowered",
        "projection": "the nearest table without negative entries, whose total no later step exceeds",
    }
    rows = [
        (clean(case), meaning.get(case, "–"), number(count.cells), number(count.certified))
        for case, count in found.cases.items()
    ]
    words = [
        f"All {number(found.cells)} {found.programme} were solved in closed form; {number(found.certified)} of them "
        f"were solved again by {clean(found.solver)}. Largest relative difference: "
        f"{number(found.largest_relative_difference, 3, 'up')} (tolerance {number(found.tolerance, 3)}).",
    ]
    if found.steps_shared is not None:
        words.append(_steps(found))
    of = found.programme.capitalize()
    cases = table(f"Case | Meaning | {of} | Certified", rows, "", f"{of} | Certified")
    return Section("consistency", "Certificate of the consistency step", tuple(words), tables=(cases,))


def _steps(found: ConsistencyFacts) -> str:
    """What a test on the released counts said about steps that are alike."""
    seen = "the visits drown in the noise"
    if found.drift is not None and found.drift_error is not None:
        seen = f"squared distance {number(found.drift, 3)}, standard error {number(found.drift_error, 3)}"
    done = "one table was made of all steps" if found.steps_shared else "each step keeps its own table"
    return f"Do the dynamics drift from step to step? A test on the released counts says: {seen}; so {done}."


def _snapshot(data: DeclaredTables) -> str:
    """Nights of a counter name none."""
    return "" if data.snapshot is None else f", snapshot {number(data.snapshot)}"


def data_section(data: DeclaredTables, features: FeatureFacts | None) -> Section:
    """What was declared about the data; nothing here was counted."""
    low, high = (number(end) for end in data.reward_range)
    rows = [
        ("Dataset", f"{clean(data.name)} ({clean(data.kind)}){_snapshot(data)}"),
        ("People", f"{number(data.users_public)}, by {clean(data.user)}"),
        ("Episodes a person", f"at most {number(data.episodes_per_user)}"),
        ("A person in later batches", clean(data.recurs)),
        ("Steps of an episode", number(data.horizon)),
        ("States", _labels(data.live_states)),
        ("Ends", _labels(data.ends)),
        ("Actions", _labels(data.actions)),
        ("Dynamics", clean(data.dynamics).replace("_", " ")),
        ("States are", clean(data.markov)),
        ("Start", clean(data.start)),
        ("Cap per cell", number(data.cell_cap)),
        (
            "Reward",
            f"{low} to {high} in units of {number(data.reward_unit)}, in total at most {number(data.reward_total)}",
        ),
    ]
    if data.reward_on_entering is not None:
        paid = ", ".join(f"{clean(label)}: {number(r)}" for label, r in data.reward_on_entering.items())
        rows.append(("Reward on entering", f"{paid}; any other state: 0"))
    if data.state_features is not None:
        rows.append(("Public features of a state", number(len(data.state_features))))
    if features is not None:
        basis = ", in John's position" if features.balanced else ""
        kind = clean(features.kind).replace("_", " ")
        rows.append(("Features", f"{number(features.dimension)}, declared as {kind}{basis}"))
    if data.vetoes:
        rows.append(("Vetoes", _labels([" / ".join(pair) for pair in data.vetoes])))
    return Section("data", "What was declared about the data", tables=(table("Declared | ", rows),))


def _labels(labels: list[str]) -> str:
    shown = listing(labels[:_MOST_LABELS])
    return shown if len(labels) <= _MOST_LABELS else f"{shown}, and {len(labels) - _MOST_LABELS} more"


def verify_section(report: Report) -> Section:
    """How to check all this without the data."""
    words = ("Needs this folder and the ledger, not the data.",)
    return Section("verify", "How to verify", words, commands=tuple(clean(item) for item in report.verify))
