"""How large the house is: ``python -P -m tests.house.figures [FOLDER]`` (default: this checkout).

Code lines (without blanks, comments and docstrings), lines, files, lines of tests, import lines, names of public
classes that stand in several modules, files with one importer, verbs; and, of this checkout only, the project's modules
that each verb loads and crosses, the frames from the shell to the first sum over rows, and processor time beside
bare imports.
"""

import ast
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from tests.house.imports import ROOT, files, imports, nodes_of, tree_of

# what a child prints last: how many of the project's modules it has loaded
_LOADED = """
import sys
from flows.cli import main
sys.argv = ["reticent", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
finally:
    tops = ("pipeline", "flows", "reports", "reticent")
    print(sum(m.split(".")[0] in tops for m in sys.modules), file=sys.stderr)
"""


def code_lines(source: str) -> int:
    """Lines that are neither blank nor comment nor docstring."""
    prose: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            said = first.value if isinstance(first, ast.Expr) else None
            if first is not None and isinstance(said, ast.Constant) and isinstance(said.value, str):
                prose |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = enumerate(source.splitlines(), 1)
    return sum(bool(text.strip()) and not text.strip().startswith("#") and n not in prose for n, text in lines)


def _import_lines(path: Path) -> int:
    """Lines of import statements, wherever they stand."""
    found = (n for n in nodes_of(path) if isinstance(n, ast.Import | ast.ImportFrom))
    return sum((n.end_lineno or n.lineno) - n.lineno + 1 for n in found)


def _class_names(root: Path) -> dict[str, int]:
    """Name of a public class -> modules that define one of that name."""
    found: dict[str, set[str]] = defaultdict(set)
    for module, path in files(root):
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].add(module)
    return {name: len(modules) for name, modules in found.items()}


def _one_importer(root: Path) -> int:
    """Modules that exactly one other module of the product imports."""
    modules = {module for module, _ in files(root)}
    importers: dict[str, set[str]] = defaultdict(set)
    for module, path in files(root):
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and node.module:
                named = [f"{node.module}.{a.name}" for a in node.names]
                for imported in {n if n in modules else node.module for n in named}:
                    importers[imported].add(module)
    for module, imported, _ in imports(root):
        importers[imported].add(module)
    return sum(len(importers[m] - {m}) == 1 for m in modules)


# what a user imports, and what types a command
_DOORS = ("reticent", "flows.cli", "flows.api")
_INSIDE = ("pipeline", "flows", "reports")


def _used(node: ast.AST) -> set[str]:
    """Names that a function or class uses; ``.`` where it patches a module inside by its name."""
    nodes = list(ast.walk(node))
    found = {n.id for n in nodes if isinstance(n, ast.Name)} | {n.arg for n in nodes if isinstance(n, ast.arg)}
    texts = (n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))
    inside = (text for text in texts if text.split(".")[0] in _INSIDE and text not in _DOORS)
    return found | {"." for text in inside if "." in text and " " not in text}


def inner_tests(root: Path) -> tuple[str, str]:
    """Test functions that use a name inside of the product, by their file's helpers too; and those that patch one."""
    inner = patch = whole = 0
    for path in (root / "tests").rglob("test_*.py"):
        found = {"."}
        for node in nodes_of(path):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _INSIDE:
                found |= {a.asname or a.name for a in node.names if f"{node.module}" not in _DOORS}
            elif isinstance(node, ast.Import):
                inside = [a for a in node.names if a.name.split(".")[0] in _INSIDE and a.name not in _DOORS]
                found |= {a.asname or a.name.split(".")[0] for a in inside}
        named = {n.name: _used(n) for n in tree_of(path).body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        while more := {name for name, used in named.items() if used & found} - found:
            found |= more
        tests = {name for name in named if name.startswith("test_")}
        inner, whole = inner + len(tests & found), whole + len(tests)
        functions = (n for n in tree_of(path).body if isinstance(n, ast.FunctionDef))
        patch += sum(n.name in tests and _patches(n, found) for n in functions)
    return f"{inner} of {whole} ({inner / whole:.0%})", f"{patch} of {whole} ({patch / whole:.0%})"


def _patches(node: ast.AST, found: set[str]) -> bool:
    calls = (n for n in ast.walk(node) if isinstance(n, ast.Call) and n.args)
    patches = (c for c in calls if ast.unparse(c.func).endswith((".setattr", "patch")))
    return any(_used(c.args[0]) & found for c in patches)


def figures(root: Path = ROOT) -> dict[str, str]:
    """Name -> figure, of the source as it lies there."""
    texts = {path: path.read_text(encoding="utf-8") for _, path in files(root)}
    tests = [path.read_text(encoding="utf-8") for path in (root / "tests").rglob("*.py")]
    names = _class_names(root)
    inner, patch = inner_tests(root)
    three, two = (sum(n >= least for n in names.values()) for least in (3, 2))
    return {
        "code lines": f"{sum(map(code_lines, texts.values()))}",
        "lines": f"{sum(len(t.splitlines()) for t in texts.values())}",
        "files that are not empty": f"{sum(bool(t.strip()) for t in texts.values())}",
        "lines of Python in tests": f"{sum(len(t.splitlines()) for t in tests)}",
        "test functions that use inner names": inner,
        "test functions that patch inner names, broken twins among them": patch,
        "import lines": f"{sum(_import_lines(path) for path in texts)}",
        "public class names in three modules or more / two or more": f"{three} / {two}",
        "files with one importer": f"{_one_importer(root)}",
    }


def loaded(arguments: list[str]) -> int:
    """Modules of the project that a fresh process has loaded at the end of a command."""
    child = [sys.executable, "-P", "-c", _LOADED, *arguments]
    done = subprocess.run(child, capture_output=True, text=True, check=True, cwd=ROOT)
    return int(done.stderr.split()[-1])


def loads() -> dict[str, str]:
    """What the verbs load, in an example's home."""
    from tests.house.journey import lay_out

    with tempfile.TemporaryDirectory() as place:
        lay_out(folder := Path(place))
        at, recipe = ["--home", str(folder / "home")], str(folder / "once.toml")
        found = {
            "ingest": loaded([*at, "ingest", str(folder / "card.toml")]),
            "run": loaded([*at, "run", recipe]),
            "plan": loaded([*at, "plan", recipe]),
            "ledger show": loaded([*at, "ledger", "show"]),
        }
    return {"modules loaded by " + " / ".join(found): " / ".join(map(str, found.values()))}


def replay(rounds: int = 5) -> str:
    """Processor time of a run that is replayed, beside that of bare imports of numpy, polars and pyarrow."""
    from tests.benchmarks.start_up import processor_seconds
    from tests.house.journey import lay_out

    times: dict[str, list[float]] = {"replay": [], "bare": []}
    with tempfile.TemporaryDirectory() as place:
        lay_out(folder := Path(place))
        at = ["-m", "flows.cli", "--home", str(folder / "home")]
        run = [*at, "run", str(folder / "once.toml")]
        for command in ([*at, "ingest", str(folder / "card.toml")], run):
            processor_seconds(command)
        for _ in range(rounds):
            times["replay"].append(processor_seconds(run))
            times["bare"].append(processor_seconds(["-c", "import numpy, polars, pyarrow"]))
    return f"{statistics.median(times['replay']) / statistics.median(times['bare']):.2f}"


def whole_ingest(rows: int = 2_000_000, rounds: int = 3) -> str:
    """Processor time of the command ``ingest`` beside that of the same ingest within a process that has imported."""
    from tests.benchmarks.ingest_speed import command_beside_process

    with tempfile.TemporaryDirectory() as place:
        return f"{command_beside_process(Path(place), rows, rounds):.2f}"


def main() -> None:
    """Print the figures of a checkout; of this one, what its verbs do as well."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    found = figures(root)
    if root == ROOT:
        from flows.cli import app
        from tests.house.journey import crossed

        found |= loads() | crossed()
        found["verbs at the top level"] = str(len(app.registered_commands) + len(app.registered_groups))
        found["ingest of 2 000 000 rows, command / in process (CPU)"] = whole_ingest()
        found["replaying run / bare imports (CPU)"] = replay()
    for name, figure in found.items():
        print(f"{name:60} {figure}")


if __name__ == "__main__":
    main()
