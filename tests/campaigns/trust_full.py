"""Rows of ``compare NAME --full``: ``python -P -m tests.campaigns.trust_full HOME [NAME..]``.

Nothing is played: an agent at one epsilon and n is a row once all its runs are kept in the home, and what is missing is
said.  So a comparison may be stopped, and goes on where it was; its cells are of one state of the code.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from flows.config.study_recipes import load_price_recipe
from pipeline.declaration.numbers import number
from pipeline.simulation.trial import Trial
from pipeline.studies.price import BAR, CONTROLS, PricedRow, episodes_needed, price_rows
from pipeline.studies.price_claims import Priced, claims
from pipeline.studies.study import kept_places, online
from tests.campaigns.rows import ROOT, place, read, write

NAMES = ("trust_riverswim", "trust_mixture", "trust_icu_sepsis")
CLAIMS = "trust_claims"
COLUMNS = ("agent", "of", "trust", "epsilon", "episodes", "runs", "mean", "std", "low", "high", "true_epsilon", "bits")


def main(home: Path, name: str) -> None:
    """Keep the rows of what is complete, and say how much that is; the verdicts too, once all is."""
    of = f"reticent compare {name} --full"
    trials = load_price_recipe(ROOT / "flows" / "recipes" / f"{name}.toml").grid(full=True).trials()
    found: dict[Trial, list[Path]] = {}
    for trial, path in kept_places(online("compare", lambda: trials), trials, home / "comparisons" / "cells").items():
        found.setdefault(replace(trial, seed=0), []).append(path)
    priced, seeds = list[PricedRow](), max(map(len, found.values()))
    for trial, paths in found.items():
        if all(path.is_file() for path in paths):
            outcomes = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
            priced += price_rows([trial] * len(paths), outcomes)
    rows = [{c: _said(row[c]) for c in COLUMNS} for row in priced]
    write(f"{name}_full", rows, f"0 .. {seeds - 1}", of=of)
    played = sum(path.is_file() for paths in found.values() for path in paths)
    print(f"{name}: {played:,} of {len(trials):,} runs, {len(rows)} of {len(found)} rows")
    if len(rows) == len(found):
        verdicts = [
            {"world": name, "claim": c["claim"], "holds": "yes" if c["holds"] else "no", "where": c["regime"]}
            for c in claims(Priced(name, priced))
        ]
        write(CLAIMS, verdicts, f"0 .. {seeds - 1}", keys=("world", "claim") if place(CLAIMS).is_file() else (), of=of)


def _said(value: object) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def needed(name: str) -> str:
    """Episodes needed, an agent a line and an epsilon a column, as :func:`~pipeline.studies.price.episodes_needed`."""
    rows = [r for r in read(name) if not r["of"]]
    bar = BAR * next(float(r["mean"]) for r in rows if r["agent"] == CONTROLS[0])
    curves: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for r in rows:
        if r["agent"] not in CONTROLS:
            by_epsilon = curves.setdefault((r["trust"], r["agent"]), {})
            by_epsilon.setdefault(r["epsilon"], {})[int(r["episodes"])] = float(r["mean"])
    budgets = sorted({e for by in curves.values() for e in by}, key=lambda e: float(e or "inf"))
    lines = [
        f"| trust | agent | {' | '.join(f'ε = {e}' if e else 'no noise' for e in budgets)} |",
        "|---|---|" + "---|" * len(budgets),
    ]
    for (trust, agent), by_epsilon in curves.items():
        cells = (_told(by_epsilon[e], bar) if e in by_epsilon else "" for e in budgets)
        lines.append(f"| {trust} | {agent} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _told(points: dict[int, float], bar: float) -> str:
    first = episodes_needed(points, bar)
    if first is None:
        return f"> {number(max(points))}"
    return f"{'≤ ' if first == min(points) else ''}{number(first)}"


if __name__ == "__main__":
    for told in sys.argv[2:] or NAMES:
        main(Path(sys.argv[1]), told)
