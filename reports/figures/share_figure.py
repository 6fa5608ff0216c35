"""How often each action is recommended, beside how often practice takes it, as inline SVG."""

from __future__ import annotations

from functools import partial

import numpy as np

from pipeline.declaration.numbers import clean
from reports.facts.policy import Decisions
from reports.format import percent, shorten
from reports.page import Figure
from reports.run.policy_table import Shares, action_shares
from reports.svg import HATCH, INK, inline

MOST_ACTIONS = 8
_WIDE, _ROW, _BAR = 380, 40, 15
# room for the percentage behind a full bar
_REACH = 1.18
_MARK = "#4477aa"


def leading_actions(shares: Shares) -> list[int]:
    """Actions that the policy recommends most, then those that practice takes most, at most eight."""
    usual = np.zeros(len(shares.policy)) if shares.practice is None else shares.practice
    order = np.lexsort((-usual, -shares.policy))
    return [int(a) for a in order[:MOST_ACTIONS] if shares.policy[a] > 0 or usual[a] > 0]


def share_figure(view: Decisions) -> Figure:
    """Two bars an action: full for the policy, hatched for practice."""
    import altair as alt

    shares = action_shares(view)
    actions = leading_actions(shares)
    bars: list[dict[str, float | str]] = []
    for row, a in enumerate(actions):
        found = [("policy", shares.policy[a], _MARK)]
        if shares.practice is not None:
            found.append(("practice", shares.practice[a], HATCH))
        for i, (who, share, fill) in enumerate(found):
            top = row * _ROW + (_ROW - _BAR * len(found)) / 2 + i * _BAR
            bars.append({"who": who, "x": 0, "x2": float(share), "y": top, "y2": top + _BAR - 2, "fill": fill,
                         "t": percent(float(share)), "middle": top + _BAR / 2 - 1})  # fmt: skip
    names = [{"y": (row + 0.5) * _ROW, "t": shorten(clean(view.action_labels[a]), 24)} for row, a in enumerate(actions)]
    high = _ROW * len(actions)
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[0, high], range=[0, high], nice=False, zero=False))
    scale = alt.Scale(domain=[0, _REACH], nice=False)
    x = alt.X("x:Q", axis=None, scale=scale)
    base = alt.Chart(alt.Data(values=bars))
    chart = alt.layer(
        base.mark_rect(stroke=INK, strokeWidth=1, strokeOpacity=0.5).encode(
            x=x, x2="x2:Q", y=y, y2="y2:Q", fill=alt.Fill("fill:N", scale=None)
        ),
        base.mark_text(align="left", dx=5, fontSize=11, color=INK).encode(
            x=alt.X("x2:Q", axis=None, scale=scale),
            y=alt.Y("middle:Q", axis=None, scale=alt.Scale(domain=[0, high], range=[0, high], nice=False)),
            text="t:N",
        ),
        alt.Chart(alt.Data(values=names))
        .mark_text(align="right", x=-8, fontSize=12, color=INK)
        .encode(y=y, text="t:N"),
    ).properties(width=_WIDE, height=high)
    margin = 14 + 7 * max((len(str(name["t"])) for name in names), default=1)
    text = _words(view, shares, actions)
    note = "Upper bar: this policy. Lower, hatched bar: current practice." if shares.practice is not None else ""
    return Figure(partial(inline, chart, "shares", "Share of each action", text, margin, bottom=6), text, note)


def _words(view: Decisions, shares: Shares, actions: list[int]) -> str:
    said: list[str] = []
    for a in actions:
        beside = "" if shares.practice is None else f", practice {percent(float(shares.practice[a]))}"
        said.append(f"{clean(view.action_labels[a])}: policy {percent(float(shares.policy[a]))}{beside}")
    if shares.silent:
        said.append(f"no recommendation: {percent(shares.silent)}")
    left_out = len(shares.policy) - len(actions)
    return f"Share of each action. {'; '.join(said)}." + (
        f" {left_out} others are left out: rarer, or in neither." if left_out else ""
    )
