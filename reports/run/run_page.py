"""A run's report: one page of HTML that loads nothing, and its Markdown twin; the sections below the answer.

For approval: the guarantee, its mechanisms, its cost and its limits.

For engineers: constants, a linear controller, the consistency certificate, domain, commands.
"""

# ruff: noqa: N806  (gains and matrices have their letters)
import re
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from pipeline.declaration.domain import RECORDED
from pipeline.declaration.numbers import clean, number
from pipeline.facts import learnt
from pipeline.facts.promise import CounterFacts, Declared, DeclaredPlant, DeclaredTables, Guarantee, MechanismFacts
from pipeline.facts.report import Report
from pipeline.privacy.release import PLAYED
from reports.page import Chapter, Opening, PageTable, Section, between, listing, loss, percent, steps, table, templates
from reports.run import policy_sections
from reports.run import value_sections as values
from reports.run.answer import gains_figure, opening, wording

# more than this many are put together by step; certificate.json lists every one
MOST_MECHANISMS = 24
_STEP = re.compile(r"_\d+$")


def grouped(mechanisms: Sequence[MechanismFacts]) -> list[list[MechanismFacts]]:
    """Each mechanism alone, or the tables ``name_0`` to ``name_H-1`` of one shape and unit together."""
    if len(mechanisms) <= MOST_MECHANISMS:
        return [[m] for m in mechanisms]
    groups: dict[tuple[object, ...], list[MechanismFacts]] = {}
    for m in mechanisms:
        key = (_STEP.sub("", m.table), m.name, tuple(m.shape), m.unit)
        groups.setdefault(key, []).append(m)
    return list(groups.values())


def row(group: Sequence[MechanismFacts]) -> tuple[str, ...]:
    """Table, mechanism, shape, sensitivity, scale, variance, unit, loss; a range where the steps differ."""
    first = group[0]
    return (
        name(group),
        clean(first.name),
        " × ".join(number(axis) for axis in first.shape),
        f"L2² = {between([m.l2_squared for m in group], _whole)}, L1 = {between([m.l1 for m in group], _whole)}",
        between([m.scale for m in group], number),
        between([m.variance for m in group], _whole),
        clean(first.unit),
        between([m.rho for m in group], _up)
        if first.rho is not None
        else f"ε = {between([m.epsilon for m in group], _up)}",
    )


def name(group: Sequence[MechanismFacts]) -> str:
    """A table's name, or a group's common name with its number of steps."""
    if len(group) == 1:
        return clean(group[0].table)
    return f"{clean(_STEP.sub('', group[0].table))}, {number(len(group))} steps"


def rules(groups: Sequence[Sequence[MechanismFacts]]) -> tuple[str, ...]:
    """The sensitivity rule of each group, once where its tables share it."""
    lines = [f"{name(g)}: {clean(rule)}" for g in groups for rule in dict.fromkeys(m.sensitivity_rule for m in g)]
    return tuple(dict.fromkeys(lines))


def _whole(value: object) -> str:
    """A whole number with its thousands apart; fractions and dashes as they come."""
    text = str(value)
    return number(int(text)) if text.isdecimal() else clean(text)


def promise_section(promise: Guarantee) -> Section:
    """The guarantee in its parts."""
    explained = wording()["guarantee"]
    rows = [
        ("Protected unit", clean(promise.unit)),
        ("Neighbouring relation", explained.get(promise.relation, clean(promise.relation))),
        ("Trust model", explained.get(promise.trust_model, clean(promise.trust_model))),
        ("ρ (zero-concentrated)", _up(promise.rho)),
        ("ε", _up(promise.epsilon) + (" (pure)" if promise.pure else "")),
        ("δ", _up(promise.delta)),
        ("Asked for", ", ".join(f"{clean(key)} = {number(value)}" for key, value in promise.asked.items())),
        ("Calibration", clean(promise.calibration)),
        ("Sampler", clean(promise.sampler)),
        ("Data", clean(promise.data_kind)),
        ("Noise source", explained.get(promise.noise, clean(promise.noise))),
        ("Claim", clean(promise.claim or "–")),
    ]
    return Section("promise", "The guarantee in its parts", tables=(table("Part | ", rows),))


def _up(value: object) -> str:
    return number(value, toward="up")


def mechanisms_section(report: Report) -> Section:
    """Every mechanism: table, sensitivity, noise and cost."""
    gate = [] if report.gate is None else [report.gate.mechanism]
    groups = grouped([*gate, *report.mechanisms])
    rows = [row(group) for group in groups]
    head = "Table | Mechanism | Shape | Sensitivity | Scale | Variance | Unit | ρ"
    words = (
        "Everything on this page is computed from these releases and from declared constants; nothing else was read."
        if report.simulation is None
        else "The policy is computed from these releases and from declared constants alone. What it loses, and what "
        "plays beside it, is computed in the known world.",
    )
    if gate:
        words += (
            "Before anything else was released, the people were counted of whom the log's rules set rows aside: had "
            "the noisy counts shown more of them than the card tolerates, there would be no page.",
        )
    joint = report.joint
    if joint is not None and joint.rho_exact is not None:
        both = joint.variant == "linear_quadratic"
        why = "both tables come from the same rows" if both else "the tables of a step come from one row a person"
        words += (
            f"Together they cost ρ = {_up(float(Fraction(joint.rho_exact)))}, no more than the sum of the column: "
            f"{why} and are bounded together.",
        )
    words += _nights(report.counter)
    scaled = "as the paper prints it" if report.guarantee.calibration == "paper" else "ours, no larger than needed"
    words += (f"Noise scales: calibration “{clean(report.guarantee.calibration)}” ({scaled}).",)
    caption = ""
    if len(groups) < len(report.mechanisms) + len(gate):
        caption = (
            f"{number(len(report.mechanisms))} mechanisms; those that differ by their step alone share a row. "
            "certificate.json lists every one."
        )
    listed = table(head, rows, caption, "Scale | ρ")
    return Section("mechanisms", "Mechanisms", words, tables=(listed,), points=rules(groups))


def _nights(counter: CounterFacts | None) -> tuple[str, ...]:
    if counter is None:
        return ()
    over = "all nights so far" if counter.window is None else f"the last {number(counter.window)} nights"
    sums, epochs = f"the tables are sums over {over}", counter.epochs
    if PLAYED in counter.standard_deviation:
        sums += f" ({PLAYED}: episodes and returns of this night alone, under the policy in use and under practice)"
    if epochs is not None:
        opening = " and ".join(map(clean, epochs.opening))
        sums = (
            f"it is cut into epochs of {number(epochs.nights)} nights: {opening} are sums over all nights until this "
            "epoch began, and stand for it; the other tables are sums over its nights so far"
        )
    kind = {"tree": "binary tree", "toeplitz": "square-root Toeplitz"}[counter.kind]
    return (
        f"This is night {counter.night} ({clean(counter.date)}) of a counter over {number(counter.nights)} "
        f"nights ({kind}), and {sums}. The counter was charged once, for all its "
        "nights: ρ is that of all of them together, the variance is that of one released row, and the scale is the "
        f"standard deviation of tonight's sums. Their variance is {number(counter.times_one_release, toward='up')} "
        "times that of one release of tonight's sums at the same ρ.",
    )


def ledger_section(report: Report) -> Section:
    """The budget of the lineage after this run."""
    ledger, promise = report.ledger, report.guarantee
    if ledger is None:
        return Section("ledger", "Budget", ("This run charged no ledger.",))
    rows = [
        ("Lineage", clean(ledger.dataset)),
        ("Cap", f"ρ = {number(ledger.cap_rho)}"),
        ("Spent so far, this run included", loss(ledger.spent_rho, ledger.epsilon_spent, ledger.delta)),
        ("Left", f"ρ = {number(ledger.remaining_rho, toward='down')}"),
        ("Entry", number(ledger.entry)),
        ("Hash of the entry", clean(ledger.hash)),
        ("At", clean(ledger.at)),
    ]
    cost = loss(promise.rho, promise.epsilon, promise.delta, pure=promise.pure)
    words = (
        f"{'The counter of this night' if report.counter else 'This run'} cost {cost}. "
        "The ledger adds up what was ever released about this lineage and refuses what exceeds the cap.",
    )
    return Section("ledger", "Budget", words, tables=(table("Ledger | ", rows),))


def limits_sections(report: Report) -> tuple[Section, ...]:
    """Assumptions of the guarantee, and its limits."""
    return (
        Section("assumptions", "What it rests on", points=tuple(clean(item) for item in report.assumptions)),
        Section("not-covered", "What is not covered", points=tuple(clean(item) for item in report.not_covered)),
    )


_MOST_LABELS = 60


def constants_section(report: Report, constants: learnt.TabularConstants) -> Section:
    """Every constant with its source."""
    tables = [_constants_table(constants.policy, "Constants that chose the policy")]
    tables += [] if constants.bounds is None else [_constants_table(constants.bounds, "Constants behind the interval")]
    measure = "Evidence" if report.features else "Released count"
    # the programme's slack E/2 is the paper's (3); an exact sum is ours
    programme = "paper" if constants.slack == "paper" else "ours"
    threshold = None if policy_sections.least_usual(report) else constants.threshold
    listed = (
        ("Penalty", constants.penalty, "paper"),
        ("Failure probability", constants.failure_probability, "ours"),
        ("Slack of the consistency step", constants.slack, programme),
        (f"{measure} above which an action counts as seen", threshold, "ours"),
        ("Seed that breaks ties", constants.seed_of_ties, "ours"),
    )
    rows = [(name, number(x), whose) for name, x, whose in listed if x is not None]
    words = ("Only the preset “paper” carries the theorem of the paper.",)
    if constants.part_of_the_release:
        words += (
            "They are part of the release: another value of any of them would be a new one, with its own charge.",
        )
    settings = table("Setting | Value | Whose", rows, "Settings")
    return Section("constants", "Constants", words, tables=(*tables, settings))


def _constants_table(part: learnt.Preset, name: str) -> PageTable:
    """Constants with their sources (paper or ours) and remarks."""
    caption = f"{name}: preset “{clean(part.preset)}”"
    rows = [(clean(name), number(value), *_whose(part.source.get(name, "–"))) for name, value in part.values.items()]
    return table("Constant | Value | Whose | Remark", rows, caption, "Value")


def _whose(source: str) -> tuple[str, str]:
    """A constant is the paper's only where its source is the paper and nothing else."""
    if source == "paper":
        return "paper", ""
    return "ours", clean(source.removeprefix("chosen by us").strip(" :,;").removeprefix("(").removesuffix(")"))


def consistency_section(facts: learnt.ConsistencyFacts | None) -> Section | None:
    """How the noisy counts were made consistent, and the check of it; None where that step was not taken."""
    if facts is None:
        return None
    meanings = wording()["consistency"]
    rows = [
        (clean(case), meanings.get(case, "–"), number(count.cells), number(count.certified))
        for case, count in facts.cases.items()
    ]
    words = [
        f"All {number(facts.cells)} {facts.programme} were solved in closed form; {number(facts.certified)} of them "
        f"were solved again by {clean(facts.solver)}. Largest relative difference: "
        f"{number(facts.largest_relative_difference, 3, 'up')} (tolerance {number(facts.tolerance, 3)})."
    ]
    if facts.steps_shared is not None:
        words.append(_steps(facts))
    programme = facts.programme.capitalize()
    cases = table(f"Case | Meaning | {programme} | Certified", rows, "", f"{programme} | Certified")
    return Section("consistency", "Certificate of the consistency step", tuple(words), tables=(cases,))


def _steps(facts: learnt.ConsistencyFacts) -> str:
    """Result of the test for dynamics that drift from step to step, on the released counts."""
    result = "the visits drown in the noise"
    if facts.drift is not None and facts.drift_error is not None:
        result = f"squared distance {number(facts.drift, 3)}, standard error {number(facts.drift_error, 3)}"
    conclusion = "one table was made of all steps" if facts.steps_shared else "each step keeps its own table"
    return f"Do the dynamics drift from step to step? A test on the released counts says: {result}; so {conclusion}."


def _people(data: Declared) -> list[tuple[str, ...]]:
    """Declared rows of any dataset."""
    # nights of a counter name none
    snapshot = "" if data.snapshot is None else f", snapshot {number(data.snapshot)}"
    return [
        ("Dataset", f"{clean(data.name)} ({clean(data.kind)}){snapshot}"),
        ("People", f"{number(data.users_public)}, by {clean(data.user)}"),
        ("Episodes a person", f"at most {number(data.episodes_per_user)}"),
        ("A person in later batches", clean(data.recurs)),
        ("Steps of an episode", number(data.horizon)),
    ]


def data_section(data: DeclaredTables, features: learnt.FeatureFacts | None) -> Section:
    """Declarations on tables; nothing here was counted."""
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
    if data.practice is not None:
        rows.append(("Choices", f"{data.practice}: {RECORDED}"))
    if data.vetoes:
        rows.append(("Vetoes", _labels([" / ".join(pair) for pair in data.vetoes])))
    return Section("data", "What was declared about the data", tables=(table("Declared | ", rows),))


def _labels(labels: list[str]) -> str:
    shown = listing(labels[:_MOST_LABELS])
    return shown if len(labels) <= _MOST_LABELS else f"{shown}, and {len(labels) - _MOST_LABELS} more"


def verify_section(report: Report) -> Section:
    """Commands that check the run without the data."""
    words = ("Needs this folder and the ledger, not the data.",)
    return Section("verify", "How to verify", words, commands=tuple(clean(item) for item in report.verify))


# gains this close are printed as one row
_SAME = 5e-4
_SUM = "At each step, counted from 0, every control is a weighted sum of what is observed: u = K x."


def gains_section(report: Report, data: DeclaredPlant, constants: learnt.PlantConstants, view: learnt.Gains) -> Section:
    """The gains as a picture and as a table."""
    words = [
        f"{_SUM} The weights are the gains. An observed number is divided by its scale first, a control is multiplied "
        "by its own at the end.",
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
    return _controls(view, tuple(words), units)


def _controls(view: learnt.Gains, words: tuple[str, ...] = (_SUM,), *more: PageTable) -> Section:
    """Gains as a picture and as a table."""
    tables, figure = (_gains_table(view), *more), gains_figure(view)
    words += (figure.note,) if figure.note else ()
    return Section("policy", "What the controller does", words, figure, tables)


def _gains_table(view: learnt.Gains) -> PageTable:
    head = ("Control", "Steps", *(clean(name).replace("|", "/") for name in view.observation))
    rows = tuple(row for control in range(len(view.action)) for row in _rows(view, control))
    caption = "Gains; neighbouring steps that agree to three digits share a row"
    return PageTable(head, rows, caption, frozenset(range(2, len(head))), grouped=True)


def _rows(view: learnt.Gains, control: int) -> list[tuple[str, ...]]:
    K, first = view.gains[:, control], 0
    rows: list[tuple[str, ...]] = []
    for h in range(1, len(K) + 1):
        if h == len(K) or np.abs(K[h] - K[first]).max() > _SAME * max(1.0, float(np.abs(K).max())):
            rows.append((clean(view.action[control]), steps(first, h - 1), *(number(float(k)) for k in K[first])))
            first = h
    return rows


def plant_section(data: DeclaredPlant) -> Section:
    """Declarations on a plant; nothing here was counted."""
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


def evidence_section(c: learnt.PlantConstants, model: learnt.PlantModel | None) -> Section:
    """Exploration of the plant by the released Gram matrix, the model, and every constant."""
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
    directions = table("Direction | Sum of squares | Share | Trusted", rows, words_of, "Sum of squares | Share")
    estimated = [("A", _matrix(model.A)), ("B", _matrix(model.B))] if model is not None else []
    plant = table("Model | ", estimated, "The estimated plant")
    tables = directions, plant, _constants_table(c.policy, "Constants")
    return Section("evidence", "How well the plant was explored", words, tables=tables)


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(number(float(x)) for x in values)


def _matrix(rows: Sequence[Sequence[float]]) -> str:
    """A diagonal in one line, any other matrix row by row."""
    M = np.array(rows, dtype=np.float64)
    if M.shape[0] == M.shape[1] and not (M - np.diag(np.diag(M))).any():
        return f"diagonal {_numbers(np.diag(M).tolist())}"
    return "; ".join(_numbers(row) for row in rows)


def glossary_section(*own: str) -> Section:
    """Term by term."""
    rows = [row for kind in ("value", *own, "promise") for row in wording("glossary")[kind].items()]
    return Section("glossary", "Words", tables=(table("Term | Means", rows),))


def render_html(report: Report, policy: learnt.PolicyView) -> str:
    """The report as one HTML file: no script, no address that a browser would load.

    Raises ValueError if the report is of another kind of policy.
    """
    return _render("report.html.j2", report, policy)


def render_markdown(report: Report, policy: learnt.PolicyView) -> str:
    """The same words and tables as Markdown; pictures are replaced by what they show."""
    return _render("report.md.j2", report, policy)


def _render(template: str, report: Report, policy: learnt.PolicyView) -> str:
    run = {"run": report.run, "agent": report.agent, "recipe": report.recipe, "schema_version": report.schema_version}
    first, parts = page(report, policy)
    labels = {key: clean(value) for key, value in run.items()}
    return templates().get_template(template).render(opening=first, parts=parts, run=labels)


def page(report: Report, policy: learnt.PolicyView) -> tuple[Opening, list[Chapter]]:
    """The first screen, and the chapters after it: to decide, to approve, to check."""
    # of a run that was played in a known world
    sim, terms = report.simulation if isinstance(report.constants, learnt.PlayedConstants) else None, list[str]()
    match report.dataset, report.constants, policy:
        case DeclaredTables() as data, learnt.TabularConstants() as constants, learnt.Decisions() as view:
            terms, value = ["tabular", "linear" if report.features else "counts"], values.value_section(report, data)
            terms += ["binned"] if data.markov == "aggregated" else []
            judged = report.evaluation is not None
            decide = (
                values.evaluation_section(report),
                None if judged else value,
                values.truth_section(report),
                policy_sections.policy_section(report, constants, view),
                policy_sections.practice_section(report, view),
                policy_sections.shares_section(view),
                policy_sections.weights_section(view),
            )
            check = (
                values.checks_section(report, view),
                value if judged else None,
                policy_sections.policy_table_section(report, view),
                data_section(data, report.features),
                constants_section(report, constants),
                consistency_section(report.consistency),
            )
        case DeclaredPlant() as data, learnt.PlantConstants() as constants, learnt.Gains() as view:
            terms = ["controller"]
            decide = (
                values.controller_value_section(report),
                values.controller_truth_section(report),
                gains_section(report, data, constants, view),
            )
            check = plant_section(data), evidence_section(constants, report.model)
        case (DeclaredTables() | DeclaredPlant()) as data, learnt.PlayedConstants() as constants, view if sim:
            decide, listed = (values.lost_section(sim), values.regret_section(sim)), None
            if isinstance(view, learnt.Decisions):
                decide += policy_sections.policy_section(report, None, view), policy_sections.shares_section(view)
                listed = policy_sections.policy_table_section(report, view)
            else:
                decide += (_controls(view),)
            check = (
                values.communication_section(sim),
                listed,
                values.place_section(data, sim),
                values.agents_section(sim, constants),
            )
        case _:
            raise ValueError(f"{report.run}: the policy is of another kind than the report")
    ledger, glossary = (ledger_section(report), glossary_section(*terms)) if sim is None else (None, None)
    return opening(report, policy) if sim is None else values.played_opening(report, sim), [
        _part("To decide", *decide),
        _part("To approve", promise_section(report.guarantee), ledger, *limits_sections(report)),
        _part("Appendix: to check", verify_section(report), mechanisms_section(report), *check, glossary, folded=True),
    ]


def _part(title: str, *sections: Section | None, folded: bool = False) -> Chapter:
    return Chapter(title, tuple(section for section in sections if section is not None), folded)
