"""``report.json`` and ``certificate.json`` as values: released values and declared constants only (privacy.md §10).

Pages and other renderings hold nothing else.
"""

# pyright: reportUnknownMemberType=false
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
from pipeline.facts.verdict import Suboptimality, Verdict, decide, not_evaluated


class Implementation(promise.Part):
    """The program behind the guarantee: the algorithm, its arithmetic, and side channels."""

    algorithm: str
    floating_point: str
    side_channels: str


class Stewardship(promise.Part):
    """Collection of the data, access to it, and the hash of its registered domain."""

    collection: str
    access: str
    domain_hash: str


class RegistryEntry(promise.Part):
    """The guarantee under the names of the proposed registry of differential-privacy deployments."""

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
    """The COMMIT behind a certificate, and the state of the lineage then.

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
    """The guarantee on top, then the program, then the data (the pyramid of NIST SP 800-226).

    Parameters
    ----------
    schema_version, dataset
        1, and the lineage.
    guarantee, rho_exact
        In numbers and words, and the exact loss as a fraction; None where there is no noise.
    mechanisms, gate, joint, counter, composition
        The drawn mechanisms, their grounds, and the composition of their losses.
    implementation, data, assumptions, not_covered
        Further conditions of the guarantee, in sentences that hold for this run.
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


# what to do about a report that makes no sense
_AGAIN = "`reticent run` its recipe again: a committed release is replayed at no cost"
SCHEMA_FILE = Path(__file__).with_name("report.schema.json")


class LedgerFacts(promise.Part):
    """State of the lineage when the release was committed.

    Parameters
    ----------
    dataset
        The lineage.
    cap_rho, spent_rho, remaining_rho
        Its cap, all that was spent so far (rounded up), and what was left (rounded down).
    delta, epsilon_spent
        The card's delta, and the epsilon of ``spent_rho`` at it.
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
    """The report of a run.  A part that a run does not have is absent, and is drawn on no page.

    Parameters
    ----------
    schema_version
        Of this form.
    run, recipe, agent
        Names.
    dataset
        Declarations of the card.
    guarantee, mechanisms, joint, gate, counter, ledger
        The guarantee, the release, its cost; ``ledger`` is None where nothing was charged.
    verdict, evaluation
        Whether the policy is better than current practice, and its evaluation on held-out people.
    suboptimality
        Its largest loss against the best policy that this log supports; absent where there is no bound.
    made
        Origin of a simulated log.
    constants, value, model_baselines
        Constants of the policy, its value, and simple policies in the same model.
    practice
        The policy beside current practice, where counts were released.
    consistency
        Where released counts were made consistent.
    features, model
        The declared feature map of a linear policy, and the estimated plant of a controller.
    policy
        The policy in a few numbers; ``policy.parquet`` is the policy.
    assumptions, not_covered
        Conditions of the guarantee, and its exceptions, in sentences.
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


def verdict_of(report: Report) -> Verdict:
    """The verdict of a run; decided now for a report of a version without verdicts."""
    if report.verdict is not None:
        return report.verdict
    data, rho = report.dataset, report.guarantee.rho
    return not_evaluated(data, rho) if report.evaluation is None else decide(report.evaluation, data, rho, None)


def read_report(folder: Path) -> Report:
    """The report of a run's folder.

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
        raise ValueError(f"{folder.name}/report.json is no report: {where}: {first['msg']}; {_AGAIN}") from None


def contradictory(names: str, found: Exception) -> str:
    """Sentence on reports whose parts do not go together, so that nothing can be made of them."""
    return f"report.json of {names} contradicts itself, or the policy beside it ({type(found).__name__}); {_AGAIN}"


def report_schema() -> dict[str, Any]:
    """The JSON Schema of ``report.json``, described by the parts' own documentation."""
    schema = Report.model_json_schema(mode="validation")
    parts = {c.__name__: c for c in _parts(promise.Part)}
    for name, definition in [("Report", schema), *schema["$defs"].items()]:
        part = parts.get(name)
        # a dataclass describes its fields in its own docstring
        text = definition["description"] if part is None else getdoc(part) or ""
        definition["description"] = text.split("\n\nParameters\n")[0].replace("\n", " ")
        # inherited fields are described in the class that declares them
        for text in (getdoc(p) or "" for p in reversed(part.mro() if part else []) if issubclass(p, promise.Part)):
            for keys, description in _described(text):
                for key in keys & definition["properties"].keys():
                    definition["properties"][key]["description"] = description
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Report of a Reticent run"}


def _parts(base: type[promise.Part]) -> Iterator[type[promise.Part]]:
    for part in base.__subclasses__():
        yield part
        yield from _parts(part)


def _described(text: str) -> Iterator[tuple[set[str], str]]:
    """Names and description of each entry of a numpy docstring."""
    for names, description in re.findall(r"^(\w+(?:, \w+)*)\n((?:    .+\n?)+)", text, re.MULTILINE):
        yield set(names.split(", ")), " ".join(description.split())


@cache
def shipped_schema(file: Path = SCHEMA_FILE) -> dict[str, Any]:
    """A JSON Schema that travels with the program."""
    return json.loads(file.read_text(encoding="utf-8"))


def form_problem(content: Any) -> str | None:
    """The first violation of the shipped schema by a ``report.json``, with its place; None where it is valid."""
    from jsonschema import Draft202012Validator

    error = next(iter(Draft202012Validator(shipped_schema()).iter_errors(content)), None)
    return None if error is None else f"{'/'.join(map(str, error.absolute_path)) or 'top'}: {error.message[:120]}"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(json.dumps(report_schema(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
