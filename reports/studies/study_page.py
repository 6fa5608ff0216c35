"""The page of a study: an answer, its claims, its figure and its numbers; one shape for papers and simulations.

Tables that several studies share stand here too: totals, what the noise is worth, ties, the setting.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.declaration.numbers import number
from pipeline.simulation.trial import Row
from pipeline.studies.study import Judged
from pipeline.studies.study_rows import SUBLINEAR, Found, Rows, end_loss, growth
from reports.figures.charts import standalone
from reports.page import Figure, Part, Section, Table, table, templates

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


# how a row is written under a heading, and headings of words; what stands under the others is set flush right
_WORDS = ("World", "Agent", "Variant", "Scales", "Constants", "Tied")
_CELLS: Mapping[str, Callable[[Found], str]] = {
    "World": lambda r: str(r["world"]),
    "Agent": lambda r: str(r["agent"]),
    "Variant": lambda r: str(r["variant"]),
    "Scales": lambda r: str(r["calibration"] or "–"),
    "Constants": lambda r: str(r["constants"]),
    "Episodes": lambda r: f"{r['episodes']:,}",
    "ε": lambda r: number(r["epsilon"]),
    "δ": lambda r: "–" if r["delta"] is None else f"{r['delta']:g}",
    "True ρ": lambda r: number(r["true_rho"], 3, "up"),
    "True ε": lambda r: number(r["true_epsilon"], 4, "up"),
    "Mean": lambda r: number(r["mean"]),
    "Std": lambda r: number(r["std"], 3),
    "Least": lambda r: number(min(r["totals"]), 3),
    "Most": lambda r: number(max(r["totals"]), 3),
    "At the end": lambda r: number(end_loss(r), 2),
    "Growth": lambda r: number(min(growth(r), 99.0), 2),
    "Tied": lambda r: number(100 * (r["tie_share"] or 0.0), 2) + " %",
}


def cells(head: str, rows: Rows) -> list[tuple[str, ...]]:
    """What each row says under the headings of a table.

    Parameters
    ----------
    head
        Such as ``"World | Agent"``.
    rows
        Of the study.
    """
    return [tuple(_CELLS[name.removeprefix("Asked ")](row) for name in head.split(" | ")) for row in rows]


def _listed(head: str, rows: Rows, keys: int | None = None) -> Table:
    """A row each; or one for all that agree in the first ``keys`` columns."""
    told = cells(head, rows)
    if keys is not None:
        told = list({row[:keys]: row for row in told}.values())
    return table(head, told, "", " | ".join(n for n in head.split(" | ") if n not in _WORDS), grouped=True)


def totals(rows: Rows) -> Section:
    """Every row: regret with its spread, what an episode costs at the end, and how regret grew."""
    words = (
        "Regret summed over all episodes, exactly, by planning in the known world. At the end: regret of one episode "
        f"between the last two marks. Growth: regret after K over that after K / 10; 10 is linear, at most "
        f"{number(SUBLINEAR, 2)} is called sublinear.",
    )
    head = "World | Episodes | Agent | Variant | Scales | ε | δ | Mean | Std | Least | Most | At the end | Growth"
    return Section("totals", "Total regret", words, tables=(_listed(head, rows),))


def agents(rows: Rows, words: tuple[str, ...]) -> tuple[Section, ...]:
    """What its noise is worth, what a user sends, how ties fell, and constants; ``words`` on the setting."""
    return _privacy(rows), communication(rows), _ties(rows), _setting(rows, words)


def _privacy(rows: Rows) -> Section:
    """What was asked, and what the noise drawn is worth."""
    words = (
        "Replace-one loss of the noise drawn, recomputed from its scales and the sums' own sensitivities, by the "
        "conversion valid for every ρ. At δ = 0.1 a mechanism may publish one record in ten outright: an ε there "
        "protects nobody.",
    )
    drawn = [r for r in rows if r["true_rho"] is not None]
    found = _listed("World | Agent | Variant | Scales | Asked ε | δ | True ρ | True ε", drawn, 5)
    return Section("privacy", "What the noise is worth", words, tables=(found,))


def communication(rows: Sequence[Row]) -> Section:
    """What one user sends under each agent, from its least to its most over all rows."""
    words = (
        "Of one user, at most over the runs of a row; from the least to the most over all rows. Joint and central: the "
        "whole episode, in the clear, 64 bits a number. Local: one message of noisy integers. Shuffle: one-bit "
        "messages, each under the number of its counter.",
    )
    sent: dict[tuple[str, ...], list[Row]] = {}
    for r in rows:
        if r["messages"] is not None:
            sent.setdefault((r["trust"], r["agent"], r["variant"]), []).append(r)
    said = [(*who, _range(mine, "messages"), _range(mine, "bits")) for who, mine in sent.items()]
    found = table("Trust | Agent | Variant | Messages | Bits", said, numeric="Messages | Bits")
    return Section("communication", "What one user sends", words, tables=(found,))


def _range(rows: Sequence[Row], key: Literal["messages", "bits"]) -> str:
    found = [n for r in rows if (n := r[key]) is not None]
    low, high = f"{min(found):,}", f"{max(found):,}"
    return low if low == high else f"{low} to {high}"


def _ties(rows: Rows) -> Section:
    """Shares of tied best actions, and how they were broken."""
    words = (
        "Share of (step, state) where clipping left several best actions, in the last plan. Such ties go to the "
        "unclipped value, then to chance: broken by the last index they would go right, which alone earns nearly all "
        "in RiverSwim (see always-right).",
    )
    tied = [r for r in rows if r["tie_share"] is not None]
    found = _listed("World | Agent | Variant | Scales | Tied", tied, 4)
    return Section("ties", "Ties", words, tables=(found,))


def _setting(rows: Rows, words: tuple[str, ...]) -> Section:
    """Constants by agent, variant and scales."""
    head = "Agent | Variant | Scales | Constants"
    found = table(head, sorted(set(cells(head, [r for r in rows if r["constants"]]))), grouped=True)
    return Section("setting", "The setting", words, tables=(found,))
