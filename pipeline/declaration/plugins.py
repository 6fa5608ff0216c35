"""Agents, worlds and log readers of your own: ``module:function`` wherever a name is asked for (docs/extend.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib import import_module
from inspect import getsourcefile, isclass, isroutine
from pathlib import Path
from typing import Any

from pipeline.declaration.toml import CardError

# ``gymnasium:ID`` names an environment of that library, no function
_TAKEN = ("gymnasium",)


def is_plugin(name: str) -> bool:
    """Whether a name has the form ``package.module:function``.

    Parameters
    ----------
    name
        Of an agent, a world or a format.

    Examples
    --------
    >>> is_plugin("clinic.worlds:ward"), is_plugin("riverswim"), is_plugin("gymnasium:FrozenLake-v1")
    (True, False, False)
    """
    module, colon, function = name.partition(":")
    parts = [*module.split("."), function]
    return bool(colon) and module not in _TAKEN and all(part.isidentifier() for part in parts)


def plugin_object(name: str) -> Any:
    """Whatever stands under that name; None where the module has nothing of it.

    Parameters
    ----------
    name
        ``package.module:object``; the module is imported, so its code runs.

    Raises
    ------
    CardError
        If the module cannot be found.
    """
    module, _, thing = name.partition(":")
    try:
        return getattr(import_module(module), thing, None)
    except ModuleNotFoundError as e:
        if e.name is None or not f"{module}.".startswith(f"{e.name}."):
            raise
        raise CardError(
            f"{name}: Python finds no module {e.name!r}; install it, or name its folder in PYTHONPATH"
        ) from None


def plugin(name: str) -> Callable[..., Any]:
    """The function of that name.

    Parameters
    ----------
    name
        ``package.module:function``.

    Raises
    ------
    CardError
        If the module cannot be found, or has no such function.
    """
    found = plugin_object(name)
    if not callable(found):
        module, _, function = name.partition(":")
        raise CardError(f"{name}: module {module} has no function {function!r}")
    return found


def plugin_digest(name: str) -> str:
    """Of the file that holds the function, or the module of what is none: another text may do something else.

    Parameters
    ----------
    name
        ``package.module:object``.

    Returns
    -------
    Sha256 in hex; empty where Python has no source of it.

    Raises
    ------
    CardError
        If the module cannot be found.
    """
    found = plugin_object(name)
    source = getsourcefile(found if isroutine(found) or isclass(found) else import_module(name.partition(":")[0]))
    return "" if source is None else hashlib.sha256(Path(source).read_bytes()).hexdigest()
