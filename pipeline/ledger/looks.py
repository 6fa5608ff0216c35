"""How often people of a lineage have evaluated a policy: every look at them counts, whatever it was about.

Whoever asks again and again is told "better" by chance sooner or later.  So the level of an interval depends on how
many evaluations of the lineage the ledger knows, over all recipes and splits: see
:func:`~pipeline.evaluation.intervals.level_of`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.ledger.chain import Body, Entry
from pipeline.statistics.held_out import VARIANT


def is_look(charged: Body) -> bool:
    """Whether what is charged evaluates a policy on people who were held out.

    Parameters
    ----------
    charged
        Of an INTENT.
    """
    return (charged.get("joint") or {}).get("variant") == VARIANT


def look_told(entries: Sequence[Entry], lineage: str, run_key: str, charged: Body) -> dict[str, int]:
    """Which evaluation an INTENT pays for, as it says it; nothing where it pays for none.

    Parameters
    ----------
    entries, lineage
        Of the ledger up to that INTENT, and the name of the dataset.
    run_key, charged
        Of the release, and what else the INTENT says.
    """
    if not is_look(charged):
        return {}
    there = [e for e in entries if e.lineage == lineage and e.kind == "INTENT" and "look" in e.body]
    again = [e.body["look"] for e in there if e.body["run_key"] == run_key]
    return {"look": again[0] if again else 1 + max((e.body["look"] for e in there), default=0)}


def look_problem(entries: Sequence[Entry], intent: Entry, said: int | None) -> str | None:
    """What is wrong with the number of an evaluation, in words, or None.

    Parameters
    ----------
    entries, intent
        Of the ledger, and what paid for the release.
    said
        By the release.
    """
    before = [e for e in entries if e.seq < intent.seq]
    found = look_told(before, intent.lineage, intent.body["run_key"], intent.body).get("look")
    if found == intent.body.get("look") == said:
        return None
    told = intent.body.get("look")
    return f"entry {intent.seq} is evaluation {found} of {intent.lineage}; it says {told}, the release {said}"
