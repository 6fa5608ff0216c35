"""Curves of a study: one line an agent, bands of one standard deviation, one facet a panel."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypedDict

from pipeline.declaration.numbers import number
from pipeline.studies.study_rows import Found
from reports.page import Figure
from reports.svg import draw_chart

# Paul Tol's "bright" scheme; with the dashes it is read without colour too
PALETTE = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#66ccee", "#ccbb44")
GREY = "#999999"
DASHES = ([1, 0], [7, 4], [2, 3], [10, 3, 2, 3], [14, 4], [5, 2, 2, 2, 2, 2])
_WIDE, _HIGH, _LEGEND, _MARGIN = 310, 270, 240, 74
_NOTE = "Lines: mean over runs of the regret summed up to an episode, exactly. Bands: one standard deviation."


@dataclass(frozen=True)
class Line:
    """One curve: ``marks``, ``mean`` and ``std`` of one length; a control is drawn grey and without a band.

    ``low`` and ``high``: the band, where it is not one standard deviation either way.
    """

    marks: Sequence[float]
    mean: Sequence[float]
    std: Sequence[float]
    control: bool = False
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None

    @property
    def band(self) -> tuple[Sequence[float], Sequence[float]]:
        """Lower and upper edge."""
        if self.low is not None and self.high is not None:
            return self.low, self.high
        sd = [0.0] * len(self.mean) if self.control else self.std
        return [m - s for m, s in zip(self.mean, sd, strict=True)], [m + s for m, s in zip(self.mean, sd, strict=True)]


def line_of(row: Found) -> Line:
    """The curve that a gathered row carries."""
    return Line(row["marks"], row["curve_mean"], row["curve_std"], row["variant"] == "control")


def draw_curves(
    panels: Mapping[str, Mapping[str, Line]],
    key: str,
    title: str,
    *,
    log_y: bool = True,
    x_title: str = "episodes",
    y_title: str = "regret so far",
    note: str = _NOTE,
    reach: float = 1e-4,
    x_format: str = "~s",
    ends: bool = False,
) -> Figure:
    """Draw panels of curves; a name has one colour and one dash in all of them.

    Parameters
    ----------
    panels
        Title of a panel -> name of an agent -> its curve.
    key, title
        What makes the ids unique in a page, and what the figure is called for those who cannot see it.
    log_y
        Whether the y axis is logarithmic; the x axis always is.
    x_title, y_title, note
        Words of the axes and below the figure.
    reach
        On a logarithmic axis nothing below this share of a panel's largest value is given room.
    x_format
        How marks of the x axis are written (d3-format).
    ends
        Whether the words give a curve's first value too, not its last alone.
    """
    styles = _styles(panels)
    points = list(_points(panels, styles, reach if log_y else 0.0))
    first, last = min(p["K"] for p in points), max(p["K"] for p in points)
    top = 1.05 * max(p["mean"] for p in points)
    floor = min(p["mean"] for p in points) if log_y else 0.0
    columns, names = min(2, len(panels)), list(styles)
    drawn = {
        "across": {"title": x_title, "domain": [first, last], "ticks": _decades(first, last), "format": x_format},
        "up": {
            "title": y_title,
            "scale": "log" if log_y else "linear",
            "domain": [floor, max(top, 2 * floor)],
            "ticks": _decades(floor, top) if log_y else None,
            # long numbers would be cut off at the left
            "format": "~s" if top >= 1e6 else "~g",
        },
        "points": points,
        "panels": list(panels),
        "names": names,
        "colours": [colour for colour, _ in styles.values()],
        "dashes": [dash for _, dash in styles.values()],
        "columns": columns,
        "width": _WIDE,
        "height": _HIGH,
        "legend": _LEGEND,
    }
    room = min(_LEGEND, 50 + 7 * max(map(len, names)))
    frame = _MARGIN + columns * (_WIDE + 20) + room + 40, 50 + (_HIGH + 40) * math.ceil(len(panels) / columns)
    text = _words(panels, title, y_title, ends)
    return Figure(partial(draw_chart, "curves", drawn, key, title, text, _MARGIN, frame), text, note)


def _styles(panels: Mapping[str, Mapping[str, Line]]) -> dict[str, tuple[str, list[int]]]:
    """A colour and a dash a name, learners first."""
    control = {name: line.control for lines in panels.values() for name, line in lines.items()}
    found: dict[str, tuple[str, list[int]]] = {}
    for grey in (False, True):
        for i, name in enumerate(n for n, c in control.items() if c is grey):
            colour = GREY if grey else PALETTE[i % len(PALETTE)]
            found[name] = colour, DASHES[i % len(DASHES)]
    return found


class _Point(TypedDict):
    panel: str
    name: str
    colour: str
    K: int | float
    mean: float
    low: float
    high: float


def _points(
    panels: Mapping[str, Mapping[str, Line]], styles: Mapping[str, tuple[str, list[int]]], reach: float
) -> Iterator[_Point]:
    for panel, lines in panels.items():
        least = max(max(line.mean) for line in lines.values()) * reach
        for name, line in lines.items():
            for K, mean, low, high in zip(line.marks, line.mean, *line.band, strict=True):  # noqa: N806
                yield {
                    "panel": panel,
                    "name": name,
                    "colour": styles[name][0],
                    "K": K,
                    "mean": max(mean, least),
                    "low": max(low, least),
                    "high": max(high, least),
                }


def _decades(low: float, high: float) -> list[float]:
    """Powers of ten inside."""
    return [10.0**e for e in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)]


def _words(panels: Mapping[str, Mapping[str, Line]], title: str, what: str, ends: bool) -> str:
    """The figure for those who cannot see it: every line by its end, or by both."""
    said = [f"{title}: mean {what} at {'the first and the last K' if ends else 'the end'}."]
    for panel, lines in panels.items():
        told = ", ".join(f"{name} {_both(line) if ends else _last(line)}" for name, line in lines.items())
        said.append(f"{panel}: {told}.")
    return " ".join(said)


def _last(line: Line) -> str:
    return f"{number(line.mean[-1], 3)} at {number(line.marks[-1])}"


def _both(line: Line) -> str:
    return f"{number(line.mean[0], 3)} and {number(line.mean[-1], 3)}"
