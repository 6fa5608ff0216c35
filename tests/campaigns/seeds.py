"""Do statistical tests pass by the luck of their seed?  ``python -P -m tests.campaigns.seeds [SHIFTS] [TESTS ...]``.

Every seeded generator that a test, or the code under it, makes is given another seed in each of SHIFTS runs (this
module is the plug-in of pytest that does it).  ``results/seeds.csv`` says how often each test that draws failed.  A
seed that is no chance but an example, such as a chosen world, is drawn by ``Generator(PCG64(seed))``: it stays.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.campaigns.rows import ROOT, write

SHIFT, FOUND = "RETICENT_SEED_SHIFT", "RETICENT_SEED_FOUND"
# where tests draw; elsewhere seeds only make logs
ROOMS = ("agents", "environments", "evaluation", "learners", "mdp", "privacy", "simulation", "statistics")
# a seed here says which world or which shipped log: an example, no chance
EXAMPLES = ("pipeline.environments", "pipeline.simulation.synthetic")
_UNSHIFTED = np.random.default_rng
_drawn = 0


def shifted(seed: Any = None) -> np.random.Generator:
    """What ``numpy.random.default_rng`` gives for another seed; a generator, or none, is taken as it is."""
    global _drawn
    unseeded = seed is None or isinstance(seed, np.random.Generator | np.random.BitGenerator)
    if unseeded or sys._getframe(1).f_globals["__name__"].startswith(EXAMPLES):
        return _UNSHIFTED(seed)
    _drawn += 1
    of = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    entropy = of.entropy if isinstance(of.entropy, list | tuple) else [of.entropy]
    return _UNSHIFTED(np.random.SeedSequence([*entropy, int(os.environ[SHIFT])], spawn_key=of.spawn_key))


def _told() -> list[dict[str, Any]]:
    path = Path(os.environ[FOUND])
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After the first run, leave out tests that draw nothing themselves or by a fixture of their module."""
    if told := _told():
        drawing = {t["test"] for t in told if t["drawn"]}
        shared = {name for t in drawing if 'scope="module"' in (ROOT / (name := t.partition("::")[0])).read_text()}
        kept = [i for i in items if i.nodeid in drawing or i.nodeid.partition("::")[0] in shared]
        config.hook.pytest_deselected(items=[i for i in items if i not in kept])
        items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Shift every seed while a test runs, not while it is collected."""
    global _drawn
    _drawn, np.random.default_rng = 0, shifted
    try:
        return (yield)
    finally:
        np.random.default_rng = _UNSHIFTED


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep whether the test failed, and whether it had drawn."""
    if report.when == "call" or report.failed:
        told = {"test": report.nodeid, "shift": int(os.environ[SHIFT]), "drawn": _drawn > 0, "failed": report.failed}
        with Path(os.environ[FOUND]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


def main(shifts: int, tests: list[str]) -> int:
    """Run the tests under every shift, keep how often each failed; 1 where more than one in 200 did."""
    with tempfile.TemporaryDirectory(prefix="reticent-seeds-") as folder:
        os.environ[FOUND] = str(Path(folder) / "found")
        for shift in range(1, shifts + 1):
            flags = ["-q", "--tb=no", "-p", "no:cacheprovider", "-p", "tests.campaigns.seeds"]
            subprocess.run(
                [sys.executable, "-P", "-m", "pytest", *flags, *(tests or (f"tests/{room}" for room in ROOMS))],
                cwd=ROOT, env={**os.environ, SHIFT: str(shift)}, check=False,
            )  # fmt: skip
        of = defaultdict[str, list[dict[str, Any]]](list)
        for told in _told():
            of[told["test"]].append(told)
    rows = [
        {"test": test, "runs": len(t), "failed": sum(x["failed"] for x in t)}
        for test, t in sorted(of.items())
        if len(t) > 1 or t[0]["drawn"]
    ]
    write("seeds", rows, f"every seed shifted by 1 .. {shifts}", ["test"] if tests else ())
    for r in rows:
        if r["failed"]:
            print(r)
    return int(200 * sum(r["failed"] for r in rows) > sum(r["runs"] for r in rows))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, sys.argv[2:]))
