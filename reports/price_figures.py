"""The two pictures of a comparison: suboptimality against episodes, and against epsilon."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.format import number
from reports.page import Figure
from reports.price_evidence import Priced
from reports.regret_figure import Line, regret_figure

LABELS = {
    "ucbvi": "no privacy",
    "apvi": "no privacy, from a log",
    "dp-apvi": "central, from a log",
    "dp-ucbvi-jdp": "joint",
    "counts-shuffle": "shuffle",
    "dp-ucbvi-ldp": "local",
    "ucrl-vtr": "no privacy",
    "private-linopt-vi": "joint",
    "ldp-ucrl-vtr": "local",
}
# nothing below this share of the largest value of a panel is given room
_REACH = 1e-4
_MOST_PANELS = 4
_NOTE = (
    "Lines: mean over runs of v* − v of the policy handed over; bands: nine runs in ten lie above the lower edge and "
    "nine in ten below the upper. What is smaller than the axis shows lies on its foot. Grey: controls that learn "
    "nothing, and the bar."
)


def against_episodes(p: Priced, family: str) -> Figure:
    """One panel a budget; what needs no budget is in each."""
    panels: dict[str, dict[str, Line]] = {}
    for e in p.budgets:
        lines = {
            LABELS[agent]: _line(p.of(agent, None if agent in p.families[family].plain.values() else e), "episodes")
            for agent in p.families[family].agents
        }
        panels[f"ε = {number(e)}"] = lines | _flat(p, family, [p.episodes[0], p.episodes[-1]])
    return regret_figure(
        panels,
        f"{family}-episodes",
        "Suboptimality against episodes",
        x_title="episodes",
        y_title="suboptimality",
        note=_NOTE,
        reach=_REACH,
    )


def against_budget(p: Priced, family: str) -> Figure | None:
    """One panel a number of episodes, a few of them; None where there is one budget only."""
    if len(p.budgets) < 2:
        return None
    panels: dict[str, dict[str, Line]] = {}
    for n in _few(p.episodes):
        at = [r for r in p.rows if r["episodes"] == n and r["variant"] != "control"]
        lines: dict[str, Line] = {}
        for agent in p.families[family].agents:
            mine = sorted((r for r in at if r["agent"] == agent), key=lambda r: r["epsilon"] or 0.0)
            if agent in p.families[family].plain.values():
                mine = [{**mine[0], "epsilon": e} for e in (p.budgets[0], p.budgets[-1])]
            lines[LABELS[agent]] = _line(mine, "epsilon")
        panels[f"{n:,} episodes"] = lines | _flat(p, family, [p.budgets[0], p.budgets[-1]])
    return regret_figure(
        panels,
        f"{family}-budget",
        "Suboptimality against ε",
        x_title="ε",
        y_title="suboptimality",
        note=_NOTE,
        reach=_REACH,
        x_format="~g",
    )


def _line(rows: Sequence[Mapping[str, Any]], by: str) -> Line:
    mean, std, low, high = ([float(r[key]) for r in rows] for key in ("mean", "std", "low", "high"))
    return Line([r[by] for r in rows], mean, std, low=low, high=high)


def _flat(p: Priced, family: str, ends: Sequence[float]) -> dict[str, Line]:
    """Controls and the bar: they need no episodes."""
    deaf = next(r for r in p.rows if r["of"] == p.families[family].unread[0] and r["agent"] == "no-data")
    levels = {"uniform choice": p.uniform, "no data": float(deaf["mean"]), "the bar": p.bar}
    return {name: Line(ends, [level] * 2, [0.0] * 2, control=True) for name, level in levels.items()}


def _few(episodes: Sequence[int]) -> list[int]:
    """At most four numbers of episodes, at even distances."""
    last = len(episodes) - 1
    return [episodes[round(i * last / (_MOST_PANELS - 1))] for i in range(_MOST_PANELS)] if last > 3 else [*episodes]
