"""The page of a study: an answer, its claims, its figure and its numbers; one shape for papers and simulations.

Tables that several studies share stand here too: totals, what the noise is worth, ties, the setting.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.declaration.numbers import number
from pipeline.simulation.trial import Row
from pipeline.studies.study import Judged
from pipeline.studies.study_rows import SUBLINEAR, Rows, end_loss, growth
from reports.figures.charts import standalone
from reports.page import Figure, Part, Section, table, templates

BANNER = "simulation, not private: every row comes from seeded noise in a world made for the purpose."
_HEAD = "World | Episodes | Agent | Variant | Scales | ε | δ | Mean | Std | Least | Most | At the end | Growth"
_NUMERIC = "Episodes | ε | δ | Mean | Std | Least | Most | At the end | Growth"
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


def totals(rows: Rows) -> Section:
    """Every row: regret with its spread, what an episode costs at the end, and how regret grew."""
    words = (
        "Regret summed over all episodes, exactly, by planning in the known world. At the end: regret of one episode "
        f"between the last two marks. Growth: regret after K over that after K / 10; 10 is linear, at most "
        f"{number(SUBLINEAR, 2)} is called sublinear.",
    )
    said = [
        (
            str(r["world"]),
            f"{r['episodes']:,}",
            str(r["agent"]),
            str(r["variant"]),
            str(r["calibration"] or "–"),
            "–" if r["epsilon"] is None else number(r["epsilon"]),
            "–" if r["delta"] is None else f"{r['delta']:g}",
            number(r["mean"]),
            number(r["std"], 3),
            number(min(r["totals"]), 3),
            number(max(r["totals"]), 3),
            number(end_loss(r), 2),
            number(min(growth(r), 99.0), 2),
        )
        for r in rows
    ]
    found = table(_HEAD, said, numeric=_NUMERIC, grouped=True)
    return Section("totals", "Total regret", words, tables=(found,))


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
    seen = {
        (r["agent"], r["variant"], r["calibration"], r["epsilon"], r["world"]): (
            str(r["world"]),
            str(r["agent"]),
            str(r["variant"]),
            str(r["calibration"]),
            number(r["epsilon"]),
            f"{r['delta']:g}",
            number(r["true_rho"], 3, "up"),
            number(r["true_epsilon"], 4, "up"),
        )
        for r in rows
        if r["true_rho"] is not None
    }
    head = "World | Agent | Variant | Scales | Asked ε | δ | True ρ | True ε"
    found = table(head, list(seen.values()), numeric="Asked ε | δ | True ρ | True ε", grouped=True)
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
    seen = {
        (r["agent"], r["variant"], r["calibration"], r["world"]): (
            str(r["world"]),
            str(r["agent"]),
            str(r["variant"]),
            str(r["calibration"] or "–"),
            number(100 * r["tie_share"], 2) + " %",
        )
        for r in rows
        if r["tie_share"] is not None
    }
    found = table("World | Agent | Variant | Scales | Tied", list(seen.values()), grouped=True)
    return Section("ties", "Ties", words, tables=(found,))


def _setting(rows: Rows, words: tuple[str, ...]) -> Section:
    """Constants by agent, variant and scales."""
    seen = {
        (str(r["agent"]), str(r["variant"]), str(r["calibration"] or "–"), str(r["constants"]))
        for r in rows
        if r["constants"]
    }
    found = table("Agent | Variant | Scales | Constants", sorted(seen), grouped=True)
    return Section("setting", "The setting", words, tables=(found,))
