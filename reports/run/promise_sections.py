"""What was promised, by which mechanisms, at what cost, and what the promise leaves out."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from fractions import Fraction

from pipeline.declaration.numbers import clean, number
from reports.facts.promise import CounterFacts, Guarantee, MechanismFacts
from reports.facts.report import LedgerFacts, Report
from reports.page import Section, between, loss, table

# more than this many are put together by step; certificate.json lists every one
MOST_MECHANISMS = 24
_STEP = re.compile(r"_\d+$")


def grouped(mechanisms: Sequence[MechanismFacts]) -> list[list[MechanismFacts]]:
    """Each mechanism alone, or the tables ``name_0`` to ``name_H-1`` of one shape and unit together."""
    if len(mechanisms) <= MOST_MECHANISMS:
        return [[m] for m in mechanisms]
    found: dict[tuple[object, ...], list[MechanismFacts]] = {}
    for m in mechanisms:
        key = (_STEP.sub("", m.table), m.name, tuple(m.shape), m.unit)
        found.setdefault(key, []).append(m)
    return list(found.values())


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
    """A table, or how many of them by their common name."""
    if len(group) == 1:
        return clean(group[0].table)
    return f"{clean(_STEP.sub('', group[0].table))}, {number(len(group))} steps"


def rules(groups: Sequence[Sequence[MechanismFacts]]) -> tuple[str, ...]:
    """The sensitivity rule of each group, once where its tables share it."""
    said = [f"{name(g)}: {clean(rule)}" for g in groups for rule in dict.fromkeys(m.sensitivity_rule for m in g)]
    return tuple(dict.fromkeys(said))


def _whole(value: object) -> str:
    """A whole number with its thousands apart; fractions and dashes as they come."""
    text = str(value)
    return number(int(text)) if text.isdecimal() else clean(text)


RELATIONS = {
    "replace": "replace: one record is swapped for any other, the number of people is public",
    "zero_out": "zero out: one record is emptied, the number of people is public",
    "add_remove": "add or remove: one record more or less, the number of people is private",
}


def promise_section(promise: Guarantee) -> Section:
    """The guarantee in its parts."""
    rows = [
        ("Protected unit", clean(promise.unit)),
        ("Neighbouring relation", RELATIONS.get(promise.relation, clean(promise.relation))),
        ("Trust model", _trust(promise.trust_model)),
        ("ρ (zero-concentrated)", _up(promise.rho)),
        ("ε", _up(promise.epsilon) + (" (pure)" if promise.pure else "")),
        ("δ", _up(promise.delta)),
        ("Asked for", ", ".join(f"{clean(key)} = {number(value)}" for key, value in promise.asked.items())),
        ("Calibration", clean(promise.calibration)),
        ("Sampler", clean(promise.sampler)),
        ("Data", clean(promise.data_kind)),
        ("Noise source", _noise(promise.noise)),
        ("Claim", clean(promise.claim or "–")),
    ]
    return Section("promise", "The guarantee in its parts", _meaning(promise), tables=(table("Part | ", rows),))


def _up(value: object) -> str:
    return number(value, toward="up")


def _trust(model: str) -> str:
    words = {
        "central": "central: a trusted curator holds the log and adds the noise",
        "joint": "joint: everything but a person's own recommendations is private towards the others",
        "local": "local: each person's message is private before it leaves",
        "shuffle": "shuffle: the mixed messages of all are private",
    }
    return words.get(model, clean(model))


def _noise(source: str) -> str:
    words = {"os": "os: the operating system's randomness", "seeded": "seeded: can be computed", "none": "none"}
    return words.get(source, clean(source))


def _meaning(promise: Guarantee) -> tuple[str, ...]:
    epsilon, delta = promise.epsilon, promise.delta
    known = promise.relation == "replace" and promise.trust_model == "central" and promise.noise == "os"
    # Past e^50 the factor is a number without a meaning.
    if not known or epsilon is None or epsilon > 50:
        return ()
    slip = "" if promise.pure or not delta else f" + {_up(delta)}"
    factor = number(math.exp(epsilon), 3, "up")
    return (
        "In plain terms: take any conclusion that someone could draw from all that was released. "
        "If its probability is p with one person's record in the log, "
        f"it is at most {factor} × p{slip} with any other record in its place.",
    )


def mechanisms_section(report: Report) -> Section:
    """Every mechanism: what it released, how sensitive that is, how much noise, at what cost."""
    gate = [] if report.gate is None else [report.gate.mechanism]
    groups = grouped([*gate, *report.mechanisms])
    rows = [row(group) for group in groups]
    head = "Table | Mechanism | Shape | Sensitivity | Scale | Variance | Unit | ρ"
    words = (
        "Everything on this page is computed from these releases and from declared constants; nothing else was read.",
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
    sums, epochs = "the tables are sums over all nights so far", counter.epochs
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
    """Where this run stands in the ledger of its lineage."""
    ledger, promise = report.ledger, report.guarantee
    if ledger is None:
        return Section("ledger", "Budget", ("This run charged no ledger.",))
    rows = [
        ("Lineage", clean(ledger.dataset)),
        ("Cap", f"ρ = {number(ledger.cap_rho)}"),
        ("Spent so far, this run included", _spent(ledger)),
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


def _spent(ledger: LedgerFacts) -> str:
    return loss(ledger.spent_rho, ledger.epsilon_spent, ledger.delta)


def limits_sections(report: Report) -> tuple[Section, ...]:
    """What the promise rests on and what it does not reach."""
    return (
        Section("assumptions", "What it rests on", points=tuple(clean(item) for item in report.assumptions)),
        Section("not-covered", "What is not covered", points=tuple(clean(item) for item in report.not_covered)),
    )
