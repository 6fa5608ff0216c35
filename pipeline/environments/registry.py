"""Worlds by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from pipeline.card import CardError
from pipeline.environments.from_gymnasium import from_gymnasium
from pipeline.environments.icu_sepsis import load_icu_sepsis
from pipeline.environments.icu_sepsis_bins import icu_sepsis_bins
from pipeline.environments.random_mixture import random_mixture_world
from pipeline.environments.random_tabular import icu_like, random_tabular
from pipeline.environments.riverswim import riverswim, riverswim_homogeneous, riverswim_inhomogeneous
from pipeline.environments.world import World
from pipeline.shelf import shelves
from pipeline.toml import read_toml

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
    """A world by name: one of :data:`WORLDS`, or ``gymnasium:ID``.

    Parameters
    ----------
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
    if name not in WORLDS and not name.startswith(GYMNASIUM):
        raise CardError(f"no world {name!r}; there are: {', '.join(WORLDS)}, and {GYMNASIUM}ID, e.g. FrozenLake-v1")
    chosen = params or _described(name, folder)
    try:
        if name.startswith(GYMNASIUM):
            return from_gymnasium(name.removeprefix(GYMNASIUM), **chosen)
        if name in _BUILT:
            return _BUILT[name](**chosen)
        return _FROM_FILE[name][0](arrays_file(name, folder), **chosen)
    except (TypeError, ValueError) as e:
        raise CardError(f"world {name}: {e}") from None


def builds_horizon(name: str) -> bool:
    """Whether the world's function takes ``horizon`` itself, because each step has parameters of its own."""
    made = _BUILT.get(name) or (_FROM_FILE[name][0] if name in _FROM_FILE else None)
    return made is not None and "horizon" in signature(made).parameters


def arrays_file(name: str, folder: Path) -> Path:
    """Where a world's arrays lie: in the dataset's folder, else in the world's own folder beside it."""
    own = _FROM_FILE[name][1] if name in _FROM_FILE else name
    beside = [folder / WORLD_ARRAYS, folder.parent / own / WORLD_ARRAYS]
    return next((p for p in beside if p.is_file()), beside[0])


def shelf_folder(name: str) -> Path:
    """The folder on a shelf that holds a world's file; worlds without one need none."""
    folders = [shelf / name for shelf in shelves()]
    return next((f for f in folders if arrays_file(name, f).is_file()), folders[0])


def _described(name: str, folder: Path) -> dict[str, Any]:
    """Parameters that the world file of a simulated log holds for this world."""
    path = folder / WORLD_FILE
    facts = read_toml(path) if path.is_file() else {}
    return dict(facts.get("params", {})) if facts.get("name") == name else {}
