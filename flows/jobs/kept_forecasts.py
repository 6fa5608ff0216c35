"""Forecasts that were simulated before: in a home, and those of the shipped recipes, which travel with them.

A key says all that a simulation depends on but the code; its seeds are 0, 1, 2 and so on.  A home keeps what this code
simulated.  A shipped forecast stands while every module that ran for it does what it did: its comments and
docstrings may have changed.  The versions of libraries are not looked at.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from flows.config.home import Home
from flows.config.setting import Setting
from pipeline.declaration.code import code_digest, is_plugin, plugin_digest, syntax_digest
from pipeline.environments.worlds import WORLD_FILE, arrays_file
from pipeline.files import whole_file, write_file
from pipeline.ledger.chain import canonical
from pipeline.privacy.release_file import sha256_file
from reports.facts.plan import Quality

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "flows" / "recipes" / "forecasts.json"
"""``forecasts`` by their keys, and the ``code`` that made them; ``make forecasts`` writes it."""


def forecast_key(s: Setting, episodes: int, draws: int) -> str:
    """Digest of the declarations, the world and the sizes.

    Parameters
    ----------
    s
        Recipe and card.
    episodes, draws
        Of each simulated log, and how many logs.
    """
    world = "" if (known := s.recipe.terms.known) is None else known.world
    files = [s.card.folder / WORLD_FILE, arrays_file(world, s.card.folder)] if world else []
    named = s.recipe.recipe.agent, world
    own = [plugin_digest(name) if is_plugin(name) else None for name in named]
    parts = [
        s.card.model_dump(mode="json", exclude={"source", "budget", "tolerance", "name"}),
        {k: v for k, v in s.recipe.dump().items() if k != "recipe"} | {"agent": s.recipe.recipe.agent},
        [episodes, draws, *(sha256_file(file) if file.is_file() else None for file in files), *own],
    ]
    return hashlib.sha256(canonical(parts).encode()).hexdigest()[:24]


def find_forecast(home: Home, key: str) -> Quality | None:
    """The forecast of this key: the home's, else the shipped one if this code still does the same; else None.

    Parameters
    ----------
    home, key
        Where it is looked for first, and under which key.
    """
    if (at := _place(home, key)).is_file():
        kept = json.loads(at.read_text(encoding="utf-8"))
    elif SHIPPED.is_file() and key in (told := json.loads(SHIPPED.read_text(encoding="utf-8")))["forecasts"]:
        kept = told["forecasts"][key] if all(_stands(*of) for of in told["code"].items()) else None
    else:
        kept = None
    return None if kept is None else Quality.model_validate({**kept, "cached": True})


def keep_forecast(home: Home, key: str, told: Quality) -> None:
    """Keep it in the home.

    Parameters
    ----------
    home, key, told
        Where, under which key, and what.
    """
    at = _place(home, key)
    at.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(at, alone=False) as fresh:
        write_file(fresh, json.dumps(told.model_dump(), allow_nan=False))


def code_of(module: str) -> str:
    """Digests of a module's text and of its syntax, with a blank between; empty of a package.

    Parameters
    ----------
    module
        Its dotted name.
    """
    return f"{sha256_file(at)[:16]} {syntax_digest([module])[:16]}" if (at := _file_of(module)).is_file() else ""


def _stands(module: str, told: str) -> bool:
    """Whether a module does what it did; its syntax is read only where its text is another."""
    text, _, syntax = told.partition(" ")
    same = (at := _file_of(module)).is_file() and sha256_file(at)[:16] == text
    return same or code_of(module).partition(" ")[2] == syntax


def _file_of(module: str) -> Path:
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def _place(home: Home, key: str) -> Path:
    return home.root / "foresight" / f"{key}-{code_digest()[:12]}.json"
