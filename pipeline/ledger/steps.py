"""What the ledger says of a continual release: one charge for all its steps, and another for rows drawn again.

The first INTENT of a counter pays for every row it will ever release.  A later step draws rows that nobody has drawn:
it charges nothing.  Where people are held out who evaluate on some dates, each of them once, the counter's charge pays
for them too (:func:`~pipeline.statistics.held_out.parts_cost`).  An attempt that died after its DRAW may have drawn:
whoever draws its rows again, or asks its people again, pays again (privacy.md §10).  In the ledger and on the page a
step is a *night*: the keys of entries are those of its first day.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, NotRequired, TypedDict

from pipeline.ledger.account import commit_of, registration
from pipeline.ledger.attempts import may_have_drawn, taken_over
from pipeline.ledger.chain import Body, Entry, canonical, entries_of
from pipeline.privacy.continual import continual
from pipeline.privacy.factorisation import Kind, squared_weights
from pipeline.privacy.release import Mechanism, total_rho
from pipeline.privacy.release_file import mechanism_from
from pipeline.statistics.held_out import part_costs, parts_cost


class CounterBody(TypedDict):
    """The ``counter`` of an INTENT.

    Parameters
    ----------
    key
        Of the counter, 64 hex digits.
    kind, nights, first
        Of its factorisation; its number T of steps; the date of step 1 (ISO).
    night, since
        The steps ``since .. night`` become known, all but the last of them empty.
    date
        Of the step (ISO).
    share
        Of the people who are in no leaf, because they evaluate: exact rational; absent where everybody is counted.
    cost, error
        Largest squared L2 weight of one person over all T steps; variance of the step's sums in units of one row's.
    """

    key: str
    kind: Kind
    nights: int
    first: str
    night: int
    since: int
    date: str
    share: NotRequired[str]
    cost: int
    error: float


@dataclass(frozen=True)
class Step:
    """A committed step: ``since .. t`` became known, all but the last of them empty.

    Parameters
    ----------
    t, since
        Counted from 1.
    intent, commit
        The entries that paid for it and that say it is on disk.
    """

    t: int
    since: int
    intent: Entry
    commit: Entry

    @property
    def attempt(self) -> int:
        """Number of the attempt whose draw stands."""
        return int(self.commit.body["attempt"])


def counter_key(
    lineage: str, domain_hash: str, dates: tuple[Kind, int, str], mechanisms: Sequence[Body], share: str | None = None
) -> str:
    """Hex key of a counter: lineage, registered domain, dates and variances; the same recipe goes on with it.

    Parameters
    ----------
    lineage, domain_hash
        Of the card.
    dates
        ``kind``, ``nights`` and ``first`` of :class:`CounterBody`.
    mechanisms
        As :func:`~pipeline.privacy.release_file.describe_mechanism` describes them, at any step.
    share
        See :class:`CounterBody`: with another share other people are counted.

    Returns
    -------
    64 hex digits.
    """
    # the sampler's share of delta follows the cap of the lineage, the error follows the step
    known = [{k: v for k, v in m.items() if k not in ("delta_slack", "running", "scale")} for m in mechanisms]
    table = ["table"] if any("delta_slack" in m for m in mechanisms) else []
    held_out = [] if share is None else [share]
    parts = [lineage, "counter", domain_hash, [*dates], known, table, *held_out]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def _key_of(lineage: str, domain_hash: str, said: Body) -> str:
    """The key that the ``counter`` and the ``mechanisms`` of an INTENT or a certificate have."""
    told: CounterBody = said["counter"]
    dates: tuple[Kind, int, str] = (told["kind"], told["nights"], told["first"])
    answers = _answers_of(said.get("joint"))
    counted = [m for m in said["mechanisms"] if m["table"] not in answers]
    return counter_key(lineage, domain_hash, dates, counted, told.get("share"))


def _answers_of(joint: Body | None) -> set[str]:
    """Tables of a step that are none of its counter's: what people say who evaluate then (None: nobody does)."""
    return set() if joint is None else {name for s in joint["evaluate"]["sums"] for name in s["tables"]}


def counter_intents(entries: Sequence[Entry], lineage: str, key: str) -> list[Entry]:
    """All INTENTs of a counter, oldest first."""
    there = entries_of(entries, lineage, "INTENT")
    return [e for e in there if e.body.get("counter", {}).get("key") == key]


def committed_steps(entries: Sequence[Entry], lineage: str, key: str) -> list[Step]:
    """Committed steps of a counter, oldest first."""
    found: list[Step] = []
    for intent in counter_intents(entries, lineage, key):
        commit = commit_of(entries, lineage, intent.body["run_key"])
        if commit is not None and commit.body["intent"] == intent.seq:
            found.append(Step(intent.body["counter"]["night"], intent.body["counter"]["since"], intent, commit))
    return found


def overtaken(entries: Sequence[Entry], lineage: str, counter: CounterBody) -> Step | None:
    """A committed step of the same counter that a draw of ``since .. night`` does not strictly follow, or None.

    Two stores that share a ledger could otherwise both count the people of one step.

    Parameters
    ----------
    entries, lineage, counter
        See :func:`counter_intents`; the ``counter`` of the draw in question.
    """
    return next((s for s in committed_steps(entries, lineage, counter["key"]) if s.t >= counter["since"]), None)


def step_price(
    entries: Sequence[Entry],
    before: Sequence[Entry],
    counter: CounterBody,
    mechanisms: Sequence[Mechanism],
    joint: Body | None = None,
) -> Fraction:
    """What a step costs beyond what its counter has been charged, as an exact zCDP rho.

    Parameters
    ----------
    entries, before, counter
        Of the ledger; INTENTs of the counter so far; of the step to be charged.
    mechanisms
        With their ``running`` cost; one without Gaussian noise is a ValueError.
    joint
        Of a step on which people evaluate, whose mechanisms are then listed too.
    """
    counted = tuple(m for m in mechanisms if m.table not in _answers_of(joint))
    whole = total_rho(counted)
    if whole is None:
        raise ValueError("a counter without noise is never charged")
    more = Fraction(0) if joint is None else _evaluation_price(entries, before, whole, mechanisms, joint)
    drawn = [e.body["counter"] for e in before if may_have_drawn(entries, e)]
    if not drawn:
        # attempts that died before they drew have paid for the counter, not for whoever evaluates tonight
        return max(Fraction(0), whole + more - taken_over(entries, before))
    maybe_drawn = {t for told in drawn for t in range(told["since"], told["night"] + 1)}
    again = sorted(maybe_drawn & set(range(counter["since"], counter["night"] + 1)))
    shape = continual(counter["kind"], counter["nights"])
    squares = squared_weights([row for t in again for row in shape.rows(t)])
    costs = [Fraction(squares * m.l2_squared, 2 * m.variance) for m in counted if m.variance is not None]
    return max(Fraction(0), sum(costs, more) - taken_over(entries, before))


def _evaluation_price(
    entries: Sequence[Entry],
    before: Sequence[Entry],
    whole: Fraction,
    mechanisms: Sequence[Mechanism],
    joint: Body,
) -> Fraction:
    """What an evaluation costs beyond its counter: nobody is in both, and nobody evaluates twice.

    Whoever evaluates tonight was not asked at a committed step, but perhaps by attempts since then that died.
    """
    asked = [e.seq for e in before if "joint" in e.body and may_have_drawn(entries, e)]
    done = {e.body["intent"] for e in entries if e.kind == "COMMIT"}
    lost = bool(asked) and asked[-1] not in done
    learn, evaluate = part_costs(mechanisms, {"learn": joint["learn"], "evaluate": joint["evaluate"]})
    beyond = max(Fraction(0), parts_cost(learn, evaluate, nights=True) - whole)
    return beyond + (evaluate[0] if lost else 0)


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
        if _key_of(lineage, str(registered.get("domain_hash")), e.body) != key:
            return e
    return None


def counters_problem(entries: Sequence[Entry]) -> str | None:
    """What is wrong with any counter of a whole ledger, or None: a step of other noise, or one that is not paid."""
    keys = dict.fromkeys((e.lineage, e.body["counter"]["key"]) for e in entries if "counter" in e.body)
    found = (_steps_problem(entries, lineage, key) for lineage, key in keys)
    return next((problem for problem in found if problem is not None), None)


def _steps_problem(entries: Sequence[Entry], lineage: str, key: str) -> str | None:
    if (strange := _miskeyed(entries, lineage, key)) is not None:
        return f"entry {strange.seq} is of another domain, of other dates, or of other variances than its counter"
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
    return _steps_problem(until, commit.lineage, told["key"])


def noise_problem(proof: Body) -> str | None:
    """What is wrong with the noise that a certificate states for a step, in words, or None.

    Key, cost and error are those of the counter that is named, and every table carries them.
    """
    told: CounterBody = proof["counter"]
    if _key_of(proof["dataset"], proof["data"]["domain_hash"], proof) != told["key"]:
        return "its key is of another domain, of other dates, or of other variances"
    shape = continual(told["kind"], told["nights"])
    if not 1 <= told["since"] <= told["night"] <= shape.steps:
        return f"night {told['night']} is none of its {shape.steps}"
    error = shape.error(told["night"])
    if told["cost"] != shape.cost or not same_number(error, told["error"]):
        return f"cost {shape.cost} and error {error:.6g} are not what it says"
    answers = _answers_of(proof.get("joint"))
    for listed in (m for m in proof["mechanisms"] if m["table"] not in answers):
        m = mechanism_from(listed)
        if m.running is None or (m.running.cost, m.running.draws) != (shape.cost, shape.draws):
            return f"table {m.table}: another counter's cost"
        if not same_number(error, m.running.error) or not same_number(m.standard_deviation, listed["scale"]):
            return f"table {m.table}: another night's noise"
    return None


def same_number(ours: Any, stated: Any) -> bool:
    """Whether two values of a certificate agree: floats up to a relative 1e-9, all else exactly.

    Conversions are minimised numerically, so another machine may differ in the last digits.
    """
    if isinstance(ours, float) and isinstance(stated, int | float):
        return abs(ours - stated) <= 1e-9 * max(1.0, abs(ours))
    return ours == stated
