"""The house read from its own source: modules, rooms, and who imports whom."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
TOPS = ("pipeline", "flows", "reports")


class Import(NamedTuple):
    """``module`` imports ``imported``; ``lazy`` where it does so inside a function."""

    module: str
    imported: str
    lazy: bool


def files(root: Path = ROOT) -> Iterator[tuple[str, Path]]:
    """Every source file of the product as (dotted module name, path), sorted."""
    for top in TOPS:
        for path in sorted((root / top).rglob("*.py")):
            yield ".".join(path.relative_to(root).with_suffix("").parts), path
    if (door := root / "reticent.py").is_file():
        yield "reticent", door


@lru_cache(maxsize=2000)
def parsed(source: str) -> tuple[ast.Module, Sequence[ast.AST]]:
    """The syntax tree of a source text, and all its nodes; nobody changes it."""
    tree = ast.parse(source)
    return tree, tuple(ast.walk(tree))


def tree_of(path: Path) -> ast.Module:
    return parsed(path.read_text(encoding="utf-8"))[0]


def nodes_of(path: Path) -> Sequence[ast.AST]:
    return parsed(path.read_text(encoding="utf-8"))[1]


@lru_cache(maxsize=2000)
def _imported(source: str) -> Sequence[tuple[str, bool]]:
    """What a text imports, and whether inside a function."""
    tree, nodes = parsed(source)
    top, found = set(map(id, tree.body)), list[tuple[str, bool]]()
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [(a.name, id(node) not in top) for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import of {node.module}"
            found.append((node.module or "", id(node) not in top))
    return found


def imports(root: Path = ROOT) -> list[Import]:
    texts = ((module, path.read_text(encoding="utf-8")) for module, path in files(root))
    return [Import(module, *told) for module, text in texts for told in _imported(text)]


def room_of(module: str, rooms: Mapping[str, int]) -> str | None:
    """The room a module lies in: the longest declared name that it begins with."""
    parts = module.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((n for n in names if n in rooms), None)


def arrows(rooms: Mapping[str, int], root: Path = ROOT) -> dict[str, set[str]]:
    """Room -> the other rooms that it imports from."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, imported, _ in imports(root):
        here, there = room_of(module, rooms), room_of(imported, rooms)
        if here is not None and there is not None and here != there:
            found[here].add(there)
    return found
