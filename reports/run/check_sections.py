"""What an engineer checks: constants, a linear controller, the consistency certificate, domain, commands."""

# ruff: noqa: N806  (gains and matrices have their letters)
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipeline.declaration.numbers import clean, number
from reports.facts.dataset import Declared, DeclaredPlant, DeclaredTables
from reports.facts.learnt import ConsistencyFacts, FeatureFacts, PlantModel
from reports.facts.policy import Constants, Gains, PlantConstants, Preset
from reports.facts.report import Report
from reports.figures.range_figure import gains_figure
from reports.page import Section, Table, listing, percent, steps, table

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
    settings = table("Setting | Value | Whose", rows, "Settings")
    return Section("constants", "Constants", words, tables=(*tables, settings))


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


def _people(data: Declared) -> list[tuple[str, ...]]:
    """What is declared of any dataset."""
    # nights of a counter name none
    snapshot = "" if data.snapshot is None else f", snapshot {number(data.snapshot)}"
    return [
        ("Dataset", f"{clean(data.name)} ({clean(data.kind)}){snapshot}"),
        ("People", f"{number(data.users_public)}, by {clean(data.user)}"),
        ("Episodes a person", f"at most {number(data.episodes_per_user)}"),
        ("A person in later batches", clean(data.recurs)),
        ("Steps of an episode", number(data.horizon)),
    ]


def data_section(data: DeclaredTables, features: FeatureFacts | None) -> Section:
    """What was declared about the data; nothing here was counted."""
    low, high = (number(end) for end in data.reward_range)
    rows = [
        *_people(data),
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


# gains this close are printed as one row
_SAME, _CONTROLS = 5e-4, "What the controller does"


def gains_section(report: Report, data: DeclaredPlant, constants: PlantConstants, view: Gains) -> Section:
    """The gains as a picture and as a table."""
    words = [
        "At each step, counted from 0, every control is a weighted sum of what is observed: u = K x. The weights are "
        "the gains. An observed number is divided by its scale first, a control is multiplied by its own at the end.",
        f"Controls longer than {number(data.action.radius)} are shortened to that length. The last gain is 0: "
        "nothing that the last control does is paid for. No gain is larger than "
        f"{number(constants.gamma)}, so that no control is cut while observations stay in their ball.",
    ]
    if not report.policy.left_zero:
        words.append("All gains are zero: this controller does nothing.")
    scales = [
        (clean(name), kind, number(scale), number(vector.radius))
        for kind, vector in (("observed", data.observation), ("control", data.action))
        for name, scale in zip(vector.names, vector.scale, strict=True)
    ]
    units = table("Name | Is | Scale | Radius of the whole vector", scales, "Units, as declared", "Scale")
    return Section("policy", _CONTROLS, tuple(words), gains_figure(view), (_gains_table(view), units))


def gains_table_section(view: Gains) -> Section:
    """Gains as a picture and as a table."""
    words = ("At each step, counted from 0, every control is a weighted sum of what is observed: u = K x.",)
    return Section("policy", _CONTROLS, words, gains_figure(view), (_gains_table(view),))


def _gains_table(view: Gains) -> Table:
    head = "Control | Steps | " + " | ".join(clean(name).replace("|", "/") for name in view.observation)
    rows = [row for control in range(len(view.action)) for row in _rows(view, control)]
    found = table(head, rows, "Gains; neighbouring steps that agree to three digits share a row", grouped=True)
    return Table(found.head, found.rows, found.caption, frozenset(range(2, len(found.head))), found.grouped)


def _rows(view: Gains, control: int) -> list[tuple[str, ...]]:
    K, first = view.gains[:, control], 0
    rows: list[tuple[str, ...]] = []
    for h in range(1, len(K) + 1):
        if h == len(K) or np.abs(K[h] - K[first]).max() > _SAME * max(1.0, float(np.abs(K).max())):
            rows.append((clean(view.action[control]), steps(first, h - 1), *(number(float(k)) for k in K[first])))
            first = h
    return rows


def plant_section(data: DeclaredPlant) -> Section:
    """What was declared; nothing here was counted."""
    norm = data.parameter_norm
    rows = [
        *_people(data),
        ("Observed", f"{listing(data.observation.names)}, in a ball of {number(data.observation.radius)}"),
        ("Controls", f"{listing(data.action.names)}, in a ball of {number(data.action.radius)}"),
        ("Dynamics", "linear, unknown: next x = A x + B u + noise"),
        ("Mean of the first state", _numbers(data.start_declared.mean)),
        ("Covariance of the noise", _matrix(data.noise_covariance)),
        ("Largest norm of [A, B]", "not declared" if norm is None else number(norm)),
        ("Q: cost of x", _matrix(data.cost.Q)),
        ("R: cost of u", _matrix(data.cost.R)),
    ]
    return Section("data", "What was declared about the data", tables=(table("Declared | ", rows),))


def evidence_section(c: PlantConstants, model: PlantModel | None) -> Section:
    """How well the log explored the plant, as far as the release tells; the model; and every constant."""
    words = (
        "The released Gram matrix says how much the log moved the plant in each direction of (x, u). "
        + (
            f"{number(c.raised)} of {number(len(c.directions))} directions lie below the noise floor "
            f"({number(c.floor)}) and were not trusted."
            if c.raised
            else "Every direction stands above the noise floor."
        ),
        "Everything here is computed from the release; planning again with another ridge or floor costs nothing. "
        "Another cut, lattice or share is another release at its own price.",
    )
    total = sum(x for x in c.directions if x > 0)
    rows = [
        (str(i), number(x), percent(x / total) if x > 0 else "–", "no" if x < c.floor else "yes")
        for i, x in enumerate(c.directions, start=1)
    ]
    words_of = "Sums of squares along each direction of (x, u), balls of radius 1: a row adds at most 2 in all"
    seen = table("Direction | Sum of squares | Share | Trusted", rows, words_of, "Sum of squares | Share")
    estimated = [("A", _matrix(model.A)), ("B", _matrix(model.B))] if model is not None else []
    plant = table("Model | ", estimated, "The estimated plant")
    listed = constants_table(c.policy, f"Constants: preset “{clean(c.policy.preset)}”")
    return Section("evidence", "How well the plant was explored", words, tables=(seen, plant, listed))


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(number(float(x)) for x in values)


def _matrix(rows: Sequence[Sequence[float]]) -> str:
    """A diagonal in one line, any other matrix row by row."""
    M = np.array(rows, dtype=np.float64)
    if M.shape[0] == M.shape[1] and not (M - np.diag(np.diag(M))).any():
        return f"diagonal {_numbers(np.diag(M).tolist())}"
    return "; ".join(_numbers(row) for row in rows)
