"""The page of a simulation: how an online agent did beside its baselines, and what a deployment would promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.format import number
from reports.page import Figure, Part, Section, table, templates
from reports.regret_figure import line_of, regret_figure

BANNER = "simulation, not private: the noise is seeded and the people are invented."
SEES = {
    "joint": "the server sees every episode; what the policies show anybody else about one user",
    "local": "nobody is trusted: what one user's own message shows the server",
    "shuffle": "the shuffler is trusted to mix: what the mixed messages show the server about one user",
    "central": "the curator holds the logs: what the release shows anybody about one user",
}


@dataclass(frozen=True)
class Played:
    """Gathered rows, the agent's first, then its baselines'."""

    name: str
    rows: Sequence[Mapping[str, Any]]

    @property
    def mine(self) -> Mapping[str, Any]:
        """The agent's row."""
        return self.rows[0]


def page_html(played: Played) -> str:
    """The page as one file that loads nothing."""
    return templates().get_template("study.html.j2").render(opening=_opening(played), parts=_parts(played))


def page_markdown(played: Played) -> str:
    """The same words and tables as Markdown."""
    return templates().get_template("study.md.j2").render(opening=_opening(played), parts=_parts(played))


def figure_of(played: Played) -> Figure:
    """Regret curves of all rows in one panel."""
    lines = {str(r["agent"]): line_of(r) for r in played.rows}
    return regret_figure({str(played.mine["world"]): lines}, "regret", f"{played.mine['agent']} and its baselines")


def promise(row: Mapping[str, Any]) -> str:
    """What a deployment of the agent would guarantee, in one sentence."""
    if row["trust"] == "none":
        return f"{row['agent']} adds no noise and would promise nothing."
    true = row["true_epsilon"]
    asked = (
        f"asked: ε = {number(row['epsilon'], toward='up')} at δ = {row['delta']:g}, {row['calibration']} calibration"
    )
    real = "" if true is None else f"; the noise drawn is worth ε = {number(true, toward='up')}"
    unit = "one user is one episode, replaced by any other"
    return f"Trust model {row['trust']} ({SEES[row['trust']]}); {unit}; {asked}{real}."


def _opening(p: Played) -> dict[str, str]:
    m = p.mine
    beaten = [str(r["agent"]) for r in p.rows[1:] if m["mean"] + m["std"] < r["mean"] - r["std"]]
    lost = [str(r["agent"]) for r in p.rows[1:] if m["mean"] - m["std"] > r["mean"] + r["std"]]
    answer = (
        f"{m['agent']} in {m['world']}: regret {number(m['mean'])} ± {number(m['std'])} after {m['episodes']:,} "
        f"episodes, {m['runs']} runs. Clearly better than {_names(beaten)}; clearly worse than {_names(lost)}."
    )
    foot = "Clearly: the bands of one standard deviation do not touch. Regret is exact, by planning in the known world."
    return {
        "kind": "simulation",
        "name": p.name,
        "title": f"{m['agent']}, simulated",
        "banner": BANNER,
        "answer": answer,
        "foot": foot,
    }


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none of its baselines"


def _parts(p: Played) -> list[Part]:
    figure = figure_of(p)
    return [
        Part(
            "What came out",
            (
                Section("guarantee", "What a deployment would guarantee", (promise(p.mine),)),
                Section("figure", "Regret", (figure.note,), figure),
                _totals(p),
            ),
        ),
        Part("The setting", (_facts(p),)),
    ]


def _totals(p: Played) -> Section:
    rows = [
        (
            str(r["agent"]),
            str(r["trust"]),
            number(r["mean"]),
            number(r["std"]),
            number(min(r["totals"])),
            number(max(r["totals"])),
            f"{r['runs']}",
        )
        for r in p.rows
    ]
    head = "Agent | Trust | Mean | Std | Least | Most | Runs"
    found = table(head, rows, f"Total regret after {p.mine['episodes']:,} episodes", "Mean | Std | Least | Most | Runs")
    return Section(
        "totals", "Total regret", ("Controls learn nothing: what does not beat them has not learnt.",), tables=(found,)
    )


def _facts(p: Played) -> Section:
    rows = [
        (str(r["agent"]), key.replace("_", " "), number(value) if isinstance(value, str | int | float) else str(value))
        for r in p.rows
        for key, value in r["facts"].items()
        if key not in ("trust", "variant") and value is not None
    ]
    words = ("What each agent said of its first run.",)
    return Section("facts", "Agents", words, tables=(table("Agent | Fact | Value", rows, grouped=True),))
