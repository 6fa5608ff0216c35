"""The house: imports go to strictly lower floors or stay inside one room (design §2)."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLOORS = {
    "pipeline.privacy": 0,
    "pipeline.mdp": 0,
    "pipeline.declaration": 1,
    "pipeline.environments": 2,
    "pipeline.statistics": 2,
    "pipeline.agents": 3,
    "pipeline.logs": 3,
    "pipeline.ledger": 3,
    "pipeline.evaluation": 3,
    "pipeline.transaction": 4,
    "pipeline.simulation": 4,
    "pipeline.operator": 4,
    "pipeline.learners": 5,
    "pipeline.audits": 5,
    "pipeline.studies": 5,
    "reports": 6,
    "flows.config": 6,
    "flows.jobs": 7,
    "flows.terminal": 7,
    "flows.studies": 8,
    "flows.server": 9,
    "flows.verbs": 10,
    "flows.cli": 11,
}
ONLY_IN = {
    "cvxpy": ("pipeline.statistics.consistency", "pipeline.mdp.occupancy_lp"),
    "prefect": ("flows.server"),
    "distributed": ("pipeline.logs.on_dask",),
    "dask": ("pipeline.logs.on_dask",),
    "polars": ("pipeline.logs", "pipeline.operator", "pipeline.simulation", "reports"),
}
AGENTS_MAY_NOT = (
    "pipeline.logs",
    "pipeline.environments",
    "pipeline.ledger",
    "pipeline.privacy.noise",
    "pipeline.statistics.privatizers",
    "pipeline.statistics.interactive",
    "pipeline.statistics.one_shot",
    "pipeline.statistics.lq_moments",
    "pipeline.statistics.shuffle_counts",
    "pipeline.statistics.batch_privatizers",
    "pipeline.statistics.interactive_counts",
    "pipeline.statistics.interactive_shuffled",
)


def room(module: str) -> str | None:
    parts = module.split(".")
    names = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next((n for n in names if n in FLOORS), None)


def imports() -> list[tuple[str, str, bool]]:
    """(module, imported module, at top level) of every project file."""
    found = []
    for path in sorted(p for top in ("pipeline", "flows", "reports") for p in (ROOT / top).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        tree = ast.parse(path.read_text())
        top = set(map(id, tree.body))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found += [(module, a.name, id(node) in top) for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{module}: relative import"
                found.append((module, node.module or "", id(node) in top))
    return found


def test_imports_go_to_lower_floors_or_stay_in_the_room():
    wrong = []
    for module, imported, _ in imports():
        here, there = room(module), room(imported)
        if there is None or here == there or here is None:
            continue
        if FLOORS[there] >= FLOORS[here]:
            wrong.append(f"{module} (floor {FLOORS[here]}) imports {imported} (floor {FLOORS[there]})")
    assert not wrong, "\n".join(wrong)


def test_every_module_has_a_room():
    modules = {m for m, _, _ in imports()}
    assert not [m for m in modules if room(m) is None and not m.endswith("__init__")]


def test_agents_see_released_values_only():
    assert not [(m, i) for m, i, _ in imports() if m.startswith("pipeline.agents") and i.startswith(AGENTS_MAY_NOT)]


def test_special_libraries_stay_in_their_rooms():
    for library, rooms in ONLY_IN.items():
        users = {m for m, i, _ in imports() if i.split(".")[0] == library}
        assert all(u.startswith(rooms) for u in users), (library, users)


def test_cvxpy_is_imported_lazily_and_datasets_never():
    assert not [m for m, i, top in imports() if top and i.split(".")[0] == "cvxpy"]
    assert not [m for m, i, _ in imports() if i.split(".")[0] == "datasets"]
    assert not list((ROOT / "datasets").rglob("*.py"))


def test_no_pseudo_random_generator_on_the_release_path():
    path = (
        "pipeline.privacy",
        "pipeline.ledger",
        "pipeline.statistics",
        "pipeline.logs",
        "pipeline.transaction.release_once",
        "pipeline.linear",
        "pipeline.lq",
    )
    assert not [(m, i) for m, i, _ in imports() if m.startswith(path) and i in ("random", "numpy.random")]
    for file in (ROOT / "pipeline" / "privacy").glob("*.py"):
        text = file.read_text()
        assert file.name == "noise.py" or "random." not in text, file
    noise = ast.parse((ROOT / "pipeline/privacy/noise.py").read_text())
    os_noise = next(n for n in noise.body if isinstance(n, ast.ClassDef) and n.name == "OsNoise")
    assert "random" not in ast.dump(os_noise).replace("operating-system randomness", "").replace("randomness", "")
