"""From values to an inline SVG that needs nothing around it; and curves: a line an agent, a band, a facet a panel."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
import json
import math
import re
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any, cast

from pipeline.declaration.numbers import number
from reports.page import Figure, NotDrawnError, templates

# Stands for the page's own text colour, light or dark, until the SVG is written: Vega-Lite knows no currentColor.
INK = "#010203"
HATCH = "url(#hatch)"
_PATTERN = (
    '<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<path d="M0,0v5" stroke="currentColor" stroke-opacity="0.35" stroke-width="1"/></pattern></defs>'
)
_MARKS = re.compile(
    r'<g( class="mark-(?:text|rect|rule|symbol)[^>]*)>((?:<(?:path|line)[^>]*/>|<text[^>]*>[^<]*</text>)+)</g>'
)
_OWN = (" transform=", " d=", " x", " y")


Labels = tuple[str, str, str]
"""Key, title and words of a picture, for those who cannot see it."""
Frame = tuple[int, int]
"""Width and height around a picture and its legend."""


def draw_chart(
    kind: str, values: Mapping[str, object], labels: Labels, margin: int, frame: Frame | None = None, bottom: int = 36
) -> str:
    """A chart as SVG in the page's text colour.

    ``kind``: of ``templates/KIND.vl.json.j2``: the chart in Vega-Lite.
    """
    key, title, text = labels
    layout = {"ink": INK, "margin": margin, "top": 6 if frame is None else 30, "bottom": bottom}
    chart = templates().get_template(f"{kind}.vl.json.j2").render(values, **layout)
    # as text the renderer would round numbers in the last digit
    svg = _rendered(json.loads(chart))
    # tags only: the text between them is a label and stays as it is
    svg = _MARKS.sub(_share, re.sub("<[^>]+>", lambda tag: _bare(tag[0]), svg))
    opening, rest = svg.split(">", 1)
    if frame is not None:
        size = 'width="{0}" height="{1}" viewBox="0 0 {0} {1}"'.format(*frame)
        opening = re.sub(r'width="[^"]*" height="[^"]*" viewBox="[^"]*"', size, opening)
    return (
        f'{opening} role="img" aria-labelledby="{key}-title {key}-text"><title id="{key}-title">{escape(title)}</title>'
        f'<desc id="{key}-text">{escape(text)}</desc>{_PATTERN if HATCH in svg else ""}{rest}'
    )


def _rendered(chart: object) -> str:
    """The chart as the renderer draws it.

    It reserves more address space than it uses, and takes the whole process with it where a limit refuses that: under
    a limit it draws in a process of its own.
    """
    try:
        if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
            import vl_convert

            return vl_convert.vegalite_to_svg(cast(Any, chart))
        program = "import json, sys, vl_convert; sys.stdout.write(vl_convert.vegalite_to_svg(json.load(sys.stdin)))"
        source = json.dumps(chart).encode()
        finished = subprocess.run([sys.executable, "-P", "-c", program], input=source, capture_output=True, check=True)
        return finished.stdout.decode()
    except (subprocess.CalledProcessError, OSError, MemoryError, ValueError) as e:
        raise NotDrawnError(f"the renderer failed: {type(e).__name__}") from e


def _bare(tag: str) -> str:
    stripped = re.sub(r' (?:xmlns:xlink|aria-[a-z]+|role|pointer-events)="[^"]*"', "", tag)
    return stripped.replace(f'"{INK}"', '"currentColor"')


def _share(group: re.Match[str]) -> str:
    """Move attributes that all marks of a group share to the group: a big policy stays a small file."""
    tags: list[str] = re.findall("<(?:path|line|text)[^>]*>", group[2])
    common = set.intersection(*(set(re.findall(r' [a-z0-9-]+="[^"]*"', tag)) for tag in tags))
    moved = sorted(item for item in common if not item.startswith(_OWN))
    marks = re.sub("<(?:path|line|text)[^>]*>", lambda tag: _without(tag[0], moved), group[2])
    return f"<g{group[1]}{''.join(moved)}>{_joined(marks) if 'mark-rect' in group[1] else marks}</g>"


def _joined(cells: str) -> str:
    """Cells of one colour as one path; no two overlap, so their order is free."""
    shapes: dict[str, list[str]] = {}
    for shape, style in re.findall('<path d="([^"]*)"([^>]*)/>', cells):
        shapes.setdefault(style, []).append(shape)
    return "".join(f'<path d="{"".join(paths)}"{style}/>' for style, paths in shapes.items())


def _without(tag: str, attributes: Iterable[str]) -> str:
    for attribute in attributes:
        tag = tag.replace(attribute, "")
    return tag


# Paul Tol's "bright" scheme; with the dashes it is read without colour too
PALETTE = ("#4477aa", "#ee6677", "#228833", "#aa3377", "#66ccee", "#ccbb44")
GREY = "#999999"
DASHES = ([1, 0], [7, 4], [2, 3], [10, 3, 2, 3], [14, 4], [5, 2, 2, 2, 2, 2])
_WIDE, _HIGH, _LEGEND, _MARGIN = 310, 270, 240, 74
# on a logarithmic axis nothing below this share of a panel's largest value is given room
_REACH = 1e-4
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


def draw_curves(
    panels: Mapping[str, Mapping[str, Line]],
    key: str,
    title: str,
    *,
    log_y: bool = True,
    y_title: str = "regret so far",
    note: str = _NOTE,
) -> Figure:
    """Draw panels of curves; a name has one colour and one dash in all of them.

    ``log_y``: whether the y axis is logarithmic; the x axis always is.
    """
    styles = _styles(panels)
    # a panel in which nothing is lost has no logarithms
    log_y = log_y and all(max(max(line.mean) for line in lines.values()) > 0 for lines in panels.values())
    points = list(_points(panels, styles, _REACH if log_y else 0.0))
    first, last = min(p["K"] for p in points), max(p["K"] for p in points)
    top = 1.05 * max(p["mean"] for p in points)
    floor = min(p["mean"] for p in points) if log_y else 0.0
    columns, names = min(2, len(panels)), list(styles)
    drawn = {
        "across": {"title": "episodes", "domain": [first, last], "ticks": _decades(first, last), "format": "~s"},
        "up": {
            "title": y_title,
            "scale": "log" if log_y else "linear",
            "domain": [floor, max(top, 2 * floor) or 1.0],
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
    text = _words(panels, title, y_title)
    return Figure(partial(draw_chart, "curves", drawn, (key, title, text), _MARGIN, frame), text, note)


def _styles(panels: Mapping[str, Mapping[str, Line]]) -> dict[str, tuple[str, list[int]]]:
    """A colour and a dash a name, learners first."""
    control = {name: line.control for lines in panels.values() for name, line in lines.items()}
    styles: dict[str, tuple[str, list[int]]] = {}
    for grey in (False, True):
        for i, name in enumerate(n for n, c in control.items() if c is grey):
            colour = GREY if grey else PALETTE[i % len(PALETTE)]
            styles[name] = colour, DASHES[i % len(DASHES)]
    return styles


def _points(
    panels: Mapping[str, Mapping[str, Line]], styles: Mapping[str, tuple[str, list[int]]], reach: float
) -> Iterator[dict[str, Any]]:
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


def _words(panels: Mapping[str, Mapping[str, Line]], title: str, what: str) -> str:
    """The figure for those who cannot see it: every line by its end."""
    sentences = [f"{title}: mean {what} at the end."]
    for panel, lines in panels.items():
        ends = (f"{name} {number(x.mean[-1], 3)} at {number(x.marks[-1])}" for name, x in lines.items())
        sentences.append(f"{panel}: {', '.join(ends)}.")
    return " ".join(sentences)
