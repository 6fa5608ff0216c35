"""What the shipped studies say: ``python -P -m tests.campaigns.studies papers | trust`` rewrites a table.

``papers``: every claim of ``reproduce all``, with its verdict.  ``trust``: who needs how many episodes, by ``compare
--full``.  Cells that ``build/studies`` has of the same code are not measured again.
"""

from __future__ import annotations

import sys

from reticent import Store, compare, reproduce
from tests.campaigns.rows import ROOT, Row, markdown, read, write

TRUST = ("trust_riverswim", "trust_mixture", "trust_icu_sepsis")


def papers(store: Store) -> list[Row]:
    """A row a claim."""
    claims = reproduce("all", store=store)["claims"]
    return [
        {"study": c["name"], "claim": c["claim"], "holds": "yes" if c["holds"] else "no", "where": c["regime"]}
        for c in claims
    ]


def trust(store: Store) -> list[Row]:
    """A row a world, agent and ε: the first n of the grid from which on the policy is good enough."""
    return [{"world": name.removeprefix("trust_"), **row} for name in TRUST for row in _needed(name, store)]


def _needed(name: str, store: Store) -> list[Row]:
    return [
        {
            "trust": r["trust"],
            "agent": r["agent"],
            "epsilon": "" if r["epsilon"] is None else f"{r['epsilon']:g}",
            "episodes": f"> {r['most']:,}" if r["episodes"] is None else f"{r['episodes']:,}",
        }
        for r in compare(name, full=True, store=store)["needed"]
    ]


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
