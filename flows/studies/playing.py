"""``simulate RECIPE``: an online agent and its baselines in a known world, laid out in ``<home>/simulations/NAME``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from flows.config.setting import Step, plain_step
from flows.config.shelf import Home
from flows.config.world_recipe import WorldRecipe, dump, load_world_recipe
from flows.jobs.folder import json_text
from flows.studies.cells import measured
from flows.studies.registry import Row, online
from pipeline.files import write_folder
from pipeline.simulation.trial import Trial
from pipeline.studies.gather import curve_points, gathered_rows, printed
from reports.reproduction import table_files
from reports.simulation import Played, figure_of, page_html, page_markdown


def play_job(
    path: Path,
    home: Home,
    step: Step = plain_step,
    *,
    say: Callable[[str], None] = lambda _: None,
    progress: Callable[[int, int | None], None] | None = None,
) -> dict[str, Any]:
    """Play all runs of a recipe; runs measured before, by the same code, are found again."""
    recipe = load_world_recipe(path)
    by_agent = recipe.trials()
    trials = [t for each in by_agent.values() for t in each]
    root = home.root / "simulations"
    say(f"playing {len(trials)} runs of {', '.join(by_agent)}; simulation, not private")
    told = _Told(say)
    bench = online("simulate", lambda: trials)
    outcomes = step("play", lambda: measured(bench, trials, root / "cells", progress, told))
    rows = gathered_rows(trials, outcomes)
    return step("report", lambda: _published(recipe, rows, trials, outcomes, root))


class _Told:
    """Says, run by run, what has come out so far."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._totals = say, dict[str, list[float]]()

    def __call__(self, trial: Trial, outcome: Row) -> None:
        seen = self._totals.setdefault(trial.agent, [])
        seen.append(outcome["regret"][-1])
        self._say(f"  {trial.agent}, run {len(seen)}: regret {seen[-1]:.4g}; so far {np.mean(seen):.4g} on average")


def _published(
    recipe: WorldRecipe, rows: Sequence[Row], trials: Sequence[Trial], outcomes: Sequence[Row], root: Path
) -> dict[str, Any]:
    values = dump(recipe)
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]
    name = f"{recipe.recipe.name}-{digest}"
    final = root / name
    played = Played(recipe.recipe.name, rows)
    result = _summary(recipe, rows)
    texts = {
        "page.html": page_html(played),
        "page.md": page_markdown(played),
        "figure.svg": figure_of(played).svg,
    }
    tables = {
        "runs.parquet": table_files(_runs(trials, outcomes))[0],
        "curves.parquet": table_files(curve_points(rows))[0],
    }
    if policies := _policies(trials, outcomes):
        tables["policies.parquet"] = table_files(policies)[0]
    files = sorted([*texts, *tables, "summary.json"])
    result |= {"folder": str(final), "files": [str(final / file) for file in files]}
    told = json_text({"schema_version": 1, "recipe": values, **result})
    write_folder(final, {**texts, **tables, "summary.json": told})
    return result


def _summary(recipe: WorldRecipe, rows: Sequence[Row]) -> dict[str, Any]:
    """What ``--json`` prints (design §5.5), and the rows."""
    mine, beside = rows[0], rows[1:]
    return {
        "name": recipe.recipe.name,
        "agent": mine["agent"],
        "world": mine["world"],
        "episodes": mine["episodes"],
        "trust": mine["trust"],
        "regret": {"mean": mine["mean"], "std": mine["std"]},
        "baselines": {r["agent"]: {"mean": r["mean"], "std": r["std"]} for r in beside},
        "epsilon": mine["epsilon"],
        "true_epsilon": mine["true_epsilon"],
        "delta": mine["delta"],
        "noise": mine["noise"],
        "rows": [printed(r) for r in rows],
        "facts": mine["facts"],
    }


def _runs(trials: Sequence[Trial], outcomes: Sequence[Row]) -> list[dict[str, Any]]:
    """A row a run: who, its seed, its total regret."""
    return [
        {"agent": t.agent, "seed": t.seed, "episodes": t.episodes, "regret": o["regret"][-1]}
        for t, o in zip(trials, outcomes, strict=True)
    ]


def _policies(trials: Sequence[Trial], outcomes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The policy at the end of each run, where it is a table: agent, seed, step, state, action."""
    return [
        {"agent": t.agent, "seed": t.seed, "step": h, "state": s, "action": a}
        for t, o in zip(trials, outcomes, strict=True)
        for h, row in enumerate(o["policy"] or ())
        for s, a in enumerate(row)
    ]
