"""What a deployed run may name: what is shipped, and what the operator lists in ``allowed.toml`` of the service's home.

Parameters come from whoever may talk to the Prefect server.  They choose among what the operator has put on this
machine's disk; a recipe, a folder or code of their own choice they cannot bring in.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from flows.config.home import environment, shipped_recipe
from pipeline.declaration.code import PERMITTED, is_plugin
from pipeline.declaration.toml import CardError, Strict, explain, read_toml

HOME = "RETICENT_HOME"
FILE = "allowed.toml"
SERVED = "RETICENT_SERVED"
"""Environment variable: the recipe that ``serve`` was started with, which is allowed by that."""


def _absolute(path: str) -> str:
    if not Path(path).is_absolute():
        raise ValueError("not an absolute path")
    return path


def _plugin(name: str) -> str:
    if not is_plugin(name):
        raise ValueError("not of the form module:object")
    return name


class _Listed(Strict):
    plugins: list[Annotated[str, AfterValidator(_plugin)]] = Field(default_factory=list[str])
    recipes: list[Annotated[str, AfterValidator(_absolute)]] = Field(default_factory=list[str])
    homes: list[Annotated[str, AfterValidator(_absolute)]] = Field(default_factory=list[str])


@dataclass(frozen=True)
class Allowed:
    """What runs of one service may name.

    Parameters
    ----------
    home
        Of the service; a run that names none works there.
    plugins
        ``module:object`` each.
    recipes
        Files, and folders whose recipes are all allowed.
    homes
        Other homes.
    """

    home: Path
    plugins: tuple[str, ...] = ()
    recipes: tuple[Path, ...] = ()
    homes: tuple[Path, ...] = ()

    def recipe(self, name: str) -> Path:
        """The recipe of that name or path.

        Raises
        ------
        CardError
            If it is neither shipped nor listed.
        """
        if not name.startswith("/"):
            return shipped_recipe(name)
        path = Path(name).resolve()
        if not any(path.is_relative_to(listed) for listed in self.recipes):
            raise CardError(f"{name}: not a recipe this service runs; list it as `recipes` in {self.home / FILE}")
        return path

    def home_of(self, name: str | None) -> Path:
        """The home that a run names; None: the service's.

        Raises
        ------
        CardError
            If it is another one, and not listed.
        """
        asked = self.home if name is None else Path(name).resolve()
        if asked not in (self.home, *self.homes):
            raise CardError(f"{name}: not a home this service works in; list it as `homes` in {self.home / FILE}")
        return asked

    @contextmanager
    def enforced(self) -> Generator[None]:
        """In this process, and those it starts, no other plug-in is imported."""
        with environment(PERMITTED, " ".join(self.plugins)):
            yield


def read_allowed() -> Allowed:
    """What the service of this process allows: ``RETICENT_HOME`` says where its list is; without one, nothing more.

    Raises
    ------
    CardError
        If there is no such home, somebody else could have written the list, or it is wrong.
    """
    named = Path(os.environ.get(HOME, ""))
    if not named.is_absolute():
        raise CardError(f"a deployed run needs the absolute home of its service: set {HOME} for serve, or the worker")
    home, served = named.resolve(), os.environ.get(SERVED)
    mine = () if served is None else (Path(served),)
    path = home / FILE
    if not path.exists():
        return Allowed(home, recipes=mine)
    about = path.stat()
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CardError(f"{path}: belongs to another account or others may write to it; only its operator may")
    try:
        listed = _Listed.model_validate(read_toml(path))
    except ValidationError as e:
        raise CardError(explain(e, str(path), _Listed)) from None
    recipes, homes = (tuple(Path(p).resolve() for p in paths) for paths in (listed.recipes, listed.homes))
    return Allowed(home, tuple(listed.plugins), (*mine, *recipes), homes)
