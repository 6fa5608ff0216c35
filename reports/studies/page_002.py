"""Paper 002, Table I: its claims, regret against K under four trust models, and bounds beside measured exponents."""

from __future__ import annotations

import math

import numpy as np

from pipeline.declaration.numbers import number
from pipeline.studies.paper_002 import FROM, JOINT, LOCAL, MODELS, NONE, PE, PE_NONE, SHUFFLE, Evidence, claims, power
from pipeline.studies.study_rows import Found, Rows
from reports.figures.charts import Line, draw_curves
from reports.page import Figure, Section, Table, table
from reports.studies.study_page import PaperStudy, communication

_AGENTS = {NONE: "UCBVI", JOINT: "DP-UCBVI, joint", SHUFFLE: "counts-shuffle", LOCAL: "DP-UCBVI, local"}
_NAMES = {**_AGENTS, PE: "SDP-PE", PE_NONE: "SDP-PE, no noise", "uniform": "uniform choice"}
# Table I, with X, A, H, K and epsilon as printed and no constant or logarithm
_BOUNDS = {
    NONE: ("√(XAH³K)", "0.5", "–"),
    JOINT: ("√(XAH³K) + X²AH³/ε", "0 beyond the first term", "1"),
    LOCAL: ("√(XAH³K) + X²AH³√K/ε", "0.5", "1"),
    SHUFFLE: ("√(X²AH⁵K) + X³A²H⁶/ε (SDP-PE)", "0 beyond the first term", "1"),
}


def study_002(name: str, rows: Rows) -> PaperStudy:
    """The study of ``002-table-1``."""
    e = Evidence(rows)
    return PaperStudy(
        name=name,
        title="Paper 002, Table I: what each trust model costs",
        printed=(
            "Table I of paper 002 lists regret bounds: √K for all, plus a term of privacy that does not grow with K "
            "under joint (1/ε) and shuffle (1/ε) privacy, and √K/ε under local."
        ),
        claims=claims(rows),
        judged="in both worlds",
        figure=_figure(e),
        sections=(_regret(e), _spread(e), _bounds(e), _budgets(e), communication(rows), _setting(e)),
        foot=f"{name}: Table I of paper 002, measured in {' and '.join(e.worlds)}.",
    )


def _figure(e: Evidence) -> Figure:
    panels: dict[str, dict[str, Line]] = {}
    for world in e.worlds:
        panels[world] = {
            title: Line(
                e.episodes,
                [e.point(world, model, K)["mean"] for K in e.episodes],
                [float(e.point(world, model, K)["std"]) for K in e.episodes],
                model == "uniform",
            )
            for model, title in _NAMES.items()
        }
    note = "Each point is a set of runs of that K, at ε = 1, δ = 1e-5. Lines: mean; bands: one standard deviation."
    return draw_curves(
        panels, "table-1", "Regret after K episodes", y_title="regret after K episodes", note=note, reach=1e-9
    )


def _regret(e: Evidence) -> Section:
    words = (
        "Mean total regret after K episodes at ε = 1, δ = 1e-5; V* less the played policy's value, summed exactly.",
    )
    return Section("regret", "Regret", words, tables=tuple(_by_episodes(e, w) for w in e.worlds))


def _by_episodes(e: Evidence, world: str) -> Table:
    numbers = [power(K) for K in e.episodes]
    rows = [(title, *(number(e.point(world, m, K)["mean"], 3) for K in e.episodes)) for m, title in _NAMES.items()]
    return table(" | ".join(["Agent", *numbers]), rows, world, numeric=" | ".join(numbers))


def _spread(e: Evidence) -> Section:
    K = e.at  # noqa: N806
    words = (f"Total regret of the runs at K = {power(K)}, ε = 1: no mean hides a run that went wrong.",)
    rows: list[tuple[str, ...]] = []
    for world in e.worlds:
        for model, title in _NAMES.items():
            if model == "uniform":
                continue
            totals = np.array(e.point(world, model, K)["totals"])
            five = [number(float(q), 3) for q in np.quantile(totals, [0, 0.25, 0.5, 0.75, 1])]
            rows.append((world, title, *five, number(float(totals.std(ddof=1)), 2)))
    head = "World | Agent | Least | Lower quarter | Median | Upper quarter | Largest | sd"
    found = table(head, rows, numeric=" | ".join(head.split(" | ")[2:]), grouped=True)
    return Section("spread", "Every run", words, tables=(found,))


def _bounds(e: Evidence) -> Section:
    words = (
        "The table's bounds hold for all worlds up to constants and logarithms; their value at "
        f"K = {power(e.at)}, ε = 1 is given without either. Exponents of K are fitted from {power(FROM)} on: of the "
        "regret, and of what privacy adds to the same planner. A regret that has stopped growing has exponent 0: in a "
        "fixed world there is a gap, and once it is found nothing more is lost, while a bound over all worlds must "
        "allow for ever smaller ones.",
    )
    rows: list[tuple[str, ...]] = []
    for world in e.worlds:
        for model in (*MODELS, PE):
            bound, in_k, in_loss = _BOUNDS[SHUFFLE if model == PE else model]
            cost = "–" if model == NONE else number(e.slope_in_episodes(world, model, cost=True), 2)
            loss = "–" if model == NONE else number(e.slope_in_loss(world, model), 2)
            regret = number(e.slope_in_episodes(world, model, cost=False), 2)
            measured = number(e.point(world, model, e.at)["mean"], 3)
            rows.append(
                (world, _NAMES[model], bound, _value(e, world, model), measured, in_k, regret, cost, in_loss, loss)
            )
    head = (
        "World | Agent | Bound | Its value | Measured | Exponent of K, bound | Of the regret | Of privacy's cost | "
        "Exponent of 1/ε, bound | Measured exponent"
    )
    right = "Its value | Measured | Of the regret | Of privacy's cost | Measured exponent"
    found = table(head, rows, numeric=right, grouped=True)
    return Section("bounds", "Bounds and measured exponents", words, tables=(found,))


def _value(e: Evidence, world: str, model: str) -> str:
    X, A, H = e.point(world, NONE, e.at)["facts"].get("shape", [])  # noqa: N806
    K = e.at  # noqa: N806
    first = math.sqrt(X * A * H**3 * K)
    return number(
        {
            NONE: first,
            JOINT: first + X**2 * A * H**3,
            LOCAL: first + X**2 * A * H**3 * math.sqrt(K),
        }.get(model, math.sqrt(X**2 * A * H**5 * K) + X**3 * A**2 * H**6),
        3,
    )


def _budgets(e: Evidence) -> Section:
    words = (f"Mean total regret at K = {power(e.at)}.",)
    head = [f"ε = {number(b)}" for b in e.budgets]
    rows = [
        (
            world,
            _NAMES[m],
            *(number(e.point(world, m, e.at, b)["mean"], 3) for b in e.budgets),
            number(e.point(world, base, e.at)["mean"], 3),
        )
        for world in e.worlds
        for m, base in ((JOINT, NONE), (SHUFFLE, NONE), (LOCAL, NONE), (PE, PE_NONE))
    ]
    found = table(
        " | ".join(["World", "Agent", *head, "no noise"]), rows, numeric=" | ".join([*head, "no noise"]), grouped=True
    )
    return Section("budgets", "Regret against ε", words, tables=(found,))


def _setting(e: Evidence) -> Section:
    rows = {
        (_NAMES[at[1]], str(p["variant"]), str(p["constants"] or "–"), _delivered(p))
        for at, p in e.points.items()
        if at[1] in _NAMES and at[1] != "uniform" and at[2] == e.at and at[3] in (None, 1.0)
    }
    runs = sorted({int(p["runs"]) for at, p in e.points.items() if at[1] != "uniform"})
    words = (
        f"{' or '.join(map(str, runs))} runs a point. Rewards are learnt by everybody. UCBVI's four versions are one "
        "planner with one set of constants, chosen on other seeds; batches end at the same rule. Joint: a tree over "
        "batches. Local: a Gaussian in each user's own counts. Shuffle: one-bit messages, each batch a release.",
        "Rows of the paper's own algorithm are those of its practical mode: with the constants of its theorem nothing "
        "is eliminated below 10⁹ episodes.",
    )
    found = table("Agent | Variant | Constants | True ε at ε = 1", sorted(rows), numeric="True ε at ε = 1")
    return Section("setting", "The setting", words, tables=(found,))


def _delivered(row: Found) -> str:
    return "–" if row["true_epsilon"] is None else number(float(row["true_epsilon"]), 3, "up")
