"""The recipe: what to run.  Card + agent + budget + settings, checked by pydantic like the card."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from pipeline.declaration.toml import CardError, Strict, explain, read_toml
from pipeline.learners.tabular import Settings
from pipeline.privacy.continual import continual
from pipeline.statistics.calibration import Ask

Preset = Literal["paper", "tail", "practical"]
PRIVATE = ("dp-apvi", "dp-vapvi", "dp-one-shot", "dp-lqr")
LQ = ("dp-lqr", "lqr")
Part = Annotated[float, Field(gt=0, le=1)]


class Head(Strict):
    """Which card and which algorithm."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_\-]{0,62}$")]
    card: str
    agent: Literal["dp-apvi", "apvi", "dp-vapvi", "vapvi", "pevi", "dp-one-shot", "one-shot", "dp-lqr", "lqr"]


class Privacy(Strict):
    """Budget of one run: ``rho``, or ``epsilon`` with ``delta``, or ``epsilon`` alone (pure, Laplace)."""

    rho: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    delta: Annotated[float, Field(ge=0, lt=1)] | None = None
    calibration: Literal["tight", "paper"] = "tight"
    release: Literal["one_table", "two_tables"] = "one_table"
    sampler: Literal["opendp", "table"] = "opendp"
    split: dict[Literal["n_0", "n_sa", "n_sas", "r_sa"], Annotated[float, Field(gt=0, le=1)]] | None = None

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        if (self.rho is None) == (self.epsilon is None):
            raise ValueError("give exactly one of 'rho' and 'epsilon'")
        if self.rho is not None and self.delta is not None:
            raise ValueError("'delta' goes with 'epsilon'; a zCDP budget 'rho' has none")
        return self


class Planner(Strict):
    """Which constants make the policy, which its value bounds, and the seed that breaks ties."""

    constants: Preset = "practical"
    bounds: Preset = "tail"
    penalty: Literal["bernstein", "hoeffding"] = "bernstein"
    failure: Annotated[float, Field(gt=0, lt=1)] = 0.1
    seed: int = 0


class Linear(Strict):
    """How a linear agent asks and plans; with an adaptive one all of it is part of the release (privacy.md §0.1-4)."""

    C: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1
    D: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    ridge: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.01
    shift: Literal["paper", "edge"] = "edge"
    targets: Literal["centred", "paper"] = "centred"
    halves: bool = False
    steps: Annotated[int, Field(ge=1, le=2**20)] = 1024
    beta: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class Lq(Strict):
    """How an LQ agent asks and plans: cut, gram_share and steps are part of the release, ridge and floor are free."""

    cut: tuple[Part, Part] = (0.5, 0.7)
    gram_share: Annotated[float, Field(gt=0, lt=1)] = 0.3
    steps: Annotated[int, Field(ge=1, le=2**20)] = 4096
    ridge: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    floor: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 3.0


class Evaluate(Strict):
    """For synthetic data whose world is known: the world and the policy that logged."""

    world: str
    behaviour: str = "uniform"


class Nightly(Strict):
    """Every night is a leaf of one counter, and the budget is that of all its nights together."""

    nights: Annotated[int, Field(ge=1, le=10_000)] = 365
    first: date
    counter: Literal["tree", "toeplitz"] = "tree"


class Watched(Strict):
    """When a scheduled run is to be worried about."""

    stale_days: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class Promote(Strict):
    """When a new run may take the place of the one in use; every condition that is given must hold."""

    pointer: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_\-]{0,62}$")] = "current"
    lower_gain: Annotated[float, Field(allow_inf_nan=False)] | None = None
    most_changed: Annotated[float, Field(ge=0, le=1)] | None = None
    more_abstaining: bool = True
    status: Literal["estimate", "bound"] = "estimate"


class Recipe(Strict):
    """One offline run, or one night of many."""

    recipe: Head
    privacy: Privacy | None = None
    planner: Planner = Planner()
    linear: Linear | None = None
    lq: Lq | None = None
    evaluate: Evaluate | None = None
    nightly: Nightly | None = None
    watch: Watched | None = None
    promote: Promote | None = None
    _path: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _agent_and_budget(self) -> Self:
        agent, p = self.recipe.agent, self.privacy
        if agent in PRIVATE and p is None:
            raise ValueError(f"[privacy] is missing; {agent} needs a budget, e.g. rho = 1.0")
        if agent not in PRIVATE and p is not None:
            private = {"apvi": "dp-apvi", "one-shot": "dp-one-shot", "lqr": "dp-lqr"}.get(agent, "dp-vapvi")
            raise ValueError(f"[privacy] is given, but {agent} is the non-private baseline: use agent = '{private}'")
        if self.nightly is not None:
            _check_nightly(agent, p)
        if self.lq is not None and not self.is_lq:
            raise ValueError(f"[lq] belongs to dp-lqr and lqr; {agent} has none of it")
        if self.is_lq:
            _check_lq(agent, p, self.linear)
        elif not self.is_linear:
            if p is not None and p.calibration == "paper" and p.release != "two_tables":
                raise ValueError("calibration = 'paper' needs release = 'two_tables'; the paper prints no other")
            if self.linear is not None:
                raise ValueError(f"[linear] belongs to linear agents; {agent} has none of it")
        else:
            _check_linear(agent, p, self.linear or Linear())
        return self

    @property
    def is_linear(self) -> bool:
        """Whether the agent plans on declared features."""
        return self.recipe.agent not in ("dp-apvi", "apvi", *LQ)

    @property
    def is_lq(self) -> bool:
        """Whether the agent controls a linear plant."""
        return self.recipe.agent in LQ

    @property
    def path(self) -> Path:
        """Where the recipe was read from."""
        return self._path

    def placed(self, path: Path) -> Self:
        """The same recipe as if read from ``path``."""
        self._path = path
        return self

    def ask(self) -> Ask:
        """The budget as the calibration understands it; apvi asks for none."""
        p = self.privacy
        if p is None or self.recipe.agent not in PRIVATE:
            return Ask()
        split = None if p.split is None else {str(table): share for table, share in p.split.items()}
        counter = None if self.nightly is None else continual(self.nightly.counter, self.nightly.nights)
        return Ask(p.rho, p.epsilon, p.delta, p.release, p.calibration, split, counter)

    def settings(self) -> Settings:
        """The planner's settings."""
        p = self.planner
        return Settings(p.constants, p.bounds, p.penalty, p.failure, p.seed)

    def dump(self) -> dict[str, Any]:
        """Plain values of the recipe, defaults filled in."""
        # a table that other runs lack must not rename them, and what becomes of a run is no part of it
        has = {"linear": self.is_linear, "lq": self.is_lq, "nightly": self.nightly is not None}
        lacking = {table for table, there in has.items() if not there}
        return self.model_dump(mode="json", exclude={"watch", "promote"} | lacking)


def _check_nightly(agent: str, p: Privacy | None) -> None:
    """Refuse what no counter releases."""
    if agent != "dp-apvi" or p is None:
        raise ValueError(f"[nightly] keeps a counter of count tables: it goes with agent = 'dp-apvi', not {agent}")
    if (p.rho is None and not p.delta) or p.calibration == "paper":
        raise ValueError("[nightly] draws Gaussian noise: give 'rho', or 'epsilon' with 'delta', and 'tight'")


def _check_gaussian(agent: str, p: Privacy | None) -> None:
    """Refuse settings that only count tables have."""
    if p is not None and p.rho is None and not p.delta:
        raise ValueError(f"[privacy]: {agent} draws Gaussian noise: give 'rho', or 'epsilon' with 'delta'")
    if p is not None and (p.split, p.sampler) != (None, "opendp"):
        raise ValueError("[privacy]: 'split' and sampler = 'table' belong to count tables")


def _check_lq(agent: str, p: Privacy | None, linear: Linear | None) -> None:
    """Refuse settings that an LQ release does not have."""
    _check_gaussian(agent, p)
    if p is not None and (p.calibration, p.release) != ("tight", "one_table"):
        raise ValueError(f"[privacy]: 'calibration' and 'release' do not apply: {agent} makes one release, tight")
    if linear is not None:
        raise ValueError(f"[linear] belongs to linear agents; {agent} has [lq]")


def _check_linear(agent: str, p: Privacy | None, linear: Linear) -> None:
    """Refuse settings that a linear release does not have."""
    _check_gaussian(agent, p)
    if p is not None and p.calibration == "paper" and linear.targets != "paper":
        raise ValueError("[privacy]: calibration = 'paper' needs [linear] targets = 'paper'")
    if linear.beta is not None and agent != "pevi":
        raise ValueError(f"[linear]: 'beta' belongs to pevi; {agent} has C")
    if agent.endswith("one-shot") and (linear.targets, linear.halves) != ("centred", False):
        raise ValueError(
            f"[linear]: 'targets' and 'halves' belong to dp-vapvi; {agent} asks once, whatever the targets"
        )


def load_recipe(path: Path) -> Recipe:
    """Read and check a recipe.

    Raises
    ------
    CardError
        One line for each wrong key: which, what was found, what is allowed.
    """
    values = read_toml(path)
    if "recipe" not in values and "domain" in values:
        raise CardError(f"{path}: this is a card, not a recipe; a recipe names its card (see docs/card.md)")
    if "compare" in values:
        raise CardError(f"{path}: this is the recipe of a comparison; measure it with `reticent compare {path}`")
    if "world" in values:
        raise CardError(f"{path}: this is the recipe of a simulation; play it with `reticent simulate {path}`")
    try:
        return Recipe.model_validate(values).placed(path.resolve())
    except ValidationError as e:
        raise CardError(explain(e, str(path))) from None
