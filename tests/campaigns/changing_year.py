"""A year of nights that are left alone, another world from July on: its rows, and its picture in docs/operate.md.

``python -P -m tests.campaigns.changing_year`` plays it through the command line (tests/flows/changing.py): a thousand
people come every third night, half of them meet the run in use, and one counter of 365 nights, with a window and with
drift, pays for all.
"""

import tempfile
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import vl_convert

from reports.figures.charts import GREY, PALETTE
from tests.campaigns.rows import ROOT, Row, read, write
from tests.flows.changing import Clinic
from tests.flows.test_played_runs import call

FIRST, NIGHTS, EVERY, CHANGES, WINDOW = date(2025, 1, 1), 365, 3, 184, 30
PICTURE = ROOT / "docs" / "assets" / "changing_year.svg"
INK = "#22262a"
_ARMS = {"reward": "all who came", "policy": "released: the run in use", "practice": "released: practice"}
_OUTCOMES = {"promoted": PALETTE[2], "held": PALETTE[5], "withdrawn": PALETTE[1]}


def played(folder: Path) -> Iterator[Row]:
    """A row a night: mean reward of all who came, what was released of either arm, ρ so far, and what became of it."""
    home = folder / "home"
    told = {"first": FIRST, "nights": NIGHTS, "changes": CHANGES, "window": WINDOW}
    clinic = Clinic(folder / "clinic", lambda *words: call(home, *words), **told)
    for night in range(1, NIGHTS + 1, EVERY):
        told = clinic.night(night)
        moved, arms = told["promotion"], told["night"].get("played") or {}
        yield {
            "night": night,
            "reward": f"{clinic.rewards[-1]:.3f}",
            **{arm: f"{arms[arm]:.3f}" if arms else "" for arm in ("policy", "practice")},
            "rho": f"{told['ledger']['spent_rho']:.3f}",
            "served": "practice" if moved["before"] is None else "the run in use",
            "outcome": "promoted" if moved["promoted"] else "withdrawn" if moved["now"] != moved["before"] else "held",
        }


def shown(name: str) -> str:
    """The picture, and what is to be seen in it."""
    rows = read(name)
    gone = [int(r["night"]) for r in rows if r["outcome"] == "withdrawn"]
    back = next(int(r["night"]) for r in rows if r["outcome"] == "promoted" and int(r["night"]) > gone[-1])
    arm = {arm: {int(r["night"]): float(r[arm]) for r in rows if r[arm]} for arm in ("policy", "practice")}
    before = _mean([x for n, x in arm["policy"].items() if n < CHANGES])
    after = _mean([x for n, x in arm["policy"].items() if n > gone[-1]])
    told = (
        f"A simulated year, {len(rows)} nights of 1,000 people: `window = {WINDOW}`, ρ = {rows[-1]['rho']} in all; on "
        f"night {CHANGES} what helped begins to\nharm. Withdrawn: night {', '.join(map(str, gone))}; promoted again: "
        f"night {back}. Released means an episode: {before} under the runs in use before,\n{after} after, "
        f"{_mean([*arm['practice'].values()])} under practice; the best policy is worth 4."
    )
    return f"![Reward, ρ and promotions of a year, night by night](assets/{PICTURE.name})\n\n{told}"


def _mean(values: list[float]) -> str:
    return f"{sum(values) / len(values):.2f}"


def picture(rows: list[dict[str, str]]) -> str:
    """SVG of three strips over the year: reward by night, ρ by night, what became of each night's run."""
    points = [
        {"day": _day(int(r["night"])), "who": words, "reward": float(r[arm]), "stretch": stretch}
        for stretch, (_, there) in enumerate(groupby(rows, lambda r: r["served"]))
        for r in there
        for arm, words in _ARMS.items()
        if r[arm]
    ]
    spent = [{"day": _day(1), "rho": 0.0}, *({"day": _day(int(r["night"])), "rho": float(r["rho"])} for r in rows)]
    runs: list[dict[str, Any]] = []
    for outcome, there in groupby(rows, lambda r: r["outcome"]):
        nights = [int(r["night"]) for r in there]
        runs.append({"run": outcome, "day": _day(nights[0]), "until": _day(nights[-1] + EVERY)})
    ends = [{"year": year, "month": 1, "date": 1} for year in (FIRST.year, FIRST.year + 1)]
    axis = {"format": "%b", "grid": False}
    x = {"field": "day", "type": "temporal", "title": None, "axis": axis, "scale": {"domain": ends}}
    changed = {"values": [{"day": _day(CHANGES), "words": "the world changes"}]}
    rule = {"data": changed, "mark": {"type": "rule", "strokeDash": [4, 3], "color": INK}, "encoding": {"x": x}}
    mark = {"type": "text", "align": "left", "dx": 5, "y": 10, "color": INK}
    words = {"data": changed, "mark": mark, "encoding": {"x": x, "text": {"field": "words"}}}
    strips = (180, [_reward(points, x), rule, words]), (60, [_spent(spent, x), rule]), (50, [_runs(runs, x), rule])
    return vl_convert.vegalite_to_svg(
        {
            "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
            "background": "#ffffff",
            # the legend is drawn wider than its words were measured
            "padding": {"left": 5, "top": 5, "right": 30, "bottom": 5},
            "config": {"view": {"stroke": None}, "legend": {"title": None, "symbolType": "stroke"}},
            "resolve": {"scale": {"color": "independent"}},
            "vconcat": [{"width": 560, "height": height, "layer": layers} for height, layers in strips],
        }
    )


def _day(night: int) -> str:
    return f"{FIRST + timedelta(days=night - 1)}T00:00"


def _reward(points: list[dict[str, Any]], x: dict[str, Any]) -> dict[str, Any]:
    y = {"field": "reward", "type": "quantitative", "title": "reward an episode", "scale": {"domain": [0, 5]}}
    colours = {"domain": [*_ARMS.values()], "range": [GREY, *PALETTE[:2]]}
    who = {"field": "who", "type": "nominal", "scale": colours}
    of = {"x": x, "y": y, "color": who, "detail": {"field": "stretch"}}
    return {"data": {"values": points}, "mark": {"type": "line", "strokeWidth": 1.3}, "encoding": of}


def _spent(nights: list[dict[str, Any]], x: dict[str, Any]) -> dict[str, Any]:
    y = {"field": "rho", "type": "quantitative", "title": "ρ so far", "scale": {"domain": [0, 1.2]}}
    return {"data": {"values": nights}, "mark": {"type": "line", "color": PALETTE[3]}, "encoding": {"x": x, "y": y}}


def _runs(runs: list[dict[str, Any]], x: dict[str, Any]) -> dict[str, Any]:
    y = {"field": "run", "type": "nominal", "title": None, "sort": [*_OUTCOMES]}
    colours = {"domain": [*_OUTCOMES], "range": [*_OUTCOMES.values()]}
    run = {"field": "run", "type": "nominal", "scale": colours, "legend": None}
    return {
        "data": {"values": runs},
        "mark": {"type": "bar", "height": 11},
        "encoding": {"x": x, "x2": {"field": "until"}, "y": y, "color": run},
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write("changing_year", list(played(Path(folder))))
    PICTURE.write_text(picture(read("changing_year")), encoding="utf-8")
