"""The folder of a simulated log: card, recipe, world, README and the log itself, in TOML as a person would write it."""

# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.declaration.card import CardError
from pipeline.declaration.declared_features import StateFeatures
from pipeline.environments.world import World
from pipeline.environments.worlds import WORLD_ARRAYS, WORLD_FILE, arrays_file
from pipeline.simulation.synthetic_logs import stream_log
from pipeline.simulation.synthetic_world_card import COMMENTS, readme

# first words of a card this program wrote, and may therefore write again
_MARK = "Written by `reticent simulate`"
# budget of the recipe, unless the card's cap is smaller
_RHO = 1.0
_TABLES: Mapping[str, Any] = {
    "recipe": {"agent": "dp-apvi"},
    "planner": {"constants": "practical", "bounds": "tail"},
}


def toml_text(
    head: Sequence[str],
    values: Mapping[str, Any],
    comments: Mapping[str, str] | None = None,
    inner: Sequence[str] = (),
) -> str:
    """Lines of ``head`` as comments, then ``values``.

    Parameters
    ----------
    values
        Tables are written as ``[table]``, what they hold inline; None is left out.
    comments
        Dotted key -> what stands behind its line.
    inner
        Dotted names of tables in tables that get a header of their own.
    """
    said = comments or {}
    lines = [f"# {line}".rstrip() for line in head]
    lines += _pairs("", {k: v for k, v in values.items() if not isinstance(v, Mapping)}, said)
    for name, table in values.items():
        if isinstance(table, Mapping):
            own = {k: v for k, v in table.items() if f"{name}.{k}" in inner and isinstance(v, Mapping)}
            lines += ["", f"[{name}]", *_pairs(f"{name}.", {k: v for k, v in table.items() if k not in own}, said)]
            for key, below in own.items():
                lines += ["", f"[{name}.{key}]", *_pairs(f"{name}.{key}.", below, said)]
    return "\n".join(lines) + "\n"


def _pairs(prefix: str, values: Mapping[str, Any], said: Mapping[str, str]) -> list[str]:
    found: list[str] = []
    for key, value in values.items():
        if value is not None:
            comment = f"   # {said[prefix + key]}" if prefix + key in said else ""
            found.append(f"{_key(key)} = {toml_value(value)}{comment}")
    return found


def _key(key: str) -> str:
    return key if key.isascii() and key.replace("_", "a").replace("-", "a").isalnum() else _text(key)


def _text(value: str) -> str:
    # JSON strings are TOML strings but for one control character
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_value(value: Any) -> str:
    """One value; lists and mappings inline, a table of features by its file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, StateFeatures):
        return _text(value.file)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(str(k))} = {toml_value(v)}" for k, v in value.items() if v is not None) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    return repr(value)


@dataclass(frozen=True)
class Simulated:
    """What is to be written.

    Attributes
    ----------
    log
        Writes the log's files into a folder.
    behaviour
        Name of the logging policy.
    episodes
        Of the log.
    values
        The card, as plain values.
    about
        Comment lines at the head of the card.
    readme
        Text of README.md.
    told
        Content of ``world.toml``; None where the true world is not known.
    comments
        Dotted key of the card -> what stands behind its line.
    learner
        Tables of the recipe beside the budget; the agent alone is asked of ``recipe``.
    """

    log: Callable[[Path], list[Path]]
    behaviour: str
    episodes: int
    values: Mapping[str, Any]
    about: Sequence[str]
    readme: str
    told: Mapping[str, Any] | None
    comments: Mapping[str, str] = field(default_factory=lambda: COMMENTS)
    learner: Mapping[str, Any] = field(default_factory=lambda: _TABLES)


def tabular_log(
    world: World, behaviour: str, values: Mapping[str, Any], episodes: int, seed: int
) -> Callable[[Path], list[Path]]:
    """How the log of a world of states and actions is written.

    Parameters
    ----------
    world, behaviour
        What is simulated, and its logging policy.
    values
        The card: steps of an episode, episodes of a user.
    episodes, seed
        Of the log.
    """
    horizon, each = values["domain"]["horizon"], values["unit"]["episodes_per_user"]
    return lambda to: stream_log(world, behaviour, horizon, episodes, np.random.default_rng(seed), to, each)


def refuse_foreign(folder: Path) -> None:
    """Never overwrite what this program did not write.

    Parameters
    ----------
    folder
        Where a log shall be written; it may be absent or empty.

    Raises
    ------
    CardError
        If the folder holds anything but an earlier simulated log.
    """
    card = folder / "card.toml"
    own = card.is_file() and card.read_text(encoding="utf-8").startswith(f"# {_MARK}")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not own):
        raise CardError(f"{folder}: is there and holds no simulated log; name an empty folder with --to")


def write_folder(s: Simulated, folder: Path, world_folder: Path | None = None) -> list[str]:
    """Write everything into an empty folder and return the names of the log files, in order.

    Parameters
    ----------
    s
        What is to be written.
    folder
        Empty.
    world_folder
        Where the world's own file lies, if it has one; it is copied, so that the folder stands on its own.
    """
    values = dict(s.values)
    inner = tuple(f"domain.{table}" for table in ("states", "actions", "observation", "action", "start"))
    card = toml_text([f"{_MARK}: simulated, nobody is behind a row.", *s.about], values, s.comments, inner)
    (folder / "card.toml").write_text(card, encoding="utf-8")
    (folder / "recipe.toml").write_text(_recipe(s), encoding="utf-8")
    (folder / "README.md").write_text(s.readme, encoding="utf-8")
    if s.told is not None:
        head = ["The world behind this log: known, so that reports can say what is true."]
        (folder / WORLD_FILE).write_text(toml_text(head, s.told), encoding="utf-8")
        arrays = None if world_folder is None else arrays_file(s.told["name"], world_folder)
        if arrays is not None and arrays.is_file():
            shutil.copyfile(arrays, folder / WORLD_ARRAYS)
    if "features" in values["domain"].get("states", {}):
        values["domain"]["states"]["features"].write(folder)
    return [f.name for f in s.log(folder)]


def _recipe(s: Simulated) -> str:
    name, cap = s.values["name"], s.values["budget"]["rho"]
    values: dict[str, Any] = {
        "recipe": {"name": name, "card": "card.toml", **s.learner["recipe"]},
        "privacy": {"rho": min(_RHO, cap)},
        **{table: asked for table, asked in s.learner.items() if table != "recipe"},
    }
    if s.told is not None:
        values["evaluate"] = {"world": s.told["name"], "behaviour": s.behaviour}
    return toml_text(["`reticent ingest` this folder, then `reticent run` this file."], values)


def world_readme(
    *,
    name: str,
    world: str,
    params: Mapping[str, Any],
    log: Mapping[str, Any],
    values: Mapping[str, float],
    command: str,
) -> str:
    """README of a log of a known world.

    Parameters
    ----------
    name
        Of the new dataset.
    world, params
        The world and its arguments.
    command
        The command line that writes the same bytes.
    log
        What was simulated: horizon, behaviour, episodes, seed, in words and numbers.
    values
        Name of a policy -> exact value of one episode.
    """
    settings = ", ".join(f"{k} = {v}" for k, v in params.items()) or "its defaults"
    rows = "\n".join(f"| {policy} | {value:.6g} |" for policy, value in values.items())
    made = "\n".join(f"| {k} | {v} |" for k, v in log.items())
    more = {"settings": settings, "made": made, "rows": rows, "command": command}
    return readme("world_readme.md", name=name, world=world, **more)
