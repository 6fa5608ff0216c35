"""Agents, worlds and log readers of your own: ``module:object`` wherever a name is asked for (docs/extend.md).

A plug-in is an object of the kind that is asked for: it says what it is, and nothing else is ever called.
"""

from __future__ import annotations

import hashlib
import os
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from pipeline.declaration.toml import CardError

T = TypeVar("T")

PERMITTED = "RETICENT_PLUGINS"
"""Environment variable: the plug-ins that may be imported, between blanks.  Unset: all; empty: none."""

# ``gymnasium:ID`` names an environment of that library, no object of a module
_TAKEN = ("gymnasium",)


def is_plugin(name: str) -> bool:
    """Whether a name has the form ``package.module:object``.

    Parameters
    ----------
    name
        Of an agent, a world or a format.

    Examples
    --------
    >>> is_plugin("clinic.worlds:ward"), is_plugin("riverswim"), is_plugin("gymnasium:FrozenLake-v1")
    (True, False, False)
    """
    module, colon, thing = name.partition(":")
    parts = [*module.split("."), thing]
    return bool(colon) and module not in _TAKEN and all(part.isidentifier() for part in parts)


def refuse_unlisted(name: str) -> None:
    """Refuse a plug-in that :data:`PERMITTED` does not list; imports nothing.

    Parameters
    ----------
    name
        ``package.module:object``.

    Raises
    ------
    CardError
        If there is a list, and the name is not on it.
    """
    listed = os.environ.get(PERMITTED)
    if listed is not None and name not in listed.split():
        raise CardError(
            f"{name}: is code from elsewhere, and this process runs only what its operator lists; see `plugins` of "
            f"allowed.toml (docs/service.md), or {PERMITTED}"
        )


def plugin(name: str, kind: type[T]) -> T:
    """The object of that name.

    Parameters
    ----------
    name
        ``package.module:object``; the module is imported, so its code runs.
    kind
        What the object must be; it is not called to find out.

    Raises
    ------
    CardError
        If it is not permitted here, its module cannot be found, or the object is of another kind.
    """
    module, _, thing = name.partition(":")
    found = getattr(_imported(name), thing, None)
    if found is None:
        raise CardError(f"{name}: module {module} has no {thing!r}")
    if not isinstance(found, kind):
        raise CardError(f"{name}: is a {type(found).__name__}, not of type {kind.__name__}; docs/extend.md has one")
    return found


def plugin_digest(name: str) -> str:
    """Of the file of the module: another text may do something else.

    Parameters
    ----------
    name
        ``package.module:object``.

    Returns
    -------
    Sha256 in hex; empty where Python has no file of it.

    Raises
    ------
    CardError
        If it is not permitted here, or its module cannot be found.
    """
    source = getattr(_imported(name), "__file__", None)
    return "" if source is None else hashlib.sha256(Path(source).read_bytes()).hexdigest()


def _imported(name: str) -> ModuleType:
    refuse_unlisted(name)
    module = name.partition(":")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as e:
        if e.name is None or not f"{module}.".startswith(f"{e.name}."):
            raise
        raise CardError(
            f"{name}: Python finds no module {e.name!r}; install it, or name its folder in PYTHONPATH"
        ) from None
