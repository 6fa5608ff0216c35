"""Recipes of studies: a simulation (an agent in a world), a comparison (a grid).  They name no card and read no log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, cast

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from pipeline.declaration.toml import CardError, Name, Strict, explain, read_toml, table_in
from pipeline.simulation.places import RELEASE, RUN, refuse_unknown_place
from pipeline.simulation.registry import find
from pipeline.simulation.trial import Plain, Trial
from pipeline.studies.price import FAMILIES, Grid, episode_grid
from pipeline.studies.study import NONE, Budget, Place, sweep

Recipe = TypeVar("Recipe", bound=Strict)


# a number, a word, or a matrix by its rows
Parameter = Plain | list[float] | list[list[float]]


def _place(world: Mapping[str, Parameter]) -> Place:
    return str(world["name"]), tuple(sorted((k, _fixed(v)) for k, v in world.items() if k != "name"))


def _fixed(value: Any) -> Any:
    """Rows as tuples: a place names a kept result."""
    return tuple(map(_fixed, cast("list[object]", value))) if isinstance(value, list) else value


def _named(world: Mapping[str, Parameter]) -> None:
    if not isinstance(world.get("name"), str):
        raise ValueError("[world]: 'name' is missing; `reticent simulate --values` lists the worlds")
    try:
        refuse_unknown_place(str(world["name"]))
    except CardError as e:
        raise ValueError(str(e)) from None


def _with_runs(values: Mapping[str, object], runs: Path | None) -> dict[str, object]:
    """``release:RUN`` of a world and ``run:RUN`` of ``warm_start`` by the run's folder."""
    found = dict(values)
    if isinstance(world := found.get("world"), str):
        found["world"] = {"name": world}
    for table, key, kind in (("world", "name", RELEASE), ("agent", "warm_start", RUN)):
        within = table_in(found.get(table)) or {}
        said = within.get(key)
        if isinstance(said, str) and said.startswith(kind):
            folder = _run_folder(said.removeprefix(kind), runs, table)
            found[table] = {**within, key: f"{kind}{folder}"}
    return found


def _run_folder(said: str, runs: Path | None, table: str) -> Path:
    """A path, a run of the home, or its beginning."""
    there = sorted(runs.glob("*")) if runs is not None else []
    found = [Path(said)] if (Path(said) / "report.json").is_file() else []
    found = found or [p for p in there if p.name == said] or [p for p in there if said and p.name.startswith(said)]
    if len(found) != 1:
        raise CardError(f"[{table}]: {'several runs begin' if found else 'no run begins'} with {said!r}; give its name")
    return found[0].resolve()


def _known(agent: str) -> str:
    try:
        find(agent)
    except CardError as e:
        raise ValueError(str(e)) from None
    return agent


class Player(Strict):
    """What to call it and who plays."""

    name: Name
    agent: Annotated[str, AfterValidator(_known)]


class Asked(Strict):
    """The loss of one user that a deployment would be held to."""

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

    recipe: Player
    world: dict[str, Parameter]
    runs: Runs
    privacy: Asked | None = None
    agent: dict[str, Plain] = Field(default_factory=dict)
    baselines: list[str] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        agent = self.recipe.agent
        _named(self.world)
        private = find(agent).private
        if not private and self.privacy is not None:
            raise ValueError(f"[privacy] is given, but {agent} is not private")
        if private and self.privacy is None:
            raise ValueError(f"[privacy] is missing; {agent} needs epsilon and delta")
        for name in self.baselines or ():
            _known(name)
        return self

    def trials(self) -> dict[str, list[Trial]]:
        """Runs of the agent, then of each baseline, by name; all meet the same worlds' luck."""
        beside = find(self.recipe.agent).baselines if self.baselines is None else self.baselines
        return {name: self._runs_of(name) for name in dict.fromkeys([self.recipe.agent, *beside])}

    def _runs_of(self, agent: str) -> list[Trial]:
        options = self.agent if agent == self.recipe.agent else {}
        if agent == "no-data":
            options = {"of": self.recipe.agent, **self.agent}
        # the control draws the noise of the agent it stands beside
        asked = self.privacy if find(agent).private or agent == "no-data" else None
        budget = NONE if asked is None else Budget(asked.epsilon, asked.delta, asked.calibration)
        r = self.runs
        told = [(agent, tuple(options.items()))]
        return sweep([_place(self.world)], [r.episodes], told, [budget], range(r.seed, r.seed + r.runs))


class Compared(Strict):
    """What to call it, and which families of agents play."""

    name: Name
    families: Annotated[list[str], Field(min_length=1)]

    @field_validator("families")
    @classmethod
    def _known(cls, families: list[str]) -> list[str]:
        if unknown := [name for name in families if name not in FAMILIES]:
            raise ValueError(f"no family {unknown[0]!r}; there are: {', '.join(FAMILIES)}")
        return list(dict.fromkeys(families))


class Budgets(Strict):
    """The loss of one user, the same for every trust model."""

    epsilon: Annotated[list[Annotated[float, Field(gt=0, allow_inf_nan=False)]], Field(min_length=1)]
    delta: Annotated[float, Field(gt=0, lt=1)]


class Declared(Strict):
    """What every agent is told of the world, and who logged the episodes of the central curator."""

    rewards: Literal["known", "learnt"] = "known"
    stationary: bool = False
    behaviour: str = "uniform"


class Episodes(Strict):
    """Numbers of episodes at even ratios."""

    first: Annotated[int, Field(ge=2)]
    last: Annotated[int, Field(ge=2, le=10**10)]
    per_decade: Annotated[int, Field(ge=1, le=10)] = 2

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.first >= self.last:
            raise ValueError(f"'first' must be below 'last'; got {self.first} and {self.last}")
        return self


class GridRuns(Strict):
    """``runs`` runs of each cell; run i has seed ``seed + i``."""

    episodes: Episodes
    runs: Annotated[int, Field(ge=1, le=1000)] = 8
    seed: Annotated[int, Field(ge=0)] = 0


class Full(Strict):
    """What ``--full`` changes."""

    per_decade: Annotated[int, Field(ge=1, le=10)] | None = None
    runs: Annotated[int, Field(ge=1, le=1000)] | None = None
    epsilon: list[Annotated[float, Field(gt=0, allow_inf_nan=False)]] | None = None


class PriceRecipe(Strict):
    """One comparison."""

    compare: Compared
    world: dict[str, Plain]
    privacy: Budgets
    declared: Declared = Declared()
    runs: GridRuns
    full: Full = Full()

    @model_validator(mode="after")
    def _has_a_world(self) -> Self:
        _named(self.world)
        return self

    def grid(self, full: bool = False) -> Grid:
        """What is measured.

        Parameters
        ----------
        full
            More of it, as ``[full]`` says.
        """
        e, more = self.runs.episodes, self.full if full else Full()
        return Grid(
            *_place(self.world),
            tuple(self.compare.families),
            episode_grid(e.first, e.last, more.per_decade or e.per_decade),
            tuple(sorted(more.epsilon or self.privacy.epsilon)),
            self.privacy.delta,
            more.runs or self.runs.runs,
            self.runs.seed,
            self.declared.rewards,
            self.declared.stationary,
            self.declared.behaviour,
        )


def is_world_recipe(values: Mapping[str, object]) -> bool:
    """Whether a recipe is that of a simulation: it has a world instead of a card.

    Parameters
    ----------
    values
        Content of a recipe's file.
    """
    return "world" in values and "recipe" in values


def load_world_recipe(path: Path, runs: Path | None = None) -> WorldRecipe:
    """Read and check the recipe of a simulation.

    Parameters
    ----------
    path
        Of a recipe with ``[world]`` and ``[runs]``.
    runs
        The home's folder of runs, where ``release:RUN`` is looked for.

    Raises
    ------
    CardError
        One line for each wrong key: which, what was found, what is allowed.
    """
    values = read_toml(path)
    if "compare" in values:
        raise CardError(f"{path}: this is the recipe of a comparison; measure it with `reticent compare {path}`")
    if not is_world_recipe(values):
        raise CardError(f"{path}: not the recipe of a simulation: it needs [recipe] and [world]; see docs/simulate.md")
    return _checked(WorldRecipe, _with_runs(values, runs), path)


def load_price_recipe(path: Path) -> PriceRecipe:
    """Read and check the recipe of a comparison.

    Parameters
    ----------
    path
        Of a recipe with ``[compare]``.

    Raises
    ------
    CardError
        One line for each wrong key: which, what was found, what is allowed.
    """
    values = read_toml(path)
    if "compare" not in values:
        raise CardError(
            f"{path}: not the recipe of a comparison: it needs [compare] and [world]; see docs/compare.md. "
            "To compare two runs say `reticent compare-runs A B`"
        )
    return _checked(PriceRecipe, values, path)


def _checked(kind: type[Recipe], values: Mapping[str, object], path: Path) -> Recipe:
    try:
        return kind.model_validate(values)
    except ValidationError as e:
        raise CardError(explain(e, str(path), kind)) from None
