"""The page of a study: an answer, its claims, its figure and its numbers; one shape for papers and simulations."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline.declaration.numbers import number
from pipeline.studies.study import Judged
from reports.page import Figure, Part, Section, table, templates
from reports.svg import standalone

BANNER = "simulation, not private: every row comes from seeded noise in a world made for the purpose."
INVENTED = "simulation, not private: the noise is seeded and the people are invented."


@dataclass(frozen=True)
class Page:
    """A page as words and tables.

    Parameters
    ----------
    kind, name, title
        What sort of study it is, its name, and the heading.
    answer
        What came out, in one sentence or two.
    parts
        Sections for one kind of reader each.
    foot
        Where the setting comes from.
    banner
        Says that nothing here is private.
    """

    kind: str
    name: str
    title: str
    answer: str
    parts: Sequence[Part]
    foot: str
    banner: str = BANNER

    @property
    def html(self) -> str:
        """One file that loads nothing."""
        return templates().get_template("study.html.j2").render(opening=self, parts=self.parts)

    @property
    def markdown(self) -> str:
        """The same words and tables as Markdown."""
        return templates().get_template("study.md.j2").render(opening=self, parts=self.parts)


@dataclass(frozen=True)
class PaperStudy:
    """What the rows say of one figure or table of a paper.

    Parameters
    ----------
    name, title
        The NAME that ``reproduce`` knows, and what it is.
    printed
        What the paper's figure or table shows, in words: whose picture it is stays theirs.
    claims
        ``claim``, ``holds``, ``regime``, ``rule`` and, by ``variants``, the same verdict on other settings.
    judged
        The setting on which ``holds`` is said.
    figure
        Ours.
    sections
        Tables and words particular to the paper, after claims and figure.
    foot
        Where the setting comes from.
    """

    name: str
    title: str
    printed: str
    claims: Sequence[Judged]
    judged: str
    figure: Figure
    sections: tuple[Section, ...]
    foot: str

    @property
    def page(self) -> Page:
        """Claims and figure first, numbers after."""
        held = [c["claim"] for c in self.claims if c["holds"]]
        answer = f"Of {len(self.claims)} claims checked by a stated rule, {number(len(held))} hold {self.judged}"
        answer += f": {'; '.join(held)}." if held else "."
        figure = Section("figure", "The figure", (self.figure.note,), self.figure)
        words = (
            f"Each verdict is computed from the rows, {self.judged}; where the answer depends, the regime says on what."
        )
        first = Part("What holds", (claims_section(self.claims, "The claims", words), figure, self._elsewhere()))
        return Page(
            "reproduction", self.name, self.title, answer, [first, Part("The numbers", self.sections)], self.foot
        )

    def _elsewhere(self) -> Section:
        rows = [
            (str(c["claim"]), str(v["variant"]), verdict(v["holds"]), str(v["regime"]))
            for c in self.claims
            for v in c.get("variants", ())
        ]
        words = ("The same rules on every variant that was run.",)
        found = table("Claim | Variant | Holds | Regime", rows, grouped=True)
        return Section("variants", "Where else they hold", words, tables=(found,))


def claims_section(claims: Sequence[Judged], title: str, words: str) -> Section:
    """Every claim with its verdict, regime and rule."""
    rows = [(str(c["claim"]), verdict(c["holds"]), str(c["regime"]), str(c["rule"])) for c in claims]
    return Section("claims", title, (words,), tables=(table("Claim | Holds | Regime | Rule", rows),))


def verdict(holds: bool) -> str:
    """Yes or no."""
    return "yes" if holds else "no"


def table_files(rows: Sequence[Mapping[str, object]]) -> tuple[bytes, str]:
    """The rows as Parquet and as CSV.

    Parameters
    ----------
    rows
        Plain values with the same keys; the columns are in the order of the first row's.
    """
    import polars as pl

    frame = pl.DataFrame(list(rows), infer_schema_length=None)
    found = io.BytesIO()
    frame.write_parquet(found, compression="zstd")
    return found.getvalue(), frame.write_csv()


def figure_files(figure: Figure) -> tuple[str, bytes]:
    """The figure as an SVG of its own, dark on white, and as a PNG of twice its size.

    Parameters
    ----------
    figure
        The figure as a page shows it.
    """
    import vl_convert

    svg = standalone(figure.svg)
    return svg, vl_convert.svg_to_png(svg, scale=2)
