"""Charges of a continual release: one for all its steps, and another for rows that are drawn again.

The first INTENT of a counter pays for every row it will ever release.  A later step draws rows that nobody has drawn:
it charges nothing.  An attempt that died after its DRAW may have drawn: rows that are drawn again are paid for again
(privacy.md §10).  In the ledger and on the page a step is a *night*: the keys of entries are those of its first day.

The ``counter`` of an INTENT has the fields of :class:`~pipeline.facts.promise.CounterFacts` but the drawn noise.

Counters of older versions may have held people out who evaluated on some dates (``share``), or have begun some sums
anew with every epoch (``epochs``).  No step is added to them; their entries are read, and their charges count.

The checks of these steps recompute key, cost, noise and charge from what ledger or certificate state.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

from pipeline.ledger import account, attempts, looks
from pipeline.ledger.chain import Body, Entry, canonical_hash, entries_of
from pipeline.privacy.continual import Factorisation, continual, each_night, squared_weights
from pipeline.privacy.release import PLAYED, Mechanism, Running, total_rho
from pipeline.privacy.release_file import mechanism_from


@dataclass(frozen=True)
class Step:
    """A committed step: ``since .. t`` became known, all but the last of them empty.

    ``t``, ``since``: counted from 1.
    """

    t: int
    since: int
    intent: Entry
    commit: Entry

    @property
    def attempt(self) -> int:
        """Number of the attempt whose draw stands."""
        return int(self.commit.body["attempt"])


def counter_key(lineage: str, domain_hash: str, stated: Body) -> str:
    """Hex key of a counter: lineage, registered domain, dates, variances and options; the same recipe goes on with it.

    ``stated``: ``counter``, ``mechanisms`` and ``joint`` as an INTENT or a certificate states them.
    Returns 64 hex digits.
    """
    counter: Body = stated["counter"]
    answers = answers_of(stated.get("joint"))
    counted: list[Body] = [m for m in stated["mechanisms"] if m["table"] not in answers]
    # the sampler's share of delta follows the cap of the lineage, the error follows the step
    described = [{k: v for k, v in m.items() if k not in ("delta_slack", "running", "scale")} for m in counted]
    table = ["table"] if any("delta_slack" in m for m in counted) else []
    parts = [lineage, "counter", domain_hash, [counter["kind"], counter["nights"], counter["first"]], described, table]
    # of older counters
    parts += [counter["share"]] if "share" in counter else []
    parts += [counter["epochs"], stated["joint"]] if "epochs" in counter else []
    # what a recipe may set beside dates and budget, where it does
    chosen = {key: counter[key] for key in ("window", "episodes") if key in counter}
    parts += [chosen] if chosen else []
    return canonical_hash(parts)


def answers_of(joint: Body | None) -> set[str]:
    """Tables of a step that are not its counter's: in an older one, the sums over people who evaluated.

    ``joint``: of an INTENT or a certificate; None where it has none.
    """
    if joint is None or not looks.is_look({"joint": joint}):
        return set()
    return {name for s in joint["evaluate"]["sums"] for name in s["tables"]}


def time_of(counter: Body, table: str = "") -> tuple[Factorisation, int]:
    """The factorisation that a table's sums are read off, and the step of it that stands at this one.

    ``table``: its name; empty: any table that runs on and opened no epoch.
    """
    if table == PLAYED:
        return each_night(counter["nights"]), counter["night"]
    if (epochs := counter.get("epochs")) is None:
        return continual(counter["kind"], counter["nights"], counter.get("window")), counter["night"]
    opened, within = divmod(counter["night"] - 1, epochs["nights"])
    if table in epochs["opening"]:
        return continual(counter["kind"], -(-counter["nights"] // epochs["nights"])), opened + 1
    return continual(counter["kind"], epochs["nights"]), within + 1


def is_older(counter: Body) -> bool:
    """Whether a counter is of a kind that takes no more steps."""
    return "share" in counter or "epochs" in counter


def counter_intents(entries: Sequence[Entry], lineage: str, key: str) -> list[Entry]:
    """All INTENTs of a counter, oldest first."""
    intents = entries_of(entries, lineage, "INTENT")
    return [e for e in intents if e.body.get("counter", {}).get("key") == key]


def committed_steps(entries: Sequence[Entry], lineage: str, key: str) -> list[Step]:
    """Committed steps of a counter, oldest first."""
    steps: list[Step] = []
    for intent in counter_intents(entries, lineage, key):
        commit = account.commit_of(entries, lineage, intent.body["run_key"])
        if commit is not None and commit.body["intent"] == intent.seq:
            steps.append(Step(intent.body["counter"]["night"], intent.body["counter"]["since"], intent, commit))
    return steps


def overtaken(entries: Sequence[Entry], lineage: str, counter: Body) -> Step | None:
    """A committed step of the same counter that a draw of ``since .. night`` does not strictly follow, or None.

    Two stores that share a ledger could otherwise both count the people of one step.
    """
    return next((s for s in committed_steps(entries, lineage, counter["key"]) if s.t >= counter["since"]), None)


def step_price(
    entries: Sequence[Entry], before: Sequence[Entry], counter: Body, mechanisms: Sequence[Mechanism]
) -> Fraction:
    """Cost of a step beyond what its counter was charged, an exact zCDP rho.

    ``mechanisms``: with their ``running`` cost; one without Gaussian noise is a ValueError.
    """
    drawn = [e.body["counter"] for e in before if attempts.may_have_drawn(entries, e)]
    if not drawn:
        # attempts that died before they drew have paid for the counter
        return max(Fraction(0), counter_loss(mechanisms) - attempts.taken_over(entries, before))
    maybe_drawn = {t for step in drawn for t in range(step["since"], step["night"] + 1)}
    redrawn = sorted(maybe_drawn & set(range(counter["since"], counter["night"] + 1)))
    drawn_twice: list[Mechanism] = []
    for m in mechanisms:
        due = [row for t in redrawn for row in time_of(counter, m.table)[0].rows(t)]
        drawn_twice.append(replace(m, running=Running(squared_weights(due), 1, 1.0)))
    return max(Fraction(0), counter_loss(drawn_twice) - attempts.taken_over(entries, before))


def counter_loss(mechanisms: Sequence[Mechanism], joint: Body | None = None) -> Fraction:
    """Privacy loss of one person from all rows of a counter.

    ``mechanisms``: of its tables, with their ``running`` cost; one without Gaussian noise is a ValueError.
    ``joint``: of an older counter, whose tables were bounded jointly; None: table by table.
    """
    if (rho := total_rho(tuple(mechanisms))) is None:
        raise ValueError("a counter without noise is never charged")
    if joint is None:
        return rho
    # only older counters need it: reading a ledger loads no statistics
    from pipeline.statistics.held_out import one_step_loss

    return one_step_loss(mechanisms, {"stages": joint["stages"]})


def mispriced(entries: Sequence[Entry], lineage: str, key: str) -> Entry | None:
    """The first INTENT of a counter that charged too little, or whose step overlaps an earlier one; or None.

    Of an older kind of counter the first must have paid for all its sums; what it drew again is not priced again.
    """
    intents = counter_intents(entries, lineage, key)
    steps = sorted(committed_steps(entries, lineage, key), key=lambda s: s.commit.seq)
    for one, following in pairwise(steps):
        if following.since <= one.t:
            return following.intent
    older = bool(intents) and is_older(intents[0].body["counter"])
    for i, e in enumerate(intents[:1] if older else intents):
        if Fraction(e.body["rho"]) < _price(entries, intents[:i], e):
            return e
    return None


def _price(entries: Sequence[Entry], before: Sequence[Entry], intent: Entry) -> Fraction:
    """The least charge of an INTENT for its counter, after those ``before``."""
    counter, joint = intent.body["counter"], intent.body.get("joint")
    answers = answers_of(joint)
    listed = [mechanism_from(m) for m in intent.body["mechanisms"] if m["table"] not in answers]
    if is_older(counter):
        return counter_loss(listed, None if answers else joint)
    return step_price(entries, before, counter, listed)


def counters_problem(entries: Sequence[Entry]) -> str | None:
    """The first fault of the counters of a ledger, in words, or None: a step of other noise, or one not paid for."""
    keys = dict.fromkeys((e.lineage, e.body["counter"]["key"]) for e in entries if "counter" in e.body)
    problems = (_problem(entries, lineage, key) for lineage, key in keys)
    return next((problem for problem in problems if problem is not None), None)


def _problem(entries: Sequence[Entry], lineage: str, key: str) -> str | None:
    intents = counter_intents(entries, lineage, key)
    # variances and sensitivities are part of the key: where every INTENT has its own, all steps drew the same noise
    for e in intents:
        registered = account.registration([r for r in entries if r.seq < e.seq], lineage)
        if counter_key(lineage, str(registered.get("domain_hash")), e.body) != key:
            return f"entry {e.seq} is of another domain, of other dates, or of other variances than its counter"
    # what a step is charged follows from the cost that its tables list, and no key tells that
    for e in intents:
        answers = answers_of(e.body.get("joint"))
        for m in (mechanism_from(m) for m in e.body["mechanisms"] if m["table"] not in answers):
            if m.running is None or m.running.cost != time_of(e.body["counter"], m.table)[0].cost:
                return f"entry {e.seq} lists another cost than that of its counter's rows"
    unpaid = mispriced(entries, lineage, key)
    return None if unpaid is None else f"entry {unpaid.seq} drew rows again without paying for them"


def charge_problem(proof: Body, commit: Entry, intent: Entry, entries: Sequence[Entry]) -> str | None:
    """The fault of the charge of a certified step, in words, or None.

    The counter's first INTENT paid for all its steps, and every row that was drawn twice was paid twice.
    """
    counter = intent.body["counter"]
    if any(proof["counter"].get(k) != v for k, v in counter.items()):
        return f"entry {intent.seq} is of another night or counter"
    if proof["counter"]["drawn_sha256"] != commit.body["drawn_sha256"]:
        return "its COMMIT names other rows"
    until = [e for e in entries if e.seq <= commit.seq]
    first = counter_intents(until, commit.lineage, counter["key"])[0]
    # an older counter may have paid for people who evaluated as well
    if not is_older(counter) and Fraction(first.body["rho"]) != _price(until, [], first):
        return f"entry {first.seq} charged {float(Fraction(first.body['rho'])):.6g} for the counter"
    return _problem(until, commit.lineage, counter["key"])


def noise_problem(proof: Body) -> str | None:
    """The fault of the noise that a certificate states for a step, in words, or None.

    Key, cost and error are those of the counter that is named, and every table carries them.
    """
    counter: Body = proof["counter"]
    if counter_key(proof["dataset"], proof["data"]["domain_hash"], proof) != counter["key"]:
        return "its key is of another domain, of other dates, or of other variances"
    if not 1 <= counter["since"] <= counter["night"] <= counter["nights"]:
        return f"night {counter['night']} is none of its {counter['nights']}"
    shape, t = time_of(counter)
    error = shape.error(t)
    if counter["cost"] != shape.cost or not same_number(error, counter["error"]):
        return f"cost {shape.cost} and error {error:.6g} are not what it says"
    answers = answers_of(proof.get("joint"))
    for listed in (m for m in proof["mechanisms"] if m["table"] not in answers):
        m, (time, t) = mechanism_from(listed), time_of(counter, listed["table"])
        # one epoch has fewer draws than all of them
        draws = m.running is not None and (is_older(counter) or m.running.draws == time.draws)
        if m.running is None or m.running.cost != time.cost or not draws:
            return f"table {m.table}: another counter's cost"
        if not (same_number(time.error(t), m.running.error) and same_number(m.standard_deviation, listed["scale"])):
            return f"table {m.table}: another night's noise"
    return None


def same_number(ours: Any, stated: Any) -> bool:
    """Whether two values of a certificate agree: floats up to a relative 1e-9, all else exactly.

    Conversions are minimised numerically, so another machine may differ in the last digits.
    """
    if isinstance(ours, float) and isinstance(stated, int | float):
        return abs(ours - stated) <= 1e-9 * max(1.0, abs(ours))
    return ours == stated
