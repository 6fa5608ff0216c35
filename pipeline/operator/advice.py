"""Warnings of an inspection, by thresholds that all stand here; their words are in ``warnings.toml``.

And a proposed card: its keys with a reason beside each, and what was seen, which no file holds.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.declaration.card import Card
from pipeline.declaration.toml import CardError
from pipeline.files import whole_file, write_file
from pipeline.operator.facts import TableFacts, VectorFacts, Warned
from pipeline.privacy.budget import largest_delta

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
# share of shortened rows of a log of vectors that is worth a word
_MANY = 0.2


def advice(facts: TableFacts, card: Card) -> list[Warned]:
    """Warnings that matter, gravest first.

    Parameters
    ----------
    facts
        Of :func:`~pipeline.operator.inspection.inspect_tables`.
    card
        Its delta is looked at.

    Returns
    -------
    ``code`` (stable), ``what``, ``means``, ``do``.
    """
    seen, people, (whole, quarter) = facts["coverage"], facts["people"], facts["noise"]
    found: dict[str, Mapping[str, object]] = {}
    tests = facts["hidden_state"]["tests"]
    if loud := [t for t in tests if t["speaks"]]:
        found["hidden_state"] = {
            **max(loud, key=lambda t: t["difference"]),
            "states": _listed(sorted({t["state"] for t in loud})),
            "columns": _listed(sorted({t["column"] for t in loud})),
            "loud": len(loud),
            "tests": len(tests),
            "significance": facts["hidden_state"]["significance"],
        }
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
    if (reward := facts["reward"]) is not None and reward["lowest"] == reward["highest"]:
        found["constant_reward"] = reward
    return _said(found)


def vector_advice(facts: VectorFacts) -> list[Warned]:
    """Warnings that matter of a log of vectors, gravest first: see :func:`advice`.

    Parameters
    ----------
    facts
        Of :func:`~pipeline.operator.vector_inspection.inspect_vectors`.
    """
    found: dict[str, Mapping[str, object]] = {}
    if still := [c["name"] for c in facts["vectors"]["action"]["coordinates"] if c["deviation"] == 0.0]:
        found["control_never_varies"] = {"still": ", ".join(still)}
    if facts["shares"]["shortened"] > _MANY:
        found["many_rows_shortened"] = facts["shares"]
    if abs(facts["people"]["counted_over_declared"] - 1) > FAR:
        found["people_declared_and_counted"] = facts["people"]
    return _said(found)


def _said(found: Mapping[str, Mapping[str, object]]) -> list[Warned]:
    """Warnings in words, by code, with the values that stand in them."""
    words = tomllib.loads(Path(__file__).with_name("warnings.toml").read_text(encoding="utf-8")) if found else {}
    return [
        Warned(code=code, **{part: text.format_map(values) for part, text in words[code].items()})
        for code, values in found.items()
    ]


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return "; ".join(names[:most]) + more


_HEAD = "# Proposed from the log by `reticent draft`: change what an expert would set, and say so in [provenance]."


@dataclass(frozen=True)
class Said:
    """One key of the proposal.

    Parameters
    ----------
    key
        As the card has it, with its table.
    value
        As TOML.
    why
        What stands beside it in the card: no counts.
    seen
        What the operator is told: counts too.
    """

    key: str
    value: str
    why: str
    seen: str = ""


@dataclass(frozen=True)
class Draft:
    """A proposed card.

    Parameters
    ----------
    said
        Its keys, in order.
    notes
        What the operator should look at before anything else.
    """

    said: Sequence[Said] = field(repr=False)
    notes: Sequence[str] = ()

    @property
    def toml(self) -> str:
        """The card's text."""
        lines = [_HEAD, "schema_version = 2"]
        table = ""
        for one in self.said:
            head, _, key = one.key.rpartition(".")
            if head != table:
                lines += ["", f"[{head}]"]
                table = head
            lines.append(f"{key} = {one.value}" + (f"  # {one.why}" if one.why else ""))
        return "\n".join(lines) + "\n"

    @property
    def seen(self) -> list[tuple[str, str]]:
        """What was seen in the log, by key: raw facts, for the operator's eyes only."""
        return [(one.key, one.seen) for one in self.said if one.seen]

    def save(self, path: str | Path) -> Path:
        """Write the card.

        Parameters
        ----------
        path
            Of a file that is not there yet.

        Raises
        ------
        CardError
            If it is.
        """
        try:
            with whole_file(Path(path), over=False, alone=False) as fresh:
                write_file(fresh, self.toml)
        except FileExistsError:
            raise CardError(f"{path} exists; name another file, or take it away") from None
        return Path(path)

    def __repr__(self) -> str:
        """The card, and what was seen."""
        return "\n".join([self.toml, *(f"{key}: {seen}" for key, seen in self.seen), *self.notes])
