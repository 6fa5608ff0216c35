"""Plug-ins (agents, worlds and log readers) by name, and digests of the code that made a number.

A plug-in is ``module:object`` in place of a name (docs/extend.md): an object of the required kind; nothing is called to
find out.  Sums of two versions of the code are never added, and a measured cell is measured anew.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from pipeline.declaration.toml import CardError

_LIBRARIES = ("numpy", "polars", "pyarrow")
_MEASURING = ("numpy", "scipy")
_PACKAGE = "pipeline"
_ROOT = Path(__file__).resolve().parents[2]


@cache
def code_digest() -> str:
    """Sha256 over the source files of ``pipeline`` and the versions of the libraries that read and add for it."""
    total, root = hashlib.sha256(), _ROOT / _PACKAGE
    for path in sorted(root.rglob("*.py")):
        total.update(f"{path.relative_to(root)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    total.update("\0".join(version(library) for library in _LIBRARIES).encode())
    return total.hexdigest()


def closure_digest(modules: Iterable[str], root: Path = _ROOT) -> str:
    """Sha256 over the code of modules: their syntax, and that of all they import from ``pipeline``, directly or not.

    Comments, docstrings and layout count for nothing, and neither does a module that none of them imports.  Imports
    inside of functions count; those that are for type checking alone do not.

    ``modules``: dotted names; a module outside of ``pipeline`` must be findable by Python.
    """
    skeletons: dict[str, str] = {}
    visited, waiting = set[str](), list(modules)
    while waiting:
        name = waiting.pop()
        if name in visited:
            continue
        visited.add(name)
        own = root == _ROOT and name.partition(".")[0] == _PACKAGE
        if (found := (_read_once if own else _read)(name, root)) is None:
            continue
        skeletons[name], imported = found
        waiting += [name for name in imported if name.partition(".")[0] == _PACKAGE]
        waiting += [name.rpartition(".")[0]] if "." in name else []
    lines = [f"{name} {digest}" for name, digest in sorted(skeletons.items())]
    return hashlib.sha256("\n".join([*lines, *map(version, _MEASURING)]).encode()).hexdigest()


def syntax_digest(modules: Iterable[str], root: Path = _ROOT) -> str:
    """Sha256 over the syntax of these modules alone, without comments, docstrings and layout."""
    files = {name: _file_of(name, root) for name in modules}
    lines = [f"{name} {_skeleton(path.read_bytes())[0]}" for name, path in sorted(files.items()) if path is not None]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _file_of(name: str, root: Path) -> Path | None:
    """The source file of a module; None for a name inside of one, or a module that is not written in Python."""
    if not (root / name.partition(".")[0]).is_dir():
        try:
            spec = find_spec(name)
        except ModuleNotFoundError:
            # the package of a dotted name is missing
            return None
        return None if spec is None or not (spec.origin or "").endswith(".py") else Path(str(spec.origin))
    # by strings: paths of a thousand names took twice as long as their files
    base = os.path.join(root, *name.split("."))  # noqa: PTH118
    return next((Path(p) for p in (f"{base}.py", f"{base}/__init__.py") if os.path.isfile(p)), None)  # noqa: PTH113


def _read(name: str, root: Path) -> tuple[str, tuple[str, ...]] | None:
    """The skeleton of a module; None where :func:`_file_of` finds no file."""
    return None if (path := _file_of(name, root)) is None else _skeleton(path.read_bytes())


# our own code stays what this process has loaded
_read_once = cache(_read)


@cache
def _skeleton(source: bytes) -> tuple[str, tuple[str, ...]]:
    """Digest of a text's syntax without docstrings, and the names that it imports."""
    tree = ast.parse(source)
    nodes: list[ast.AST] = [tree]
    for node in nodes:
        nodes += _inside(node)
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), tuple(dict.fromkeys(_names_in(tree)))


_BLOCKS = ("body", "handlers", "orelse", "finalbody", "cases")


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """The statements of a node's blocks, and what holds more of them: no expression imports or has a docstring."""
    for block in _BLOCKS:
        yield from getattr(node, block, ())


def _names_in(node: ast.AST) -> Iterator[str]:
    for child in _inside(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            module = child.module or ""
            names = [module, *(f"{module}.{alias.name}" for alias in child.names)]
        else:
            yield from _names_in(child)
            continue
        yield from names


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

    Raises CardError if there is a list, and the name is not on it.
    """
    listed = os.environ.get(PERMITTED)
    if listed is not None and name not in listed.split():
        raise CardError(
            f"{name}: is code from elsewhere, and this process runs only what its operator lists; see `plugins` of "
            f"allowed.toml (docs/operate.md), or {PERMITTED}"
        )


def plugin(name: str, kind: type[T]) -> T:
    """Import the object of that name.

    ``kind``: what the object must be; it is not called to find out.
    Raises CardError if it is not permitted here, its module cannot be found, or the object is of another kind.
    """
    module, _, thing = name.partition(":")
    value = getattr(_imported(name), thing, None)
    if value is None:
        raise CardError(f"{name}: module {module} has no {thing!r}")
    if not isinstance(value, kind):
        raise CardError(f"{name}: is a {type(value).__name__}, not of type {kind.__name__}; docs/extend.md has one")
    return value


def plugin_digest(name: str) -> str:
    """Sha256 of the file of a plug-in's module, in hex; empty where Python has no file of it.

    Raises CardError if it is not permitted here, or its module cannot be found.
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
