"""The recipe of a comparison: one world, a grid of episodes and budgets.  It names no card and reads no log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from pipeline.declaration.toml import CardError, Strict, explain, read_toml
from pipeline.simulation.trial import Plain
from pipeline.studies.price import FAMILIES, Grid, episode_grid


class Head(Strict):
    """What to call it, and which families of agents play."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_\-]{0,62}$")]
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


class Runs(Strict):
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

    compare: Head
    world: dict[str, Plain]
    privacy: Budgets
    declared: Declared = Declared()
    runs: Runs
    full: Full = Full()

    @model_validator(mode="after")
    def _has_a_world(self) -> Self:
        if not isinstance(self.world.get("name"), str):
            raise ValueError("[world]: 'name' is missing; `reticent simulate --values` lists the worlds")
        return self

    def grid(self, full: bool = False) -> Grid:
        """What is measured; ``full``: more of it."""
        e, more = self.runs.episodes, self.full if full else Full()
        return Grid(
            str(self.world["name"]),
            tuple(sorted((k, v) for k, v in self.world.items() if k != "name")),
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


def is_price_recipe(values: Mapping[str, Any]) -> bool:
    """Whether a recipe is of this kind."""
    return "compare" in values


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
    if not is_price_recipe(values):
        raise CardError(
            f"{path}: not the recipe of a comparison: it needs [compare] and [world]; see docs/compare.md. "
            "To compare two runs say `reticent compare-runs A B`"
        )
    try:
        return PriceRecipe.model_validate(values)
    except ValidationError as e:
        raise CardError(explain(e, str(path))) from None
