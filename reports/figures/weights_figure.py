"""Weights of a linear policy over the steps of an episode, as inline SVG."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from pipeline.declaration.numbers import clean, number
from reports.facts.policy import Weights
from reports.figures.policy_figure import MOST_STEPS
from reports.format import shorten
from reports.page import Figure
from reports.svg import INK, inline

MOST_FEATURES = 24
# blue below zero, orange above, white at it; the sign stands in the cell as well
_COLOURS = ("#77aadd", "#f4f2ec", "#ee8866")


def leading_features(weights: Weights) -> list[int]:
    """The features with most weight over the episode, in their own order."""
    size = np.abs(weights.values).sum(0)
    return sorted(np.argsort(-size, kind="stable")[:MOST_FEATURES].tolist())


def weights_figure(weights: Weights) -> Figure:
    """Features by steps, the weight written in each cell."""
    import altair as alt

    features, horizon = leading_features(weights), min(len(weights.values), MOST_STEPS)
    most = float(np.abs(weights.values[:horizon, features]).max()) or 1.0
    decimals = max(0, 1 - math.floor(math.log10(most)))
    cells = [
        {"x": h, "y": row, "t": _short(w, decimals), "fill": _colour(w / most)}
        for row, i in enumerate(features)
        for h in range(horizon)
        for w in [float(weights.values[h, i])]
    ]
    names = [{"y": row, "t": shorten(clean(weights.names[i]), 30)} for row, i in enumerate(features)]
    x = alt.X("x:O", axis=alt.Axis(title="step", labelAngle=0, labelOverlap="greedy", orient="bottom"))
    y = alt.Y("y:O", axis=None)
    grid = alt.Chart(alt.Data(values=cells)).encode(x=x, y=y)
    wide = 6 + 6 * max(2, *(len(str(c["t"])) for c in cells))
    chart = alt.layer(
        grid.mark_rect(strokeWidth=1, stroke=INK, strokeOpacity=0.18).encode(fill=alt.Fill("fill:N", scale=None)),
        grid.mark_text(fontSize=10, color="#111111").encode(text="t:N"),
        alt.Chart(alt.Data(values=names))
        .mark_text(align="right", x=-8, fontSize=12, color=INK)
        .encode(y=y, text="t:N"),
    ).properties(width=horizon * wide, height=len(features) * 22)
    text = (
        f"Weight of each of {len(features)} features (rows) at each of {horizon} steps (columns), "
        f"from {number(float(weights.values.min()), 3)} to {number(float(weights.values.max()), 3)}. At step 0: "
        + "; ".join(f"{clean(weights.names[i])} {number(float(weights.values[0, i]), 3)}" for i in features)
        + "."
    )
    margin = 14 + 7 * max(len(str(name["t"])) for name in names)
    return Figure(
        partial(inline, chart, "weights", "The weights, step by step", text, margin), text, _left_out(weights)
    )


def _short(weight: float, decimals: int) -> str:
    """As many decimals as the largest weight needs for two digits."""
    return f"{round(weight, decimals) + 0.0:.{decimals}f}".replace("-", "−")


def _colour(share: float) -> str:
    ends = _COLOURS[0] if share < 0 else _COLOURS[2]
    parts = zip(*(bytes.fromhex(c[1:]) for c in (_COLOURS[1], ends)), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * abs(share)):02x}" for a, b in parts)


def _left_out(weights: Weights) -> str:
    notes: list[str] = []
    if len(weights.names) > MOST_FEATURES:
        notes.append(f"Shown: the {MOST_FEATURES} features with most weight, of {len(weights.names)}.")
    if len(weights.values) > MOST_STEPS:
        notes.append(f"Shown: the first {MOST_STEPS} steps, of {len(weights.values)}.")
    return " ".join([*notes, "policy.parquet in the run's folder holds all of them."]) if notes else ""
