"""What was promised, by which mechanisms, at what cost, and what the promise leaves out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from reports.format import clean, loss, number
from reports.mechanism_rows import grouped, row, rules
from reports.page import Section, table

Facts = Mapping[str, Any]
RELATIONS = {
    "replace": "replace: one record is swapped for any other, the number of people is public",
    "zero_out": "zero out: one record is emptied, the number of people is public",
    "add_remove": "add or remove: one record more or less, the number of people is private",
}


def promise_section(facts: Facts) -> Section:
    """The guarantee in its parts."""
    promise = facts["guarantee"]
    rows = [
        ("Protected unit", clean(promise["unit"])),
        ("Neighbouring relation", RELATIONS.get(promise["relation"], clean(promise["relation"]))),
        ("Trust model", _trust(promise["trust_model"])),
        ("ρ (zero-concentrated)", _up(promise.get("rho"))),
        ("ε", _up(promise.get("epsilon")) + (" (pure)" if promise.get("pure") else "")),
        ("δ", _up(promise.get("delta"))),
        ("Asked for", ", ".join(f"{clean(key)} = {number(value)}" for key, value in promise["asked"].items())),
        ("Calibration", clean(promise["calibration"])),
        ("Sampler", clean(promise["sampler"])),
        ("Data", clean(promise["data_kind"])),
        ("Noise source", _noise(promise["noise"])),
        ("Claim", clean(promise.get("claim") or "–")),
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


def _meaning(promise: Facts) -> tuple[str, ...]:
    epsilon, delta = promise.get("epsilon"), promise.get("delta")
    known = promise["relation"] == "replace" and promise["trust_model"] == "central" and promise["noise"] == "os"
    # Past e^50 the factor is a number without a meaning.
    if not known or epsilon is None or epsilon > 50:
        return ()
    slip = "" if promise.get("pure") or not delta else f" + {_up(delta)}"
    factor = number(math.exp(epsilon), 3, "up")
    return (
        "In plain terms: take any conclusion that someone could draw from all that was released. "
        "If its probability is p with one person's record in the log, "
        f"it is at most {factor} × p{slip} with any other record in its place.",
    )


def mechanisms_section(facts: Facts) -> Section:
    """Every mechanism: what it released, how sensitive that is, how much noise, at what cost."""
    groups = grouped(facts["mechanisms"])
    rows = [row(group) for group in groups]
    head = "Table | Mechanism | Shape | Sensitivity | Scale | Variance | Unit | ρ"
    words = (
        "Everything on this page is computed from these releases and from declared constants; nothing else was read.",
    )
    joint = facts.get("joint") or {}
    if joint.get("rho_exact") is not None:
        both = joint.get("variant") == "linear_quadratic"
        why = "both tables come from the same rows" if both else "the tables of a step come from one row a person"
        words += (
            f"Together they cost ρ = {_up(float(Fraction(joint['rho_exact'])))}, no more than the sum of the column: "
            f"{why} and are bounded together.",
        )
    words += _nights(facts.get("counter"))
    scaled = "as the paper prints it" if facts["guarantee"]["calibration"] == "paper" else "ours, no larger than needed"
    words += (f"Noise scales: calibration “{clean(facts['guarantee']['calibration'])}” ({scaled}).",)
    caption = ""
    if len(groups) < len(facts["mechanisms"]):
        caption = (
            f"{number(len(facts['mechanisms']))} mechanisms; those that differ by their step alone share a row. "
            "certificate.json lists every one."
        )
    listed = table(head, rows, caption, "Scale | ρ")
    return Section("mechanisms", "Mechanisms", words, tables=(listed,), points=rules(groups))


def _nights(counter: Facts | None) -> tuple[str, ...]:
    if counter is None:
        return ()
    kind = {"tree": "binary tree", "toeplitz": "square-root Toeplitz"}[counter["kind"]]
    return (
        f"This is night {counter['night']} ({clean(counter['date'])}) of a counter over {number(counter['nights'])} "
        f"nights ({kind}), and the tables are sums over all nights so far. The counter was charged once, for all its "
        "nights: ρ is that of all of them together, the variance is that of one released row, and the scale is the "
        f"standard deviation of tonight's sums. Their variance is {number(counter['times_one_release'], toward='up')} "
        "times that of one release of tonight's sums at the same ρ.",
    )


def ledger_section(facts: Facts) -> Section:
    """Where this run stands in the ledger of its lineage."""
    ledger = facts.get("ledger")
    if not ledger:
        return Section("ledger", "Budget", ("This run charged no ledger.",))
    rows = [
        ("Lineage", clean(ledger["dataset"])),
        ("Cap", f"ρ = {number(ledger['cap_rho'])}"),
        ("Spent so far, this run included", _spent(ledger)),
        ("Left", f"ρ = {number(ledger['remaining_rho'], toward='down')}"),
        ("Entry", number(ledger["entry"])),
        ("Hash of the entry", clean(ledger.get("hash") or "–")),
    ]
    if ledger.get("at"):
        rows.append(("At", clean(ledger["at"])))
    words = (
        f"{'The counter of this night' if facts.get('counter') else 'This run'} cost {loss(facts['guarantee'])}. "
        "The ledger adds up what was ever released about this lineage and refuses what exceeds the cap.",
    )
    return Section("ledger", "Budget", words, tables=(table("Ledger | ", rows),))


def _spent(ledger: Facts) -> str:
    return loss({"rho": ledger["spent_rho"], "epsilon": ledger.get("epsilon_spent"), "delta": ledger["delta"]})


def limits_sections(facts: Facts) -> tuple[Section, ...]:
    """What the promise rests on and what it does not reach."""
    return (
        Section("assumptions", "What it rests on", points=tuple(clean(item) for item in facts["assumptions"])),
        Section("not-covered", "What is not covered", points=tuple(clean(item) for item in facts["not_covered"])),
    )
