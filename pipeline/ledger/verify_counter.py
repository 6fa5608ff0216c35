"""What ``verify`` recomputes of a night: the counter's arithmetic, and that its ledger charged all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from pipeline.ledger.chain import Entry
from pipeline.ledger.nights import counter_intents, counter_key, miskeyed, mispriced
from pipeline.privacy.continual import continual
from pipeline.privacy.release_file import mechanism_from


def counter_problem(proof: Mapping[str, Any]) -> str | None:
    """Key, cost and error are those of the counter that is named, and every table carries them."""
    told = proof["counter"]
    if counter_key(proof["dataset"], proof["data"]["domain_hash"], told, proof["mechanisms"]) != told["key"]:
        return "its key is of another domain, of other dates, or of other variances"
    shape = continual(told["kind"], told["nights"])
    if not 1 <= told["since"] <= told["night"] <= shape.steps:
        return f"night {told['night']} is none of its {shape.steps}"
    error = shape.error(told["night"])
    if told["cost"] != shape.cost or not same_number(error, told["error"]):
        return f"cost {shape.cost} and error {error:.6g} are not what it says"
    for listed in proof["mechanisms"]:
        m = mechanism_from(listed)
        if m.running is None or (m.running.cost, m.running.draws) != (shape.cost, shape.draws):
            return f"table {m.table}: another counter's cost"
        if not same_number(error, m.running.error) or not same_number(m.standard_deviation, listed["scale"]):
            return f"table {m.table}: another night's noise"
    return None


def counter_charged(proof: Mapping[str, Any], commit: Entry, intent: Entry, entries: Sequence[Entry]) -> str | None:
    """The counter's first INTENT paid for all its nights, and every row that was drawn twice was paid twice."""
    told = intent.body["counter"]
    if any(proof["counter"].get(k) != v for k, v in told.items()):
        return f"entry {intent.seq} is of another night or counter"
    if proof["counter"]["drawn_sha256"] != commit.body["drawn_sha256"]:
        return "its COMMIT names other rows"
    until = [e for e in entries if e.seq <= commit.seq]
    first = counter_intents(until, commit.lineage, told["key"])[0]
    if Fraction(first.body["rho"]) != Fraction(proof["rho_exact"]):
        return f"entry {first.seq} charged {float(Fraction(first.body['rho'])):.6g} for the counter"
    return _nights_problem(until, commit.lineage, told["key"])


def counters_problem(entries: Sequence[Entry]) -> str | None:
    """What is wrong with any counter of a whole ledger: a night of other noise than the rest, or one not paid for."""
    keys = dict.fromkeys((e.lineage, e.body["counter"]["key"]) for e in entries if "counter" in e.body)
    found = (_nights_problem(entries, lineage, key) for lineage, key in keys)
    return next((problem for problem in found if problem is not None), None)


def _nights_problem(entries: Sequence[Entry], lineage: str, key: str) -> str | None:
    if (strange := miskeyed(entries, lineage, key)) is not None:
        return f"entry {strange.seq} is of another domain, of other dates, or of other variances than its counter"
    short = mispriced(entries, lineage, key)
    return None if short is None else f"entry {short.seq} drew rows again without paying for them"


def same_number(ours: Any, stated: Any) -> bool:
    """Conversions are minimised numerically: another machine may differ in the last digits."""
    if isinstance(ours, float) and isinstance(stated, int | float):
        return abs(ours - stated) <= 1e-9 * max(1.0, abs(ours))
    return ours == stated
