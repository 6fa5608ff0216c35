"""What the shipped studies say: ``python -P -m tests.campaigns.studies papers | trust`` rewrites a table.

``papers``: every claim of ``reproduce all``, with its verdict; cells that ``build/studies`` has of the same code are
not measured again.  ``trust``: who needs how many episodes, as ``compare --full`` says: from the most episodes down, as
far as the policy is good enough.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from flows.config.home import find_recipe
from flows.jobs.studies import load_study
from pipeline.online.cells import gathered_rows, measure
from pipeline.online.registry import AGENTS
from pipeline.online.study import bar_of
from pipeline.online.trial import Trial
from reticent import Store, reproduce
from tests.campaigns.resumed import Case, resumed
from tests.campaigns.rows import ROOT, Row, markdown, read, write

TRUST = ("trust_riverswim", "trust_mixture", "trust_icu_sepsis")


def papers(store: Store) -> list[Row]:
    """A row a claim."""
    claims = reproduce("all", store=store)["claims"]
    return [
        {"study": c["name"], "claim": c["claim"], "holds": "yes" if c["holds"] else "no", "where": c["regime"]}
        for c in claims
    ]


def trust(_: Store) -> list[Row]:
    """A row a world, agent and ε: the first n of the grid from which on the policy is good enough."""
    return [{"world": name.removeprefix("trust_"), **row} for name in TRUST for row in needed(find_recipe(name))]


def needed(recipe: Path) -> list[Case]:
    """A row an agent and ε of a study, without noise first."""
    study, curves = load_study(recipe), dict[Trial, list[Trial]]()
    cells = [cell for cell in study.listed(full=True) if isinstance(cell, Trial)]
    for cell in cells:
        curves.setdefault(replace(cell, episodes=0, seed=0), []).append(cell)
    learns_nothing = [cell for cell in cells if cell.agent == "uniform"]
    bar = bar_of(gathered_rows(learns_nothing, [measure(cell) for cell in learns_nothing], "suboptimality"))
    assert bar is not None
    # what is played at one number of episodes is a reference
    asked = {t: of for t, of in curves.items() if len({cell.episodes for cell in of}) > 1}
    order = sorted(asked, key=lambda t: (t.epsilon is not None, list(AGENTS).index(t.agent), t.epsilon))
    doing = {f"{study.study.name}, {t.agent}, {t.epsilon}": asked[t] for t in order}
    return resumed("trust", list(doing), lambda key: first_good(doing[key], bar))


def first_good(cells: Sequence[Trial], bar: float) -> Case:
    """From how many episodes on an agent's mean loss is at most ``bar``; below the last that is not, nothing counts."""
    first, trust = f"> {max(cell.episodes for cell in cells):,}", ""
    for n, of in groupby(sorted(cells, key=lambda cell: -cell.episodes), lambda cell: cell.episodes):
        runs = list(of)
        [row] = gathered_rows(runs, [measure(cell) for cell in runs], "suboptimality")
        trust = row["trust"]
        if row["mean"] > bar:
            break
        first = f"{n:,}"
    epsilon = cells[0].epsilon
    asked = "" if epsilon is None else f"{epsilon:g}"
    return {"trust": trust, "agent": cells[0].agent, "epsilon": asked, "episodes": first}


def shown(name: str) -> str:
    """A line a world and agent, an ε a column."""
    cells: dict[tuple[str, ...], dict[str, str]] = {}
    for r in read(name):
        cells.setdefault((r["world"], r["trust"], r["agent"]), {})[r["epsilon"]] = r["episodes"]
    budgets = sorted({e for of in cells.values() for e in of}, key=lambda e: float(e or "inf"))
    head = ["world", "trust", "agent", *(f"ε = {e}" if e else "no noise" for e in budgets)]
    return markdown(head, ([*who, *(of.get(e, "") for e in budgets)] for who, of in cells.items()))


def claims(name: str) -> str:
    """How many claims hold, and those that do not; the rows' own figures stand on a study's page."""
    rows = read(name)
    failed = [r for r in rows if r["holds"] != "yes"]
    table = markdown(["study", "claim that does not hold"], ([r["study"], r["claim"]] for r in failed))
    return f"{len(rows) - len(failed)} of {len(rows)} claims hold.\n\n{table}"


if __name__ == "__main__":
    measured = {"papers": papers, "trust": trust}
    for name in sys.argv[1:]:
        write(name, measured[name](Store(ROOT / "build" / "studies")))
