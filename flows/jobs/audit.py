"""``audit``: attack the mechanisms of a recipe with made-up neighbours; reads no rows, charges nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flows.config.setting import setting
from flows.config.shelf import Home, find_recipe
from flows.config.world_recipe import is_world_recipe, load_world_recipe
from flows.jobs.canaries import one_run
from flows.jobs.folder import json_text
from pipeline.audits.attack import DRAWS, AuditTarget, Verdict, WholePlan, attack
from pipeline.audits.message_paths import targets_of, whole_plan
from pipeline.declaration.card import CardError
from pipeline.declaration.toml import read_toml
from pipeline.files import write_folder
from pipeline.privacy.fast_noise import FastOsNoise
from pipeline.privacy.noise import NoiseSource
from pipeline.simulation.registry import find
from reports.audit import audit_html, audit_markdown, figure_of

Progress = Callable[[int, int | None], None]


def audit_job(
    recipe: str,
    home: Home,
    *,
    draws: int = DRAWS,
    canaries: int = 0,
    table: bool = False,
    say: Callable[[str], None] = lambda _: None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Attack every mechanism of a recipe; the verdicts, and the folder of their page.

    Parameters
    ----------
    canaries
        So many made-up people go through the whole pipeline as well, in a place of their own.
    table
        Draw with the fast sampler instead of the recipe's own: the same law.

    Raises
    ------
    CardError
        If the recipe is wrong, or adds no noise.
    """
    path = find_recipe(recipe)
    if is_world_recipe(read_toml(path)):
        if canaries:
            raise CardError(f"{path.name}: --canaries go through ingest and run; a simulation has neither")
        name, dataset, targets, plan = _of_world(path, draws, say)
        s, noise = None, FastOsNoise()
    else:
        s = setting(recipe, home)
        run, noise = s.plan, FastOsNoise() if table else s.recipe.terms.noise()
        name, dataset, targets = s.recipe.recipe.name, s.card.name, run.targets(noise)
        plan = run.whole_plan()
    found = [_time(target, noise, draws, say, progress) for target in targets]
    verdicts = [v for v, _ in found]
    worst = max(verdicts, key=lambda v: v.ratio)
    result = {
        "name": name,
        "dataset": dataset,
        "sampler": noise.sampler,
        **_plain(worst),
        "violates": any(v.violates for v in verdicts),
        "attacks": [_plain(v) | {"seconds": round(seconds, 2)} for v, seconds in found],
    }
    if plan is not None:
        say(plan.words)
        facts = {"rho": float(plan.rho), "claimed_rho": float(plan.claimed), "over": plan.over}
        result |= {"whole_plan": facts, "violates": bool(result["violates"]) or plan.over}
    if canaries and s is not None:
        say(f"sending {canaries:,} made-up people through ingest and run")
        whole = one_run(s, canaries)
        result |= {"one_run": whole, "violates": bool(result["violates"]) or whole["violates"]}
    notes = [] if plan is None else [plan.words]
    return result | _published(name, verdicts, notes, result, home.root / "audits")


def _of_world(
    path: Path, draws: int, say: Callable[[str], None]
) -> tuple[str, str, list[AuditTarget], WholePlan | None]:
    """Name and world of a simulation's recipe, a target for each thing that its agent releases, and the whole plan."""
    recipe = load_world_recipe(path)
    agent = recipe.recipe.agent
    if not find(agent).private:
        raise CardError(f"{path.name}: {agent} adds no noise, no claim to attack")
    trial = recipe.trials()[agent][0]
    try:
        return recipe.recipe.name, trial.place, targets_of(trial, draws, say), whole_plan(trial)
    except ValueError as e:
        raise CardError(f"{path.name}: {e}") from None


def _time(
    target: AuditTarget, noise: NoiseSource, draws: int, say: Callable[[str], None], progress: Progress | None
) -> tuple[Verdict, float]:
    say(f"attacking {target.mechanism}: {draws:,} releases of each neighbour")
    began = time.monotonic()
    return attack(target, noise, draws, progress=progress), time.monotonic() - began


def _plain(v: Verdict) -> dict[str, Any]:
    return asdict(v) | {"violates": v.violates, "ratio": v.ratio, "testable": v.testable}


def _published(
    name: str, verdicts: Sequence[Verdict], notes: Sequence[str], result: dict[str, Any], root: Path
) -> dict[str, Any]:
    final, plain = root / name, [_plain(v) for v in verdicts]
    files = {
        "page.html": audit_html(name, plain, notes),
        "page.md": audit_markdown(name, plain, notes),
        "figure.svg": figure_of(plain).svg,
        "audit.json": json_text({"schema_version": 1, **result}),
    }
    write_folder(final, files)
    return {"folder": str(final), "files": [str(final / f) for f in sorted(files)]}
