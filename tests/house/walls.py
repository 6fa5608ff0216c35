"""What the walls keep apart, as rules over the source: each returns one sentence for every place that breaks it.

A module's name in a string counts as an import of it, so that ``importlib`` is no way around a wall.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from tests.house.floors import AGENTS_MAY_NOT, FLOORS, LOADERS, ONLINE, ONLY_IN, PLAYS, RELEASE_PATH, SEEDED, TIES
from tests.house.imports import TOPS, files, imports, nodes_of, parsed, room_of, tree_of

_MODULE = re.compile(r"(?:pipeline|flows|reports)(?:\.\w+)+(?=:\w+$|$)")
_RANDOM = ("random", "numpy.random")
# what holds a column, and what leaves polars
_COLUMN = re.compile(r"\bpl\.(?:Expr|Series)\b")
_LEAVES = ("to_numpy", "to_list", "to_arrow", "item", "select", "with_columns", "filter")


def _named(root: Path) -> Iterator[tuple[str, str]]:
    """(module, imported): by statement, or by its name in a string."""
    yield from ((i.module, i.imported) for i in imports(root))
    for module, path in files(root):
        yield from ((module, name) for name in _in_strings(path.read_text(encoding="utf-8")))


@lru_cache(maxsize=2000)
def _in_strings(source: str) -> Sequence[str]:
    texts = (n.value for n in parsed(source)[1] if isinstance(n, ast.Constant) and isinstance(n.value, str))
    return [m[0] for text in texts if (m := _MODULE.match(text))]


def upward(root: Path) -> list[str]:
    """Imports that do not go to a lower floor, and modules without a room."""
    modules = (module for module, _ in files(root) if not module.endswith("__init__"))
    found = [f"{module} has no room" for module in modules if room_of(module, FLOORS) is None]
    for module, imported in _named(root):
        here, there = room_of(module, FLOORS), room_of(imported, FLOORS)
        if here and there and here != there and FLOORS[there] >= FLOORS[here]:
            found.append(f"{module} (floor {FLOORS[here]}) imports {imported} (floor {FLOORS[there]})")
    return found


def agents_beyond_releases(root: Path) -> list[str]:
    """Agents see released values and protocols only."""
    return [
        f"{m} imports {i}" for m, i in _named(root) if m.startswith("pipeline.agents") and i.startswith(AGENTS_MAY_NOT)
    ]


def online_out_of_place(root: Path) -> list[str]:
    """Online agents are played by flows, audits and studies only: no learner rests on a simulation of users."""
    return [f"{m} imports {i}" for m, i in _named(root) if i.startswith(ONLINE) and not m.startswith(PLAYS)]


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
        if ties or module.startswith(RELEASE_PATH):
            allowed = SEEDED[1] if module == SEEDED[0] else None
            lines = _generators(path.read_text(encoding="utf-8"), allowed, ties=ties)
            found += [f"{module}:{line} uses a pseudo-random generator" for line in lines]
    return found


@lru_cache(maxsize=2000)
def _generators(source: str, allowed: str | None, *, ties: bool) -> Sequence[int]:
    """Lines outside of the class ``allowed`` that import a generator, or take one from what they have."""
    found: list[int] = []
    for node in (n for part in parsed(source)[0].body if getattr(part, "name", "") != allowed for n in ast.walk(part)):
        imported = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            imported += [node.module or "", *(f"{node.module}.{a.name}" for a in node.names)]
        attribute = isinstance(node, ast.Attribute) and node.attr in ("random", "default_rng") and not ties
        if attribute or any(name in _RANDOM or name.startswith("numpy.random.") for name in imported):
            found.append(getattr(node, "lineno", 0))
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


def divided_columns(root: Path) -> list[str]:
    """Columns that polars divides where rows are read: one row it rounds otherwise than many, so that a person's value
    would depend on who stands beside them; times the inverse is the same for all."""
    found: list[str] = []
    for module, path in files(root):
        if not module.startswith("pipeline.logs"):
            continue
        functions = [n for n in nodes_of(path) if isinstance(n, ast.FunctionDef)]
        makers = {f.name for f in functions if f.returns is not None and _COLUMN.search(ast.unparse(f.returns))}
        for f in functions:
            told = (a for a in (*f.args.args, *f.args.kwonlyargs) if a.annotation is not None)
            columns = makers | {a.arg for a in told if _COLUMN.search(ast.unparse(a.annotation))}
            for n in ast.walk(f):
                if isinstance(n, ast.Assign) and _of_columns(n.value, columns):
                    columns |= {t.id for of in n.targets for t in ast.walk(of) if isinstance(t, ast.Name)}
            for n in ast.walk(f):
                over = isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div) and _of_columns(n.left, columns)
                if over or (isinstance(n, ast.Attribute) and n.attr in ("truediv", "__truediv__")):
                    found.append(f"{module}:{n.lineno} divides a column")
    return found


def _of_columns(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression is made of columns, and not of what left polars."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LEAVES:
        return False
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pl":
        return node.attr in ("col", "lit", "when", "Series")
    if isinstance(node, ast.Name):
        return node.id in names
    return any(_of_columns(child, names) for child in ast.iter_child_nodes(node))


def names_that_are_gone(root: Path) -> list[str]:
    """Names taken from a module of ours that does not define them, inside functions too, where no start-up looks."""
    texts = {module: path.read_text(encoding="utf-8") for module, path in files(root)}
    defined = {module.removesuffix(".__init__"): _names(text)[0] for module, text in texts.items()}
    return [
        f"{module} takes {there}.{name}"
        for module, text in texts.items()
        for there, name in _names(text)[1]
        if f"{there}.{name}" not in defined and name not in defined.get(there, set[str]())
    ]


@lru_cache(maxsize=2000)
def _names(source: str) -> tuple[set[str], Sequence[tuple[str, str]]]:
    """The names that a text defines, and those that it takes from a module of ours."""
    names, taken = set[str](), list[tuple[str, str]]()
    for node in parsed(source)[1]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(a.asname or a.name).split(".")[0] for a in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in (*TOPS, "reticent"):
            taken += [(node.module or "", a.name) for a in node.names]
    return names, taken


RULES = (online_out_of_place, names_that_are_gone, upward, agents_beyond_releases, libraries_out_of_place)
RULES += (pseudo_random, hidden_imports, divided_columns)
