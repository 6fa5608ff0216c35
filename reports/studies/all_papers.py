"""The papers that ``reproduce`` knows, and the page over them: theirs beside ours, what holds, and errata."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pipeline.declaration.numbers import number
from pipeline.declaration.toml import CardError
from pipeline.studies import paper_000, paper_001, paper_002, paper_003, paper_004
from pipeline.studies.study import Study
from pipeline.studies.study_rows import Rows
from reports.page import Part, Section, table
from reports.studies.page_000_001 import study_000, study_001
from reports.studies.page_002 import study_002
from reports.studies.page_003 import study_003
from reports.studies.page_004 import study_004
from reports.studies.study_page import Page, PaperStudy, verdict


@dataclass(frozen=True)
class Entry:
    """A NAME that ``reproduce`` knows: its study, and what its rows say."""

    study: Study
    read: Callable[[str, Rows], PaperStudy]


STUDIES: dict[str, Entry] = {
    "003-figure-1a": Entry(paper_003.STUDY, study_003),
    "003-figure-1b": Entry(paper_003.STUDY, study_003),
    "002-table-1": Entry(paper_002.STUDY, study_002),
    "001-figure-2": Entry(paper_001.STUDY, study_001),
    "000-joint": Entry(paper_000.STUDY, study_000),
    "004-regret": Entry(paper_004.STUDY, study_004),
}


def find(name: str) -> dict[str, Entry]:
    """The study of that name, or every one for ``all``.

    Parameters
    ----------
    name
        A key of :data:`STUDIES`, or ``all``.

    Raises
    ------
    CardError
        If there is none of that name; the message lists those there are.
    """
    if name == "all":
        return STUDIES
    if name not in STUDIES:
        raise CardError(f"reproduce: no study {name!r}; there are: {', '.join(STUDIES)}, all")
    return {name: STUDIES[name]}


class Erratum(NamedTuple):
    """A claim of a paper, what is true, by which factor, and the test or command that shows it."""

    paper: str
    claim: str
    truth: str
    factor: str
    shown: str

    def row(self) -> str:
        """The row of docs/errata.md, which prints the same table and says more."""
        return f"| {' | '.join(self)} |"


@cache
def errata() -> tuple[Erratum, ...]:
    """Where the papers' claims and the truth differ, row by row."""
    with Path(__file__).with_name("errata.csv").open(encoding="utf-8", newline="") as file:
        return tuple(Erratum(**row) for row in csv.DictReader(file))


@dataclass(frozen=True)
class Effort:
    """What measuring took: cells in all, those found kept, and seconds for the rest.

    Parameters
    ----------
    cells, kept
        In all, and found from before.
    seconds
        That measuring the rest took.
    """

    cells: int
    kept: int
    seconds: float

    @property
    def words(self) -> str:
        """One sentence."""
        fresh = self.cells - self.kept
        took = f"{number(fresh)} measured now in {self.seconds:.0f} s" if fresh else "none measured now"
        return f"{number(self.cells)} cells, {number(self.kept)} of them kept from before, {took}"


def overview(studies: Sequence[PaperStudy], effort: Effort) -> Page:
    """The verdicts of all, then a part for each figure or table, then the errata."""
    # two drawings of one grid share their claims
    verdicts = {(_paper(s), str(c["claim"])): bool(c["holds"]) for s in studies for c in s.claims}
    corrected = tuple(_errata(paper) for paper in (*dict.fromkeys(map(_paper, studies)), "all"))
    return Page(
        "reproduction",
        "all",
        "Five papers, measured anew",
        f"Of {len(verdicts)} claims checked by a stated rule, {sum(verdicts.values())} hold. {effort.words}.",
        [Part("All claims", (_verdicts(studies),)), *map(_part, studies), Part("Errata", corrected)],
        "Each study has a page of its own beside this one, with every number and setting; docs/errata.md says "
        "more of the errata.",
    )


def _paper(study: PaperStudy) -> str:
    """Number of its paper."""
    return study.name.split("-")[0]


def _verdicts(studies: Sequence[PaperStudy]) -> Section:
    rows = [
        (s.name, f"{sum(bool(c['holds']) for c in s.claims)} of {len(s.claims)}", _said(s, True), _said(s, False))
        for s in studies
    ]
    words = ("Each verdict is computed from the rows; where, or how far, a claim holds stands in its paper's part.",)
    found = table("Study | Hold | What holds | What does not", rows)
    return Section("all-claims", "What holds, and what does not", words, tables=(found,))


def _said(study: PaperStudy, holds: bool) -> str:
    return "; ".join(str(c["claim"]) for c in study.claims if bool(c["holds"]) == holds)


def _part(study: PaperStudy) -> Part:
    more = f"More in {study.name}/page.html; corrections to the paper itself: Errata, paper {_paper(study)}, below."
    rows = [(str(c["claim"]), verdict(c["holds"]), str(c["regime"])) for c in study.claims]
    ours = Section(f"{study.name}-ours", f"{study.name}: ours", (study.figure.note,), study.figure)
    theirs = Section(
        f"{study.name}-paper",
        f"{study.name}: the paper's, claim by claim",
        (study.printed, f"Judged {study.judged}. {more}"),
        tables=(table("The paper says | Holds here | Measured", rows),),
    )
    return Part(study.title, (theirs, ours))


def _errata(paper: str) -> Section:
    rows = [tuple(map(plain, e[1:])) for e in errata() if e.paper == paper]
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


def claims_of(studies: Sequence[PaperStudy]) -> list[dict[str, object]]:
    """All claims, each with the name of its study."""
    return [{"name": s.name, **claim} for s in studies for claim in s.claims]
