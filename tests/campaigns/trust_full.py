"""Rows of a ``compare trust_riverswim --full`` that was stopped: ``python -P -m tests.campaigns.trust_full HOME``.

An agent at one epsilon and n is a row once all its hundred runs are kept in the home; what is missing is said.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from flows.config.study_recipes import load_price_recipe
from pipeline.declaration.numbers import number
from pipeline.simulation.trial import Trial
from pipeline.studies.price import BAR, CONTROLS, episodes_needed, price_rows
from pipeline.studies.study import kept_places, online
from tests.campaigns.rows import ROOT, read, write

NAME = "trust_riverswim_full"
RECIPE = ROOT / "flows" / "recipes" / "trust_riverswim.toml"
COLUMNS = ("agent", "of", "trust", "epsilon", "episodes", "runs", "mean", "std", "low", "high", "true_epsilon", "bits")


def main(home: Path) -> None:
    """Keep the rows of what is complete, and say how much that is."""
    trials = load_price_recipe(RECIPE).grid(full=True).trials()
    found: dict[Trial, list[Path]] = {}
    for trial, path in kept_places(online("compare", lambda: trials), trials, home / "comparisons" / "cells").items():
        found.setdefault(replace(trial, seed=0), []).append(path)
    rows = list[dict[str, str]]()
    for trial, paths in found.items():
        if all(path.is_file() for path in paths):
            outcomes = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
            (row,) = price_rows([trial] * len(paths), outcomes)
            rows.append({column: _said(row[column]) for column in COLUMNS})
    write(NAME, rows, "0 .. 99", of="reticent compare trust_riverswim --full")
    played = sum(path.is_file() for paths in found.values() for path in paths)
    print(f"{played:,} of {len(trials):,} runs, {len(rows)} of {len(found)} rows")


def _said(value: object) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def needed(name: str) -> str:
    """Episodes needed by agent and epsilon, as :func:`~pipeline.studies.price.episodes_needed`, and up to which n."""
    rows = [r for r in read(name) if not r["of"]]
    bar = BAR * next(float(r["mean"]) for r in rows if r["agent"] == CONTROLS[0])
    lines = ["| trust | agent | ε | played n | stays at or under the bar from |", "|---|---|---|---|---|"]
    curves: dict[tuple[str, str, str], dict[int, float]] = {}
    for r in rows:
        if r["agent"] not in CONTROLS:
            curves.setdefault((r["trust"], r["agent"], r["epsilon"]), {})[int(r["episodes"])] = float(r["mean"])
    for (trust, agent, epsilon), points in sorted(curves.items(), key=lambda c: (*c[0][:2], float(c[0][2] or "inf"))):
        first = episodes_needed(points, bar)
        lines.append(
            f"| {trust} | {agent} | {epsilon or 'no noise'} | {len(points)} of 25, to {number(max(points))} | "
            f"{'not in this range' if first is None else number(first)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
