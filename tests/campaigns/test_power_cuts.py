"""A sample of the power cuts."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaigns.power_cuts import REASONS
from tests.campaigns.rows import ROOT

_RECORD = """
import json, sys
from pathlib import Path
import pytest
from tests.campaigns.power_cuts import benches

asked = set()
for bench in benches(Path(sys.argv[1]), pytest.MonkeyPatch(), None):
    bench.restore()
    asked |= {o.by for o in bench.record().operations if o.kind == "sync"}
print(json.dumps(sorted(asked)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["promote", "purge"])
def test_a_few_cuts_break_no_promise(verb: str) -> None:
    command = [sys.executable, "-P", "-m", "tests.campaigns.power_cuts", "--verb", verb, "--most", "15", "--dry"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


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
def test_every_function_that_forces_is_recorded_or_named(tmp_path: Path) -> None:
    there = set[str]()
    for file in (f for room in ("pipeline", "flows", "reports") for f in (ROOT / room).rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removeprefix("pipeline.")
        if module not in ("disk", "files"):
            there |= set(forcing(ast.parse(file.read_text(encoding="utf-8")), f"{module}."))
    # a process that has threads must not be forked: a lock that one of them holds is never given back
    command = [sys.executable, "-P", "-c", _RECORD, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    recorded = {by.partition("< ")[2].rpartition(":")[0] for by in json.loads(done.stdout.splitlines()[-1])}
    named = set(REASONS["elsewhere"])
    assert there - recorded == named, (there - recorded - named, named - (there - recorded))
