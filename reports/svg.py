"""From a chart to an inline SVG that needs nothing around it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from altair import FacetChart, LayerChart

# Stands for the page's own text colour, light or dark, until the SVG is written: altair knows no currentColor.
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


def inline(
    chart: LayerChart | FacetChart,
    key: str,
    title: str,
    text: str,
    margin: int,
    frame: tuple[int, int] | None = None,
    *,
    bottom: int = 36,
    rows: Mapping[str, Sequence[Mapping[str, int | str]]] | None = None,
) -> str:
    """The chart as SVG in the page's text colour, with ``title`` and ``text`` for those who cannot see it.

    ``key`` makes the ids unique in the page; ``margin`` is the space left of the chart in pixels; ``frame`` is the
    whole width and height where panels stand side by side, which a fixed frame cannot measure by itself; ``bottom`` is
    the room for an axis below; ``rows`` are those of data that the chart names, which altair then never copies.
    """
    import vl_convert

    styled = (
        chart.properties(
            # A fixed frame: the fonts of the rendering machine must not move anything.
            autosize={"type": "none"},
            padding={"left": margin, "right": 12, "top": 6 if frame is None else 30, "bottom": bottom},
        )
        .configure(aria=False, font="system-ui, sans-serif")
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=INK,
            titleColor=INK,
            domainColor=INK,
            tickColor=INK,
            domainOpacity=0.4,
            tickOpacity=0.4,
            titleFontWeight="normal",
            labelFontSize=11,
            titleFontSize=12,
        )
    )
    # the renderer reads the chart anyway: to hold it against altair's schema takes longer than to draw it
    spec = styled.to_dict(validate=False)
    datasets = {**spec.get("datasets", {}), **(rows or {})}
    svg: str = vl_convert.vegalite_to_svg({**spec, "datasets": datasets, "background": None})
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
