"""Draw the floors of the house from its imports: ``python -P -m tests.house.draw`` writes docs/architecture.svg."""

from collections import defaultdict
from collections.abc import Mapping
from html import escape

from tests.house.floors import FLOORS
from tests.house.imports import ROOT, arrows

PICTURE = ROOT / "docs" / "architecture.svg"
_WIDTH, _ROW, _BOX, _HEIGHT = 1080, 78, 168, 36


def direct(found: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """Arrows that no path of other arrows makes: what is left is what there is to see."""
    reach: dict[str, set[str]] = {}

    def below(room: str) -> set[str]:
        if room not in reach:
            reach[room] = set().union(*({there} | below(there) for there in found.get(room, ())))
        return reach[room]

    return {(a, b) for a, to in found.items() for b in to if not any(b in below(c) for c in to if c != b)}


def picture() -> str:
    """The SVG: a row a floor, a box a room, an arrow where one imports the other directly."""
    rows: dict[int, list[str]] = defaultdict(list)
    for room, floor in FLOORS.items():
        rows[floor].append(room)
    top, place = max(rows), {}
    height = (top + 1) * _ROW + 30
    for floor, rooms in rows.items():
        gap = (_WIDTH - 60) / len(rooms)
        for i, room in enumerate(sorted(rooms)):
            place[room] = 60 + gap * (i + 0.5), (top - floor) * _ROW + 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        'font-size="13">',
        "<title>Rooms on their floors; an arrow points to what a room uses directly</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        '<defs><marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#7a8699"/></marker></defs>',
    ]
    for a, b in sorted(direct(arrows(FLOORS))):
        (x1, y1), (x2, y2) = place[a], place[b]
        lines.append(
            f'<path d="M{x1:.0f} {y1 + _HEIGHT / 2:.0f}C{x1:.0f} {y1 + 60:.0f} {x2:.0f} {y2 - 60:.0f} '
            f'{x2:.0f} {y2 - _HEIGHT / 2:.0f}" fill="none" stroke="#7a8699" marker-end="url(#to)"/>'
        )
    for floor in rows:
        lines.append(f'<text x="14" y="{(top - floor) * _ROW + 39}" fill="#7a8699">{floor}</text>')
    for room, (x, y) in sorted(place.items()):
        fill = {"p": "#e8f0fe", "r": "#e6f4ea"}.get(room[0], "#fef7e0")
        lines.append(
            f'<rect x="{x - _BOX / 2:.0f}" y="{y - _HEIGHT / 2:.0f}" width="{_BOX}" height="{_HEIGHT}" rx="5" '
            f'fill="{fill}" stroke="#5f6b7a"/>'
            f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle" fill="#1f2933">{escape(room)}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
