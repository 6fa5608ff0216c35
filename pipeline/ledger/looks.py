"""Evaluations on held-out people: their number, and whether an earlier release read these people.

Repeated evaluations give "better" by chance sooner or later.  So the level of an interval depends on how many
evaluations the ledger knows of people who may be the same, over all lineages, recipes and splits: see
:func:`~pipeline.evaluation.intervals.level_of`.

That level holds if a policy does not depend on earlier releases that read its held-out people.  The same recipe again
carries none of them, whatever its edition, date, budget and share; another recipe may carry all.  So the ledger says of
each evaluation whether an earlier release, by another recipe, read the held-out people: from declarations alone, which
share taught and which evaluated, never from rows.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pipeline.declaration.toml import CardError
from pipeline.ledger.account import registration, reserve_of, sharing, split_of
from pipeline.ledger.attempts import may_have_drawn
from pipeline.ledger.chain import Body, Entry
from pipeline.privacy.release import HELD_OUT, SET_ASIDE

# in an INTENT: the edition after which the held-out people came in, and their number
SINCE = "since"
# in an INTENT: digest of its recipe; and the kind of entry that names a recipe before any release
RECIPE, REGISTERED = "recipe", "RECIPE"


def is_look(charged: Body) -> bool:
    """Whether a charge pays for the evaluation of a policy on held-out people."""
    return (charged.get("joint") or {}).get("variant") == HELD_OUT


def recorded_in_time(entries: Sequence[Entry], lineage: str) -> bool:
    """Whether ``practice = "recorded"`` was registered of a lineage before the ledger's first evaluation.

    An evaluation of any lineage counts as soon as it may have been drawn: a later declaration may follow from it.
    """
    looks = (e.seq for e in entries if e.kind == "INTENT" and is_look(e.body) and may_have_drawn(entries, e))
    first = next(looks, len(entries) + 1)
    return registration([e for e in entries if e.seq < first], lineage).get("practice") == "recorded"


def look_number(entries: Sequence[Entry], lineage: str, run_key: str, charged: Body) -> dict[str, int]:
    """Number of the evaluation that an INTENT pays for, as a field of its body; empty where it pays for none."""
    return _numbered(entries, lineage, run_key, sharing(entries, lineage)) if is_look(charged) else {}


def _numbered(entries: Sequence[Entry], lineage: str, run_key: str, among: Iterable[str]) -> dict[str, int]:
    looks_before = [e for e in entries if e.lineage in among and e.kind == "INTENT" and "look" in e.body]
    if same_release := [e for e in looks_before if (e.lineage, e.body["run_key"]) == (lineage, run_key)]:
        return {"look": same_release[0].body["look"]}
    # lineages without common people may each have a first evaluation
    releases = {(e.lineage, e.body["run_key"]) for e in looks_before}
    return {"look": 1 + max((len(releases), *(e.body["look"] for e in looks_before)))}


def look_problem(entries: Sequence[Entry], intent: Entry, released: int | None) -> str | None:
    """Difference between the number of an evaluation in ledger and release, in words, or None."""
    before, key = [e for e in entries if e.seq < intent.seq], intent.body["run_key"]
    expected = look_number(before, intent.lineage, key, intent.body).get("look")
    charged = intent.body.get("look")
    if expected != charged and is_look(intent.body) and RECIPE not in intent.body:
        # versions that named no recipe counted the looks of one lineage
        expected = _numbered(before, intent.lineage, key, [intent.lineage])["look"]
    if expected == charged == released:
        return None
    return f"entry {intent.seq} is evaluation {expected} of {intent.lineage}; it says {charged}, the release {released}"


@dataclass(frozen=True)
class Reading:
    """People whose rows a release reads, by declaration: shares of all, by the hash of their id.

    Those at or above ``taught`` teach, those below ``judged`` evaluate.
    """

    split: str
    taught: Fraction
    judged: Fraction

    def holds(self, judges: "Reading") -> bool:
        """Whether it may hold rows of the held-out people of another release."""
        if self.split != judges.split:
            # two splits are independent
            return self.taught < 1 or self.judged > 0
        return self.taught < judges.judged or min(self.judged, judges.judged) > 0


def reading_of(entries: Sequence[Entry], intent: Entry) -> Reading:
    """People whose rows an INTENT paid for."""
    evaluates = is_look(intent.body)
    share = Fraction(intent.body["joint"]["share"] if evaluates else intent.body.get("counter", {}).get("share", 0))
    taught = max(share, reserve_of(entries, intent.lineage))
    return Reading(split_of(entries, intent.lineage), taught, share if evaluates else Fraction(0))


def judged_before(entries: Sequence[Entry], intent: Entry | None) -> str | None:
    """Why the held-out people are not fresh, as a sentence; None where they are, or there are none.

    ``intent``: paid for the evaluation; None where nothing was charged.
    """
    if intent is None or not is_look(intent.body):
        return None
    before, among = [e for e in entries if e.seq < intent.seq], sharing(entries, intent.lineage)
    judges, recipe = reading_of(before, intent), intent.body.get(RECIPE)
    for e in before:
        if e.lineage not in among or e.kind != "INTENT" or _is_gate(e) or not may_have_drawn(before, e):
            continue
        same_release = (e.lineage, e.body["run_key"]) == (intent.lineage, intent.body["run_key"])
        if same_release or _came_later(intent, e) or (recipe is not None and e.body.get(RECIPE) == recipe):
            continue
        if not reading_of(before, e).holds(judges):
            continue
        if recipe is not None and recipe in _recipes_before(before, among, e.seq):
            # a recipe that was chosen before that release does not follow from it
            return None
        other = "by another recipe" if RECIPE in e.body else "by a recipe that the ledger does not name"
        return (
            f"an earlier release (ledger entry {e.seq} of {e.lineage}) read people who judge here, {other}: what it "
            "told may have shaped this policy"
        )
    return None


def check_since(entries: Sequence[Entry], lineage: str, run_key: str, edition: int, since: int) -> None:
    """Refuse held-out people who are declared fresh, and may have been read.

    Raises CardError if a release has read a later edition, a counter read editions that the ledger does not name, or
    none is left.
    """
    setting = f"{lineage}: [evaluate] since = {since}"
    if since >= edition:
        raise CardError(f"{setting}: edition {edition} is released, so nobody came in after; name an earlier one")
    drawn = [e for e in entries if e.lineage == lineage and e.kind == "INTENT" and not _is_gate(e)]
    # an earlier attempt at this very release read the same people
    drawn = [e for e in drawn if e.body["run_key"] != run_key and may_have_drawn(entries, e)]
    if (counter := next((e for e in drawn if "counter" in e.body), None)) is not None:
        raise CardError(
            f"{setting}: entry {counter.seq} is of a counter, whose editions the ledger does not name; take 'since' out"
        )
    latest = max((int(e.body["snapshot"]) for e in drawn if "snapshot" in e.body), default=0)
    if since < latest:
        raise CardError(
            f"{setting}: a release has read edition {latest}, and who came in by then may have been read; name edition "
            f"{latest} or a later one"
        )


def _came_later(intent: Entry, e: Entry) -> bool:
    """Whether an entry read only editions before the held-out people came in."""
    if SINCE not in intent.body or e.lineage != intent.lineage or "snapshot" not in e.body:
        return False
    return e.body["snapshot"] <= intent.body[SINCE]["edition"]


def _recipes_before(entries: Sequence[Entry], among: Iterable[str], until: int) -> set[str]:
    """Recipes that were registered, or charged, before an entry."""
    named = [e for e in entries if e.kind in (REGISTERED, "INTENT") and e.lineage in among and e.seq < until]
    return {e.body[RECIPE] for e in named if RECIPE in e.body}


def _is_gate(intent: Entry) -> bool:
    """Whether it only counts people who broke a rule: that lets a run pass, and shapes no policy."""
    return [m["table"] for m in intent.body.get("mechanisms", ())] == [SET_ASIDE]
