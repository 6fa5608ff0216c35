"""Paper 003, Figure 1, redrawn: what a policy loses against the best one, by number of logged episodes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reports.claims_003 import Evidence
from reports.format import number
from reports.page import Figure
from reports.pooled import Key
from reports.svg import INK, inline

Rows = Sequence[Mapping[str, Any]]
# name, colour (Paul Tol's "bright" scheme), dashes
Style = tuple[str, str, list[int]]
_NOTE = (
    "Lines: mean over runs and worlds. Bands: one standard deviation up and down, differences between worlds included."
)
_GREY = "#999999"
_SOLID, _DASH, _DOT = [1, 0], [7, 4], [2, 3]

_CONTROLS: dict[Key, Style] = {
    ("always-first", "control", None): ("always action 0", _GREY, _DASH),
    ("behaviour", "control", None): ("behaviour", _GREY, _SOLID),
    ("uniform", "control", None): ("uniform", _GREY, _DOT),
}
_UNIFORM: Key = ("uniform", "control", None)
VARIANTS = {
    "literal": "As printed (spends {} × ρ)",
    "normalised": "Features over √7, printed noise ({} × ρ)",
    "centred": "Our calibration, centred ({} × ρ)",
    "one-shot": "Our calibration, one release ({} × ρ)",
}
_WIDE, _HIGH = 310, 270
_BUDGETS = ("#ee6677", "#ccbb44", "#4477aa")


def figure_1a(rows: Rows) -> Figure:
    """Algorithms side by side, DP-VAPVI at the smallest budget of the grid."""
    e = Evidence(rows)
    rho = e.budgets[0]
    at = f"ρ = {number(rho)}"
    panels: dict[str, dict[Key, Style]] = {
        f"As printed: {at} asked, {_true(e, 'literal', rho)} spent": {
            ("vapvi", "literal", None): ("VAPVI", "#4477aa", _SOLID),
            ("pevi", "literal, matched β", None): ("PEVI, β = C √d", "#66ccee", _DASH),
            ("pevi", "literal, theory β", None): ("PEVI, β = c d H √log", "#aa3377", _SOLID),
            ("dp-vapvi", "literal", rho): ("DP-VAPVI, printed noise", "#ee6677", _SOLID),
            **_CONTROLS,
        },
        f"Features over √7, {at} asked and held": {
            ("vapvi", "normalised", None): ("VAPVI", "#4477aa", _SOLID),
            ("pevi", "normalised, matched β", None): ("PEVI, β = C √d", "#66ccee", _DASH),
            ("pevi", "normalised, theory β", None): ("PEVI, β = c d H √log", "#aa3377", _SOLID),
            ("dp-vapvi", "normalised", rho): ("DP-VAPVI, printed noise", "#ee6677", _SOLID),
            ("dp-vapvi", "centred", rho): ("DP-VAPVI, centred (ours)", "#228833", _SOLID),
            ("dp-vapvi", "one-shot", rho): ("DP-VAPVI, one-shot (ours)", "#228833", _DOT),
            **_CONTROLS,
        },
    }
    return _drawn(e, panels, "figure-1a", f"PEVI, VAPVI and DP-VAPVI at {at}")


def figure_1b(rows: Rows) -> Figure:
    """DP-VAPVI at every budget of the grid, a panel a variant, VAPVI beside it."""
    e = Evidence(rows)
    panels: dict[str, dict[Key, Style]] = {}
    for variant in e.variants:
        features = "literal" if variant == "literal" else "normalised"
        lines: dict[Key, Style] = {
            ("dp-vapvi", variant, rho): (f"ρ = {number(rho)} asked", colour, dash)
            for rho, colour, dash in zip(e.budgets, _BUDGETS, (_SOLID, _DASH, _DOT), strict=False)
        }
        lines["vapvi", features, None] = ("no noise (VAPVI)", INK, _SOLID)
        spent = _true(e, variant, e.budgets[0], ratio=True)
        panels[VARIANTS[variant].format(spent)] = {**lines, _UNIFORM: _CONTROLS[_UNIFORM]}
    return _drawn(e, panels, "figure-1b", "DP-VAPVI at several budgets")


def _true(e: Evidence, variant: str, rho: float, *, ratio: bool = False) -> str:
    found = (r for r in e.rows if (r["agent"], r["variant"], r["rho"]) == ("dp-vapvi", variant, rho))
    true = float(next(found)["true_rho"])
    return number(true / rho if ratio else true, 3, "up")


def _drawn(e: Evidence, panels: Mapping[str, Mapping[Key, Style]], key: str, title: str) -> Figure:
    """Lines, with bands of one standard deviation round the learners; one facet a panel, one legend for all."""
    import altair as alt

    styles = {name: (colour, dash) for lines in panels.values() for name, colour, dash in lines.values()}
    styles = dict(sorted(styles.items(), key=lambda item: item[1][0] == _GREY))
    names, (colours, dashes) = list(styles), zip(*styles.values(), strict=True)
    legend = alt.Legend(
        title=None, symbolType="stroke", symbolSize=600, labelLimit=260, labelFontSize=12, labelColor=INK
    )
    palette = alt.Scale(domain=names, range=list(colours))
    colour = alt.Color("name:N", scale=palette, sort=names, legend=legend)
    dash = alt.StrokeDash("name:N", scale=alt.Scale(domain=names, range=list(dashes)), sort=names, legend=legend)
    x = alt.X(
        "K:Q",
        scale=alt.Scale(type="log", domain=[e.episodes[0], e.episodes[-1]], nice=False),
        axis=alt.Axis(title="logged episodes K", values=_ticks(e), format=",", grid=False, labelOverlap="greedy"),
    )
    marks = list(_marks(e, panels))
    scale = alt.Scale(domain=[0, 1.05 * max(m["mean"] for m in marks)], nice=False, clamp=True)
    axis = alt.Axis(title="v* − v of the policy", gridOpacity=0.15, gridColor=INK)
    base = alt.Chart().encode(x=x)
    band = base.mark_area(opacity=0.15).encode(
        y=alt.Y("low:Q", scale=scale, axis=axis), y2="high:Q", fill=alt.Fill("colour:N", scale=None), detail="name:N"
    )
    line = base.mark_line(strokeWidth=2).encode(
        y=alt.Y("mean:Q", scale=scale, axis=axis), color=colour, strokeDash=dash
    )
    header = alt.Header(title=None, labelColor=INK, labelFontSize=13, labelAnchor="start")
    chart = (
        alt.layer(band, line, data=alt.Data(values=marks))
        .properties(width=_WIDE, height=_HIGH)
        .facet(facet=alt.Facet("panel:N", sort=list(panels), title=None, header=header), columns=2)
    )
    frame = 60 + 2 * (_WIDE + 20) + 220, 50 + (_HIGH + 40) * math.ceil(len(panels) / 2)
    text = _words(e, panels, title)
    return Figure(inline(chart, key, title, text, 60, frame), text, _NOTE)


def _marks(e: Evidence, panels: Mapping[str, Mapping[Key, Style]]) -> Iterator[dict[str, Any]]:
    for panel, lines in panels.items():
        for curve, (name, colour, _) in lines.items():
            for episodes, p in e.curves[curve].items():
                # a control has no spread but that between the worlds
                sd = 0.0 if curve in _CONTROLS else p.sd
                band = {"low": max(p.mean - sd, 0.0), "high": p.mean + sd}
                yield {"panel": panel, "name": name, "colour": colour, "K": episodes, "mean": p.mean, **band}


def _ticks(e: Evidence) -> list[int]:
    """Powers of ten and the ends of the grid."""
    return [K for K in e.episodes if K in (e.episodes[0], e.episodes[-1]) or str(K).rstrip("0") == "1"]


def _words(e: Evidence, panels: Mapping[str, Mapping[Key, Style]], title: str) -> str:
    """The figure for those who cannot see it: every line by its ends."""
    first, last = e.episodes[0], e.episodes[-1]
    said = [f"{title}: mean loss against the best policy at K = {first:,} and K = {last:,}."]
    for panel, lines in panels.items():
        ends = (
            f"{name} {number(e.curves[curve][first].mean, 3)} and {number(e.curves[curve][last].mean, 3)}"
            for curve, (name, _, _) in lines.items()
        )
        said.append(f"{panel}: {', '.join(ends)}.")
    return " ".join(said)
