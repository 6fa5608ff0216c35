"""The page of a simulation: how an online agent did beside its baselines, and what a deployment would promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.declaration.numbers import number
from pipeline.studies.study_rows import Found, Rows
from reports.page import Figure, Part, Section, table
from reports.studies.curves import draw_curves, line_of
from reports.studies.study_page import INVENTED, Page

SEES = {
    "joint": "the server sees every episode; what the policies show anybody else about one user",
    "local": "nobody is trusted: what one user's own message shows the server",
    "shuffle": "the shuffler is trusted to mix: what the mixed messages show the server about one user",
    "central": "the curator holds the logs: what the release shows anybody about one user",
}


@dataclass(frozen=True)
class Played:
    """Gathered rows, the agent's first, then its baselines'.

    Parameters
    ----------
    name
        Of the recipe.
    rows
        Gathered rows.
    """

    name: str
    rows: Rows

    @property
    def mine(self) -> Found:
        """The agent's row."""
        return self.rows[0]


def figure_of(played: Played) -> Figure:
    """Regret curves of all rows in one panel."""
    lines = {str(r["agent"]): line_of(r) for r in played.rows}
    return draw_curves({str(played.mine["world"]): lines}, "regret", f"{played.mine['agent']} and its baselines")


def promise(row: Found) -> str:
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


def page_of(p: Played) -> Page:
    """What came out, what a deployment would guarantee, and the setting."""
    m, figure = p.mine, figure_of(p)
    beaten = [str(r["agent"]) for r in p.rows[1:] if m["mean"] + m["std"] < r["mean"] - r["std"]]
    lost = [str(r["agent"]) for r in p.rows[1:] if m["mean"] - m["std"] > r["mean"] + r["std"]]
    answer = (
        f"{m['agent']} in {m['world']}: regret {number(m['mean'])} ± {number(m['std'])} after {m['episodes']:,} "
        f"episodes, {m['runs']} runs. Clearly better than {_names(beaten)}; clearly worse than {_names(lost)}."
    )
    came_out = (
        Section("guarantee", "What a deployment would guarantee", (promise(m),)),
        Section("figure", "Regret", (figure.note,), figure),
        _totals(p),
    )
    foot = "Clearly: the bands of one standard deviation do not touch. Regret is exact, by planning in the known world."
    parts = [Part("What came out", came_out), Part("The setting", (_facts(p),))]
    return Page("simulation", p.name, f"{m['agent']}, simulated", answer, parts, foot, INVENTED)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) or "none of its baselines"


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
