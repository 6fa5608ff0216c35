"""Worlds by name: ours, gymnasium's, and those of other packages as ``module:object``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from pipeline.declaration.card import CardError
from pipeline.declaration.lineage import catalogs
from pipeline.declaration.plugins import is_plugin, plugin, refuse_unlisted
from pipeline.declaration.toml import read_toml
from pipeline.environments.from_gymnasium import from_gymnasium
from pipeline.environments.icu_sepsis import icu_sepsis_bins, load_icu_sepsis
from pipeline.environments.mixture_worlds import random_mixture_world
from pipeline.environments.random_tabular import icu_like, random_tabular
from pipeline.environments.riverswim import riverswim, riverswim_homogeneous, riverswim_inhomogeneous
from pipeline.environments.world import World, WorldFunction

# what a simulated log keeps beside its card: the world's name, its parameters, the logging policy
WORLD_FILE = "world.toml"
WORLD_ARRAYS = "world.npz"
GYMNASIUM = "gymnasium:"

_BUILT: Mapping[str, Callable[..., World]] = {
    "riverswim": riverswim,
    "riverswim_homogeneous": riverswim_homogeneous,
    "riverswim_inhomogeneous": riverswim_inhomogeneous,
    "random": random_tabular,
    "icu_like": icu_like,
    "random_mixture": random_mixture_world,
}
# worlds made of a file, and the folder that holds it
_FROM_FILE: Mapping[str, tuple[Callable[..., World], str]] = {
    "icu_sepsis": (load_icu_sepsis, "icu_sepsis"),
    "icu_sepsis_bins": (icu_sepsis_bins, "icu_sepsis"),
}
WORLDS = ("icu_sepsis", *_BUILT, "icu_sepsis_bins")


def load_world(name: str, folder: Path, **params: Any) -> World:
    """A world by name: one of :data:`WORLDS`, ``gymnasium:ID``, or ``module:object`` of your own.

    Parameters
    ----------
    name
        Of the world.
    folder
        The dataset's folder; a world's file is looked for there, then in its own folder beside it.  Where
        ``world.toml`` there describes this world and no ``params`` are given, its parameters are taken.
    params
        Arguments of the world's function, e.g. RiverSwim's ``states``, ``left_reward``, ``right_reward``.

    Raises
    ------
    CardError
        If there is no such world, a parameter is unknown, or its file is missing.
    """
    refuse_unknown_world(name)
    build = _builder(name)
    chosen = params or _described(name, folder)
    try:
        if name.startswith(GYMNASIUM):
            return from_gymnasium(name.removeprefix(GYMNASIUM), **chosen)
        if build is not None:
            return _checked(name, build(**chosen))
        return _FROM_FILE[name][0](arrays_file(name, folder), **chosen)
    except (TypeError, ValueError) as e:
        raise CardError(f"world {name}: {e}") from None


def refuse_unknown_world(name: str) -> None:
    """Refuse a name that no world can have here; imports nothing.

    Raises
    ------
    CardError
        If there is no such world, or it is a plug-in that is not permitted.
    """
    if is_plugin(name):
        refuse_unlisted(name)
    # a colon within the ID would have gymnasium import a module of that name
    elif name not in WORLDS and not re.fullmatch(rf"{GYMNASIUM}[\w./-]+", name):
        raise CardError(
            f"no world {name!r}; there are: {', '.join(WORLDS)}, {GYMNASIUM}ID, e.g. FrozenLake-v1, and module:object"
        )


def builds_horizon(name: str) -> bool:
    """Whether the world's function takes ``horizon`` itself, because each step has parameters of its own."""
    build = _FROM_FILE[name][0] if name in _FROM_FILE else _builder(name)
    return build is not None and "horizon" in signature(build).parameters


def _builder(name: str) -> Callable[..., World] | None:
    """The function of a world that needs no file."""
    if name in _BUILT:
        return _BUILT[name]
    return plugin(name, WorldFunction).build if is_plugin(name) else None


def _checked(name: str, built: object) -> World:
    if not isinstance(built, World):
        raise CardError(f"world {name}: returns a {type(built).__name__}, not a World")
    return built


def arrays_file(name: str, folder: Path) -> Path:
    """Where a world's arrays lie: in the dataset's folder, else in the world's own folder beside it.

    Parameters
    ----------
    name
        Of a world that is made of a file.
    folder
        The dataset's.

    Returns
    -------
    The first of them that is there; the dataset's own where none is.
    """
    own = _FROM_FILE[name][1] if name in _FROM_FILE else name
    beside = [folder / WORLD_ARRAYS, folder.parent / own / WORLD_ARRAYS]
    return next((p for p in beside if p.is_file()), beside[0])


def catalog_folder(name: str) -> Path:
    """The folder on a shelf that holds a world's file; worlds without one need none."""
    folders = [shelf / name for shelf in catalogs()]
    return next((f for f in folders if arrays_file(name, f).is_file()), folders[0])


def _described(name: str, folder: Path) -> dict[str, Any]:
    """Parameters that the world file of a simulated log holds for this world."""
    path = folder / WORLD_FILE
    facts = read_toml(path) if path.is_file() else {}
    return dict(facts.get("params", {})) if facts.get("name") == name else {}
