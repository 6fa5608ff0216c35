"""Do statistical tests pass by the luck of their seed?  ``python -P -m tests.campaigns.seeds [SHIFTS] [--minutes M]``.

Every seeded generator that a test, or the code under it, makes is given another seed under each of SHIFTS shifts (this
module is the plug-in of pytest that does it), and the operating system's noise is other noise anyway.  The first shift
finds out which tests draw; the further ones run those alone.  ``results/seeds.csv`` has a row a test, slow ones too:
what it draws, under how many shifts it ran, and under which it failed; a row whose code has changed is measured anew.
So the campaign goes on where it was, and may be run a few minutes at a time.  A seed that is no chance but an example,
such as a chosen world, is drawn by ``Generator(PCG64(seed))``: it stays.

``RETICENT_SEED_SHIFT=7 python -P -m pytest -p tests.campaigns.seeds TEST`` runs one test under the seventh shift.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.privacy.csprng import Words
from tests.campaigns.rows import ROOT, out_of_date, place, read, store, write

NAME = "seeds"
SHIFT, FOUND, UNTIL, LONGEST = (f"RETICENT_SEED_{word}" for word in ("SHIFT", "FOUND", "UNTIL", "LONGEST"))
# where tests draw; elsewhere seeds only make logs
ROOMS = "agents environments evaluation learners mdp privacy simulation statistics studies audits"
# a seed here says which world or which shipped log: an example, no chance
EXAMPLES = ("pipeline.environments", "pipeline.simulation.synthetic")
NOTHING = "nothing"
# what tests of one file share, so that only the first of them is seen to draw it
_SHARED = ('scope="module"', "@cache")
_UNSHIFTED, _FRESH = np.random.default_rng, Words.__init__
# of the test that runs: what it drew, whether a phase failed, and its seconds
_now: dict[str, Any] = {}


def shifted(seed: Any = None) -> np.random.Generator:
    """What ``numpy.random.default_rng`` gives for another seed; a generator, or none, is taken as it is."""
    if seed is None:
        _now["draws"].add("noise")
    unseeded = seed is None or isinstance(seed, np.random.Generator | np.random.BitGenerator)
    if unseeded or sys._getframe(1).f_globals["__name__"].startswith(EXAMPLES):
        return _UNSHIFTED(seed)
    _now["draws"].add("seeds")
    of = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    entropy = of.entropy if isinstance(of.entropy, list | tuple) else [of.entropy]
    return _UNSHIFTED(np.random.SeedSequence([*entropy, int(os.environ[SHIFT])], spawn_key=of.spawn_key))


def _opened(words: Words) -> None:
    """A stream of the operating system's words is opened: noted."""
    _now["draws"].add("noise")
    _FRESH(words)


def _test(nodeid: str) -> str:
    """The test of which this is one case."""
    return nodeid.partition("[")[0]


def _tell(told: Any) -> None:
    if FOUND in os.environ:
        with Path(os.environ[FOUND]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(told) + "\n")


def known() -> dict[str, dict[str, str]]:
    """The rows of tests whose code is still what ran."""
    rows = read(NAME) if place(NAME).is_file() else []
    return {r["test"]: r for r in rows if not out_of_date(NAME, r)}


def due(row: dict[str, str] | None, shift: int, longest: float) -> bool:
    """Whether a test runs under a shift: one that nobody knows under the first, one that draws under its next."""
    if row is None:
        return shift == 1
    return row["draws"] != NOTHING and int(row["shifts"]) == shift - 1 and float(row["seconds"]) <= longest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not due, and tell how many cases each test has that is."""
    if FOUND in os.environ:
        rows, shift, longest = known(), int(os.environ[SHIFT]), float(os.environ[LONGEST])
        kept = [i for i in items if due(rows.get(_test(i.nodeid)), shift, longest)]
        _tell({"there": sorted({_test(i.nodeid) for i in items}), "cases": Counter(_test(i.nodeid) for i in kept)})
        config.hook.pytest_deselected(items=[i for i in items if i not in set(kept)])
        items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Shift every seed while a test runs, not while it is collected; begin none when the time is over."""
    if time.time() > float(os.environ.get(UNTIL, "inf")):
        item.session.shouldstop = "the minutes of the campaign are over"
    _now.update(draws=set(), failed=False, seconds=0.0)
    np.random.default_rng, Words.__init__ = shifted, _opened
    try:
        return (yield)
    finally:
        np.random.default_rng, Words.__init__ = _UNSHIFTED, _FRESH


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep what the test drew, whether it failed in any phase, and how long it took."""
    _now["failed"] |= report.failed
    _now["seconds"] += report.duration
    if report.when == "teardown":
        _tell({"case": report.nodeid, **_now, "draws": sorted(_now["draws"])})


def keep(shift: int, told: list[dict[str, Any]]) -> None:
    """Write a row for each test of which all cases ran; forget tests that are no more."""
    collected, rows = told[0], known()
    ran = defaultdict[str, list[dict[str, Any]]](list)
    by_file = defaultdict[str, set[str]](set)
    for case in told[1:]:
        ran[_test(case["case"])].append(case)
        by_file[case["case"].partition("::")[0]] |= set(case["draws"])
    fresh: list[dict[str, Any]] = []
    for test, cases in ran.items():
        if len(cases) < collected["cases"][test]:
            continue
        before = rows.get(test, {"draws": NOTHING, "runs": "0", "failed": "0", "under": ""})
        file = test.partition("::")[0]
        shared = any(word in (ROOT / file).read_text(encoding="utf-8") for word in _SHARED)
        draws = by_file[file] if shared else {d for c in cases for d in c["draws"]}
        draws = draws | set(before["draws"].split()) - {NOTHING}
        failing = [f"{shift}{c['case'].removeprefix(test)}" for c in cases if c["failed"]]
        fresh.append({
            "test": test, "cases": len(cases), "draws": " ".join(sorted(draws)) or NOTHING, "shifts": shift,
            "runs": int(before["runs"]) + len(cases), "failed": int(before["failed"]) + len(failing),
            "under": "; ".join([*filter(None, [before["under"]]), *failing]),
            "seconds": round(sum(c["seconds"] for c in cases), 2),
        })  # fmt: skip
    there, files = set(collected["there"]), {test.partition("::")[0] for test in collected["there"]}
    elsewhere = {t for t in rows if (file := t.partition("::")[0]) not in files and (ROOT / file).is_file()}
    still = [r for test, r in rows.items() if test in there | elsewhere]
    place(NAME).unlink(missing_ok=True)
    if still:
        store(NAME, still)
    if fresh:
        # how many minutes it had decides which rows there are, and none of their numbers
        of = "python -P -m tests.campaigns.seeds"
        write(NAME, fresh, "every seed shifted by 1 .. the number of shifts", ["test"], of)


def main(words: list[str]) -> int:
    """Run what is due under each shift, as long as there is time; 1 where a test failed more often than once in 200."""
    asked = argparse.ArgumentParser()
    asked.add_argument("shifts", nargs="?", type=int, default=20)
    asked.add_argument("--minutes", type=float, default=1e6, help="begin no test after so many")
    asked.add_argument("--longest", type=float, default=1e6, help="leave tests that take more seconds for another time")
    asked.add_argument("--of", nargs="+", default=[f"tests/{room}" for room in ROOMS.split()], help="files, folders")
    asked = asked.parse_args(words)
    until = time.time() + 60 * asked.minutes
    flags = ["-q", "--tb=short", "-p", "no:cacheprovider", "-p", "tests.campaigns.seeds", "-m", "not campaign"]
    for shift in range(1, asked.shifts + 1):
        if time.time() > until or (shift > 1 and not any(due(r, shift, asked.longest) for r in known().values())):
            continue
        with tempfile.TemporaryDirectory(prefix="reticent-seeds-") as folder:
            found = Path(folder) / "found"
            asking = {SHIFT: str(shift), FOUND: str(found), UNTIL: str(until), LONGEST: str(asked.longest)}
            run = [sys.executable, "-P", "-m", "pytest", *flags, *asked.of]
            subprocess.run(run, cwd=ROOT, env={**os.environ, **asking}, check=False)
            keep(shift, [json.loads(line) for line in found.read_text(encoding="utf-8").splitlines()])
    rows = [r for r in known().values() if r["draws"] != NOTHING]
    return int(200 * sum(int(r["failed"]) for r in rows) > sum(int(r["runs"]) for r in rows))


def page(name: str) -> str:
    """How many tests of each room draw, under how many shifts they ran, how often they failed; and those that did."""
    rows = read(name)
    of = defaultdict[str, list[dict[str, str]]](list)
    for row in rows:
        of[row["test"].split("/")[1]].append(row)
    lines = ["| tests of | cases | that draw nothing | that draw | shifts | runs | failed | share |", "|---" * 8 + "|"]
    for room, told in [*sorted(of.items()), ("**all**", rows)]:
        drawing = [r for r in told if r["draws"] != NOTHING]
        still, moved, runs, failed = (
            sum(int(r[k]) for r in part)
            for part, k in ((told, "cases"), (drawing, "cases"), (drawing, "runs"), (drawing, "failed"))
        )
        shifts = sorted({int(r["shifts"]) for r in drawing})
        between = " to ".join(map(str, sorted({shifts[0], shifts[-1]}))) if shifts else ""
        share = f"{failed / runs:.5f}" if runs else ""
        lines.append(f"| {room} | {still} | {still - moved} | {moved} | {between} | {runs} | {failed} | {share} |")
    bad = [r for r in rows if r["failed"] != "0"]
    lines += ["", *(f"* `{r['test']}`: {r['failed']} of {r['runs']}, under {r['under']}" for r in bad)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
