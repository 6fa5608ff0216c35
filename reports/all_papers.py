"""The page of ``reproduce all``: what each paper's figure or table shows beside ours, which claims hold, and errata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.errata import ERRATA
from reports.format import number
from reports.page import Part, Section, table, templates
from reports.reproduction import BANNER, Study, verdict

# what the printed figure or table shows, in words: whose picture it is stays theirs
PRINTED: Mapping[str, str] = {
    "003-figure-1a": "Figure 1(a) of paper 003 shows the loss of DP-VAPVI at several ρ, VAPVI and PEVI against K up "
    "to 1 000 on its synthetic linear world: private curves a little above VAPVI's, PEVI above all of them.",
    "003-figure-1b": "Figure 1(b) of paper 003 shows DP-VAPVI's loss against K for several ρ: the larger ρ, the lower "
    "the curve, all falling towards VAPVI's.",
    "002-table-1": "Table I of paper 002 lists regret bounds: √K for all, plus a term of privacy that does not grow "
    "with K under joint (1/ε) and shuffle (1/ε) privacy, and √K/ε under local.",
    "001-figure-2": "Figure 2 of paper 001 shows the regret of LDP-UCRL-VTR in two RiverSwim worlds over 10⁴ episodes: "
    "sublinear curves, lower as ε grows, above UCRL-VTR's.",
    "000-joint": "Paper 000 prints theorems and no experiment: sublinear regret of Private-LinOpt-VI and -PO under "
    "joint privacy, falling in ε, free of the number of states.",
    "004-regret": "Paper 004 prints a theorem and no experiment: sublinear regret of Private-OFU-RL under joint "
    "privacy.",
}


@dataclass(frozen=True)
class Effort:
    """What measuring took: cells in all, those found kept, and seconds for the rest."""

    cells: int
    kept: int
    seconds: float

    @property
    def words(self) -> str:
        """One sentence."""
        fresh = self.cells - self.kept
        took = f"{number(fresh)} measured now in {self.seconds:.0f} s" if fresh else "none measured now"
        return f"{number(self.cells)} cells, {number(self.kept)} of them kept from before, {took}"


def overview_html(studies: Sequence[Study], effort: Effort) -> str:
    """The page as one file that loads nothing."""
    return templates().get_template("study.html.j2").render(opening=_opening(studies, effort), parts=parts(studies))


def overview_markdown(studies: Sequence[Study], effort: Effort) -> str:
    """The same words and tables as Markdown."""
    return templates().get_template("study.md.j2").render(opening=_opening(studies, effort), parts=parts(studies))


def parts(studies: Sequence[Study]) -> list[Part]:
    """The verdicts of all, then a part for each figure or table, then the errata."""
    papers = dict.fromkeys(paper_of(s) for s in studies)
    errata = tuple(_errata(paper) for paper in (*papers, "all"))
    return [Part("All claims", (_verdicts(studies),)), *(_part(s) for s in studies), Part("Errata", errata)]


def paper_of(study: Study) -> str:
    """Number of its paper."""
    return study.name.split("-")[0]


def _opening(studies: Sequence[Study], effort: Effort) -> dict[str, str]:
    # two drawings of one grid share their claims
    verdicts = {(paper_of(s), str(c["claim"])): bool(c["holds"]) for s in studies for c in s.claims}
    return {
        "kind": "reproduction",
        "name": "all",
        "title": "Five papers, measured anew",
        "banner": BANNER,
        "answer": f"Of {len(verdicts)} claims checked by a stated rule, {sum(verdicts.values())} hold. {effort.words}.",
        "foot": "Each study has a page of its own beside this one, with every number and setting; docs/errata.md says "
        "more of the errata.",
    }


def _verdicts(studies: Sequence[Study]) -> Section:
    rows = [(s.name, f"{sum(_holding(s))} of {len(s.claims)}", _said(s, True), _said(s, False)) for s in studies]
    words = ("Each verdict is computed from the rows; where, or how far, a claim holds stands in its paper's part.",)
    found = table("Study | Hold | What holds | What does not", rows)
    return Section("all-claims", "What holds, and what does not", words, tables=(found,))


def _holding(study: Study) -> list[bool]:
    return [bool(c["holds"]) for c in study.claims]


def _said(study: Study, holds: bool) -> str:
    return "; ".join(str(c["claim"]) for c, kept in zip(study.claims, _holding(study), strict=True) if kept == holds)


def _part(study: Study) -> Part:
    printed = PRINTED.get(study.name, f"{study.title}.")
    more = f"More in {study.name}/page.html; corrections to the paper itself: Errata, paper {paper_of(study)}, below."
    rows = [(str(c["claim"]), verdict(c["holds"]), str(c["regime"])) for c in study.claims]
    ours = Section(f"{study.name}-ours", f"{study.name}: ours", (study.figure.note,), study.figure)
    theirs = Section(
        f"{study.name}-paper",
        f"{study.name}: the paper's, claim by claim",
        (printed, f"Judged {study.judged}. {more}"),
        tables=(table("The paper says | Holds here | Measured", rows),),
    )
    return Part(study.title, (theirs, ours))


def _errata(paper: str) -> Section:
    rows = [(plain(e.claim), plain(e.truth), plain(e.factor), plain(e.shown)) for e in ERRATA if e.paper == paper]
    title = "All papers" if paper == "all" else f"Paper {paper}"
    return Section(f"errata-{paper}", title, tables=(table("Claim | Truth | Factor | Shown by", rows),))


def plain(text: str) -> str:
    """Without the marks of Markdown."""
    for mark in ("`", "*"):
        text = text.replace(mark, "")
    while "](" in text:
        before, _, rest = text.partition("](")
        head, _, name = before.rpartition("[")
        text = f"{head}{name}{rest.partition(')')[2]}"
    return text


def claims_of(studies: Sequence[Study]) -> list[dict[str, Any]]:
    """All claims, each with the name of its study."""
    return [{"name": s.name, **claim} for s in studies for claim in s.claims]
