"""Warnings of an inspection, by thresholds that all stand here; their words are in ``warnings.toml``."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.declaration.card import Card
from pipeline.privacy.budget import largest_delta

# kind of a test -> code of its warning
_HIDDEN = {
    "state": "hidden_state",
    "beside": "hidden_column",
    "step": "hidden_step",
    "past": "hidden_past",
    "later": "hidden_course",
}

Facts = dict[str, Any]
"""Facts of an inspection as ``inspect --json`` prints them (docs/operate.md lists the keys); shares are 0 to 1."""

TOO_FEW = "no state was seen with two values of a column often enough"
"""Why a log that is there was not tested."""
_MEND = {True: "judge by what is known of who decided; fewer states or more people can be tested", False: (
    "put the log where the card names it and inspect again (a data frame: `store.inspect(card, frame)`); else judge by "
    "what is known of who decided"
)}  # fmt: skip

# a cell visited less often than this says next to nothing, noise or not
FEW = 20
# a cell whose visits are below this many standard deviations of the noise cannot be told from an empty one
DROWNED = 2.0
# share of the usable cells that may drown in the noise at a quarter of the cap before a word is due
THIN = 0.1
# a state whose most frequent action has more of its visits than this has no second action to learn about
NEARLY_ALL = 0.95
# people counted may differ from people declared by this share
FAR = 0.1
# share of rows whose reward ingest changed that is worth a word
_CHANGED = 0.002
# share of shortened rows of a log of vectors that is worth a word
_MANY = 0.2


def advice(facts: Facts, card: Card) -> list[Facts]:
    """Warnings that matter, gravest first.

    Returns ``code`` (stable), ``what``, ``means``, ``do``.
    """
    seen, people, (whole, quarter) = facts["coverage"], facts["people"], facts["noise"]
    found: dict[str, Mapping[str, object]] = {}
    tests = facts["hidden_state"]["tests"]
    for kind, code in _HIDDEN.items():
        if loud := [t for t in tests if t["speaks"] and t["kind"] == kind]:
            widest = {t["column"]: 0.0 for t in loud}
            for t in loud:
                widest[t["column"]] = max(widest[t["column"]], t["difference"])
            found[code] = {
                **max(loud, key=lambda t: t["difference"]),
                "states": _listed(sorted({t["state"] for t in loud})),
                # the gravest first
                "columns": _listed(sorted(widest, key=lambda column: -widest[column])),
                "loud": len(loud),
                "tests": sum(t["kind"] == kind for t in tests),
                "significance": facts["hidden_state"]["significance"],
                "example": json.dumps([*card.domain.states.read, max(widest, key=lambda column: widest[column])]),
            }
    if not facts["hidden_state"]["checked"]:
        why_not = facts["hidden_state"]["why_not"]
        found["hidden_state_unchecked"] = {"why_not": why_not, "mend": _MEND[why_not == TOO_FEW]}
    rows = seen["table"]
    sure = [r for r in rows if r["visits"] >= FEW and r["actions_allowed"] > 1 and (r["top_share"] or 0.0) > NEARLY_ALL]
    if sure:
        named = _listed([r["state"] + ("" if r["step"] is None else f" at step {r['step']}") for r in sure])
        told = {"sure": len(sure), "rows": len(rows), "nearly_all": NEARLY_ALL, "named": named}
        found["nearly_deterministic"] = told
    if quarter["share_of_cells"] > THIN:
        beside = {"whole_rho": whole["rho"], "whole_drowned": whole["cells_drowned"], "drowned": DROWNED}
        found["thin_support"] = {**seen, **quarter, **beside}
    if abs((share := people["counted_over_declared"]) - 1) > FAR:
        several = ". Too many people for the declaration usually means one person has several ids" if share > 1 else ""
        found["people_declared"] = {**people, "several_ids": several}
    fewest = min(people["declared"], max(1, people["counted"]))
    if card.budget.delta > (most := largest_delta(fewest)):
        found["delta"] = {"delta": card.budget.delta, "fewest": fewest, "most": most}
    dropped, above = people["episodes_dropped_by_cap"], people["above_cap"]
    if dropped or people["with_several_episodes"]:
        gone = (
            "the quarantine was purged, so what the cap dropped is unknown"
            if dropped is None
            else f"the cap of {people['cap_of_episodes']} dropped {dropped:,} episodes of {above:,} people"
        )
        found["several_episodes"] = {**people, "gone": gone}
    visited = [b["state"] for b in facts["behaviour"] if b["visits"]]
    if len(visited) == 1 and len(facts["behaviour"]) > 1:
        found["constant_state"] = {"state": visited[0]}
    if (reward := facts["reward"]) is not None:
        if reward["lowest"] == reward["highest"]:
            found["constant_reward"] = reward
        if reward["clipped_share"] > _CHANGED or reward["floored_share"] > _CHANGED:
            found["changed_rewards"] = {**reward, "range": list(card.reward.range), "steps": card.reward.steps}
    return _said(found)


def vector_advice(facts: Facts) -> list[Facts]:
    """Warnings that matter of a log of vectors, gravest first: see :func:`advice`."""
    found: dict[str, Mapping[str, object]] = {}
    if still := [c["name"] for c in facts["vectors"]["action"]["coordinates"] if c["deviation"] == 0.0]:
        found["control_never_varies"] = {"still": ", ".join(still)}
    if facts["shares"]["shortened"] > _MANY:
        found["many_rows_shortened"] = facts["shares"]
    if abs(facts["people"]["counted_over_declared"] - 1) > FAR:
        found["people_declared_and_counted"] = facts["people"]
    return _said(found)


def _said(found: Mapping[str, Mapping[str, object]]) -> list[Facts]:
    """Warnings in words, by code, with the values that stand in them."""
    words = tomllib.loads(Path(__file__).with_name("warnings.toml").read_text(encoding="utf-8")) if found else {}
    return [
        {"code": code, **{part: text.format_map(values) for part, text in words[code].items()}}
        for code, values in found.items()
    ]


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more
