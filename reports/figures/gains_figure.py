"""Gains of a linear controller over the steps of an episode, as inline SVG."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from pipeline.declaration.numbers import clean, number
from reports.facts.policy import Gains
from reports.page import Figure, shorten
from reports.svg import INK, inline

# Paul Tol's "bright" scheme; lines also differ in their dashes, and a sample of each stands before its name
_COLOURS = ("#4477AA", "#EE6677", "#228833", "#AA3377", "#CCBB44", "#66CCEE")
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3])
MOST_LINES = 6
_WIDTH, _HEIGHT, _ROW = 380, 150, 15


def gains_figure(view: Gains) -> Figure:
    """A line an observed number and control: its gain at each step."""
    import altair as alt

    lines = _largest(view)
    H = len(view.gains)  # noqa: N806
    names = [_name(view, d, n) for d, n in lines]
    rows: list[dict[str, Any]] = [
        {"step": h, "gain": float(view.gains[h, d, n]), "line": names[i]}
        for i, (d, n) in enumerate(lines)
        for h in range(H)
    ]
    shown = list(range(0, H, max(1, H // 10)))
    low, high = min(0.0, *(r["gain"] for r in rows)), max(0.0, *(r["gain"] for r in rows))
    room = (high - low or 1.0) * 0.05
    x = alt.X("step:Q", axis=alt.Axis(title="step", values=shown, format="d", grid=False), scale=alt.Scale(nice=False))
    y = alt.Y(
        "gain:Q",
        axis=alt.Axis(title="gain", grid=False, tickCount=5),
        scale=alt.Scale(domain=[low - room, high + room], nice=False),
    )
    charts: list[Any] = [
        alt.Chart(alt.Data(values=[{"gain": 0.0}])).mark_rule(color=INK, opacity=0.3).encode(y=y),
    ]
    for i, name in enumerate(names):
        found = [r for r in rows if r["line"] == name]
        base = alt.Chart(alt.Data(values=found))
        charts.append(base.mark_line(color=_COLOURS[i], strokeWidth=2, strokeDash=_DASHES[i]).encode(x=x, y=y))
        words, middle = alt.Chart(alt.Data(values=[{"t": name}])), _ROW * i + 8
        sample = words.mark_rule(color=_COLOURS[i], strokeWidth=2, strokeDash=_DASHES[i])
        ends = {"x": alt.value(_WIDTH + 10), "x2": alt.value(_WIDTH + 34), "y": alt.value(middle)}
        charts.append(sample.encode(**ends))
        label = words.mark_text(align="left", fontSize=11, color=INK, x=_WIDTH + 40, y=middle)
        charts.append(label.encode(text="t:N"))
    wide = 68 + 7 * max(map(len, names))
    chart = alt.layer(*charts).properties(width=_WIDTH, height=max(_HEIGHT, _ROW * len(names) + 10))
    text = "; ".join(
        f"{name}: {number(float(view.gains[0, d, n]))} at step 0, {number(float(view.gains[-1, d, n]))} at the last"
        for name, (d, n) in zip(names, lines, strict=True)
    )
    left_out = view.gains[0].size - len(lines)
    note = f"Shown: the {len(lines)} largest gains, of {view.gains[0].size}; the table has all." if left_out else ""
    text = f"Gains over {H} steps. {text}."
    frame = (60 + _WIDTH + wide, max(_HEIGHT, _ROW * len(names) + 10) + 70)
    return Figure(partial(inline, chart, "policy", "The gains, step by step", text, 60, frame), text, note)


def _largest(view: Gains) -> list[tuple[int, int]]:
    """(control, coordinate) of the gains with most weight over the episode, in their own order."""
    size = np.abs(view.gains).sum(0)
    order = np.argsort(-size.reshape(-1), kind="stable")[:MOST_LINES]
    return sorted((int(i) // size.shape[1], int(i) % size.shape[1]) for i in order)


def _name(view: Gains, control: int, coordinate: int) -> str:
    of = f"{control + 1}.{coordinate + 1} "
    return of + shorten(f"{clean(view.action[control])} for {clean(view.observation[coordinate])}", 34)
