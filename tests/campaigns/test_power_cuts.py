"""A sample of the power cuts."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.campaigns.power_cuts import ALL, REASONS
from tests.campaigns.rows import ROOT

_PROCESS = """
import json, sys
from pathlib import Path
import pytest
from tests.campaigns import power_cuts
from tests.campaigns.power_cuts import ALL, benches, trials

# with all syncs in place; what each of them is good for is the whole campaign's to measure
power_cuts.resumed = lambda _, keys, do: [do(key) if key.endswith(ALL) else {} for key in keys]
asked, rows = set(), []
for bench in benches(Path(sys.argv[1]), pytest.MonkeyPatch(), None):
    bench.restore()
    asked |= {o.by for o in bench.record().operations if o.kind == "sync"}
    rows += trials(bench, 15) if bench.name in ("promote", "purge") else ()
print(json.dumps([sorted(asked), rows]))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[dict[str, Any]]]:
    """Who asks for syncs in any verb, and what a few cuts of two verbs left."""
    # a process that has threads must not be forked: a lock that one of them holds is never given back
    command = [sys.executable, "-P", "-c", _PROCESS, str(tmp_path_factory.mktemp("cuts"))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["promote", "purge"])
def test_a_few_cuts_break_no_promise(found: tuple[list[str], list[dict[str, Any]]], verb: str) -> None:
    [row] = [row for row in found[1] if row["verb"] == verb and row["taken out"] == ALL]
    assert row["laid down"] > 5 and row["broken"] == 0, row


# what forces something to disk, wherever it is called
FORCING = ("sync", "sync_all", "put_in_place", "whole_file", "whole_folder", "make_folder", "private_folder")


def forcing(node: ast.AST, within: str) -> Iterator[str]:
    """Functions that call one of these, by their names below ``pipeline``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            name = getattr(child.func, "attr", getattr(child.func, "id", ""))
            if name in FORCING:
                yield within
        inner = f"{within.rpartition('.')[0]}.{child.name}" if isinstance(child, ast.FunctionDef) else within
        yield from forcing(child, inner)


@pytest.mark.slow
def test_every_function_that_forces_is_recorded_or_named(found: tuple[list[str], list[dict[str, Any]]]) -> None:
    there = set[str]()
    for file in (f for room in ("pipeline", "flows", "reports") for f in (ROOT / room).rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removeprefix("pipeline.")
        if module not in ("disk", "files"):
            there |= set(forcing(ast.parse(file.read_text(encoding="utf-8")), f"{module}."))
    recorded = {by.partition("< ")[2].rpartition(":")[0] for by in found[0]}
    named = set(REASONS["elsewhere"])
    assert there - recorded == named, (there - recorded - named, named - (there - recorded))
