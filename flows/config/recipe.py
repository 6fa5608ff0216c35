"""The recipe: what to run.  Card + agent + budget + settings + calendar, checked by pydantic like the card."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from pipeline.declaration.lineage import Nightly, Schedule
from pipeline.declaration.toml import CardError, Name, Strict, read_toml, validated
from pipeline.facts.learnt import Status
from pipeline.learners.learner import AGENTS, Agent, find
from pipeline.learners.terms import Evaluate, Linear, Lq, OneStep, Planner, Privacy, Terms


def _registered(name: str) -> str:
    try:
        find(name)
    except KeyError:
        # in the words of pydantic's own check of a list of names
        message = f"Input should be {', '.join(map(repr, AGENTS))} or module:object"
        raise PydanticCustomError("literal_error", "{message}", {"message": message}) from None
    return name


class RecipeHead(Strict):
    """Name, card and agent."""

    name: Name
    card: str
    agent: Annotated[str, AfterValidator(_registered)]


class Watched(Strict):
    """Limits beyond which scheduled runs raise an alert."""

    stale_days: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


_RUN = re.compile(r"-[0-9a-f]{10}(-simulation-not-private)?$")


def names_run(name: str) -> bool:
    """Whether this is the form of a run's name: it ends with a hash, as no pointer's does."""
    return _RUN.search(name) is not None


def _pointer_name(name: str) -> str:
    if names_run(name):
        raise ValueError("ends as the name of a run does; take another")
    return name


class Play(Strict):
    """Share of the people who meet the policy, by a hash that its file carries; the others keep current practice."""

    share: Annotated[float, Field(gt=0, le=1)]


class Promote(Strict):
    """Conditions on which a new run may take the place of the one in use; all that are given must hold.

    ``lower_gain``: least lower end of the gain over the run in use, reward units an episode; None: not asked.
    ``most_changed``: largest share of decisions that may differ; None: not asked.
    ``status``: least status of the value, in the order in which they are listed (``estimate``: ``modelled``).
    ``accept``: ``unchecked``: a gain that stands on a condition is enough.  The author of the recipe answers for that,
    and the ledger says so.
    """

    pointer: Annotated[Name, AfterValidator(_pointer_name)] = "current"
    lower_gain: Annotated[float, Field(allow_inf_nan=False)] | None = None
    most_changed: Annotated[float, Field(ge=0, le=1)] | None = None
    more_abstaining: bool = True
    status: Status = "modelled"
    accept: Literal["unchecked"] | None = None


class Recipe(Strict):
    """One offline run, or one night of many."""

    recipe: RecipeHead
    privacy: Privacy | None = None
    planner: Planner = Planner()
    linear: Linear | None = None
    lq: Lq | None = None
    one_step: OneStep | None = None
    evaluate: Evaluate | None = None
    nightly: Nightly | None = None
    schedule: Schedule | None = None
    watch: Watched | None = None
    promote: Promote | None = None
    play: Play | None = None
    _path: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _agent_and_budget(self) -> Self:
        name, agent, p = self.recipe.agent, self.agent, self.privacy
        if agent.private and p is None:
            raise ValueError(f"[privacy] is missing; {name} needs a budget, e.g. rho = 1.0")
        if not agent.private and p is not None:
            use = "" if agent.twin is None else f": use agent = '{agent.twin}'"
            raise ValueError(f"[privacy] is given, but {name} is the non-private baseline{use}")
        evaluates = self.evaluate is not None and self.evaluate.people != 0
        if self.evaluate is not None and self.evaluate.probabilities == "logged" and not evaluates:
            raise ValueError("[evaluate] probabilities = 'logged': nobody evaluates; give people, or take it out")
        if self.evaluate is not None and self.evaluate.least is not None and self.evaluate.probabilities != "logged":
            raise ValueError("[evaluate] least: only of probabilities = 'logged'; take it out")
        if self.nightly is not None:
            _check_nightly(name, agent, p)
            if evaluates:
                raise ValueError(
                    "[evaluate] people, under [nightly]: nobody evaluates a counter; take [nightly] out and give a "
                    "calendar, e.g. [schedule] release = 'monthly': each of its dates has a release and a verdict"
                )
            if self.nightly.drift is not None and (self.promote is None or self.play is None or self.play.share == 1):
                raise ValueError(
                    "[nightly] drift compares people under the policy in use with people under practice, and promotes "
                    "accordingly: it needs [promote], and [play] share below 1"
                )
            if self.schedule is not None:
                raise ValueError("[schedule] is given, but [nightly] has a leaf on every date: take one of them out")
        own = agent.learner.section
        for section in ("lq", "one_step"):
            if getattr(self, section) is not None and own != section:
                theirs = " and ".join(n for n, a in AGENTS.items() if a.learner.section == section)
                raise ValueError(f"[{section}] belongs to {theirs}; {name} has none of it")
        agent.learner.check(self.terms)
        if self.linear is not None and own != "linear":
            raise ValueError(
                f"[linear] belongs to linear agents; {name} has {'none of it' if own is None else f'[{own}]'}"
            )
        return self

    @property
    def agent(self) -> Agent:
        """The registered agent that the recipe names."""
        return find(self.recipe.agent)

    @property
    def terms(self) -> Terms:
        """The recipe's terms for its agent's learner."""
        return Terms(
            self.path.name,
            self.recipe.agent,
            self.privacy,
            self.planner,
            self.linear,
            self.lq,
            self.evaluate,
            self.nightly,
            self.one_step,
        )

    @property
    def path(self) -> Path:
        """File of the recipe."""
        return self._path

    def placed(self, path: Path) -> Self:
        """The same recipe as if read from ``path``."""
        self._path = path
        return self

    def dump(self) -> dict[str, object]:
        """Plain values of the recipe, defaults filled in."""
        # a table that other runs lack must not rename them, and neither must a run's later use
        lacking = {"linear", "lq", "one_step"} - {self.agent.learner.section}
        lacking |= {name for name in ("nightly", "play") if getattr(self, name) is None}
        values = self.model_dump(mode="json", exclude={"schedule", "watch", "promote"} | lacking)
        if self.privacy is not None:
            # as recipes were before there was a gate, and before the default sampler was our own
            if self.privacy.gate is None:
                del values["privacy"]["gate"]
            if self.privacy.sampler == "exact":
                values["privacy"]["sampler"] = "opendp"
        return values


def _check_nightly(name: str, agent: Agent, p: Privacy | None) -> None:
    """Refuse agents and budgets that no counter releases."""
    if not agent.learner.continual or p is None:
        theirs = " or ".join(f"'{n}'" for n, a in AGENTS.items() if a.learner.continual and a.private)
        raise ValueError(
            f"[nightly] keeps a counter: it goes with agent {theirs}, not {name}; [schedule] release = 'monthly' draws "
            "a fresh release on its dates"
        )
    if (p.rho is None and not p.delta) or p.calibration == "paper":
        raise ValueError("[nightly] draws Gaussian noise: give 'rho', or 'epsilon' with 'delta', and 'tight'")


def load_recipe(path: str | Path) -> Recipe:
    """Read and check a recipe.

    Raises CardError one line for each wrong key: which, what was found, what is allowed.
    """
    path = Path(path)
    values = read_toml(path)
    if "recipe" not in values and "domain" in values:
        raise CardError(f"{path}: this is a card, not a recipe; a recipe names its card (see docs/card.md)")
    if "study" in values or "compare" in values:
        raise CardError(f"{path}: this is a study; measure it with `reticent compare {path}`")
    if "world" in values:
        raise CardError(f"{path}: this is the recipe of a simulation; play it with `reticent simulate {path}`")
    return validated(Recipe, values, str(path)).placed(path.resolve())
