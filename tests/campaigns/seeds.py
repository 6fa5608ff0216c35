"""Do statistical tests pass by the luck of their seed?  ``python -P -m tests.campaigns.seeds [SHIFTS]``.

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

from tests.campaigns.rows import ROOT, read, write

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


def keep(shifts: int) -> list[dict[str, Any]]:
    """Write a row a test that draws: in how many runs, and in how many of them it failed."""
    of = defaultdict[str, list[dict[str, Any]]](list)
    for told in _told():
        of[told["test"]].append(told)
    rows = [
        {"test": test, "runs": len(runs), "failed": sum(r["failed"] for r in runs)}
        for test, told in sorted(of.items())
        if any(t["drawn"] for t in told) and (runs := [t for t in told if t["shift"]])
    ]
    write("seeds", rows, f"every seed shifted by 1 .. {shifts}")
    return rows


def main(shifts: int) -> int:
    """Run the tests under every shift that is not there yet; 1 where a test failed more often than once in 200.

    With RETICENT_SEED_FOUND set, runs are kept in that file, and a campaign that broke off goes on where it was.
    """
    with tempfile.TemporaryDirectory(prefix="reticent-seeds-") as folder:
        os.environ.setdefault(FOUND, str(Path(folder) / "found"))
        flags = ["-q", "--tb=line", "-p", "no:cacheprovider", "-p", "tests.campaigns.seeds"]
        rows: list[dict[str, Any]] = []
        for shift in range(1, shifts + 1):
            if shift not in {t["shift"] for t in _told()}:
                asked = [sys.executable, "-P", "-m", "pytest", *flags, *(f"tests/{room}" for room in ROOMS)]
                subprocess.run(asked, cwd=ROOT, env={**os.environ, SHIFT: str(shift)}, check=False)
            rows = keep(shift)
    return int(200 * sum(r["failed"] for r in rows) > sum(r["runs"] for r in rows))


def page(name: str) -> str:
    """How many tests under how many seeds, and those that failed."""
    rows = read(name)
    runs, failed = (sum(int(r[k]) for r in rows) for k in ("runs", "failed"))
    lines = ["| tests that draw | runs | failed | share |", "|---|---|---|---|"]
    lines += [f"| {len(rows)} | {runs} | {failed} | {failed / max(1, runs):.5f} |", ""]
    return "\n".join([*lines, *(f"* `{r['test']}`: {r['failed']} of {r['runs']}" for r in rows if r["failed"] != "0")])


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
