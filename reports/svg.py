"""From a chart to an inline SVG that needs nothing around it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from html import escape

from reports.page import templates

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


def draw_chart(
    kind: str,
    values: Mapping[str, object],
    key: str,
    title: str,
    text: str,
    margin: int,
    frame: tuple[int, int] | None = None,
    *,
    bottom: int = 36,
) -> str:
    """A chart as SVG in the page's text colour, with words for those who cannot see it.

    Parameters
    ----------
    kind
        Of ``templates/KIND.vl.json.j2``: the chart in Vega-Lite.
    values
        What that draws.
    key
        Makes the ids unique in the page.
    title, text
        Of the picture, in words.
    margin, bottom
        Room left of the chart, and for an axis below it, in pixels.
    frame
        Whole width and height where panels stand side by side, which a fixed frame cannot measure by itself.
    """
    import vl_convert

    told = {"ink": INK, "margin": margin, "top": 6 if frame is None else 30, "bottom": bottom}
    chart = templates().get_template(f"{kind}.vl.json.j2").render(values, **told)
    # as text the renderer would round numbers in the last digit
    svg: str = vl_convert.vegalite_to_svg(json.loads(chart))
    # Tags only: what stands between them is somebody's label and stays as it is.
    svg = _MARKS.sub(_share, re.sub("<[^>]+>", lambda tag: _bare(tag[0]), svg))
    opening, rest = svg.split(">", 1)
    if frame is not None:
        size = 'width="{0}" height="{1}" viewBox="0 0 {0} {1}"'.format(*frame)
        opening = re.sub(r'width="[^"]*" height="[^"]*" viewBox="[^"]*"', size, opening)
    return (
        f'{opening} role="img" aria-labelledby="{key}-title {key}-text"><title id="{key}-title">{escape(title)}</title>'
        f'<desc id="{key}-text">{escape(text)}</desc>{_PATTERN if HATCH in svg else ""}{rest}'
    )


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
    return "".join(f'<path d="{"".join(found)}"{style}/>' for style, found in shapes.items())


def _without(tag: str, attributes: Iterable[str]) -> str:
    for attribute in attributes:
        tag = tag.replace(attribute, "")
    return tag


def standalone(svg: str) -> str:
    """An inline SVG as a file of its own: dark on white, whatever shows it."""
    opening, rest = svg.replace("currentColor", "#22262a").split(">", 1)
    return f'{opening}><rect width="100%" height="100%" fill="#ffffff"/>{rest}'
