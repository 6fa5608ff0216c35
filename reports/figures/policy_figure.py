"""A tabular policy as inline SVG: self-contained, legible without colour, the same bytes at every rendering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from pipeline.declaration.numbers import clean
from reports.facts.policy import Decisions
from reports.format import shorten
from reports.page import Figure
from reports.run.policy_table import most_evidenced
from reports.svg import HATCH, INK, inline

MOST_STATES = 40
MOST_STEPS = 50
# a picture of named actions may be as wide as the page
_WIDEST = 820
# Paul Tol's "light" scheme: told apart by colour-blind readers, and dark text stays legible on each.
_FEW = ("#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#aaaa00")
# Blue over cream to orange, where there are more actions than colours with names.
_RAMP = ((0x8F, 0xBC, 0xDB), (0xF3, 0xEB, 0xCB), (0xEF, 0xA0, 0x76))


def action_codes(view: Decisions) -> list[str]:
    """What stands in a cell for each action: its label where all of them fit, else "a" and its number."""
    labels = [clean(label) for label in view.action_labels]
    wide = min(len(view.action), MOST_STEPS) * _cell_width(max(map(len, labels)))
    fits = len(set(labels)) == len(labels) and (max(map(len, labels)) <= 3 or wide <= _WIDEST)
    return labels if fits else [f"a{index}" for index in range(len(labels))]


def _cell_width(characters: int) -> int:
    return 10 + 6 * max(2, characters)


def policy_figure(view: Decisions) -> Figure:
    """States by steps, the recommended action written in each cell."""
    import altair as alt

    states = most_evidenced(view, MOST_STATES)
    horizon = min(len(view.action), MOST_STEPS)
    codes = action_codes(view)
    used = sorted({int(view.action[h, s]) for h in range(horizon) for s in states if not view.abstains[h, s]})
    colour = dict(zip(used, _palette(len(used)), strict=True))
    drawn = [_cell(view, h, s, row, codes, colour) for row, s in enumerate(states) for h in range(horizon)]
    labels = [{"y": row, "t": shorten(clean(view.state_labels[s]), 24)} for row, s in enumerate(states)]
    margin = 14 + 7 * max(len(str(label["t"])) for label in labels)
    wide = _cell_width(max(len(str(cell["t"])) for cell in drawn))
    x = alt.X("x:O", axis=alt.Axis(title="step", labelAngle=0, labelOverlap="greedy", orient="bottom"))
    y = alt.Y("y:O", axis=None)
    grid = alt.Chart(alt.Data(values=drawn)).encode(x=x, y=y)
    chart = alt.layer(
        grid.mark_rect(strokeWidth=1, stroke=INK, strokeOpacity=0.18).encode(fill=alt.Fill("fill:N", scale=None)),
        grid.mark_text(fontSize=11).encode(text="t:N", color=alt.Color("ink:N", scale=None)),
        alt.Chart(alt.Data(values=labels))
        .mark_text(align="right", x=-8, fontSize=12, color=INK)
        .encode(y=y, text="t:N"),
    ).properties(width=horizon * wide, height=len(states) * 24)
    text = (
        f"Recommended action in each of {len(states)} states (rows) at each of {horizon} steps (columns). "
        "A dash on hatching means: not enough evidence, keep current practice. The table that follows says the same."
    )
    return Figure(partial(inline, chart, "policy", "The policy, state by step", text, margin), text, _left_out(view))


def _cell(
    view: Decisions, step: int, state: int, row: int, codes: Sequence[str], colour: Mapping[int, str]
) -> dict[str, int | str]:
    if view.abstains[step, state]:
        return {"x": step, "y": row, "t": "–", "fill": HATCH, "ink": INK}
    action = int(view.action[step, state])
    mark = "=" if view.tie[step, state] else ""
    return {"x": step, "y": row, "t": codes[action] + mark, "fill": colour[action], "ink": "#111111"}


def _palette(count: int) -> list[str]:
    if count <= len(_FEW):
        return list(_FEW[:count])
    colours: list[str] = []
    for index in range(count):
        place = 2 * index / (count - 1)
        low = min(int(place), 1)
        mixed = (round(a + (b - a) * (place - low)) for a, b in zip(_RAMP[low], _RAMP[low + 1], strict=True))
        colours.append("#" + "".join(f"{channel:02x}" for channel in mixed))
    return colours


def _left_out(view: Decisions) -> str:
    notes: list[str] = []
    if len(view.state_labels) > MOST_STATES:
        notes.append(f"Shown: the {MOST_STATES} states with most released evidence, of {len(view.state_labels)}.")
    if len(view.action) > MOST_STEPS:
        notes.append(f"Shown: the first {MOST_STEPS} steps, of {len(view.action)}.")
    return " ".join([*notes, "The run's folder holds the whole policy."]) if notes else ""
