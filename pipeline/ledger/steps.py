"""What the ledger says of a continual release: one charge for all its steps, and another for rows drawn again.

The first INTENT of a counter pays for every row it will ever release.  A later step draws rows that nobody has drawn:
it charges nothing.  Where people are held out who evaluate on some dates, each of them once, the counter's charge pays
for them too (:func:`~pipeline.statistics.held_out.parts_cost`).  Tables that come from the same rows of a person are
bounded jointly, as those of one release (:mod:`~pipeline.statistics.joint_loss`).  An attempt that died after its DRAW
may have drawn: whoever draws its rows again, or asks its people again, pays again (privacy.md §10).  In the ledger and
on the page a step is a *night*: the keys of entries are those of its first day.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NotRequired, TypedDict

from pipeline.ledger.account import commit_of
from pipeline.ledger.attempts import may_have_drawn, taken_over
from pipeline.ledger.chain import Body, Entry, canonical, entries_of
from pipeline.ledger.limits import is_look
from pipeline.privacy.epochs import counter_of
from pipeline.privacy.factorisation import Factorisation, Kind, squared_weights
from pipeline.privacy.release import Mechanism, Running, total_rho
from pipeline.statistics.held_out import part_costs, parts_cost
from pipeline.statistics.joint_loss import one_step_loss


class EpochBody(TypedDict):
    """Where sums begin anew with every epoch (:mod:`~pipeline.privacy.epochs`).

    Parameters
    ----------
    nights
        Its steps.
    opening
        Names of the tables that are read on its first step, from all steps so far, and stand while it lasts.
    """

    nights: int
    opening: list[str]


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
    epochs
        Absent where all sums run on.
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
    epochs: NotRequired[EpochBody]
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
    lineage: str,
    domain_hash: str,
    dates: tuple[Kind, int, str],
    mechanisms: Sequence[Body],
    share: str | None = None,
    epochs: tuple[EpochBody, Body] | None = None,
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
    epochs
        When sums begin anew, and the ``joint`` of the INTENT, which says what asks within them; None: all run on.

    Returns
    -------
    64 hex digits.
    """
    # the sampler's share of delta follows the cap of the lineage, the error follows the step
    known = [{k: v for k, v in m.items() if k not in ("delta_slack", "running", "scale")} for m in mechanisms]
    table = ["table"] if any("delta_slack" in m for m in mechanisms) else []
    held_out = [] if share is None else [share]
    parts = [lineage, "counter", domain_hash, [*dates], known, table, *held_out, *(epochs or ())]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()


def key_of_step(lineage: str, domain_hash: str, said: Body) -> str:
    """The key of the counter that an INTENT or a certificate describes.

    Parameters
    ----------
    lineage, domain_hash
        See :func:`counter_key`.
    said
        With its ``counter`` and its ``mechanisms``.
    """
    told: CounterBody = said["counter"]
    dates: tuple[Kind, int, str] = (told["kind"], told["nights"], told["first"])
    answers = answers_of(said.get("joint"))
    counted = [m for m in said["mechanisms"] if m["table"] not in answers]
    epochs = (told["epochs"], said["joint"]) if "epochs" in told else None
    return counter_key(lineage, domain_hash, dates, counted, told.get("share"), epochs)


def answers_of(joint: Body | None) -> set[str]:
    """Tables of a step that are none of its counter's: what people say who evaluate then, if anybody does.

    Parameters
    ----------
    joint
        Of an INTENT or a certificate; None where it has none.
    """
    if joint is None or not is_look({"joint": joint}):
        return set()
    return {name for s in joint["evaluate"]["sums"] for name in s["tables"]}


def time_of(told: CounterBody, table: str = "") -> Factorisation:
    """The factorisation of a table's sums.

    Parameters
    ----------
    told, table
        Of an INTENT, and the table's name; empty: of any that opens no epoch.
    """
    epochs = told.get("epochs") or EpochBody(nights=0, opening=[])
    return counter_of(told["kind"], told["nights"], epochs["nights"] or None, opens=table in epochs["opening"])


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
        Of a step on which people evaluate, whose mechanisms are then listed too; or what bounds the tables jointly.
    """
    counted, looks = [m for m in mechanisms if m.table not in answers_of(joint)], is_look({"joint": joint})
    together = None if looks else joint
    whole = _loss(counted, together)
    more = _evaluation_price(entries, before, whole, mechanisms, joint) if looks and joint else Fraction(0)
    drawn = [e.body["counter"] for e in before if may_have_drawn(entries, e)]
    if not drawn:
        # attempts that died before they drew have paid for the counter, not for whoever evaluates tonight
        return max(Fraction(0), whole + more - taken_over(entries, before))
    maybe_drawn = {t for told in drawn for t in range(told["since"], told["night"] + 1)}
    again = sorted(maybe_drawn & set(range(counter["since"], counter["night"] + 1)))
    due = {m.table: [row for t in again for row in time_of(counter, m.table).rows(t)] for m in counted}
    twice = [replace(m, running=Running(squared_weights(due[m.table]), 1, 1.0)) for m in counted]
    return max(Fraction(0), _loss(twice, together) + more - taken_over(entries, before))


def _loss(counted: Sequence[Mechanism], together: Body | None) -> Fraction:
    """What all rows of a counter cost one person: table by table, or bounded jointly."""
    if (whole := total_rho(tuple(counted))) is None:
        raise ValueError("a counter without noise is never charged")
    return whole if together is None else one_step_loss(counted, {"stages": together["stages"]})


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
    asked = [e.seq for e in before if is_look(e.body) and may_have_drawn(entries, e)]
    done = {e.body["intent"] for e in entries if e.kind == "COMMIT"}
    lost = bool(asked) and asked[-1] not in done
    learn, evaluate = part_costs(mechanisms, {"learn": joint["learn"], "evaluate": joint["evaluate"]})
    beyond = max(Fraction(0), parts_cost(learn, evaluate, nights=True) - whole)
    return beyond + (evaluate[0] if lost else 0)
