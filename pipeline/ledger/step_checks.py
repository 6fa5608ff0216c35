"""What is wrong with the steps of a continual release, by its ledger or by a certificate: read, never believed."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from pipeline.ledger.account import registration
from pipeline.ledger.chain import Body, Entry
from pipeline.ledger.steps import (
    CounterBody,
    answers_of,
    committed_steps,
    counter_intents,
    key_of_step,
    step_price,
    time_of,
)
from pipeline.privacy.release_file import mechanism_from


def mispriced(entries: Sequence[Entry], lineage: str, key: str) -> Entry | None:
    """The first INTENT of a counter that charged too little, or whose step overlaps an earlier one; or None."""
    intents = counter_intents(entries, lineage, key)
    steps = sorted(committed_steps(entries, lineage, key), key=lambda s: s.commit.seq)
    for one, following in pairwise(steps):
        if following.since <= one.t:
            return following.intent
    for i, e in enumerate(intents):
        listed = [mechanism_from(m) for m in e.body["mechanisms"]]
        if Fraction(e.body["rho"]) < step_price(entries, intents[:i], e.body["counter"], listed, e.body.get("joint")):
            return e
    return None


def _miskeyed(entries: Sequence[Entry], lineage: str, key: str) -> Entry | None:
    """The first INTENT of a counter that is not of the counter it names, or None.

    Variances and sensitivities are part of the key: where every INTENT has its own, all steps drew the same noise.
    """
    for e in counter_intents(entries, lineage, key):
        registered = registration([r for r in entries if r.seq < e.seq], lineage) or {}
        if key_of_step(lineage, str(registered.get("domain_hash")), e.body) != key:
            return e
    return None


def _misweighed(entries: Sequence[Entry], lineage: str, key: str) -> Entry | None:
    """The first INTENT of a counter that lists another cost than that of its rows, or None.

    What a step is charged follows from the cost that its tables list, and no key tells that.
    """
    for e in counter_intents(entries, lineage, key):
        answers = answers_of(e.body.get("joint"))
        for m in (mechanism_from(m) for m in e.body["mechanisms"] if m["table"] not in answers):
            if m.running is None or m.running.cost != time_of(e.body["counter"], m.table).cost:
                return e
    return None


def counters_problem(entries: Sequence[Entry]) -> str | None:
    """What is wrong with any counter of a whole ledger, or None: a step of other noise, or one that is not paid."""
    keys = dict.fromkeys((e.lineage, e.body["counter"]["key"]) for e in entries if "counter" in e.body)
    found = (_problem(entries, lineage, key) for lineage, key in keys)
    return next((problem for problem in found if problem is not None), None)


def _problem(entries: Sequence[Entry], lineage: str, key: str) -> str | None:
    if (strange := _miskeyed(entries, lineage, key)) is not None:
        return f"entry {strange.seq} is of another domain, of other dates, or of other variances than its counter"
    if (light := _misweighed(entries, lineage, key)) is not None:
        return f"entry {light.seq} lists another cost than that of its counter's rows"
    short = mispriced(entries, lineage, key)
    return None if short is None else f"entry {short.seq} drew rows again without paying for them"


def charge_problem(proof: Body, commit: Entry, intent: Entry, entries: Sequence[Entry]) -> str | None:
    """What is wrong with the charge of a certified step, in words, or None.

    The counter's first INTENT paid for all its steps, and every row that was drawn twice was paid twice.
    """
    told = intent.body["counter"]
    if any(proof["counter"].get(k) != v for k, v in told.items()):
        return f"entry {intent.seq} is of another night or counter"
    if proof["counter"]["drawn_sha256"] != commit.body["drawn_sha256"]:
        return "its COMMIT names other rows"
    until = [e for e in entries if e.seq <= commit.seq]
    first = counter_intents(until, commit.lineage, told["key"])[0]
    listed = [mechanism_from(m) for m in first.body["mechanisms"]]
    if Fraction(first.body["rho"]) != step_price(until, [], first.body["counter"], listed, first.body.get("joint")):
        return f"entry {first.seq} charged {float(Fraction(first.body['rho'])):.6g} for the counter"
    return _problem(until, commit.lineage, told["key"])


def noise_problem(proof: Body) -> str | None:
    """What is wrong with the noise that a certificate states for a step, in words, or None.

    Key, cost and error are those of the counter that is named, and every table carries them.
    """
    told: CounterBody = proof["counter"]
    if key_of_step(proof["dataset"], proof["data"]["domain_hash"], proof) != told["key"]:
        return "its key is of another domain, of other dates, or of other variances"
    shape = time_of(told)
    if not 1 <= told["since"] <= told["night"] <= shape.steps:
        return f"night {told['night']} is none of its {shape.steps}"
    error = shape.error(told["night"])
    if told["cost"] != shape.cost or not same_number(error, told["error"]):
        return f"cost {shape.cost} and error {error:.6g} are not what it says"
    answers = answers_of(proof.get("joint"))
    for listed in (m for m in proof["mechanisms"] if m["table"] not in answers):
        m, time = mechanism_from(listed), time_of(told, listed["table"])
        if m.running is None or (m.running.cost, m.running.draws) != (time.cost, time.draws):
            return f"table {m.table}: another counter's cost"
        if not same_number(time.error(told["night"]), m.running.error):
            return f"table {m.table}: another night's noise"
        if not same_number(m.standard_deviation, listed["scale"]):
            return f"table {m.table}: another night's noise"
    return None


def same_number(ours: Any, stated: Any) -> bool:
    """Whether two values of a certificate agree: floats up to a relative 1e-9, all else exactly.

    Conversions are minimised numerically, so another machine may differ in the last digits.
    """
    if isinstance(ours, float) and isinstance(stated, int | float):
        return abs(ours - stated) <= 1e-9 * max(1.0, abs(ours))
    return ours == stated
