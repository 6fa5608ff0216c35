"""Check a run's certificate without the data: arithmetic, hashes, and the ledger entry where a ledger is at hand."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path

from pipeline.facts.report import form_problem, shipped_schema
from pipeline.ledger.attempts import gate_of, gate_problem, paid_for
from pipeline.ledger.certificate import NO_CLAIM
from pipeline.ledger.chain import Body, Entry, canonical
from pipeline.ledger.steps import charge_problem, noise_problem, same_number
from pipeline.privacy.losses import spent_budget
from pipeline.privacy.release import HELD_OUT, total_rho
from pipeline.privacy.release_file import file_of, mechanism_from, sha256_file
from pipeline.statistics import linear_plan, private_sum
from pipeline.statistics.held_out import held_out_loss, joint_loss, lq_loss, one_step_loss

SCHEMA_FILE = Path(__file__).with_name("certificate.schema.json")


@dataclass(frozen=True)
class Check:
    """One check and its outcome.

    ``ok``: None where it could not be checked.
    ``found``: what is wrong, or why it was not checked.
    """

    what: str
    ok: bool | None
    found: str = ""


def verify_run(folder: Path, entries: Sequence[Entry] | None = None, older: str | None = None) -> list[Check]:
    """Check ``certificate.json`` of a run's folder.

    ``entries``: of the ledger that charged the run, chain already checked; None: what needs it stays unchecked.
    Raises ValueError if there is no readable certificate.
    """
    proof = read_certificate(folder)
    form = _unless_older(_against_schema(proof), older)
    if form.ok is False:
        return [form]
    return [form, *_file_checks(folder, proof, older), *_ledger_checks(proof, entries)]


def _unless_older(check: Check, older: str | None) -> Check:
    """A check that rests on today's code does not fail a run of an older version: it counts as not made."""
    return check if check.ok or older is None else Check(check.what, None, older)


def _file_checks(folder: Path, proof: Body, older: str | None) -> Iterator[Check]:
    """Checks that need the run's folder alone."""
    yield _guarded("the loss, recomputed from the listed mechanisms", lambda: _loss(proof))
    # of an online agent its recipe is the declaration
    if "joint" in proof and proof["joint"].get("variant") != private_sum.ONLINE:
        what = "the joint loss, recomputed from scales and declarations"
        yield _unless_older(_guarded(what, lambda: _joint(folder, proof)), older)
    if "counter" in proof:
        yield _guarded("the noise of tonight's sums, recomputed from the counter", lambda: noise_problem(proof))
    yield _guarded("release.json lists the same mechanisms", lambda: _same_mechanisms(folder, proof))
    yield _guarded("the report states the same guarantee", lambda: _same_guarantee(folder, proof, older))
    for kind in proof["sha256"]:
        yield _guarded(f"sha256 of {file_of(kind)}", partial(_digest, folder, proof, kind))


def read_certificate(folder: Path) -> Body:
    """``certificate.json`` of a run's folder, unchecked.

    Raises ValueError if there is none.
    """
    return read_json(folder, "certificate.json")


def read_json(folder: Path, name: str) -> Body:
    """A JSON object of a run's folder, unchecked.

    Raises ValueError if there is none.
    """
    try:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise ValueError(f"{folder}: no readable {name} ({type(e).__name__}); name the folder of a run") from None
    if not isinstance(content, dict):
        raise ValueError(f"{folder}: {name} is not a JSON object; name the folder of a run")
    return content


def _guarded(what: str, check: Callable[[], str | None]) -> Check:
    """Run a check that returns its problem, or None; a file that is missing or cannot be read is a problem as well."""
    try:
        problem = check()
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError) as e:
        problem = str(e) if type(e) is ValueError else f"unreadable ({type(e).__name__})"
    return Check(what, problem is None, problem or "")


def _against_schema(proof: Body) -> Check:
    from jsonschema import Draft202012Validator

    errors = sorted(
        Draft202012Validator(shipped_schema(SCHEMA_FILE)).iter_errors(proof),
        key=lambda e: list(map(str, e.absolute_path)),
    )
    problem = "" if not errors else f"{'/'.join(map(str, errors[0].absolute_path)) or 'top'}: {errors[0].message[:120]}"
    return Check("the certificate has the form of its schema", not errors, problem)


def _loss(proof: Body) -> str | None:
    released, gate = tuple(mechanism_from(m) for m in proof["mechanisms"]), gate_of(proof)
    mechanisms = released + gate
    separate_rho, stated = total_rho(mechanisms), proof["guarantee"]
    joint = proof["joint"]["rho_exact"] if "joint" in proof else None
    if joint is not None and (separate_rho is None or Fraction(joint) + (total_rho(gate) or 0) > separate_rho):
        return f"together the mechanisms are said to cost rho = {joint}, more than the sum of their costs"
    rho = separate_rho if joint is None else Fraction(joint) + (total_rho(gate) or 0)
    if (None if rho is None else str(rho)) != proof["rho_exact"]:
        return f"the mechanisms cost rho = {rho}, the certificate says {proof['rho_exact']}"
    cost = spent_budget(mechanisms, stated["delta"] or 0.5, None if joint is None else rho)
    for key in ("rho", "epsilon", "pure"):
        if not same_number(cost[key], stated[key]):
            return f"{key} is {cost[key]}, the certificate says {stated[key]}"
    listed_gate = [proof["gate"]["mechanism"]] if "gate" in proof else []
    for m, listed in zip(mechanisms, [*proof["mechanisms"], *listed_gate], strict=True):
        if listed["rho_exact"] != (None if m.rho is None else str(m.rho)) or listed["name"] != m.name:
            return f"table {m.table}: listed cost or name differs from its sensitivity and scale"
    return None


def _joint(folder: Path, proof: Body) -> str | None:
    """The policy rests on the features and lengths of rows that were charged, and scales cost no more than stated."""
    facts = proof["joint"]
    if facts["rho_exact"] is None:
        return None
    policy = read_json(folder, "policy.json")
    variant, features = facts["variant"], None
    regressions = facts["learn"].get("regressions") if variant == HELD_OUT else facts
    mechanisms = tuple(mechanism_from(m) for m in proof["mechanisms"])
    if regressions is not None and variant not in ("linear_quadratic", "one_step"):
        features = linear_plan.declared_map(policy["features"])
        if linear_plan.features_digest(features) != regressions["features_sha256"]:
            return "policy.json declares other features than the release was charged for"
    if variant == "linear_quadratic":
        if policy["bounds"] != facts["bounds"]:
            return "policy.json was learnt from rows cut to other lengths than the release was charged for"
        recompute = partial(lq_loss, mechanisms, facts)
    elif variant == "one_step":
        recompute = partial(one_step_loss, mechanisms, facts)
    elif variant == HELD_OUT:
        recompute = partial(held_out_loss, mechanisms, facts, features)
    else:
        assert features is not None
        recompute = partial(joint_loss, mechanisms, facts, features)
    try:
        cost = recompute()
    except ValueError as e:
        return str(e)
    stated = Fraction(facts["rho_exact"])
    return None if cost <= stated else f"together they cost rho = {float(cost):.6g}, stated is {float(stated):.6g}"


def _same_mechanisms(folder: Path, proof: Body) -> str | None:
    described = read_json(folder, "release.json")
    if described["mechanisms"] != proof["mechanisms"]:
        return "they differ"
    stated = proof["guarantee"]
    if described.get("joint") != proof.get("joint"):
        return "the joint cost differs"
    if any(proof["counter"].get(k) != v for k, v in described.get("counter", {}).items()):
        return "the counter differs"
    differ = [k for k in ("noise", "sampler", "data_kind", "relation") if described[k] != stated[k]]
    return f"{', '.join(differ)} differ" if differ else None


def _same_guarantee(folder: Path, proof: Body, older: str | None) -> str | None:
    report = read_json(folder, "report.json")
    if report["guarantee"] != proof["guarantee"]:
        return "report.json says something else"
    wrong = form_problem(report) if older is None else None
    return None if wrong is None else f"report.json has not the form of its schema: {wrong}"


def _digest(folder: Path, proof: Body, kind: str) -> str | None:
    actual = sha256_file(folder / file_of(kind))
    return None if actual == proof["sha256"][kind] else f"the file has {actual[:16]}…: it was changed"


def _ledger_checks(proof: Body, entries: Sequence[Entry] | None) -> list[Check]:
    charged, what = proof["ledger"], "the ledger holds this very entry"
    if charged is None:
        # seeded noise makes no claim
        stated = proof["guarantee"]
        simulated = stated["noise"] == "none" or (stated["noise"] == "seeded" and stated["claim"] == NO_CLAIM)
        problem = "" if simulated else "noise, but no entry"
        if "real" in (e.body["kind"] for e in entries or () if e.kind == "REGISTER" and e.lineage == proof["dataset"]):
            problem = "its dataset is registered as real: every run of it is charged"
        return [Check("nothing was charged, and nothing is promised", not problem, problem)]
    if entries is None:
        unknown = f"no ledger of {proof['dataset']} at hand; a real dataset has its own: name its card with --card"
        return [Check(what, None, unknown)]
    entry = next((e for e in entries if e.seq == charged["entry"]), None)
    if entry is None:
        return [Check(what, False, f"it ends before entry {charged['entry']}: cut, or an old copy")]
    if entry.hash != charged["hash"] or entry.kind != "COMMIT" or entry.lineage != proof["dataset"]:
        return [Check(what, False, f"entry {entry.seq} is another one")]
    intent = next((e for e in entries if e.seq == entry.body["intent"]), None)
    return [
        Check(what, ok=True),
        _guarded("the ledger was charged for these mechanisms", lambda: _charged(proof, entry, intent, entries)),
        _guarded("the ledger says the same of this release", lambda: _as_entered(proof, entry, entries)),
        _guarded("looks at the data before it are told", lambda: _looks_named(proof, entry, entries)),
    ]


def _charged(proof: Body, commit: Entry, intent: Entry | None, entries: Sequence[Entry]) -> str | None:
    if commit.body["release_sha256"] != proof["sha256"]["release"]:
        return "its COMMIT names another release"
    if intent is None or intent.kind != "INTENT":
        return "its INTENT is missing"
    if intent.body.get("joint") != proof.get("joint"):
        return f"entry {intent.seq} was charged on other terms"
    # scales that followed earlier answers were not known before: the COMMIT lists those that were used
    listed = intent if "mechanisms" in intent.body else commit
    if json.loads(canonical(proof["mechanisms"])) != listed.body["mechanisms"]:
        return f"entry {listed.seq} lists other mechanisms"
    if (problem := gate_problem(proof, intent, entries)) is not None:
        return problem
    if "counter" in proof or "counter" in intent.body:
        return charge_problem(proof, commit, intent, entries)
    released = total_rho(tuple(mechanism_from(m) for m in proof["mechanisms"]))
    cost = Fraction(proof["joint"]["rho_exact"]) if "joint" in proof else released
    charged = paid_for(entries, intent)
    return None if charged == cost else f"entry {intent.seq} charged {float(charged):.6g}"


def _as_entered(proof: Body, commit: Entry, entries: Sequence[Entry]) -> str | None:
    """Noise, kind of people, delta and spending agree with the ledger: the listed mechanisms do not show these."""
    stated, committed, charged = proof["guarantee"], commit.body, proof["ledger"]
    registered = [e.body for e in entries if e.lineage == commit.lineage and e.kind in ("REGISTER", "AMEND")]
    # a replay after an amendment states the delta of now
    deltas = [0.0] if stated["pure"] else [r["delta"] for r in registered]
    agree = {
        "noise": stated["noise"] == committed["noise"],
        "sampler": stated["sampler"] == committed["sampler"],
        "data_kind": stated["data_kind"] in [r["kind"] for r in registered],
        "relation": stated["relation"] in [r["relation"] for r in registered],
        "delta": stated["delta"] in deltas,
        "run_key": charged["run_key"] == committed["run_key"],
        "at": charged["at"] == commit.at,
        "spent_rho_exact": charged["spent_rho_exact"] == committed["spent"],
        "spent_rho": charged["spent_rho"] == float(Fraction(committed["spent"])),
    }
    differ = [key for key, same in agree.items() if not same]
    return f"{', '.join(differ)} differ" if differ else None


def _looks_named(proof: Body, commit: Entry, entries: Sequence[Entry]) -> str | None:
    """None if the assumptions name every inspection before the COMMIT; later ones may be absent."""
    before = [e for e in entries if e.kind == "INSPECT" and e.lineage == commit.lineage and e.seq < commit.seq]
    sentences = " ".join(proof["assumptions"])
    unnamed = [e.seq for e in before if not re.search(rf"\bentr(y|ies) ([\d, ]*, )?{e.seq}\b", sentences)]
    return f"the assumptions do not name the look of entry {unnamed[0]}" if unnamed else None
