"""Recipes of simulations (an agent in a world) and studies (a grid).  They name no card and read no log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from pipeline.declaration.toml import CardError, Name, Strict, read_toml, table_in, validated
from pipeline.online.cells import AgentBudget, Parameter, place_of, sweep
from pipeline.online.registry import find, played_name
from pipeline.online.rollouts import RELEASE, RUN
from pipeline.online.study import Study, check_world
from pipeline.online.trial import Plain, Trial


def _with_runs(values: Mapping[str, object], runs: Path | None) -> dict[str, object]:
    """``release:RUN`` of a world and ``run:RUN`` of ``warm_start`` by the run's folder."""
    resolved = dict(values)
    if isinstance(world := resolved.get("world"), str):
        resolved["world"] = {"name": world}
    for table, key, kind in (("world", "name", RELEASE), ("agent", "warm_start", RUN)):
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
    world: dict[str, Parameter]
    runs: Runs
    privacy: AskedLoss | None = None
    agent: dict[str, Plain] = Field(default_factory=dict)
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

    def trials(self) -> dict[str, list[Trial]]:
        """Runs of the agent, then of each baseline, by name; all with the same seeds of the world."""
        beside = find(self.recipe.agent).baselines if self.baselines is None else self.baselines
        return {name: self._runs_of(name) for name in dict.fromkeys([self.recipe.agent, *beside])}

    def _runs_of(self, agent: str) -> list[Trial]:
        options = self.agent if agent == self.recipe.agent else {}
        if agent == "no-data":
            options = {"of": self.recipe.agent, **self.agent}
        budgets = [] if self.privacy is None else [AgentBudget(*self.privacy.model_dump().values())]
        r = self.runs
        seeds = range(r.seed, r.seed + r.runs)
        return sweep([place_of(self.world)], [r.episodes], [(agent, tuple(options.items()))], budgets, seeds)


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
