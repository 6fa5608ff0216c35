"""Every row of the README's paper map, from its shipped recipe to a page: ``python -P -m tests.campaigns.paper_map``.

Offline recipes draw the operating system's noise once and are judged in the known world, exactly; simulated ones have
the seeds of their recipe, and the interval is Student's over them.  The nights are played by an outside system.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl

from flows.config.study_recipes import is_world_recipe
from pipeline.declaration.numbers import number
from pipeline.declaration.toml import read_toml
from pipeline.mdp.planning import policy_value
from reports.facts.measurement import Spread
from reports.facts.report import Report, read_report
from tests.campaigns.rows import ROOT, write
from tests.flows.test_learning_nights import FIRST, Outside
from tests.flows.test_played_runs import call
from tests.reports.browser import CHROMIUM, Tab, browser

RECIPES = ROOT / "flows" / "recipes"
NIGHTS = "riverswim_nights"
# first words of a row of the map -> its recipes
MAP: Mapping[str, tuple[str, ...]] = {
    "DP-APVI": ("riverswim",),
    "APVI": ("riverswim_baseline",),
    "count consistency": ("riverswim",),
    "dp-one-step": ("demo",),
    "DP-VAPVI, VAPVI": ("riverswim_linear",),
    "PEVI": ("riverswim_pevi",),
    "one-shot linear planning": ("riverswim_one_shot",),
    "LDP-UCRL-VTR, UCRL-VTR": ("riverswim_ldp",),
    "Private-LinOpt-VI, LinOpt-VI": ("riverswim_linopt_vi",),
    "Private-LinOpt-PO, LinOpt-PO": ("riverswim_linopt_po",),
    "DP-UCBVI, UCBVI": ("riverswim_joint", "riverswim_local_counts", "riverswim_shuffle"),
    "DP-UCBVI on nights": (NIGHTS,),
    "SDP-PE": ("riverswim_elimination",),
    "dp-lqr, the offline use of paper 004": ("double_integrator",),
    "explore, then commit": ("lq_explore",),
    "Private-OFU-RL, OFU-RL": ("lq_optimism",),
    "private adaptive LQR": ("adaptive_lqr",),
}
# what is lost by a policy that learns nothing, by the name it has in a simulated run
CONTROLS = ("uniform", "behaviour", "zero")
_ROW = re.compile(r"(?m)^\| (?!algorithm)([^|(:]+?)(?: \(|:| \|)")


def rows_of_the_map() -> list[str]:
    """First words of every row of the README's paper map."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return _ROW.findall(readme.partition("## Paper map")[2].partition("\n\nEvery row")[0])


def ran(recipe: str, home: Path) -> dict[str, Any]:
    """What the recipe's verb answers; a log is ingested before."""
    values = read_toml(RECIPES / f"{recipe}.toml")
    if is_world_recipe(values):
        return call(home, "simulate", recipe)
    call(home, "ingest", values["recipe"]["card"])
    return call(home, "run", recipe)


def nights(folder: Path, home: Path) -> tuple[dict[str, Any], dict[str, float]]:
    """Ten nights of the recipe on a river that follows them: the last answer, and what its policy and uniform lose."""
    outside = Outside(folder, lambda *words: call(home, *words), people=1000)
    answers = [outside.night(k) for k in range(1, 11)]
    assert call(home, "nightly", folder / "explore.toml", "--night", FIRST + timedelta(days=9))["replayed"]
    lost = outside.best - policy_value(outside.mdp, outside.policy("current"))
    return answers[-1], {"loses": lost, "uniform": outside.losses[0]}


def lost(report: Report) -> dict[str, float]:
    """Suboptimality of the policy, with its interval over seeds, and of what learns nothing; reward units."""
    if (sim := report.simulation) is not None:
        own, spreads = sim.agents[0].suboptimality, {a.agent: a.suboptimality for a in sim.agents}
        ends = {} if own is None else {"loses": own.mean, "lower": own.lower, "upper": own.upper}
        found = ends | {name: s.mean for name in CONTROLS if (s := spreads.get(name)) is not None}
    else:
        t = report.truth
        assert t is not None
        values = {"loses": t.v_policy, "uniform": t.v_uniform, "behaviour": t.v_behavior, "zero": t.v_zero}
        found = {name: t.v_star - v for name, v in values.items() if v is not None}
    return {name: value for name, value in found.items() if value is not None}


def opened(tab: Tab | None, page: Path) -> str:
    """Whether a browser opens the page, asks for nothing else and complains of nothing."""
    if tab is None:
        return "no browser here"
    tab.open(page)
    asked = {told["request"]["url"] for told in tab.said("Network.requestWillBeSent")}
    wrong = tab.said("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
    return "yes" if asked == {page.resolve().as_uri()} and not wrong and tab.ask("document.title") else "no"


def measured(name: str, recipe: str, home: Path, tab: Tab | None, folder: Path) -> dict[str, str]:
    """A line of the table: what the recipe left, and what it is worth."""
    if recipe == NIGHTS:
        answer, found = nights(folder, home / NIGHTS)
        home = home / NIGHTS
    else:
        answer = ran(recipe, home)
        found = lost(read_report(Path(answer["folder"])))
    at = Path(answer["folder"])
    report, proof = read_report(at), call(home, "ledger", "verify", answer["run"])
    policy, g, sim = pl.read_parquet(at / "policy.parquet"), report.guarantee, report.simulation
    between = f"{_said(found['lower'])} to {_said(found['upper'])}" if "lower" in found else "exact"
    return {
        "row of the map": name,
        "recipe": recipe,
        "trust": "none" if g.epsilon is None else g.trust_model,
        "policy": "gains" if "control" in policy.columns else "decisions",
        "page opens": opened(tab, at / "report.html"),
        "verifies": "yes" if proof["ok"] and proof["vouched"] else "no",
        "loses": _said(found["loses"]),
        "over seeds": between,
        **{told: _said(found.get(control)) for told, control in zip(_HEADS, CONTROLS, strict=True)},
        "asked": ", ".join(f"{_LETTERS.get(k, k)} = {number(v)}" for k, v in g.asked.items() if k != "delta") or "–",
        "true ε": "–" if g.epsilon is None else f"{number(g.epsilon, 4, 'up')} at δ = {g.delta:g}",
        "regret": "–" if sim is None else _spread(sim.agents[0].regret),
        "a user sends": "–" if sim is None or sim.communication is None else f"{sim.communication.bits:,} bits",
    }


_HEADS = ("uniform loses", "practice loses", "zero controller loses")
_LETTERS = {"epsilon": "ε", "rho": "ρ"}


def _said(value: float | None) -> str:
    return "–" if value is None else number(value, 3)


def _spread(s: Spread) -> str:
    return f"{number(s.mean)} ± {number(s.std, 2)}"


def lines(recipes: Sequence[str], home: Path, folder: Path) -> Iterator[dict[str, str]]:
    """The rows of these recipes; no recipe: all."""
    with ExitStack() as stack:
        tab = None if CHROMIUM is None else stack.enter_context(browser(folder / "profile"))
        for name, own in MAP.items():
            for recipe in own:
                if not recipes or recipe in recipes:
                    yield measured(name, recipe, home, tab, folder / recipe)


def main(recipes: Sequence[str]) -> None:
    """Print a line a recipe; keep the rows where all were run."""
    found = list[dict[str, str]]()
    with tempfile.TemporaryDirectory() as temporary:
        for row in lines(recipes, Path(temporary) / "home", Path(temporary)):
            found.append(row)
            print("| " + " | ".join(row.values()) + " |", flush=True)
    if not recipes:
        write("paper_map", found, "of simulated runs 0 .. 3, of the river at night 7, else the operating system's")


if __name__ == "__main__":
    main(sys.argv[1:])
