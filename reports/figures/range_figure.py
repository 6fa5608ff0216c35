"""Estimates with their intervals, one below the other, and the gains of a controller over the steps, as inline SVG.

Of intervals, places are percentages and letters keep their size: that picture is read on a phone, a screen and paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import accumulate

import numpy as np

from pipeline.declaration.numbers import clean, number
from reports.facts.policy import Gains
from reports.figures.charts import DASHES, PALETTE, draw_chart
from reports.page import Figure, shorten, templates

_ROW, _AXIS, _GAP = 46, 30, 20
# room at both ends, percent of the width, so that no mark is cut
_EDGE = 1.5


@dataclass(frozen=True)
class Mark:
    """One row.

    Parameters
    ----------
    name, words
        What it is, and its numbers.
    estimate
        A dot; None where there is none.
    lower, upper
        A bar; None where it has no such end.
    own
        Whether it is what the page is about.
    truth
        A diamond: the true value, where the world is known.
    """

    name: str
    words: str
    estimate: float | None = None
    lower: float | None = None
    upper: float | None = None
    own: bool = False
    truth: float | None = None

    @property
    def places(self) -> list[float]:
        """Every number that is drawn."""
        return [x for x in (self.estimate, self.lower, self.upper, self.truth) if x is not None]


@dataclass(frozen=True)
class Panel:
    """Rows on one axis.

    Parameters
    ----------
    marks
        From top to bottom.
    zero
        What stands at a line through 0; empty: there is none.
    """

    marks: Sequence[Mark]
    zero: str = ""

    @property
    def height(self) -> int:
        """In pixels."""
        return _ROW * len(self.marks) + _AXIS


def range_figure(panels: Sequence[Panel], key: str, title: str, note: str = "") -> Figure:
    """Panels below each other.

    Parameters
    ----------
    panels
        Each with an axis of its own.
    key
        Makes ids unique in the page.
    title
        Of the picture, for those who cannot see it.
    note
        What a reader of the picture must know.
    """
    text = "; ".join(f"{mark.name}: {mark.words}" for panel in panels for mark in panel.marks) + "."
    return Figure(partial(_svg, panels, key, title, text), text, note)


def _svg(panels: Sequence[Panel], key: str, title: str, text: str) -> str:
    tops = [0, *accumulate(panel.height + _GAP for panel in panels)]
    axes = [_axis(panel, top) for panel, top in zip(panels, tops, strict=False)]
    said = {"key": key, "title": escape(title), "text": escape(text)}
    return templates().get_template("range.svg.j2").render(said, axes=axes, height=tops[-1] - _GAP)


def ends(panel: Panel) -> tuple[float, float]:
    """Ends of the axis: all that is drawn, widened outwards to a digit of its own width.

    Parameters
    ----------
    panel
        With 0 on its axis where it has a line there.
    """
    used = [x for mark in panel.marks for x in mark.places] + ([0.0] if panel.zero else [])
    low, high = min(used, default=0.0), max(used, default=1.0)
    if high <= low:
        low, high = low - (abs(low) or 1.0) / 10, high + (abs(high) or 1.0) / 10
    grain = 10.0 ** math.floor(math.log10((high - low) / 2))
    return math.floor(low / grain + 1e-9) * grain, math.ceil(high / grain - 1e-9) * grain


def _axis(panel: Panel, top: int) -> dict[str, object]:
    """What the template draws of a panel; places as texts."""
    low, high = ends(panel)

    def at(x: float | None) -> str:
        if x is None:
            return ""
        share = min(1.0, max(0.0, (x - low) / (high - low)))
        return f"{_EDGE + (100 - 2 * _EDGE) * share:.2f}%"

    ticks = (low, "start", "0"), ((low + high) / 2, "middle", at((low + high) / 2)), (high, "end", "100%")
    labels = [
        {"x": place, "anchor": anchor, "text": _tick(x, panel, high - low)}
        for x, anchor, place in ticks
        # what stands at the line through 0 takes the place of the label next to it
        if not (panel.zero and x and (anchor == "middle" or abs(x) < (high - low) * 0.3))
    ]
    if panel.zero and low < 0 < high:
        share = -low / (high - low)
        anchor = "start" if share < 0.35 else "end" if share > 0.65 else "middle"
        labels.append({"x": at(0.0), "anchor": anchor, "text": escape(panel.zero)})
    rows = [
        {"name": escape(m.name), "words": escape(m.words), "own": m.own, "top": top + _ROW * i}
        | {"estimate": at(m.estimate), "lower": at(m.lower), "upper": at(m.upper), "truth": at(m.truth)}
        for i, m in enumerate(panel.marks)
    ]
    frame = {"top": top, "base": top + _ROW * len(panel.marks) + 8, "zero": at(0.0) if panel.zero else ""}
    return {**frame, "ticks": [at(x) for x, *_ in ticks], "labels": labels, "rows": rows}


def _tick(x: float, panel: Panel, width: float) -> str:
    if abs(x) < width * 1e-9:
        return escape(panel.zero) or "0"
    return number(float(f"{x:.6g}"))


# lines differ in colour and dashes; a sample of each stands before its name
MOST_LINES = len(PALETTE)
_WIDE, _HEIGHT, _LEGEND = 380, 150, 15


def gains_figure(view: Gains) -> Figure:
    """A line an observed number and control: its gain at each step."""
    lines = _largest(view)
    names, gains = [_name(view, d, n) for d, n in lines], [view.gains[:, d, n].tolist() for d, n in lines]
    H, height = len(view.gains), max(_HEIGHT, _LEGEND * len(names) + 10)  # noqa: N806
    low, high = min(0.0, *map(min, gains)), max(0.0, *map(max, gains))
    room = (high - low or 1.0) * 0.05
    styled = zip(names, PALETTE, DASHES, gains, strict=False)
    drawn = [{"name": name, "colour": colour, "dash": dash, "gains": of} for name, colour, dash, of in styled]
    values: dict[str, object] = {"lines": drawn, "domain": [low - room, high + room], "width": _WIDE, "height": height}
    values["steps"] = list(range(0, H, max(1, H // 10)))
    ends = zip(names, gains, strict=True)
    text = "; ".join(f"{name}: {number(of[0])} at step 0, {number(of[-1])} at the last" for name, of in ends)
    left_out = view.gains[0].size - len(lines)
    note = f"Shown: the {len(lines)} largest gains, of {view.gains[0].size}; the table has all." if left_out else ""
    text = f"Gains over {H} steps. {text}."
    frame = (128 + _WIDE + 7 * max(map(len, names)), height + 70)
    said = "policy", "The gains, step by step", text, 60, frame
    return Figure(partial(draw_chart, "gains", values, *said), text, note)


def _largest(view: Gains) -> list[tuple[int, int]]:
    """(control, coordinate) of the gains with most weight over the episode, in their own order."""
    size = np.abs(view.gains).sum(0)
    order = np.argsort(-size.reshape(-1), kind="stable")[:MOST_LINES]
    return sorted((int(i) // size.shape[1], int(i) % size.shape[1]) for i in order)


def _name(view: Gains, control: int, coordinate: int) -> str:
    of = f"{control + 1}.{coordinate + 1} "
    return of + shorten(f"{clean(view.action[control])} for {clean(view.observation[coordinate])}", 34)
