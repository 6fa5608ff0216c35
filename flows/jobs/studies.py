"""Studies (a grid) and simulations (an agent in a world): their recipes, and the job of ``reproduce`` and ``compare``.

The recipes name no card and read no log.  The job measures a study's cells, reads its rows, writes its folder.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from flows.config.home import ALONE, Home, Work, environment, paper_studies
from pipeline.declaration.lineage import CATALOG_VARIABLE
from pipeline.declaration.toml import CardError, Name, Strict, read_toml, table_in, validated
from pipeline.facts.promise import Dump
from pipeline.files import json_text, write_folder
from pipeline.online import cells, rollouts, trial
from pipeline.online.registry import find, played_name
from pipeline.online.study import Judged, Study, band, bar_of, check_world, needed_table
from reports.studies.study_page import StudyPage, draw_study, figure_files, overview, study_page, table_files


def _with_runs(values: Mapping[str, object], runs: Path | None) -> dict[str, object]:
    """``release:RUN`` of a world and ``run:RUN`` of ``warm_start`` by the run's folder."""
    resolved = dict(values)
    if isinstance(world := resolved.get("world"), str):
        resolved["world"] = {"name": world}
    for table, key, kind in (("world", "name", rollouts.RELEASE), ("agent", "warm_start", rollouts.RUN)):
        within = table_in(resolved.get(table)) or {}
        name = within.get(key)
        if isinstance(name, str) and name.startswith(kind):
            folder = _run_folder(name.removeprefix(kind), runs, table)
            resolved[table] = {**within, key: f"{kind}{folder}"}
    return resolved


def _run_folder(name: str, runs: Path | None, table: str) -> Path:
    """A path, a run of the home, or its beginning."""
    folders = sorted(runs.glob("*")) if runs is not None else []
    matches = [Path(name)] if (Path(name) / "report.json").is_file() else []
    matches = matches or [p for p in folders if p.name == name]
    matches = matches or [p for p in folders if name and p.name.startswith(name)]
    if len(matches) != 1:
        which = "several runs begin" if matches else "no run begins"
        raise CardError(f"[{table}]: {which} with {name!r}; give its name")
    return matches[0].resolve()


def _registered(agent: str) -> str:
    try:
        find(played_name(agent))
    except CardError as e:
        raise ValueError(str(e)) from None
    return played_name(agent)


class StudyRecipe(Strict):
    """Name and agent."""

    name: Name
    agent: Annotated[str, AfterValidator(_registered)]


class AskedLoss(Strict):
    """Privacy loss of one user in a deployment."""

    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    calibration: Literal["tight", "paper"] = "tight"


class Runs(Strict):
    """``runs`` independent runs of ``episodes`` episodes; run i has seed ``seed + i``."""

    episodes: Annotated[int, Field(ge=1, le=10**10)]
    runs: Annotated[int, Field(ge=1, le=1000)] = 10
    seed: Annotated[int, Field(ge=0)] = 0


class WorldRecipe(Strict):
    """One agent in one world, and the baselines beside it.

    ``world`` holds ``name`` and the world's parameters; ``agent`` the agent's knobs; ``baselines`` replaces the usual
    ones.
    """

    recipe: StudyRecipe
    world: dict[str, cells.Parameter]
    runs: Runs
    privacy: AskedLoss | None = None
    agent: dict[str, trial.Plain] = Field(default_factory=dict)
    baselines: list[Annotated[str, AfterValidator(_registered)]] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        agent = self.recipe.agent
        check_world(self.world)
        private = find(agent).private
        if not private and self.privacy is not None:
            raise ValueError(f"[privacy] is given, but {agent} is not private")
        if private and self.privacy is None:
            raise ValueError(f"[privacy] is missing; {agent} needs epsilon and delta")
        return self

    def trials(self) -> dict[str, list[trial.Trial]]:
        """Runs of the agent, then of each baseline, by name; all with the same seeds of the world."""
        beside = find(self.recipe.agent).baselines if self.baselines is None else self.baselines
        return {name: self._runs_of(name) for name in dict.fromkeys([self.recipe.agent, *beside])}

    def _runs_of(self, agent: str) -> list[trial.Trial]:
        options = self.agent if agent == self.recipe.agent else {}
        if agent == "no-data":
            options = {"of": self.recipe.agent, **self.agent}
        r, p = self.runs, self.privacy
        budget = None if p is None else (p.epsilon, p.delta, p.calibration)
        seeds = range(r.seed, r.seed + r.runs)
        asked = (agent, tuple(options.items()))
        return cells.sweep(
            [cells.place_of(self.world)], [r.episodes], [asked], [] if budget is None else [budget], seeds
        )


def is_world_recipe(values: Mapping[str, object]) -> bool:
    """Whether a recipe is that of a simulation: it has a world instead of a card."""
    return "world" in values and "recipe" in values


def load_world_recipe(path: Path, runs: Path | None = None) -> WorldRecipe:
    """Read and check the recipe of a simulation.

    Raises CardError one line for each wrong key: which, what was found, what is allowed.
    """
    values = read_toml(path)
    if "study" in values or "compare" in values:
        raise CardError(f"{path}: this is a study; measure it with `reticent compare {path}`")
    if not is_world_recipe(values):
        raise CardError(f"{path}: not the recipe of a simulation: it needs [recipe] and [world]; see docs/research.md")
    return validated(WorldRecipe, _with_runs(values, runs), str(path))


def refuse_to_plan(path: Path) -> None:
    """Refuse to plan a simulation: CardError with its page's proposal."""
    from pipeline.online.declared_world import proposal_of

    played = load_world_recipe(path)
    proposal = proposal_of(played.trials()[played.recipe.agent][0])
    more = "" if proposal is None else f"; proposal: {proposal}"
    raise CardError(
        f"{path}: a simulation is charged nothing, so there is nothing to plan: `reticent simulate {path}`{more}"
    )


def load_study(path: Path) -> Study:
    """Read and check a study.

    Raises CardError one line for each wrong key: which, what was found, what is allowed.
    """
    values = read_toml(path)
    if "compare" in values:
        raise CardError(
            f"{path}: [compare] is read no more; a comparison is a [study] with [[cells]]: see docs/research.md"
        )
    if "study" not in values:
        raise CardError(
            f"{path}: not a study: it needs [study] and [[cells]]; see docs/research.md. "
            "To compare two runs say `reticent compare-runs A B`"
        )
    return validated(Study, values, str(path))


def reproduce_job(name: str, home: Home, work: Work = ALONE, *, full: bool = False) -> Dump:
    """A shipped study of a paper, in ``<home>/studies/NAME``; ``all``: every one, and a page over them.

    Returns as :func:`study_job`; of ``all`` the rows and claims of every study, and the seconds that it took.
    """
    paths, began = paper_studies(name), time.monotonic()
    measured = [_measured(path, home, work, full=full) for path in paths.values()]
    if name != "all":
        return measured[0].result
    result = {
        "name": "all",
        "rows": [row for m in measured for row in m.result["rows"]],
        "claims": [{"name": m.study.study.name, **claim} for m in measured for claim in m.claims],
        "seconds": round(time.monotonic() - began, 1),
        "cells": {"all": sum(m.asked for m in measured), "kept": sum(m.kept for m in measured)},
    }
    more = [file for m in measured for file in m.result["files"]]
    page = overview([(m.study, m.claims) for m in measured])
    return work.step("report")(_publish, home.root / "studies" / "all", page, result, {}, more)


def study_job(path: Path, home: Home, work: Work = ALONE, *, full: bool = False) -> Dump:
    """A study measured, in ``<home>/studies/NAME``; runs measured before are found again.

    Returns ``name, rows, claims, files`` (design §5.5); where suboptimality is measured beside uniform choice,
    ``needed`` and ``bar`` too.
    """
    return _measured(path, home, work, full=full).result


@dataclass(frozen=True)
class _Measured:
    """A measured study: its result, and how many of its cells were asked and kept from before."""

    study: Study
    claims: Sequence[Judged]
    result: Dump
    asked: int
    kept: int


def _measured(path: Path, home: Home, work: Work, *, full: bool) -> _Measured:
    study, studies = load_study(path), home.root / "studies"
    listed, name = study.listed(full), study.study.name
    kept = cells.count_measured(listed, studies / "cells")
    work.say(f"{name}: {len(listed):,} cells, {kept:,} kept from before; simulation, not private")
    # the processes that measure find worlds' files there too
    with nullcontext() if home.shelf is None else environment(CATALOG_VARIABLE, str(home.shelf.resolve())):
        outcomes = work.step("measure")(cells.measure_cells, listed, studies / "cells", work.progress)
    rows = cells.gathered_rows(listed, outcomes, study.study.metric)
    claims, bar = study.judged(rows), bar_of(rows)
    table = [cells.printed(row) for row in rows]
    if bar is not None:
        table = [t | {"of": r["facts"].get("of"), **band(r)} for t, r in zip(table, rows, strict=True)]
    result = {"name": name, "rows": table, "claims": claims}
    if bar is not None:
        result |= {"needed": needed_table(rows, bar), "bar": bar}

    def report() -> Dump:
        parquet, csv = table_files(table)
        svg, png = figure_files(draw_study(study, rows))
        written = {"table.csv": csv, "table.parquet": parquet, "figure.svg": svg, "figure.png": png}
        if points := cells.curve_points(rows):
            written["curves.parquet"] = table_files(points)[0]
        recipe = study.model_dump(mode="json", exclude_defaults=True) | {"measured": "full" if full else "default"}
        return _publish(studies / name, study_page(study, rows, claims), result, written, recipe=recipe)

    return _Measured(study, claims, work.step("report")(report), len(listed), kept)


def _publish(
    final: Path,
    page: StudyPage,
    result: Dump,
    more_files: Mapping[str, str | bytes],
    more: Sequence[str] = (),
    recipe: Dump | None = None,
) -> Dump:
    """Write the folder of a study, whole or not at all; what ``--json`` prints."""
    written = {"page.html": page.html, "page.md": page.markdown, **more_files}
    answer = result | {"files": [*(str(final / file) for file in sorted([*written, "result.json"])), *more]}
    header = {"schema_version": 1} | ({} if recipe is None else {"recipe": recipe})
    write_folder(final, {**written, "result.json": json_text(header | answer)})
    return answer
