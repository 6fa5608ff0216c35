"""A reproduced figure or table of a paper: rows in, table, figure and page out; one shape for every paper.

What is particular to a paper (its claims, its figure, its sections) is a :class:`Study` made in a file of its own.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.format import number
from reports.page import Figure, Part, Section, table, templates
from reports.svg import standalone

BANNER = "simulation, not private: every row comes from seeded noise in a world made for the purpose."

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Study:
    """What the rows of one NAME say.

    Parameters
    ----------
    claims
        ``claim``, ``holds``, ``regime``, ``rule`` and, by ``variants``, the same verdict on other settings.
    judged
        The setting on which ``holds`` is said.
    sections
        Tables and words particular to the paper, after claims and figure.
    foot
        Where the setting comes from.
    """

    name: str
    title: str
    claims: Sequence[Mapping[str, Any]]
    judged: str
    figure: Figure
    sections: tuple[Section, ...]
    foot: str


def render_html(study: Study) -> str:
    """The page as one file that loads nothing."""
    return templates().get_template("study.html.j2").render(opening=_opening(study), parts=parts(study))


def render_markdown(study: Study) -> str:
    """The same words and tables as Markdown."""
    return templates().get_template("study.md.j2").render(opening=_opening(study), parts=parts(study))


def parts(study: Study) -> list[Part]:
    """Claims and figure first, numbers after."""
    figure = Section("figure", "The figure", (study.figure.note,), study.figure)
    return [Part("What holds", (_claims(study), figure, _regimes(study))), Part("The numbers", study.sections)]


def _opening(study: Study) -> dict[str, str]:
    held = [c["claim"] for c in study.claims if c["holds"]]
    answer = f"Of {len(study.claims)} claims checked by a stated rule, {number(len(held))} hold {study.judged}"
    answer += f": {'; '.join(held)}." if held else "."
    return {
        "kind": "reproduction",
        "name": study.name,
        "title": study.title,
        "banner": BANNER,
        "answer": answer,
        "foot": study.foot,
    }


def _claims(study: Study) -> Section:
    rows = [(str(c["claim"]), verdict(c["holds"]), str(c["regime"]), str(c["rule"])) for c in study.claims]
    words = (
        f"Each verdict is computed from the rows, {study.judged}; where the answer depends, the regime says on what.",
    )
    return Section("claims", "The claims", words, tables=(table("Claim | Holds | Regime | Rule", rows),))


def _regimes(study: Study) -> Section:
    rows = [
        (str(c["claim"]), str(v["variant"]), verdict(v["holds"]), str(v["regime"]))
        for c in study.claims
        for v in c["variants"]
    ]
    words = ("The same rules on every variant that was run.",)
    found = table("Claim | Variant | Holds | Regime", rows, grouped=True)
    return Section("variants", "Where else they hold", words, tables=(found,))


def verdict(holds: bool) -> str:
    """Yes or no."""
    return "yes" if holds else "no"


def table_files(rows: Rows) -> tuple[bytes, str]:
    """The rows as Parquet and as CSV."""
    import polars as pl

    frame = pl.DataFrame(list(rows), infer_schema_length=None)
    found = io.BytesIO()
    frame.write_parquet(found, compression="zstd")
    return found.getvalue(), frame.write_csv()


def figure_files(figure: Figure) -> tuple[str, bytes]:
    """The figure as an SVG of its own, dark on white, and as a PNG of twice its size."""
    import vl_convert

    svg = standalone(figure.svg)
    return svg, vl_convert.svg_to_png(svg, scale=2)
