"""What the walls keep apart, as rules over the source: each returns one sentence for every place that breaks it.

A module's name in a string counts as an import of it, so that ``importlib`` is no way around a wall.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.floors import AGENTS_MAY_NOT, FLOORS, LOADERS, ONLY_IN, RELEASE_PATH, SEEDED, TIES
from tests.house.imports import files, imports, room_of, tree_of

_MODULE = re.compile(r"(?:pipeline|flows|reports)(?:\.\w+)+(?=:\w+$|$)")
_RANDOM = ("random", "numpy.random")


def _named(root: Path) -> Iterator[tuple[str, str]]:
    """(module, imported): by statement, or by its name in a string."""
    yield from ((i.module, i.imported) for i in imports(root))
    for module, path in files(root):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and (m := _MODULE.match(node.value)):
                yield module, m[0]


def upward(root: Path) -> list[str]:
    """Imports that do not go to a lower floor, and modules without a room."""
    found = [f"{module} has no room" for module, _ in files(root) if _homeless(module)]
    for module, imported in _named(root):
        here, there = room_of(module, FLOORS), room_of(imported, FLOORS)
        if here and there and here != there and FLOORS[there] >= FLOORS[here]:
            found.append(f"{module} (floor {FLOORS[here]}) imports {imported} (floor {FLOORS[there]})")
    return found


def _homeless(module: str) -> bool:
    return room_of(module, FLOORS) is None and not module.endswith("__init__")


def agents_beyond_releases(root: Path) -> list[str]:
    """Agents see released values and protocols only."""
    return [
        f"{m} imports {i}" for m, i in _named(root) if m.startswith("pipeline.agents") and i.startswith(AGENTS_MAY_NOT)
    ]


def libraries_out_of_place(root: Path) -> list[str]:
    """Libraries that belong to a few rooms; cvxpy is imported inside functions, ``datasets`` never."""
    found: list[str] = []
    for module, imported, lazy in imports(root):
        top = imported.split(".")[0]
        if top in ONLY_IN and not module.startswith(ONLY_IN[top]):
            found.append(f"{module} imports {top}")
        if top == "datasets" or (top == "cvxpy" and not lazy):
            found.append(f"{module} imports {top} at its top")
    return found


def pseudo_random(root: Path) -> list[str]:
    """Generators on the release path, outside the one class that simulations use."""
    found: list[str] = []
    for module, path in files(root):
        ties = module.startswith(TIES)
        if not (ties or module.startswith(RELEASE_PATH)):
            continue
        allowed = SEEDED[1] if module == SEEDED[0] else None
        for node in (n for part in tree_of(path).body if getattr(part, "name", "") != allowed for n in ast.walk(part)):
            imported = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                imported += [node.module or "", *(f"{node.module}.{a.name}" for a in node.names)]
            attribute = isinstance(node, ast.Attribute) and node.attr in ("random", "default_rng") and not ties
            if attribute or any(name in _RANDOM or name.startswith("numpy.random.") for name in imported):
                found.append(f"{module}:{getattr(node, 'lineno', 0)} uses a pseudo-random generator")
    return found


def hidden_imports(root: Path) -> list[str]:
    """Modules that import by a name made at run time; only the loaders of plug-ins may."""
    return [
        f"{module} imports {imported}"
        for module, imported, _ in imports(root)
        if imported in ("importlib", "runpy", "pkgutil") and module not in LOADERS and not _reads_versions(root, module)
    ]


def _reads_versions(root: Path, module: str) -> bool:
    """Whether all it takes of importlib is something that loads no code."""
    tree = tree_of(root / (module.replace(".", "/") + ".py"))
    taken = {
        a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == "importlib" for a in n.names
    }
    return bool(taken) and taken <= {"metadata", "resources"}


RULES = (upward, agents_beyond_releases, libraries_out_of_place, pseudo_random, hidden_imports)
