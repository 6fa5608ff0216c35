"""The value of a policy beside others, as inline SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

from pipeline.declaration.numbers import clean, number
from reports.facts.learnt import Truth
from reports.facts.report import Report
from reports.format import interval, shorten
from reports.page import Figure
from reports.svg import INK, inline


@dataclass(frozen=True)
class Mark:
    """One row of the figure: an interval (``end`` None: open, ``width`` of its line), or a true value as a point."""

    name: str
    start: float
    end: float | None
    words: str
    kind: Literal["interval", "truth"]
    width: int = 0

    def drawn(self, index: int, low: float, high: float) -> dict[str, float | str]:
        """Values of the chart on an axis from ``low`` to ``high``."""
        found: dict[str, float | str] = {
            "name": self.name,
            "start": self.start,
            "end": self.end if self.end is not None else high,
        }
        found |= {"words": self.words, "kind": self.kind}
        if self.kind == "interval":
            found["width"] = self.width
        return found | {"y": index, "from": low, "to": high}


def value_figure(report: Report) -> Figure:
    """The interval of the policy and of the baselines on the axis of all possible values; true values as points."""
    import altair as alt

    least, most = float(report.value.lower_trivial), float(report.value.upper_trivial)
    rows = value_rows(report)
    low, high = shown_range(rows, least, most)
    marks = [row.drawn(index, low, high) for index, row in enumerate(rows)]
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
    text = "; ".join(f"{row.name}: {row.words}" for row in rows)
    axis = "of all possible values" if (low, high) == (least, most) else "cut to what is shown"
    text = (
        f"On an axis {axis}, {number(low)} to {number(high)}; possible are {number(least)} to {number(most)}. {text}."
    )
    return Figure(partial(inline, chart, "value", "The value of the policy beside others", text, 16), text)


def shown_range(rows: list[Mark], least: float, most: float) -> tuple[float, float]:
    """Ends of the axis: all possible values, or the part in use where that is less than a quarter of them."""
    used = [end for row in rows for end in (row.start, row.end) if end is not None]
    low, high = min(used, default=least), max(used, default=most)
    if high - low >= (most - least) / 4 or high <= low:
        return least, most
    # widened outwards to two significant digits of its own width
    grain = 10.0 ** (math.floor(math.log10(high - low)) - 1) * 5
    return max(least, math.floor(low / grain) * grain), min(most, math.ceil(high / grain) * grain)


def known_truth(report: Report) -> Truth | None:
    """The true values of a synthetic world; None for real data, whatever the report holds.

    Parameters
    ----------
    report
        Of a run.
    """
    return report.truth if report.dataset.kind == "synthetic" else None


def value_rows(report: Report) -> list[Mark]:
    """Rows of this policy, of the baselines, and of true values where they are known."""
    v = report.value
    rows = [Mark("this policy", v.lower, v.upper, interval(v.lower, v.upper), "interval", 9)]
    for name, b in report.model_baselines.items():
        label = f"{shorten(clean(name if b.action is None else f'{name} {clean(b.action)}'), 32)}, released model"
        start = v.lower_trivial if b.lower is None else b.lower
        rows.append(Mark(label, start, b.upper, interval(b.lower, b.upper), "interval", 3))
    if (truth := known_truth(report)) is not None:
        known = {
            "truth: this policy, in the process modelled": truth.v_policy_model,
            "truth: this policy": truth.v_policy,
            "truth: best possible policy": truth.v_star,
            "truth: policy that made the log": truth.v_behavior,
            "truth: uniform choice": truth.v_uniform,
        }
        rows += [Mark(name, x, x, number(x), "truth") for name, x in known.items()]
    return rows
