"""The recipe of a simulation: an online agent, a world, a budget, how many runs.  It names no card, reads no log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from pipeline.declaration.toml import CardError, Strict, explain, read_toml
from pipeline.simulation.registry import find
from pipeline.simulation.trial import Plain, Trial


def _known(agent: str) -> str:
    try:
        find(agent)
    except CardError as e:
        raise ValueError(str(e)) from None
    return agent


class Head(Strict):
    """What to call it and who plays."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_\-]{0,62}$")]
    agent: str

    @field_validator("agent")
    @classmethod
    def _can_play(cls, agent: str) -> str:
        return _known(agent)


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

    recipe: Head
    world: dict[str, Plain]
    runs: Runs
    privacy: Asked | None = None
    agent: dict[str, Plain] = Field(default_factory=dict)
    baselines: list[str] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        agent = self.recipe.agent
        if not isinstance(self.world.get("name"), str):
            raise ValueError("[world]: 'name' is missing; `reticent simulate --values` lists the worlds")
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
        own = agent == self.recipe.agent
        params = tuple(sorted((k, v) for k, v in self.world.items() if k != "name"))
        # the control draws the noise of the agent it stands beside
        asked = self.privacy if find(agent).private or agent == "no-data" else None
        options = self.agent if own else {}
        if agent == "no-data":
            options = {"of": self.recipe.agent, **self.agent}
        first, r = self.runs.seed, self.runs
        return [
            Trial(
                agent,
                str(self.world["name"]),
                params,
                r.episodes,
                epsilon=None if asked is None else asked.epsilon,
                delta=None if asked is None else asked.delta,
                calibration=None if asked is None else asked.calibration,
                options=tuple(sorted(options.items())),
                seed=seed,
            )
            for seed in range(first, first + r.runs)
        ]


def is_world_recipe(values: Mapping[str, Any]) -> bool:
    """Whether a recipe is of this kind: it has a world instead of a card.

    Parameters
    ----------
    path
        Of a recipe.
    """
    return "world" in values and "recipe" in values


def load_world_recipe(path: Path) -> WorldRecipe:
    """Read and check the recipe of a simulation.

    Parameters
    ----------
    path
        Of a recipe with ``[world]`` and ``[runs]``.

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
    try:
        return WorldRecipe.model_validate(values)
    except ValidationError as e:
        raise CardError(explain(e, str(path))) from None
