"""How large the house is: ``python -P -m tests.house.figures [FOLDER]`` (default: this checkout).

Lines, code lines (without blanks, comments and docstrings), files, forks on a family of agents, untyped dictionaries,
base names that occur twice, file lengths, and the share of documented parameters among names used from other rooms.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.house.imports import ROOT, files, imports, tree_of

_FORK = re.compile(r"is_lq|is_linear|isinstance\([^)]*(?:Lq|LQ|Linear)[A-Za-z]*\)")
_UNTYPED = re.compile(r"(?:dict|Mapping)\[str, Any\]")
_DOCUMENTED = r"(?m)^\s*(?:[\w`*]+,\s*)*[`*]*{0}`*(?:,\s*[\w`*]+)*\s*(?::.*)?$|``{0}\b"


def code_lines(source: str) -> int:
    """Lines that are neither blank nor comment nor docstring."""
    prose: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                prose |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(source.splitlines(), 1)
    return sum(bool(text.strip()) and not text.strip().startswith("#") and n not in prose for n, text in lines)


def _room(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] != "reports" else parts[0]


def _documented(node: ast.stmt) -> Iterator[bool]:
    """Whether each parameter of a function or class is in its docstring."""
    if isinstance(node, ast.FunctionDef):
        text = ast.get_docstring(node) or ""
        names = [a.arg for a in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]]
    elif isinstance(node, ast.ClassDef):
        text = ast.get_docstring(node) or ""
        made = [b for b in node.body if isinstance(b, ast.FunctionDef) and b.name == "__init__"]
        if made:
            text += ast.get_docstring(made[0]) or ""
            names = [a.arg for a in [*made[0].args.args[1:], *made[0].args.kwonlyargs]]
        else:
            fields = (b.target for b in node.body if isinstance(b, ast.AnnAssign))
            names = [t.id for t in fields if isinstance(t, ast.Name) and not t.id.startswith("_")]
    else:
        return
    for name in names:
        yield re.search(_DOCUMENTED.format(re.escape(name)), text) is not None


def documented(root: Path = ROOT) -> dict[str, tuple[int, int]]:
    """Room -> (documented, all) parameters of its functions and classes that another room imports."""
    used: dict[str, set[str]] = defaultdict(set)
    for module, path in files(root):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and node.module and _room(node.module) != _room(module):
                used[node.module] |= {a.name for a in node.names}
    found: dict[str, tuple[int, int]] = {}
    for module, path in files(root):
        for node in tree_of(path).body:
            if getattr(node, "name", None) in used[module]:
                marks = list(_documented(node))
                done, all_of = found.get(_room(module), (0, 0))
                found[_room(module)] = done + sum(marks), all_of + len(marks)
    return found


def figures(root: Path = ROOT) -> dict[str, str]:
    """Name -> figure, as text."""
    texts = {path: path.read_text(encoding="utf-8") for _, path in files(root)}
    lengths = [len(t.splitlines()) for t in texts.values() if t.strip()]
    names = Counter(p.name for p in texts if p.name != "__init__.py")
    twice = sorted(n for n, times in names.items() if times > 1)
    done, all_of = map(sum, zip(*documented(root).values(), strict=True))
    rooms = {_room(m) for m, _ in files(root)}
    arrows = {(_room(a), _room(b)) for a, b, _ in imports(root) if b.split(".")[0] in {r.split(".")[0] for r in rooms}}
    return {
        "lines": f"{sum(lengths)}",
        "code lines": f"{sum(map(code_lines, texts.values()))}",
        "files that are not empty": f"{len(lengths)}",
        "longest file, median": f"{max(lengths)}, {statistics.median(lengths):g} lines",
        "arrows between rooms": f"{sum(a != b for a, b in arrows)}",
        "forks on a family of agents": f"{sum(len(_FORK.findall(t)) for t in texts.values())}",
        "untyped dictionaries": f"{sum(len(_UNTYPED.findall(t)) for t in texts.values())}",
        "base names that occur twice": f"{len(twice)}" + (f" ({', '.join(twice)})" if len(twice) < 12 else ""),
        "documented parameters": f"{done} of {all_of} ({done / all_of:.0%})",
    }


def main() -> None:
    """Print the figures of a checkout."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    for name, figure in figures(root).items():
        print(f"{name:28} {figure}")


if __name__ == "__main__":
    main()
