"""``report.json`` and ``certificate.json`` as values: released values and declared constants only (privacy.md §10).

What is not in here is in no rendering either.
"""

# pyright: reportUnknownMemberType=false
from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from inspect import getdoc
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from pipeline.facts import learnt, promise
from pipeline.facts.evaluation import Evaluated, Simulation
from pipeline.facts.verdict import Suboptimality, Verdict


class Implementation(promise.Part):
    """Why the program keeps what the mathematics promises: the algorithm, its arithmetic, and what leaks beside it."""

    algorithm: str
    floating_point: str
    side_channels: str


class Stewardship(promise.Part):
    """How the data was collected, who can reach it, and the hash of what was registered of it."""

    collection: str
    access: str
    domain_hash: str


class RegistryEntry(promise.Part):
    """The promise under the names of the proposed registry of differential-privacy deployments."""

    product: str
    unit_of_privacy: str
    flavour: str
    epsilon: promise.Number | None
    delta: promise.Number | None
    rho: promise.Number | None
    model: str
    relation: str
    accounting: str
    implementation: str


class Charged(promise.Part):
    """The COMMIT that a certificate rests on, and where the lineage stood then.

    Parameters
    ----------
    entry, hash, at
        Its number, hash and time.
    run_key
        Hex key of the release.
    spent_rho_exact, spent_rho
        All that was spent so far: a fraction as text, and a float.
    """

    entry: int
    hash: str
    at: str
    run_key: str
    spent_rho_exact: str
    spent_rho: promise.Number


class Certificate(promise.Part):
    """The promise on top, then the program, then the data (the pyramid of NIST SP 800-226).

    Parameters
    ----------
    schema_version, dataset
        1, and the lineage.
    guarantee, rho_exact
        In numbers and words, and the exact loss as a fraction; None where there is no noise.
    mechanisms, gate, joint, counter, composition
        What was drawn, what it rests on, and how the losses of all tables become one.
    implementation, data, assumptions, not_covered
        What else must hold for it to be true, in sentences that hold on the route of this run.
    registry
        The same facts for a public registry.
    ledger
        None where nothing was charged.
    sha256
        Of ``release``, ``policy`` and ``labels`` (policy.json); never of data.
    """

    schema_version: Literal[1]
    dataset: str
    guarantee: promise.Guarantee
    rho_exact: str | None
    mechanisms: list[promise.MechanismFacts]
    gate: promise.GateFacts | None = None
    joint: promise.Joint | None = None
    counter: promise.CounterFacts | None = None
    composition: str
    implementation: Implementation
    data: Stewardship
    assumptions: list[str]
    not_covered: list[str]
    registry: RegistryEntry
    ledger: Charged | None
    sha256: dict[str, str]


SCHEMA_FILE = Path(__file__).with_name("report.schema.json")


class LedgerFacts(promise.Part):
    """Where the lineage stood when the release was committed.

    Parameters
    ----------
    dataset
        The lineage.
    cap_rho, spent_rho, remaining_rho
        Its cap, all that was spent so far (rounded up), and what was left (rounded down).
    delta, epsilon_spent
        The card's delta, and what ``spent_rho`` means at it.
    entry, hash, at
        The COMMIT: number, hash, time.
    """

    dataset: str
    cap_rho: promise.Number
    spent_rho: promise.Number
    remaining_rho: promise.Number
    delta: promise.Number
    epsilon_spent: promise.Number
    entry: int
    hash: str
    at: str


class Report(promise.Part):
    """All that a run says.  A part that a run does not have is absent, and is drawn on no page.

    Parameters
    ----------
    schema_version
        Of this form.
    run, recipe, agent
        Names.
    dataset
        What the card declares.
    guarantee, mechanisms, joint, gate, counter, ledger
        The promise, what was released, what it cost; ``ledger`` is None where nothing was charged.
    verdict, evaluation
        Whether the policy is better than current practice, and what other people than those who chose it say of it.
    suboptimality
        What it misses at most against the best policy that this log can speak about; absent where nothing tells.
    made
        How a simulated log was made.
    constants, value, model_baselines
        How the policy was chosen, what it is worth, and simple policies in the same model.
    practice
        The policy beside current practice, where counts were released.
    consistency
        Where released counts were made consistent.
    features, model
        The declared feature map of a linear policy, and the estimated plant of a controller.
    policy
        The policy in a few numbers; ``policy.parquet`` is the policy.
    assumptions, not_covered
        What the promise rests on and what it leaves out, in sentences.
    verify
        Commands that check all this.
    truth
        True values, of a synthetic world.
    simulation
        Of a run that was played in a known world instead of learnt from a log.
    """

    schema_version: Literal[1]
    run: str
    recipe: str
    agent: str
    dataset: promise.DeclaredTables | promise.DeclaredPlant
    made: promise.SimulatedLog | None = None
    guarantee: promise.Guarantee
    verdict: Verdict | None = None
    suboptimality: Suboptimality | None = None
    evaluation: Evaluated | None = None
    constants: learnt.TabularConstants | learnt.PlantConstants | learnt.PlayedConstants
    value: learnt.ValueFacts
    model_baselines: dict[str, learnt.Baseline]
    practice: learnt.Practice | None = None
    mechanisms: list[promise.MechanismFacts]
    gate: promise.GateFacts | None = None
    counter: promise.CounterFacts | None = None
    ledger: LedgerFacts | None
    joint: promise.Joint | None = None
    consistency: learnt.ConsistencyFacts | None = None
    features: learnt.FeatureFacts | None = None
    model: learnt.PlantModel | None = None
    policy: learnt.PolicyFacts
    assumptions: list[str]
    not_covered: list[str]
    verify: list[str]
    truth: learnt.Truth | None = None
    simulation: Simulation | None = None


def read_report(folder: Path) -> Report:
    """The report of a run's folder.

    Parameters
    ----------
    folder
        With ``report.json``.

    Raises
    ------
    OSError
        If there is no such file.
    ValueError
        If it is no report, naming the first part that is wrong.
    """
    text = (folder / "report.json").read_text(encoding="utf-8")
    try:
        return Report.model_validate(json.loads(text))
    except ValidationError as e:
        first = e.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{folder.name}/report.json is no report: {where}: {first['msg']}") from None


def report_schema() -> dict[str, Any]:
    """The JSON Schema of ``report.json``, described by the parts' own documentation."""
    found = Report.model_json_schema(mode="validation")
    parts = {c.__name__: c for c in _parts(promise.Part)}
    for name, told in [("Report", found), *found["$defs"].items()]:
        part = parts.get(name)
        # a value of the release itself tells its fields in its own words
        text = told["description"] if part is None else getdoc(part) or ""
        told["description"] = text.split("\n\nParameters\n")[0].replace("\n", " ")
        # what a part inherits is described where it is declared
        for text in (getdoc(p) or "" for p in reversed(part.mro() if part else []) if issubclass(p, promise.Part)):
            for keys, words in _described(text):
                for key in keys & told["properties"].keys():
                    told["properties"][key]["description"] = words
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found, "title": "Report of a Reticent run"}


def _parts(of: type[promise.Part]) -> Iterator[type[promise.Part]]:
    for part in of.__subclasses__():
        yield part
        yield from _parts(part)


def _described(text: str) -> Iterator[tuple[set[str], str]]:
    """Names and description of each entry of a numpy docstring."""
    for names, words in re.findall(r"^(\w+(?:, \w+)*)\n((?:    .+\n?)+)", text, re.MULTILINE):
        yield set(names.split(", ")), " ".join(words.split())


@cache
def shipped_schema() -> dict[str, Any]:
    """The JSON Schema that travels with the program."""
    return json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))


def form_problem(told: Any) -> str | None:
    """Where the content of a ``report.json`` has not the form of its shipped schema; None where it has.

    Parameters
    ----------
    told
        As it was read.
    """
    from jsonschema import Draft202012Validator

    wrong = next(iter(Draft202012Validator(shipped_schema()).iter_errors(told)), None)
    return None if wrong is None else f"{'/'.join(map(str, wrong.absolute_path)) or 'top'}: {wrong.message[:120]}"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(json.dumps(report_schema(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
