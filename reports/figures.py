"""Figures as inline SVG: self-contained, legible without colour, the same bytes at every rendering."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.facts.policy import Decisions
from reports.format import clean, interval, number, shorten
from reports.policy_view import most_evidenced
from reports.svg import HATCH, INK, inline

MOST_STATES = 40
MOST_STEPS = 50
# a picture of named actions may be as wide as the page
_WIDEST = 820
# Paul Tol's "light" scheme: told apart by colour-blind readers, and dark text stays legible on each.
_FEW = ("#77aadd", "#ee8866", "#eedd88", "#ffaabb", "#99ddff", "#44bb99", "#bbcc33", "#aaaa00")
# Blue over cream to orange, where there are more actions than colours with names.
_RAMP = ((0x8F, 0xBC, 0xDB), (0xF3, 0xEB, 0xCB), (0xEF, 0xA0, 0x76))


@dataclass(frozen=True)
class Figure:
    """An inline SVG, what it shows in words, and what it leaves out."""

    svg: str
    text: str
    note: str = ""


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
    return Figure(inline(chart, "policy", "The policy, state by step", text, margin), text, _left_out(view))


def _cell(
    view: Decisions, step: int, state: int, row: int, codes: Sequence[str], colour: Mapping[int, str]
) -> dict[str, Any]:
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


def value_figure(facts: Mapping[str, Any]) -> Figure:
    """The interval of the policy and of the baselines on the axis of all possible values; true values as points."""
    import altair as alt

    value = facts["value"]
    least, most = trivial_lower(facts), float(value["upper_trivial"])
    rows = value_rows(facts)
    low, high = shown_range(rows, least, most)
    marks = [
        row | {"y": index, "from": low, "to": high, "end": high if row["end"] is None else row["end"]}
        for index, row in enumerate(rows)
    ]
    ticks = [low, (low + high) / 2, high]
    x_axis = alt.Axis(title=None, grid=False, labelFlush=False, values=ticks, format=".3~g")
    scale = alt.Scale(domain=[low, high], nice=False, zero=False, clamp=True)
    x = alt.X("start:Q", scale=scale, axis=x_axis)
    y = alt.Y("y:O", axis=None)
    base = alt.Chart(alt.Data(values=marks)).encode(y=y)
    bars = base.transform_filter("datum.kind != 'truth'")
    chart = alt.layer(
        base.mark_rule(color=INK, opacity=0.25, yOffset=8).encode(
            x=alt.X("from:Q", scale=scale, axis=x_axis), x2="to:Q"
        ),
        bars.mark_rule(color=INK, yOffset=8).encode(
            x=x, x2="end:Q", strokeWidth=alt.StrokeWidth("width:Q", scale=None)
        ),
        base.transform_filter("datum.kind == 'truth'")
        .mark_point(shape="diamond", size=90, filled=True, color=INK, opacity=1, yOffset=8)
        .encode(x=x),
        base.mark_text(align="left", x=0, dy=-8, fontSize=12, color=INK).encode(text="name:N"),
        base.mark_text(align="right", x=380, dy=-8, fontSize=12, color=INK, fontWeight="bold").encode(text="words:N"),
    ).properties(width=380, height=38 * len(rows))
    text = "; ".join(f"{row['name']}: {row['words']}" for row in rows)
    axis = "of all possible values" if (low, high) == (least, most) else "cut to what is shown"
    text = (
        f"On an axis {axis}, {number(low)} to {number(high)}; possible are {number(least)} to {number(most)}. {text}."
    )
    return Figure(inline(chart, "value", "The value of the policy beside others", text, 16), text)


def shown_range(rows: list[dict[str, Any]], least: float, most: float) -> tuple[float, float]:
    """Ends of the axis: all possible values, or the part in use where that is less than a quarter of them."""
    used = [row[end] for row in rows for end in ("start", "end") if row[end] is not None]
    low, high = min(used, default=least), max(used, default=most)
    if high - low >= (most - least) / 4 or high <= low:
        return least, most
    # widened outwards to two significant digits of its own width
    grain = 10.0 ** (math.floor(math.log10(high - low)) - 1) * 5
    return max(least, math.floor(low / grain) * grain), min(most, math.ceil(high / grain) * grain)


def trivial_lower(facts: Mapping[str, Any]) -> float:
    """The least value any policy could have; from the reward range where the facts do not state it."""
    data, stated = facts["dataset"], facts["value"].get("lower_trivial")
    return float(data["horizon"]) * min(0.0, float(data["reward_range"][0])) if stated is None else float(stated)


def known_truth(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """The true values of a synthetic world; nothing for real data, whatever the facts hold."""
    return (facts.get("truth") or {}) if facts["dataset"]["kind"] == "synthetic" else {}


def value_rows(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a bar or point: name, start, end (None: open), words, kind and width of the line."""
    rows = [_bar("this policy", facts["value"], 9)]
    for name, baseline in (facts.get("model_baselines") or {}).items():
        label = f"{name} {clean(baseline['action'])}" if baseline.get("action") is not None else name
        rows.append(_bar(f"{shorten(clean(label), 32)}, released model", baseline, 3))
    for key, name in TRUTHS.items():
        known = known_truth(facts).get(key)
        if known is not None:
            rows.append({"name": name, "start": known, "end": known, "words": number(known), "kind": "truth"})
    return rows


TRUTHS = {
    "v_policy_model": "truth: this policy, in the process modelled",
    "v_policy": "truth: this policy",
    "v_star": "truth: best possible policy",
    "v_behavior": "truth: policy that made the log",
    "v_uniform": "truth: uniform choice",
}


def _bar(name: str, value: Mapping[str, Any], width: int) -> dict[str, Any]:
    return {
        "name": name,
        "start": value["lower"],
        "end": value.get("upper"),
        "words": interval(value),
        "kind": "interval",
        "width": width,
    }
