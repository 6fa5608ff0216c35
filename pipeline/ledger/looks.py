"""How often people have evaluated a policy, and whether they had been read before: every look at them counts.

Whoever asks again and again is told "better" by chance sooner or later.  So the level of an interval depends on how
many evaluations the ledger knows of people who may be the same, over all lineages, recipes and splits: see
:func:`~pipeline.evaluation.intervals.level_of`.

That level holds if a policy does not depend on earlier answers of those who judge it.  The same recipe again carries
none of them, whatever its edition, date, budget and share; another recipe may carry all.  So the ledger says of each
evaluation whether an earlier release, by another recipe, read the people who judge: from declarations alone, which
share taught and which judged, never from rows.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pipeline.declaration.toml import CardError
from pipeline.ledger.account import registration, reserve_of, sharing, split_of
from pipeline.ledger.attempts import may_have_drawn
from pipeline.ledger.chain import Body, Entry
from pipeline.privacy.release import HELD_OUT, SET_ASIDE

# in an INTENT: after which edition those came in who judge, and how many
SINCE = "since"
# in an INTENT: digest of the recipe that asks; and the kind of entry that names one before any answer
RECIPE, REGISTERED = "recipe", "RECIPE"


def is_look(charged: Body) -> bool:
    """Whether what is charged evaluates a policy on people who were held out."""
    return (charged.get("joint") or {}).get("variant") == HELD_OUT


def recorded_in_time(entries: Sequence[Entry], lineage: str) -> bool:
    """Whether ``practice = "recorded"`` was registered of a lineage before the ledger's first answer.

    An answer is a release in which people evaluate, of whichever lineage, as soon as it may have been drawn: once one
    is known, whoever declares may do so because of it.
    """
    looks = (e.seq for e in entries if e.kind == "INTENT" and is_look(e.body) and may_have_drawn(entries, e))
    first = next(looks, len(entries) + 1)
    registered = registration([e for e in entries if e.seq < first], lineage) or {}
    return registered.get("practice") == "recorded"


def look_told(entries: Sequence[Entry], lineage: str, run_key: str, charged: Body) -> dict[str, int]:
    """Which evaluation an INTENT pays for, as it says it; nothing where it pays for none."""
    return _numbered(entries, lineage, run_key, sharing(entries, lineage)) if is_look(charged) else {}


def _numbered(entries: Sequence[Entry], lineage: str, run_key: str, among: Iterable[str]) -> dict[str, int]:
    there = [e for e in entries if e.lineage in among and e.kind == "INTENT" and "look" in e.body]
    if again := [e for e in there if (e.lineage, e.body["run_key"]) == (lineage, run_key)]:
        return {"look": again[0].body["look"]}
    # lineages that share nobody with each other may each have a first one
    looks = {(e.lineage, e.body["run_key"]) for e in there}
    return {"look": 1 + max((len(looks), *(e.body["look"] for e in there)))}


def look_problem(entries: Sequence[Entry], intent: Entry, said: int | None) -> str | None:
    """What is wrong with the number of an evaluation, in words, or None."""
    before, key = [e for e in entries if e.seq < intent.seq], intent.body["run_key"]
    found = look_told(before, intent.lineage, key, intent.body).get("look")
    told = intent.body.get("look")
    if found != told and is_look(intent.body) and RECIPE not in intent.body:
        # versions that named no recipe counted the looks of one lineage
        found = _numbered(before, intent.lineage, key, [intent.lineage])["look"]
    if found == told == said:
        return None
    return f"entry {intent.seq} is evaluation {found} of {intent.lineage}; it says {told}, the release {said}"


@dataclass(frozen=True)
class Reading:
    """Whose rows a release reads, by declaration: people by the hash of their id, as parts of all."""

    split: str
    taught: Fraction
    judged: Fraction

    def holds(self, judges: Reading) -> bool:
        """Whether it may hold the rows of somebody who judges another one."""
        if self.split != judges.split:
            # two splits know nothing of each other
            return self.taught < 1 or self.judged > 0
        return self.taught < judges.judged or min(self.judged, judges.judged) > 0


def reading_of(entries: Sequence[Entry], intent: Entry) -> Reading:
    """Whose rows an INTENT paid for."""
    said = intent.body
    looks = is_look(said)
    share = Fraction(said["joint"]["share"] if looks else said.get("counter", {}).get("share", 0))
    taught = max(share, reserve_of(entries, intent.lineage))
    return Reading(split_of(entries, intent.lineage), taught, share if looks else Fraction(0))


def judged_before(entries: Sequence[Entry], intent: Entry | None) -> str | None:
    """Why who judges is not fresh, as a sentence; None where they are, or nobody judges.

    ``entries``, ``intent``: of the ledger, in order, and what paid for the evaluation; None where nothing was charged.
    """
    if intent is None or not is_look(intent.body):
        return None
    before, among = [e for e in entries if e.seq < intent.seq], sharing(entries, intent.lineage)
    judges, asks = reading_of(before, intent), intent.body.get(RECIPE)
    for e in before:
        if e.lineage not in among or e.kind != "INTENT" or _is_gate(e) or not may_have_drawn(before, e):
            continue
        again = (e.lineage, e.body["run_key"]) == (intent.lineage, intent.body["run_key"])
        if again or _came_later(intent, e) or (asks is not None and e.body.get(RECIPE) == asks):
            continue
        if not reading_of(before, e).holds(judges):
            continue
        if asks is not None and asks in _known(before, among, e.seq):
            # what was chosen before any other recipe was answered follows none of its answers
            return None
        other = "by another recipe" if RECIPE in e.body else "by a recipe that the ledger does not name"
        return (
            f"an earlier release (ledger entry {e.seq} of {e.lineage}) read people who judge here, {other}: what it "
            "told may have shaped this policy"
        )
    return None


def check_since(entries: Sequence[Entry], lineage: str, run_key: str, edition: int, since: int) -> None:
    """Refuse judges who are said to be fresh, and may have been read.

    ``entries``, ``lineage``, ``run_key``: of the ledger, in order, the name of the dataset, and the hex key of the
    release.
    Raises CardError if a release has read a later edition, a counter read editions that the ledger does not name, or
    none is left.
    """
    asked = f"{lineage}: [evaluate] since = {since}"
    if since >= edition:
        raise CardError(f"{asked}: edition {edition} is released, so nobody came in after; name an earlier one")
    drawn = [e for e in entries if e.lineage == lineage and e.kind == "INTENT" and not _is_gate(e)]
    # an earlier attempt at this very release asked the same people
    drawn = [e for e in drawn if e.body["run_key"] != run_key and may_have_drawn(entries, e)]
    if (counter := next((e for e in drawn if "counter" in e.body), None)) is not None:
        raise CardError(
            f"{asked}: entry {counter.seq} is of a counter, whose editions the ledger does not name; take 'since' out"
        )
    latest = max((int(e.body["snapshot"]) for e in drawn if "snapshot" in e.body), default=0)
    if since < latest:
        raise CardError(
            f"{asked}: a release has read edition {latest}, and who came in by then may have been read; name edition "
            f"{latest} or a later one"
        )


def _came_later(intent: Entry, e: Entry) -> bool:
    """Whether an entry read editions alone in which nobody was who judges now."""
    if SINCE not in intent.body or e.lineage != intent.lineage or "snapshot" not in e.body:
        return False
    return e.body["snapshot"] <= intent.body[SINCE]["edition"]


def _known(entries: Sequence[Entry], among: Iterable[str], until: int) -> set[str]:
    """Recipes that were registered, or had asked, before an entry."""
    named = [e for e in entries if e.kind in (REGISTERED, "INTENT") and e.lineage in among and e.seq < until]
    return {e.body[RECIPE] for e in named if RECIPE in e.body}


def _is_gate(intent: Entry) -> bool:
    """Whether it counts only how many people broke a rule: that lets a run pass, and shapes no policy."""
    return [m["table"] for m in intent.body.get("mechanisms", ())] == [SET_ASIDE]
