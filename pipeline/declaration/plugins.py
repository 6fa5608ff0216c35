"""Agents, worlds and log readers of your own: ``module:function`` wherever a name is asked for (docs/extend.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib import import_module
from inspect import getsourcefile
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


def plugin(name: str) -> Callable[..., Any]:
    """The function of that name.

    Parameters
    ----------
    name
        ``package.module:function``; the module is imported, which runs its code.

    Raises
    ------
    CardError
        If the module cannot be found, or has no such function.
    """
    module, _, function = name.partition(":")
    try:
        found = getattr(import_module(module), function, None)
    except ModuleNotFoundError as e:
        if e.name is None or not f"{module}.".startswith(f"{e.name}."):
            raise
        raise CardError(
            f"{name}: Python finds no module {e.name!r}; install it, or name its folder in PYTHONPATH"
        ) from None
    if not callable(found):
        raise CardError(f"{name}: module {module} has no function {function!r}")
    return found


def plugin_digest(name: str) -> str:
    """Of the file that holds the function: what another text measured must be measured again.

    Parameters
    ----------
    name
        ``package.module:function``.

    Returns
    -------
    Sha256 in hex; empty where Python finds no file of source.

    Raises
    ------
    CardError
        As of :func:`plugin`.
    """
    source = getsourcefile(plugin(name))
    return "" if source is None else hashlib.sha256(Path(source).read_bytes()).hexdigest()
