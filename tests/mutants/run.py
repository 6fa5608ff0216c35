"""The mutation gate: small edits of the code that guards the promise, and the tests that must notice them.

`python -P -m tests.mutants.run` tries those of `mutants.toml` whose file or tests have changed since they were tried,
goes on where it was stopped, and keeps each outcome among the rows of figures; with a number and a seed it tries a
sample.  A server imports the libraries once; each mutant is a fork of it in which one module of ours is loaded from
edited text, and runs the tests that its row names.  A test that compares digests of the code fails at any edit, right
or wrong: marked ``digests``, it counts for no mutant.
"""

import contextlib
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import resource
import signal
import sys
import time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

from tests.campaigns.resumed import Case, resumed
from tests.campaigns.rows import read, write

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MUTANTS = HERE / "mutants.toml"
SHARE, SECONDS = 0.97, 180
COUNTED = "not slow and not digests"
# what the tests import and is not ours: loaded once, before any fork
LIBRARIES = ("numpy", "scipy.stats", "scipy.optimize", "polars", "pyarrow.parquet", "pydantic", "sqlalchemy")
Outcome = Literal["killed", "survived", "out of date", "broken test"]


@dataclass(frozen=True)
class Mutant:
    """One edit: ``old`` stands once in ``file``, and ``new`` takes its place.

    ``tests`` are the ids of those that should notice what it ``breaks``; ``why`` no test can tell, of an accepted
    survivor; ``second``: of the second set, written by someone who had not read the tests.
    """

    file: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]
    why: str = ""
    second: bool = False

    @property
    def module(self) -> str:
        return ".".join(Path(self.file).with_suffix("").parts)

    @property
    def edit(self) -> str:
        """Digest of the edit and of who must notice it."""
        return hashlib.sha256("\n".join((self.file, self.old, self.new, *self.tests)).encode()).hexdigest()[:16]

    def edited(self) -> str | None:
        """The edited text; None if the old text does not stand there exactly once."""
        text = (ROOT / self.file).read_text(encoding="utf-8")
        return text.replace(self.old, self.new) if text.count(self.old) == 1 else None


def mutants() -> list[Mutant]:
    rows = tomllib.loads(MUTANTS.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]


class Edited(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from edited text, everything else as ever."""

    def __init__(self, mutant: Mutant, text: str) -> None:
        self.mutant, self.text = mutant, text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.mutant.module:
            return None
        return importlib.util.spec_from_file_location(fullname, ROOT / self.mutant.file, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.text, str(ROOT / self.mutant.file), "exec"), module.__dict__)


def child(mutant: Mutant, text: str) -> int:
    """In a fork: run the named tests on the edited module; pytest's exit code."""
    import pytest

    sys.meta_path.insert(0, Edited(mutant, text))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    # on a busy machine minutes of the clock are no minutes of work
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-m", COUNTED, *mutant.tests]))


def attempt(mutant: Mutant) -> Outcome:
    """Fork, edit, test; a mutant that takes too long counts as survived: nobody has seen what it breaks."""
    text = mutant.edited()
    if text is None:
        return "out of date"
    if mutant.module in sys.modules:
        raise RuntimeError(f"{mutant.module} is loaded already: no edit of it would be what runs")
    pid = os.fork()
    if pid == 0:
        os.setpgrp()
        code = 4
        try:
            code = child(mutant, text)
        finally:
            os._exit(code)
    end = time.monotonic() + 10 * SECONDS
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return "survived"
        time.sleep(0.02)
    code = os.waitstatus_to_exitcode(status)
    # 3 to 5 of pytest: its own error, no such test, nothing collected; below 0: it took too much of a processor
    return "survived" if code <= 0 else "broken test" if code in (3, 4, 5) else "killed"


def tried(chosen: Iterable[Mutant]) -> list[tuple[Mutant, Outcome]]:
    """Every chosen mutant with its outcome, printed as it comes."""
    for name in LIBRARIES:
        importlib.import_module(name)
    found: list[tuple[Mutant, Outcome]] = []
    for mutant in chosen:
        begun = time.monotonic()
        outcome = attempt(mutant)
        found.append((mutant, outcome))
        print(f"{outcome:12} {time.monotonic() - begun:6.1f} s  {mutant.file}: {mutant.breaks}", flush=True)
    return found


def whole() -> list[Case]:
    """Try every mutant, and keep a row of each."""
    of = {m.edit: m for m in mutants()}

    def row(edit: str) -> Case:
        ((m, outcome),) = tried([of[edit]])
        return {"file": m.file, "breaks": m.breaks, "outcome": outcome, "why": m.why}

    rows = resumed("mutants", list(of), row)
    rows.sort(key=lambda r: (r["file"], r["breaks"]))
    write("mutants", rows)
    return rows


def score(outcomes: Iterable[object]) -> float:
    """Share of the mutants that were killed, among all that are in date."""
    dated = [outcome for outcome in outcomes if outcome != "out of date"]
    return sum(outcome == "killed" for outcome in dated) / max(1, len(dated))


def sample(count: int, seed: int) -> list[Mutant]:
    """``count`` mutants that are not accepted as survivors, drawn by ``seed``."""
    live = [m for m in mutants() if not m.why]
    return random.Random(seed).sample(live, min(count, len(live)))


def page(name: str) -> str:
    """The score by room and by set, and every mutant that was not killed, with its reason."""
    rows = read(name)
    rooms = {r["file"].split("/")[1]: [0, 0] for r in rows}
    for r in rows:
        rooms[r["file"].split("/")[1]][r["outcome"] != "killed"] += 1
    rooms["**all**"] = [sum(of) for of in zip(*rooms.values(), strict=True)]
    second = {(m.file, m.breaks) for m in mutants() if m.second}
    if unread := [r["outcome"] != "killed" for r in rows if (r["file"], r["breaks"]) in second]:
        rooms["of them the second set"] = [len(unread) - sum(unread), sum(unread)]
    lines = ["| room | killed | not killed | share killed |", "|---|---|---|---|"]
    lines += [f"| {room} | {k} | {not_k} | {k / (k + not_k):.3f} |" for room, (k, not_k) in rooms.items()]
    left = [r for r in rows if r["outcome"] != "killed"]
    lines += [""]
    return "\n".join([*lines, *(f"* `{r['file']}`, {r['breaks']}: {r['outcome']}. {r['why']}" for r in left)])


if __name__ == "__main__":
    os.chdir(ROOT)
    if sample_of := [int(word) for word in sys.argv[1:3]]:
        outcomes: list[object] = [outcome for _, outcome in tried(sample(*sample_of))]
    else:
        outcomes = [row["outcome"] for row in whole()]
    print(f"{score(outcomes):.3f} of {len(outcomes)} killed")
    raise SystemExit(score(outcomes) < SHARE)
