"""Worlds by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.card import CardError
from pipeline.environments.icu_sepsis import load_icu_sepsis
from pipeline.environments.riverswim import riverswim
from pipeline.environments.world import World

WORLDS = ("icu_sepsis", "riverswim")


def load_world(name: str, folder: Path, **params: Any) -> World:
    """A world by name.

    Parameters
    ----------
    folder
        The dataset's folder on the shelf; a world's file is looked for there, then in the folder ``name`` beside it.
    params
        RiverSwim: ``states``, ``left_reward``, ``right_reward``.

    Raises
    ------
    CardError
        If there is no such world, a parameter is unknown, or its file is missing.
    """
    if name not in WORLDS:
        raise CardError(f"no world {name!r}; there are: {', '.join(WORLDS)}")
    try:
        if name == "riverswim":
            return riverswim(**params)
        beside = [folder / "world.npz", folder.parent / name / "world.npz"]
        return load_icu_sepsis(next((p for p in beside if p.is_file()), beside[0]), **params)
    except (TypeError, ValueError) as e:
        raise CardError(f"world {name}: {e}") from None
